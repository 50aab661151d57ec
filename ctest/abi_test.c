/* The rules of the C ABI for every function: R70, R71, R72, R73. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {4096, 4096, 16384};

/* One call of every function that takes a store, with arguments that are right. */
struct call {
    const char *name;
    kvpath_status_t (*run)(kvpath_store_t store);
};

static void *the_addrs[1] = {&the_addrs};
static kvpath_shard_t the_shard = {.addr_count = 1, .addrs = the_addrs};
static kvpath_block_id_t the_id;

/* Outputs must stay as they were when a call fails. */
static struct {
    kvpath_task_t task;
    int64_t index;
    size_t count;
    int32_t fd;
    uint8_t byte;
    char text[8];
} out;

#define CALL(name, ...)                                                                            \
    static kvpath_status_t call_##name(kvpath_store_t store) { return kvpath_##name(__VA_ARGS__); }

CALL(load, store, &the_shard, 1, &out.task)
CALL(dump, store, &the_shard, 1, &out.task)
CALL(check, store, 1, &out.byte)
CALL(wait, store, 1, 1)
CALL(wait_results, store, 1, 1, &(kvpath_status_t){0}, 1)
CALL(cancel, store, 1)
CALL(forget, store, 1)
CALL(finished, store, &out.task, 1, &out.count)
CALL(event_fd, store, &out.fd)
CALL(lookup, store, &the_id, 1, &out.byte)
CALL(lookup_prefix, store, &the_id, 1, &out.index)
CALL(lookup_last, store, &the_id, 1, &out.index)
CALL(commit, store, &the_id, 1)
CALL(remove, store, &the_id, 1)
CALL(check_health, store)
CALL(health, store, &(kvpath_backend_health_t){.size = sizeof(kvpath_backend_health_t)}, 1,
     &out.count)
CALL(health_json, store, NULL, 0, &out.count)
CALL(backend_set, store, "/nowhere", KVPATH_BACKEND_SET_AUTO)
CALL(stats, store, &(kvpath_stats_t){.size = sizeof(kvpath_stats_t)})
CALL(stats_json, store, NULL, 0, &out.count)
CALL(metrics, store, NULL, 0, &out.count)
CALL(close, store)

#define ENTRY(name)                                                                                \
    {                                                                                              \
#name, call_##name                                                                         \
    }
static const struct call calls[] = {
    ENTRY(load),         ENTRY(dump),        ENTRY(check),         ENTRY(wait),
    ENTRY(wait_results), ENTRY(cancel),      ENTRY(forget),        ENTRY(finished),
    ENTRY(event_fd),     ENTRY(lookup),      ENTRY(lookup_prefix), ENTRY(lookup_last),
    ENTRY(commit),       ENTRY(remove),      ENTRY(check_health),  ENTRY(health),
    ENTRY(health_json),  ENTRY(backend_set), ENTRY(stats),         ENTRY(stats_json),
    ENTRY(metrics),      ENTRY(close)};
enum { CALLS = sizeof calls / sizeof *calls };

static void every_call_gives(kvpath_store_t store, kvpath_status_t expected)
{
    for (size_t at = 0; at < CALLS; at++) {
        memset(&out, 0x55, sizeof out);
        kvpath_status_t status = calls[at].run(store);
        if (status != expected)
            FAIL("%s of store %llu gave %s (%s), not %s", calls[at].name, (unsigned long long)store,
                 kvpath_status_name(status), kvpath_last_error(), kvpath_status_name(expected));
        if (kvpath_last_error()[0] == '\0') FAIL("%s: no text", calls[at].name);
        CHECK_EQ(kvpath_last_detail(), expected);
        for (size_t byte = 0; byte < sizeof out; byte++)
            if (((unsigned char *)&out)[byte] != 0x55) FAIL("%s wrote an output", calls[at].name);
    }
}

CASE(stores_that_never_were)
{
    static const kvpath_store_t never[] = {0, 1, 77, UINT64_MAX, (kvpath_store_t)INT64_MAX + 1};
    for (size_t at = 0; at < 5; at++) every_call_gives(never[at], KVPATH_INVALID_PARAM);
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    every_call_gives(store + 1, KVPATH_INVALID_PARAM);
    CHECK_OK(kvpath_close(store));
}

CASE(use_after_close)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    CHECK_OK(kvpath_close(store));
    every_call_gives(store, KVPATH_CLOSED);
    kvpath_store_t second = open_root(root, shape, "");
    CHECK(second != store); /* a number is never used again */
    every_call_gives(store, KVPATH_CLOSED);
    CHECK_OK(kvpath_close(second));
}

/* R73. The child only exits, as it must. */
CASE(fork_child_gets_forked_from_every_call)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    const char *json = config(text("\"%s\"", root), shape, "");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        kvpath_store_t other = 77;
        CHECK_STATUS(kvpath_open(json, &other), KVPATH_FORKED);
        CHECK_EQ(other, 77);
        CHECK_HAS(kvpath_last_error(), "fork");
        CHECK_STATUS(kvpath_set_log_callback(NULL, 0, NULL), KVPATH_FORKED);
        CHECK(kvpath_alloc(4096) == NULL);
        every_call_gives(store, KVPATH_FORKED);
        every_call_gives(0, KVPATH_FORKED);
        CHECK(strcmp(kvpath_status_name(KVPATH_FORKED), "KVPATH_FORKED") == 0);
        CHECK(kvpath_version()[0] != '\0' && kvpath_api(KVPATH_ABI_VERSION) != NULL);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    batch_t *block = batch(shape, 1, 1, 0); /* the parent goes on */
    dump_batch(store, block);
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

/* Fork while other threads are inside calls: no lock of theirs may be waited for in the child. */
static void *call_for_ever(void *argument)
{
    kvpath_store_t store = *(kvpath_store_t *)argument;
    uint8_t found;
    kvpath_block_id_t id = block_id(1);
    kvpath_stats_t stats = {.size = sizeof stats};
    while (kvpath_lookup(store, &id, 1, &found) == KVPATH_OK &&
           kvpath_stats(store, &stats) == KVPATH_OK) {
    }
    CHECK_EQ(kvpath_last_detail(), KVPATH_CLOSED);
    return NULL;
}

CASE(fork_during_calls)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    pthread_t threads[2];
    for (int at = 0; at < 2; at++)
        CHECK(pthread_create(&threads[at], NULL, call_for_ever, &store) == 0);
    for (int round = 0; round < 50; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(60); /* a lock that is never given back ends here */
            for (size_t at = 0; at < CALLS; at++)
                if (calls[at].run(store) != KVPATH_FORKED) _exit(1);
            _exit(0);
        }
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK_OK(kvpath_close(store));
    for (int at = 0; at < 2; at++) CHECK(pthread_join(threads[at], NULL) == 0);
}

CASE(null_pointers)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    kvpath_task_t task = 0;
    size_t count = 0;
    void *no_addr[1] = {NULL};
    kvpath_shard_t shard = {.addr_count = 1, .addrs = NULL};
#define REFUSED(call) CHECK_STATUS(call, KVPATH_INVALID_PARAM)
    REFUSED(kvpath_open(NULL, NULL));
    REFUSED(kvpath_load(store, NULL, 1, &task));
    REFUSED(kvpath_load(store, &shard, 1, &task));
    shard.addrs = no_addr;
    REFUSED(kvpath_load(store, &shard, 1, &task));
    REFUSED(kvpath_dump(store, &shard, 1, &task));
    shard.addrs = the_addrs;
    REFUSED(kvpath_load(store, &shard, 1, NULL));
    REFUSED(kvpath_dump(store, &shard, 1, NULL));
    REFUSED(kvpath_dump(store, NULL, 0, NULL));
    REFUSED(kvpath_check(store, 1, NULL));
    REFUSED(kvpath_wait_results(store, 1, 1, NULL, 1));
    REFUSED(kvpath_finished(store, NULL, 1, &count));
    REFUSED(kvpath_finished(store, &task, 1, NULL));
    REFUSED(kvpath_event_fd(store, NULL));
    REFUSED(kvpath_lookup(store, NULL, 1, (uint8_t[1]){0}));
    REFUSED(kvpath_lookup(store, &the_id, 1, NULL));
    REFUSED(kvpath_lookup_prefix(store, NULL, 1, (int64_t[1]){0}));
    REFUSED(kvpath_lookup_prefix(store, &the_id, 1, NULL));
    REFUSED(kvpath_lookup_last(store, NULL, 1, (int64_t[1]){0}));
    REFUSED(kvpath_lookup_last(store, &the_id, 1, NULL));
    REFUSED(kvpath_commit(store, NULL, 1));
    REFUSED(kvpath_remove(store, NULL, 1));
    REFUSED(kvpath_health(store, NULL, 1, &count));
    REFUSED(kvpath_health(store, NULL, 0, NULL));
    REFUSED(kvpath_health_json(store, NULL, 0, NULL));
    REFUSED(kvpath_health_json(store, NULL, 10, &count));
    REFUSED(kvpath_stats_json(store, NULL, 0, NULL));
    REFUSED(kvpath_metrics(store, NULL, 0, NULL));
    REFUSED(kvpath_backend_set(store, NULL, KVPATH_BACKEND_SET_OUT));
    REFUSED(kvpath_stats(store, NULL));
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
    kvpath_free(NULL);
    CHECK_EQ(stats_of(store).tasks, 0);
    CHECK_OK(kvpath_close(store));
}

CASE(bad_lengths_and_alignment)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    kvpath_task_t task = 0;
    void *addrs[2] = {addrs, addrs};
    kvpath_shard_t shard = {.index = 4, .addr_count = 1, .addrs = addrs};
    REFUSED(kvpath_dump(store, &shard, 1, &task));
    CHECK_HAS(kvpath_last_error(), "index");
    shard.index = UINT32_MAX;
    REFUSED(kvpath_load(store, &shard, 1, &task));
    shard.index = 0;
    for (uint32_t bad = 0; bad < 3; bad += 2) {
        shard.addr_count = bad;
        REFUSED(kvpath_dump(store, &shard, 1, &task));
        CHECK_HAS(kvpath_last_error(), "addr_count");
    }
    shard.addr_count = 1;
    addrs[0] = (void *)(UINTPTR_MAX - 100); /* + tensor_size wraps around */
    REFUSED(kvpath_load(store, &shard, 1, &task));
    addrs[0] = addrs;
    REFUSED(kvpath_load(store, &shard, SIZE_MAX, &task));
    REFUSED(kvpath_load(store, &shard, SIZE_MAX / sizeof shard, &task));
    REFUSED(kvpath_load(store, (kvpath_shard_t *)((char *)&shard + 1), 1, &task));
    REFUSED(kvpath_lookup(store, &the_id, SIZE_MAX, &out.byte));
    REFUSED(kvpath_remove(store, &the_id, SIZE_MAX));
    REFUSED(kvpath_check(store, 1, NULL));
    REFUSED(kvpath_load(store, &shard, 1, (kvpath_task_t *)((char *)&task + 1)));
    REFUSED(kvpath_set_log_callback((kvpath_log_fn)abort, 5, NULL));
    REFUSED(kvpath_set_log_callback((kvpath_log_fn)abort, 0, NULL));
    CHECK_OK(kvpath_close(store));
}

/* Counts that no memory holds, with a pointer that could be good: nothing is as large as the count
 * says before it was compared with what there can be. */
CASE(counts_that_nothing_has)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    kvpath_task_t task = 0;
    void *addrs[1] = {addrs};
    kvpath_shard_t shard = {.index = 0, .addr_count = 1, .addrs = addrs};
    for (int bit = 21; bit < 64; bit++) {
        size_t count = (size_t)1 << bit;
        int64_t index = 7;
        REFUSED(kvpath_load(store, &shard, count, &task));
        CHECK_HAS(kvpath_last_error(), text("%zu", count));
        REFUSED(kvpath_dump(store, &shard, count, &task));
        REFUSED(kvpath_lookup(store, &the_id, count, &out.byte));
        CHECK_HAS(kvpath_last_error(), text("%zu", count));
        REFUSED(kvpath_lookup_prefix(store, &the_id, count, &index));
        REFUSED(kvpath_lookup_last(store, &the_id, count, &index));
        REFUSED(kvpath_remove(store, &the_id, count));
        CHECK_EQ(index, 7);
    }
    CHECK_EQ(task, 0);
    CHECK_EQ(stats_of(store).tasks, 0);
    CHECK_OK(kvpath_close(store));
}

CASE(reports_into_small_buffers)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    report_fn reports[] = {kvpath_stats_json, kvpath_health_json};
    for (size_t at = 0; at < 2; at++) {
        char small[16] = "unchanged";
        size_t length = 0;
        REFUSED(reports[at](store, small, sizeof small, &length));
        CHECK(length > sizeof small);
        CHECK(strcmp(small, "unchanged") == 0);
        CHECK_HAS(kvpath_last_error(), "16");
    }
    kvpath_stats_t stats = {.size = 3};
    REFUSED(kvpath_stats(store, &stats));
    kvpath_backend_health_t health = {.size = 7};
    size_t count = 0;
    REFUSED(kvpath_health(store, &health, 1, &count));
    CHECK_OK(kvpath_close(store));
}

CASE(status_names_and_texts)
{
    static const struct {
        kvpath_status_t status;
        const char *name;
    } all[] = {{KVPATH_OK, "KVPATH_OK"},
               {KVPATH_ERROR, "KVPATH_ERROR"},
               {KVPATH_INVALID_PARAM, "KVPATH_INVALID_PARAM"},
               {KVPATH_OUT_OF_MEMORY, "KVPATH_OUT_OF_MEMORY"},
               {KVPATH_OS_ERROR, "KVPATH_OS_ERROR"},
               {KVPATH_DUPLICATE_KEY, "KVPATH_DUPLICATE_KEY"},
               {KVPATH_RETRY, "KVPATH_RETRY"},
               {KVPATH_NOT_FOUND, "KVPATH_NOT_FOUND"},
               {KVPATH_UNSUPPORTED, "KVPATH_UNSUPPORTED"},
               {KVPATH_NO_SPACE, "KVPATH_NO_SPACE"},
               {KVPATH_TIMEOUT, "KVPATH_TIMEOUT"},
               {KVPATH_STORE_UNHEALTHY, "KVPATH_STORE_UNHEALTHY"},
               {KVPATH_CORRUPT, "KVPATH_CORRUPT"},
               {KVPATH_FORKED, "KVPATH_FORKED"},
               {KVPATH_CLOSED, "KVPATH_CLOSED"},
               {KVPATH_CANCELLED, "KVPATH_CANCELLED"}};
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        CHECK(strcmp(kvpath_status_name(all[at].status), all[at].name) == 0);
        CHECK(kvpath_status_text(all[at].status)[0] != '\0');
    }
    CHECK(strcmp(kvpath_status_name(1), "KVPATH_UNKNOWN") == 0);
    CHECK(strcmp(kvpath_status_name(INT32_MIN), "KVPATH_UNKNOWN") == 0);
}

CASE(versions)
{
    CHECK(strcmp(kvpath_version(), KVPATH_TEST_VERSION) == 0); /* from Cargo.toml, by CMake */
    CHECK_EQ(kvpath_abi_version(), KVPATH_ABI_VERSION);
    CHECK(kvpath_api(0) == NULL);
    CHECK(kvpath_api(KVPATH_ABI_VERSION + 1) == NULL);
}

static void *last_error_elsewhere(void *unused)
{
    (void)unused;
    CHECK(kvpath_last_error()[0] == '\0');
    CHECK_EQ(kvpath_last_detail(), 0);
    CHECK_STATUS(kvpath_check_health(UINT64_MAX), KVPATH_INVALID_PARAM);
    return NULL;
}

CASE(last_error_is_of_its_thread)
{
    pthread_t thread;
    CHECK_STATUS(kvpath_open("{", (kvpath_store_t[1]){0}), KVPATH_INVALID_PARAM);
    const char *mine = text("%s", kvpath_last_error());
    CHECK(pthread_create(&thread, NULL, last_error_elsewhere, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(kvpath_last_error(), mine) == 0);
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    CHECK(strcmp(kvpath_last_error(), mine) == 0); /* a success leaves it alone */
    CHECK_OK(kvpath_close(store));
}

CASE(alloc_and_free)
{
    static const size_t sizes[] = {1, 4095, 4096, 1 << 20, 2 << 20, (64 << 20) + 1};
    CHECK(kvpath_alloc(0) == NULL);
    CHECK(kvpath_alloc(SIZE_MAX) == NULL);
    CHECK(kvpath_last_error()[0] != '\0');
    CHECK(kvpath_alloc(SIZE_MAX / 2) == NULL);
    for (size_t at = 0; at < sizeof sizes / sizeof *sizes; at++) {
        unsigned char *memory = kvpath_alloc(sizes[at]);
        CHECK(memory != NULL);
        CHECK_EQ((uintptr_t)memory % 4096, 0);
        memory[0] = memory[sizes[at] - 1] = 7;
        kvpath_free(memory + 1); /* not ours: ignored */
        CHECK_EQ(memory[sizes[at] - 1], 7);
        kvpath_free(memory);
        kvpath_free(memory); /* again: ignored */
    }
    int on_the_stack;
    kvpath_free(&on_the_stack);
    CHECK(kvpath_last_error()[0] != '\0');
}
