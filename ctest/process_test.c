/* Several processes on one storage, and processes that die: R40, R45, R46.
 *
 * The parent never opens a store, so that its children may (R73). */
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {16384, 65536, 262144}; /* 4 shards of 4 tensors */

typedef void (*child_fn)(const char *root, int in, int out);

struct child {
    pid_t pid;
    int to, from; /* pipes */
};

static struct child start(child_fn body, const char *root)
{
    int to[2], from[2];
    CHECK(pipe(to) == 0 && pipe(from) == 0);
    struct child child = {fork(), to[1], from[0]};
    CHECK(child.pid >= 0);
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to[1]);
        close(from[0]);
        body(root, to[0], from[1]);
        _exit(0);
    }
    close(to[0]);
    close(from[1]);
    return child;
}

static void finish(struct child child)
{
    int status = 0;
    close(child.to);
    close(child.from);
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("a child did");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("a child ended with %#x", status);
}

static void tell(int pipe, char word) { CHECK(write(pipe, &word, 1) == 1); }

static char hear(int pipe)
{
    char word = 0;
    ssize_t got = read(pipe, &word, 1);
    return got == 1 ? word : 0;
}

/* ---- two writers of the same blocks ---- */

enum { SHARED = 40 };

/* Writers write different bytes, so that a mixture shows. */
static void write_as(const char *root, int in, char writer)
{
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, SHARED, 0);
    batch_fill(blocks);
    for (size_t at = 0; at < blocks->count * blocks->tensors; at++)
        for (size_t byte = 0; byte < shape.tensor; byte++)
            ((uint8_t *)blocks->addrs[at])[byte] ^= (uint8_t)writer;
    CHECK(hear(in) == 'g');
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        CHECK_OK(dump(store, &blocks->shards[at], blocks->per_block));
    CHECK_OK(kvpath_close(store));
}

static void write_as_0(const char *root, int in, int out)
{
    (void)out;
    write_as(root, in, 0);
}

static void write_as_1(const char *root, int in, int out)
{
    (void)out;
    write_as(root, in, 1);
}

CASE(two_processes_dump_the_same_blocks)
{
    const char *root = temp_dir();
    struct child one = start(write_as_0, root), other = start(write_as_1, root);
    tell(one.to, 'g');
    tell(other.to, 'g');
    finish(one);
    finish(other);
    for (uint64_t number = 1; number <= SHARED; number++) {
        kvpath_block_id_t id = block_id(number);
        size_t bytes = 0, of_one = 0, of_other = 0;
        uint8_t *content = read_file(block_path(root, &id, 0), &bytes);
        CHECK(content != NULL);
        CHECK_EQ(bytes, shape.block);
        for (size_t at = 0; at < bytes; at++) {
            of_one += content[at] == content_at(&id, at);
            of_other += content[at] == (content_at(&id, at) ^ 1);
        }
        if (of_one != bytes && of_other != bytes) FAIL("block %s is a mixture", block_name(&id));
        free(content);
    }
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

/* ---- killed while dumping ---- */

/* Dumps for ever, a layer a task; tells 's' after each start and 'c' after each committed block. */
static void dump_for_ever(const char *root, int in, int out)
{
    (void)in;
    kvpath_store_t store = open_root(root, shape, "");
    for (uint64_t number = 1;; number++) {
        kvpath_block_id_t id = block_id(number);
        if (present(store, &id)) continue; /* an earlier round's */
        batch_t *block = batch(shape, number, 1, 0);
        kvpath_task_t tasks[4];
        batch_fill(block);
        for (size_t layer = 0; layer < 4; layer++) {
            CHECK_OK(kvpath_dump(store, &block->shards[layer], 1, &tasks[layer]));
            tell(out, 's');
        }
        for (size_t layer = 0; layer < 4; layer++) CHECK_OK(kvpath_wait(store, tasks[layer], 0));
        tell(out, 'c');
    }
}

static const char quick_lease[] =
    ", \"posix_gc_heartbeat_interval_sec\": 1, \"posix_gc_stale_threshold_sec\": 2";

/* Opens after a death: every file that has a block's name is that block, whole; the dead writer's
 * temporaries go. Tells nothing but success. */
static void check_storage(const char *root, int in, int out)
{
    (void)in, (void)out;
    const char *data = text("%s/data", root);
    /* A writer that died while it swept leaves its lease behind: it goes stale soon (R83). */
    kvpath_store_t store = open_root(root, shape, quick_lease);
    wait_gone(data, ".tmp");
    size_t files = count_files(data, NULL), blocks = 0;
    for (uint64_t number = 1; blocks < files; number++) {
        kvpath_block_id_t id = block_id(number);
        if (number > 100000) FAIL("%zu files, but only %zu are blocks", files, blocks);
        if (!exists(block_path(root, &id, 0))) continue;
        check_file(block_path(root, &id, 0), &id, shape.block);
        batch_t *block = batch(shape, number, 1, 0);
        if (blocks++ % 8 == 0) load_batch(store, block);
    }
    CHECK_OK(kvpath_close(store));
}

CASE(kill_during_dumps_20_rounds)
{
    const char *root = temp_dir();
    size_t committed = 0;
    unsigned seed = 1;
    for (int round = 0; round < 20; round++) {
        struct child writer = start(dump_for_ever, root);
        seed = seed * 1103515245u + 12345u;
        size_t words = 1 + (seed >> 16) % 60;
        for (; words > 0; words--) {
            char word = hear(writer.from);
            if (word == 0) {
                finish(writer); /* skips where the child did */
                FAIL("round %d: the writer ended by itself", round);
            }
            committed += word == 'c';
        }
        CHECK(kill(writer.pid, SIGKILL) == 0);
        for (char word; (word = hear(writer.from)) != 0;) committed += word == 'c';
        int status = 0;
        CHECK(waitpid(writer.pid, &status, 0) == writer.pid);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        close(writer.to);
        close(writer.from);
        finish(start(check_storage, root));
        /* What a wait said was done is there (a death is no power loss). */
        if (count_files(text("%s/data", root), NULL) < committed)
            FAIL("round %d: %zu blocks were committed, fewer are there", round, committed);
    }
    CHECK(committed > 0);
}

/* ---- a live writer's temporaries are not swept ---- */

/* Until the child says this; where it does not it ends, and how it ended is told first. */
static void hear_of(struct child child, char word)
{
    if (hear(child.from) == word) return;
    finish(child);
    FAIL("a child ended by itself");
}

static void write_half_and_wait(const char *root, int in, int out)
{
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *block = batch(shape, 1, 1, 0);
    wait_sweeps(store, 1); /* it does not die with the lease in its hand */
    batch_fill(block);
    CHECK_OK(dump(store, block->shards, 2));
    tell(out, 'h');
    CHECK(hear(in) == 'g');
    CHECK_OK(dump(store, block->shards + 2, 2));
    load_batch(store, block);
    CHECK_OK(kvpath_close(store));
}

static void open_and_close(const char *root, int in, int out)
{
    (void)in, (void)out;
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *block = batch(shape, 2, 1, 0);
    dump_batch(store, block);
    wait_sweeps(store, 1);
    CHECK_EQ(stats_of(store).swept_temporaries, 0);
    CHECK_OK(kvpath_close(store));
}

CASE(live_writer_is_left_alone)
{
    const char *root = temp_dir();
    struct child writer = start(write_half_and_wait, root);
    hear_of(writer, 'h');
    for (int round = 0; round < 3; round++) finish(start(open_and_close, root));
    CHECK_EQ(count_files(root, ".tmp"), 1);
    tell(writer.to, 'g');
    finish(writer);
    CHECK_EQ(count_files(root, ".tmp"), 0);
    kvpath_block_id_t id = block_id(1);
    check_file(block_path(root, &id, 0), &id, shape.block);
}

/* R46, R86: whoever lives on this host keeps what it has begun, however old that is, through whole
 * sweeps of others; when it is dead, the next sweep takes it. */
static void sweep_beside(const char *root, int in, int out)
{
    kvpath_store_t store = open_root(root, shape, ", \"temp_ttl_s\": 2");
    wait_sweeps(store, 2);
    CHECK_EQ(count_files(root, ".tmp"), 1);
    CHECK_EQ(stats_of(store).swept_temporaries, 0);
    tell(out, 's');
    CHECK(hear(in) == 'k');
    wait_gone(text("%s/data", root), ".tmp");
    wait_sweeps(store, stats_of(store).sweep_passes + 1); /* counted at the end of a sweep */
    CHECK_EQ(stats_of(store).swept_temporaries, 1);
    CHECK_OK(kvpath_close(store));
}

static void age_temporaries(const char *data)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    DIR *dir = opendir(data);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (strstr(entry->d_name, ".tmp") != NULL)
            CHECK(utimensat(dirfd(dir), entry->d_name, long_ago, 0) == 0);
    closedir(dir);
}

CASE(what_a_live_process_left_long_ago_goes_when_it_is_killed)
{
    const char *root = temp_dir();
    struct child writer = start(write_half_and_wait, root);
    hear_of(writer, 'h');
    age_temporaries(text("%s/data", root));
    struct child sweeper = start(sweep_beside, root);
    hear_of(sweeper, 's');
    CHECK(kill(writer.pid, SIGKILL) == 0);
    int status = 0;
    CHECK(waitpid(writer.pid, &status, 0) == writer.pid);
    close(writer.to);
    close(writer.from);
    tell(sweeper.to, 'k');
    finish(sweeper);
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

/* An exec or exit of a child that was forked from a user of kvpath leaves the parent's store alone.
 */
CASE(child_exits_beside_an_open_store)
{
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, shape, "");
    batch_t *blocks = batch(shape, 1, 4, 0);
    batch_fill(blocks);
    CHECK_OK(dump(store, blocks->shards, 1)); /* an unfinished block */
    for (int round = 0; round < 5; round++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0 && round % 2 == 0) {
#if defined(__SANITIZE_ADDRESS__)
            _exit(0); /* without the library's threads, what they own looks like a leak */
#endif
            exit(0); /* runs destructors and atexit handlers */
        }
        if (child == 0) execl("/bin/true", "true", (char *)NULL);
        int status = 0;
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CHECK_EQ(count_files(root, ".tmp"), 1);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}
