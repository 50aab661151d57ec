/* The log callback, the library's threads, and its reports: R74, R91, R92. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"
#include "json.h"

static const shape_t shape = {4096, 4096, 16384};

/* ---- log ---- */

struct heard {
    int count;
    int32_t level;
    char id[16], text[1024], thread[32];
    pid_t thread_id;
};

static void hear(int32_t level, const char *id, const char *message, void *user)
{
    struct heard *heard = user;
    heard->level = level;
    snprintf(heard->id, sizeof heard->id, "%s", id);
    snprintf(heard->text, sizeof heard->text, "%s", message);
    prctl(PR_GET_NAME, heard->thread);
    heard->thread_id = (pid_t)syscall(SYS_gettid);
    heard->count++;
}

/* Opening with an unknown key warns once (R2); closing delivers what is queued. */
static void warn_once(const char *root, const char *key)
{
    CHECK_OK(kvpath_close(open_root(root, shape, text(", \"%s\": 1", key))));
}

CASE(log_callback)
{
    const char *root = temp_dir();
    struct heard heard = {0};
    CHECK_OK(kvpath_set_log_callback(hear, KVPATH_LOG_WARN, &heard));
    warn_once(root, "time_out_ms");
    CHECK_EQ(heard.count, 1);
    CHECK_EQ(heard.level, KVPATH_LOG_WARN);
    CHECK_HAS(heard.text, "time_out_ms");
    CHECK_HAS(heard.text, "timeout_ms"); /* the nearest known name */
    CHECK(strncmp(heard.id, "KV", 2) == 0);
    CHECK(strncmp(heard.thread, "ucm_", 4) == 0 && strlen(heard.thread) <= 15);
    CHECK(heard.thread_id != getpid()); /* a thread of its own */
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
}

CASE(log_nothing_after_unset)
{
    const char *root = temp_dir();
    struct heard *heard = calloc(1, sizeof *heard);
    CHECK(heard != NULL);
    CHECK_OK(kvpath_set_log_callback(hear, KVPATH_LOG_DEBUG, heard));
    kvpath_store_t store = open_root(root, shape, ", \"unknown_one\": 1");
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
    free(heard); /* AddressSanitizer would see a late call */
    CHECK_OK(kvpath_close(store));
    warn_once(root, "unknown_two");
}

CASE(log_callback_is_replaced)
{
    const char *root = temp_dir();
    struct heard first = {0}, second = {0};
    CHECK_OK(kvpath_set_log_callback(hear, KVPATH_LOG_WARN, &first));
    warn_once(root, "unknown_one");
    CHECK_OK(kvpath_set_log_callback(hear, KVPATH_LOG_WARN, &second));
    warn_once(root, "unknown_two");
    CHECK_EQ(first.count, 1);
    CHECK_EQ(second.count, 1);
    CHECK_HAS(second.text, "unknown_two");
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
}

CASE(log_level)
{
    struct heard heard = {0};
    CHECK_OK(kvpath_set_log_callback(hear, KVPATH_LOG_ERROR, &heard));
    warn_once(temp_dir(), "unknown_one");
    CHECK_EQ(heard.count, 0);
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
}

static kvpath_store_t to_close;
static kvpath_status_t close_status = 9, unset_status = 9;

static void call_kvpath(int32_t level, const char *id, const char *message, void *user)
{
    (void)level, (void)id, (void)message;
    close_status = kvpath_close(to_close);
    unset_status = kvpath_set_log_callback(NULL, 0, NULL);
    sem_post(user);
}

/* A callback that closes or unsets would wait for itself: it is refused. */
CASE(log_callback_may_not_call_kvpath)
{
    sem_t called;
    CHECK(sem_init(&called, 0, 0) == 0);
    to_close = open_root(temp_dir(), shape, "");
    CHECK_OK(kvpath_set_log_callback(call_kvpath, KVPATH_LOG_WARN, &called));
    kvpath_store_t other = open_root(temp_dir(), shape, ", \"unknown_one\": 1");
    struct timespec limit;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    CHECK(sem_timedwait(&called, &limit) == 0);
    CHECK_OK(kvpath_close(other));
    CHECK_EQ(close_status, KVPATH_INVALID_PARAM);
    CHECK_EQ(unset_status, KVPATH_INVALID_PARAM);
    CHECK_OK(kvpath_close(to_close));
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
}

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static int calls_with_lock;

static void take_lock(int32_t level, const char *id, const char *message, void *user)
{
    (void)level, (void)id, (void)message, (void)user;
    pthread_mutex_lock(&held);
    calls_with_lock++;
    pthread_mutex_unlock(&held);
}

/* A callback takes a lock that its caller holds in the calls that lead to messages: none of them
 * waits for it, a failing open included. */
CASE(log_callback_takes_the_lock_of_its_caller)
{
    const char *root = temp_dir();
    CHECK_OK(kvpath_set_log_callback(take_lock, KVPATH_LOG_DEBUG, NULL));
    pthread_mutex_lock(&held);
    kvpath_store_t store = 0;
    const char *nowhere = config(text("\"%s/none\"", root), shape, "");
    CHECK_STATUS(kvpath_open(nowhere, &store), KVPATH_STORE_UNHEALTHY);
    store = open_root(root, shape, ", \"unknown_one\": 1");
    for (int round = 0; round < 3000; round++) {
        CHECK_OK(kvpath_backend_set(store, root, KVPATH_BACKEND_SET_OUT));
        CHECK_OK(kvpath_backend_set(store, root, KVPATH_BACKEND_SET_AUTO));
    }
    batch_t *blocks = batch(shape, 1, 4, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    report(kvpath_health_json, store);
    CHECK_EQ(calls_with_lock, 0);
    pthread_mutex_unlock(&held);
    CHECK_OK(kvpath_close(store));
    CHECK(calls_with_lock >= 3); /* of the failed open, the unknown key, and the operator */
    CHECK_OK(kvpath_set_log_callback(NULL, 0, NULL));
}

CASE(log_nothing_after_close)
{
    const char *root = temp_dir();
    struct heard *heard = calloc(1, sizeof *heard);
    CHECK(heard != NULL);
    CHECK_OK(kvpath_set_log_callback(hear, KVPATH_LOG_DEBUG, heard));
    warn_once(root, "unknown_one");
    CHECK(heard->count > 0);
    CHECK_HAS(heard->text, "closed"); /* all of it, and that was the last */
    CHECK_EQ(thread_count(), 1);
    free(heard);
}

/* ---- threads ---- */

/* Calls `look` for each thread of this process but the main one. */
static size_t for_each_thread(void (*look)(const char *name, const char *status))
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid()) continue;
        size_t bytes = 0;
        FILE *file = fopen(text("/proc/self/task/%s/status", entry->d_name), "r");
        char content[8192] = "", name[64] = "";
        if (file == NULL) continue; /* it ended meanwhile */
        bytes = fread(content, 1, sizeof content - 1, file);
        fclose(file);
        content[bytes] = '\0';
        if (sscanf(content, "Name:\t%63[^\n]", name) != 1) continue;
        if (strncmp(name, "iou-", 4) == 0) continue; /* the kernel's own, of an io_uring */
        look(name, content);
        count++;
    }
    closedir(tasks);
    return count;
}

/* Threads that have not run yet have their maker's name. */
static size_t not_named;

static void count_not_named(const char *name, const char *status)
{
    (void)status;
    not_named += strncmp(name, "ucm_", 4) != 0;
}

static void check_thread(const char *name, const char *status)
{
    unsigned long long blocked = 0;
    if (strncmp(name, "ucm_", 4) != 0) FAIL("a thread is named %s", name);
    const char *line = strstr(status, "SigBlk:");
    CHECK(line != NULL && sscanf(line, "SigBlk: %llx", &blocked) == 1);
    /* All but SIGKILL and SIGSTOP, which cannot be, and libc's own two. */
    unsigned long long need = 0x7fffffffull & ~(1ull << 8) & ~(1ull << 18);
    if ((blocked & need) != need) FAIL("%s has signals %llx blocked only", name, blocked);
}

CASE(threads_are_named_and_block_signals)
{
    kvpath_store_t store = open_root(temp_dir(), shape, "");
    batch_t *blocks = batch(shape, 1, 64, 0);
    kvpath_task_t task = 0;
    batch_fill(blocks);
    CHECK_OK(kvpath_dump(store, blocks->shards, blocks->count, &task));
    do {
        not_named = 0;
        for_each_thread(count_not_named);
    } while (not_named > 0);
    size_t seen = for_each_thread(check_thread);
    CHECK_OK(kvpath_wait(store, task, 0));
    CHECK(seen + for_each_thread(check_thread) > 0);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(thread_count(), 1);
}

CASE(nothing_is_left_after_close)
{
    size_t descriptors = descriptor_count();
    const char *root = temp_dir();
    for (int round = 0; round < 10; round++) {
        kvpath_store_t store = open_root(root, shape, "");
        batch_t *blocks = batch(shape, 1, 16, 0);
        dump_batch(store, blocks);
        load_batch(store, blocks);
        CHECK_OK(kvpath_close(store));
        CHECK_EQ(thread_count(), 1);
        CHECK_EQ(descriptor_count(), descriptors);
    }
}

/* ---- reports ---- */

CASE(reports_are_json)
{
    const char *root = temp_dir(), *quoted = text("%s/a \\\"b\\\" \\u00e9", root);
    CHECK(system(text("mkdir '%s/a \"b\" \u00e9'", root)) == 0);
    kvpath_store_t store = open_root(quoted, shape, "");
    batch_t *blocks = batch(shape, 1, 4, 0);
    dump_batch(store, blocks);
    const char *stats = report(kvpath_stats_json, store),
               *health = report(kvpath_health_json, store);
    CHECK_HAS(json_error(stats), "none");
    CHECK_HAS(json_error(health), "none");
    CHECK_HAS(stats, "\"timeout_ms\"");
    CHECK_HAS(stats, "\"default\"");
    CHECK_HAS(stats, text("\"name\":\"%s\"", engine()));
    CHECK_HAS(health, "same_storage");
    CHECK_HAS(health, "transitions");
    CHECK_OK(kvpath_close(store));
}

/* Runs a checker of ours on a document; skips where the machine lacks its tool. */
static void run_checker(const char *command)
{
    int status = system(command);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("no tool for %s", command);
    if (status != 0) FAIL("%s: status %d", command, status);
}

/* A store with some past: two changes of state, blocks, misses. */
static kvpath_store_t store_with_past(const char *root)
{
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, 4, 0), *absent = batch(shape, 100, 1, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_STATUS(load(store, absent->shards, absent->count), KVPATH_NOT_FOUND);
    CHECK(truncate(block_path(root, &blocks->shards[0].block, 0), 100) == 0);
    CHECK_STATUS(load(store, blocks->shards, 4), KVPATH_NOT_FOUND);
    CHECK_OK(kvpath_backend_set(store, root, KVPATH_BACKEND_SET_OUT));
    CHECK_OK(kvpath_backend_set(store, root, KVPATH_BACKEND_SET_AUTO));
    return store;
}

static const char *in_file(const char *name, const char *content)
{
    const char *path = text("%s/%s", temp_dir(), name);
    write_file(path, content, strlen(content));
    return path;
}

/* R92: docs/stats.schema.json and docs/health.schema.json tell the truth. */
CASE(reports_are_as_their_schemas_say)
{
    kvpath_store_t store = store_with_past(temp_dir());
    const char *stats = in_file("stats", report(kvpath_stats_json, store)),
               *health = in_file("health", report(kvpath_health_json, store));
    CHECK_OK(kvpath_close(store));
    run_checker(text("'%s/ctest/schema_test.sh' '%s/docs/stats.schema.json' '%s'",
                     KVPATH_TEST_SOURCE, KVPATH_TEST_SOURCE, stats));
    run_checker(text("'%s/ctest/schema_test.sh' '%s/docs/health.schema.json' '%s'",
                     KVPATH_TEST_SOURCE, KVPATH_TEST_SOURCE, health));
}

/* R90: Prometheus itself reads the metrics, and its linter has nothing to say. */
CASE(metrics_are_read_by_prometheus)
{
    kvpath_store_t store = store_with_past(temp_dir());
    const char *written = report(kvpath_metrics, store), *file = in_file("metrics", written);
    CHECK_OK(kvpath_close(store));
    CHECK_HAS(written, "kvpath_errors_total{backend=");
    CHECK_HAS(written, "class=\"wrong_size\",errno=\"wrong_size\"} 1");
    CHECK_HAS(written, "kvpath_backend_load_misses_total{");
    CHECK_HAS(written, "kvpath_task_duration_seconds_count{operation=\"load\"} 3\n");
    CHECK_HAS(written, "kvpath_task_duration_seconds_count{operation=\"dump\"} 1\n");
    run_checker(text("'%s/ctest/promtool_test.sh' metrics '%s'", KVPATH_TEST_SOURCE, file));
}

CASE(health_of_each_backend)
{
    const char *root = temp_dir();
    const char *other = text("%s/other", temp_dir());
    CHECK(symlink(root, other) == 0);
    kvpath_store_t store = open_store(config(text("[\"%s\", \"%s\"]", root, other), shape, ""));
    kvpath_backend_health_t health[3] = {{.size = sizeof health[0]}};
    size_t count = 0;
    health[2].state = 77;
    CHECK_OK(kvpath_check_health(store));
    CHECK_OK(kvpath_health(store, health, 3, &count));
    CHECK_EQ(count, 2);
    CHECK_HAS(health[0].path, root);
    CHECK_HAS(health[1].path, other);
    for (int at = 0; at < 2; at++) {
        CHECK_EQ(health[at].state, KVPATH_BACKEND_AVAILABLE);
        CHECK_EQ(health[at].failures, 0);
        CHECK_EQ(health[at].direct, 0);
        CHECK_EQ(health[at].last_errno, 0);
    }
    CHECK_EQ(health[2].state, 77);
    CHECK_OK(kvpath_health(store, health, 1, &count)); /* less room: the first ones */
    CHECK_EQ(count, 2);
    CHECK_OK(kvpath_close(store));
}
