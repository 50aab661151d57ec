/* Processes that die at any moment (R40, R45, R46): two writers dump the same blocks, one or both
 * are killed, and what is visible then is whole and right; the next open sweeps what the dead left.
 *
 * A block's content tells its id and its writer, so that a mixture or a half shows. The parent
 * never opens a store, so that its children may (R73).
 *
 * KVPATH_CRASH_ROUNDS (30) and KVPATH_CRASH_SEED (1): `make crash` runs many. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum {
    ROUNDS = 30,
    ROUNDS_ON_ONE_STORAGE = 5,
    BLOCKS = 24,         /* of one round: both writers dump all of them */
    EVENTS_MAX = 60,     /* a writer dies after so many events at most */
    SPIN_MAX_US = 3000,  /* and so much later */
    SWEEP_LIMIT_MS = 240000,
};

static const shape_t shape = {16384, 16384, 65536}; /* 4 shards */

/* What one round does. */
struct round {
    const char *root;
    uint64_t first; /* number of its first block */
    int writer;     /* stamp of the writer's blocks; never 0 */
    bool removes;   /* blocks are removed and dumped again meanwhile */
    const char *extra;
    unsigned seed;
};

struct child {
    pid_t pid;
    int from; /* a pipe: one byte an event, then the block's number */
};

typedef void (*child_fn)(const struct round *round, int out);

static unsigned next_random(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

static struct child start(child_fn body, const struct round *round)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    struct child child = {fork(), ends[0]};
    CHECK(child.pid >= 0);
    if (child.pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        body(round, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    return child;
}

static void finish(struct child child)
{
    int status = 0;
    close(child.from);
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("a child did");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("a child ended with %#x", status);
}

static kvpath_store_t open_as(const struct round *round)
{
    return open_store(text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": %zu,"
                           " \"shard_size\": %zu, \"block_size\": %zu, \"posix_io_engine\": \"%s\","
                           " \"data_dir_shard_bytes\": 1, \"timeout_ms\": 0%s}",
                           round->root, shape.tensor, shape.shard, shape.block, engine(),
                           round->extra));
}

/* ---- the writers ---- */

static void tell(int out, char word, unsigned block)
{
    const char event[2] = {word, (char)block};
    CHECK(write(out, event, 2) == 2);
}

static void stamp(batch_t *block, int writer)
{
    batch_fill(block);
    for (size_t at = 0; at < block->count * block->tensors; at++)
        for (size_t byte = 0; byte < shape.tensor; byte++)
            ((uint8_t *)block->addrs[at])[byte] ^= (uint8_t)writer;
}

/* Dumps every block once, whole or layer by layer, three blocks at a time; tells 's' when a task
 * was begun, and 'c' when a block is done. */
static void write_blocks(const struct round *round, int out)
{
    enum { AT_ONCE = 3, LAYERS = 4 };
    unsigned seed = round->seed;
    kvpath_store_t store = open_as(round);
    tell(out, 'o', 0);
    for (unsigned from = 0; from < BLOCKS; from += AT_ONCE) {
        kvpath_task_t tasks[AT_ONCE][LAYERS] = {{0}};
        for (unsigned at = 0; at < AT_ONCE; at++) {
            batch_t *block = batch(shape, round->first + from + at, 1, 0);
            const bool whole = next_random(&seed) % 2 == 0;
            const kvpath_block_id_t *id = &block->shards[0].block;
            stamp(block, round->writer);
            if (round->removes && next_random(&seed) % 4 == 0)
                CHECK_OK(kvpath_remove(store, id, 1));
            for (unsigned layer = 0; layer < (whole ? 1 : LAYERS); layer++) {
                CHECK_OK(kvpath_dump(store, block->shards + layer, whole ? LAYERS : 1,
                                     &tasks[at][layer]));
                tell(out, 's', from + at);
            }
        }
        for (unsigned at = 0; at < AT_ONCE; at++) {
            for (unsigned layer = 0; layer < LAYERS && tasks[at][layer] != 0; layer++)
                CHECK_OK(kvpath_wait(store, tasks[at][layer], 0));
            tell(out, 'c', from + at);
        }
    }
    CHECK_OK(kvpath_close(store));
}

/* ---- what must be so afterwards ---- */

/* Reads the id that a file is named by; false: it is no block. */
static bool id_of_name(const char *name, kvpath_block_id_t *id)
{
    if (strlen(name) != 32 || strspn(name, "0123456789abcdef") != 32) return false;
    for (int at = 0; at < 16; at++) {
        unsigned byte = 0;
        CHECK(sscanf(name + 2 * at, "%2x", &byte) == 1);
        id->bytes[at] = (uint8_t)byte;
    }
    return true;
}

/* A visible file is one block of one writer, whole. */
static void check_whole(const char *path, const kvpath_block_id_t *id)
{
    size_t bytes = 0;
    uint8_t *content = read_file(path, &bytes);
    if (content == NULL && errno == ENOENT) return; /* removed or replaced just now */
    CHECK(content != NULL);
    CHECK_EQ(bytes, shape.block);
    const uint8_t writer = content[0] ^ content_at(id, 0);
    if (writer == 0) FAIL("%s: nobody wrote this", path);
    for (size_t at = 0; at < bytes; at++)
        if ((content[at] ^ content_at(id, at)) != writer)
            FAIL("%s: byte %zu is not of writer %u, who wrote the first", path, at, writer);
    free(content);
}

/* Every directory of blocks; gives the number of blocks. */
static size_t check_files(const char *root)
{
    size_t blocks = 0;
    for (int dir = 0; dir < 16; dir++) {
        const char *path = text("%s/%x", root, dir);
        DIR *entries = opendir(path);
        if (entries == NULL && errno == ENOENT) continue; /* the first open was cut short */
        CHECK(entries != NULL);
        for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
            kvpath_block_id_t id;
            if (!id_of_name(entry->d_name, &id)) continue;
            check_whole(text("%s/%s", path, entry->d_name), &id);
            blocks++;
        }
        closedir(entries);
    }
    return blocks;
}

/* Waits for the event that no name below `root` has `part`. */
static void wait_swept(const char *root, const char *part)
{
    char events[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    CHECK(watch >= 0);
    for (int dir = -1; dir < 16; dir++) {
        const char *path = dir < 0 ? root : text("%s/%x", root, dir);
        CHECK(inotify_add_watch(watch, path, IN_DELETE | IN_MOVED_FROM) >= 0);
    }
    while (count_files(root, part) > 0) {
        struct pollfd poll_of = {.fd = watch, .events = POLLIN};
        if (poll(&poll_of, 1, SWEEP_LIMIT_MS) != 1) FAIL("%s is still below %s", part, root);
        CHECK(read(watch, events, sizeof events) > 0);
    }
    close(watch);
}

static pid_t dead[2]; /* writers that were killed; 0: none */

/* Opens after a death. */
static void check_storage(const struct round *round, int out)
{
    (void)out;
    kvpath_store_t store = open_as(round);
    for (int at = 0; at < 2; at++)
        if (dead[at] != 0) wait_swept(round->root, text("_%x_", (unsigned)dead[at]));
    for (unsigned number = 0; number < BLOCKS; number++) {
        batch_t *block = batch(shape, round->first + number, 1, 0);
        kvpath_status_t status = load(store, block->shards, block->count);
        if (status == KVPATH_NOT_FOUND) {
            CHECK_EQ(kvpath_last_detail(), KVPATH_NOT_FOUND);
            continue;
        }
        CHECK_STATUS(status, KVPATH_OK);
        uint8_t first = 0;
        for (size_t shard = 0; shard < block->count; shard++)
            for (size_t at = 0; at < shape.shard; at++) {
                uint8_t writer = ((uint8_t *)block->addrs[shard])[at] ^
                                 content_at(&block->shards[0].block, shard * shape.shard + at);
                if (shard + at == 0) first = writer;
                if (writer != first || writer == 0) FAIL("a load gave a mixture");
            }
    }
    CHECK_OK(kvpath_close(store));
}

/* ---- the rounds ---- */

/* Reads an event; false when the writer has ended. */
static bool hear(struct child *child, bool *done)
{
    char event[2];
    ssize_t got = 0;
    while ((got = read(child->from, event, 2)) < 0 && errno == EINTR) {
    }
    if (got != 2) return false;
    if (event[0] == 'c') done[(unsigned char)event[1]] = true;
    return true;
}

/* A moment is no event: what the writer does just now cannot be told from outside. */
static void spin(unsigned us)
{
    struct timespec from, now;
    clock_gettime(CLOCK_MONOTONIC, &from);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - from.tv_sec) * 1000000L + (now.tv_nsec - from.tv_nsec) / 1000 < us);
}

/* Gives whether it was killed, and not faster. */
static bool kill_writer(struct child child, bool *done)
{
    int status = 0;
    CHECK(kill(child.pid, SIGKILL) == 0);
    while (hear(&child, done)) {
    }
    CHECK(waitpid(child.pid, &status, 0) == child.pid);
    close(child.from);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("a child did");
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0) FAIL("a writer ended with %#x", status);
    return WIFSIGNALED(status);
}

static void run_round(struct round round, unsigned *seed, size_t *committed, size_t *killed)
{
    bool done[256] = {false};
    struct child writers[2];
    dead[0] = dead[1] = 0;
    for (int at = 0; at < 2; at++) {
        round.writer = 1 + (int)(round.first / BLOCKS * 2 + (unsigned)at) % 255;
        round.seed = next_random(seed);
        writers[at] = start(write_blocks, &round);
    }
    const unsigned way = next_random(seed) % 3; /* both die; one, then look; one, look meanwhile */
    for (unsigned events = next_random(seed) % EVENTS_MAX; events > 0; events--)
        if (!hear(&writers[events % 2], done)) break;
    spin(next_random(seed) % SPIN_MAX_US);
    for (int at = 0; at < (way == 0 ? 2 : 1); at++) {
        pid_t pid = writers[at].pid;
        if (!kill_writer(writers[at], done)) continue;
        dead[at] = pid;
        ++*killed;
    }
    if (way == 2) {
        check_files(round.root);
        finish(start(check_storage, &round));
    }
    if (way != 0) {
        while (hear(&writers[1], done)) {
        }
        finish(writers[1]);
    }
    check_files(round.root);
    finish(start(check_storage, &round));
    CHECK_EQ(count_files(round.root, ".tmp"), 0);
    check_files(round.root);
    for (unsigned number = 0; number < BLOCKS; number++) {
        const kvpath_block_id_t id = block_id(round.first + number);
        *committed += done[number];
        /* A death is no power loss: what a wait said was done is there. */
        if (done[number] && !round.removes && !exists(block_path(round.root, &id, 1)))
            FAIL("block %s was reported and is not there", block_name(&id));
    }
}

static unsigned setting(const char *name, unsigned otherwise)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? (unsigned)strtoul(value, NULL, 10) : otherwise;
}

static void remove_storage(const char *root)
{
    const char *command = text("rm -rf '%s'", root);
    CHECK(system(command) == 0);
}

CASE(two_writers_killed_at_any_moment)
{
    static const char *const syncs[3] = {"none", "data", "full"};
    const unsigned rounds = setting("KVPATH_CRASH_ROUNDS", ROUNDS);
    unsigned seed = setting("KVPATH_CRASH_SEED", 1);
    const char *root = NULL;
    size_t committed = 0, killed = 0;
    printf("%u rounds, seed %u, engine %s\n", rounds, seed, engine());
    for (unsigned number = 0; number < rounds; number++) {
        if (number % ROUNDS_ON_ONE_STORAGE == 0) {
            if (root != NULL) remove_storage(root);
            root = text("%s/storage", temp_dir());
            CHECK(mkdir(root, 0777) == 0);
        }
        const bool direct = number % 2 == 0 && direct_works(root);
        const char *extra = text(", \"io_direct\": %s, \"commit_sync\": \"%s\"",
                                 direct ? "true" : "false", syncs[number / 2 % 3]);
        struct round round = {.root = root, .first = number * BLOCKS, .extra = extra,
                              .removes = number % 4 == 3};
        run_round(round, &seed, &committed, &killed);
    }
    printf("%zu writers killed, %zu blocks reported\n", killed, committed);
    CHECK(committed > 0 && killed >= rounds / 2);
}
