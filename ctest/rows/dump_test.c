/* The failure table (ctest/matrix/TABLE.md), one case a row by the row's name: dumps, commits. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ha.h"

enum { N = 3 };

static batch_t *started(rig_t *rig, options_t options)
{
    rig_start(rig, N, options);
    batch_t *block = block_on(rig, 1, 0);
    batch_fill(block);
    return block;
}

static const char *final(const rig_t *rig, const batch_t *block)
{
    return block_path(rig->storage, id_of(block), 0);
}

static void check_stored(const rig_t *rig, const batch_t *block)
{
    check_file(final(rig, block), id_of(block), block->shape.block);
}

static void on_all(rig_t *rig, const char *rule)
{
    for (int at = 0; at < rig->n; at++) fault(rig, at, "%s", rule);
}

static void heal_all(rig_t *rig)
{
    for (int at = 0; at < rig->n; at++) heal(rig, at), release(rig, at);
}

static kvpath_status_t dump_all(rig_t *rig, const batch_t *block)
{
    return dump(rig->store, block->shards, block->count);
}

CASE(dump_last_shard_written)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    CHECK_OK(dump(rig.store, &block->shards[1], 1));
    CHECK(!exists(final(&rig, block)));
    CHECK_OK(dump(rig.store, &block->shards[0], 1));
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(dump_path_error)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    fault(&rig, 1, "write data/* always fail EIO");
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    check_health(&rig, 1, ANY, ANY, 1);
    rig_stop(&rig);
}

CASE(dump_all_paths_error)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    CHECK_OK(dump(rig.store, block->shards, 1));
    on_all(&rig, "write data/* always fail EIO");
    CHECK_STATUS(dump(rig.store, &block->shards[1], 1), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "EIO");
    CHECK(!exists(final(&rig, block)));
    CHECK_EQ(stats_of(rig.store).unfinished_blocks, 1);
    heal_all(&rig);
    CHECK_OK(dump(rig.store, &block->shards[1], 1)); /* the failed one alone */
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(dump_path_hangs)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){.timeout_ms = 1500});
    fault(&rig, 1, "write data/* always hang");
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    check_health(&rig, 1, ANY, ANY, 1);
    heal_all(&rig);
    rig_stop(&rig);
}

CASE(dump_all_paths_hang)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){.timeout_ms = 900, .threshold = 4});
    CHECK_OK(dump(rig.store, block->shards, 1));
    on_all(&rig, "write data/* always hang");
    CHECK_STATUS(dump(rig.store, &block->shards[1], 1), KVPATH_TIMEOUT);
    heal_all(&rig);
    wait_at_rest(&rig);
    CHECK_OK(dump(rig.store, &block->shards[1], 1)); /* not enough: what was begun is closed */
    CHECK(!exists(final(&rig, block)));
    CHECK_OK(dump(rig.store, &block->shards[0], 1));
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(dump_storage_full)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    on_all(&rig, "write data/* always fail EDQUOT");
    CHECK_STATUS(dump_all(&rig, block), KVPATH_NO_SPACE);
    CHECK_EQ(stats_of(rig.store).unfinished_blocks, 0);
    wait_gone(text("%s/data", rig.storage), ".tmp");
    for (int at = 0; at < N; at++) {
        CHECK(seen(&rig, at, "write", "data/*") > 0);
        check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    }
    heal_all(&rig);
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(dump_path_fell_off)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    char stand_in[FAULTFS_TEXT_BYTES];
    CHECK(faultfs_command(&rig.fs[1], stand_in, sizeof stand_in, "vanish") == 0);
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    check_health(&rig, 1, ANY, ANY, 2); /* for its bytes, and for its name */
    CHECK_EQ(count_files(stand_in, NULL), 0);
    CHECK(!exists(text("%s/data", stand_in)));
    tell(&rig, 1, "return");
    rig_stop(&rig);
}

CASE(dump_already_stored)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    CHECK_OK(dump_all(&rig, block));
    memset(block->memory, 0x77, block->memory_bytes);
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block); /* the first content */
    rig_stop(&rig);
}

/* Two stores; one dumps while the other is at it. */
CASE(dump_two_writers)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){.shape = whole});
    rig_t other = rig;
    CHECK_OK(kvpath_open(rig_config(&other, (options_t){.shape = whole}), &other.store));
    fault(&rig, 1, "write data/* count=1 hang");
    kvpath_task_t first_task = begin_dump(&rig, block);
    wait_hung(&rig, 1, 1, "write");
    batch_t *same = block_on(&other, 1, 0);
    memset(same->memory, 0x77, same->memory_bytes);
    CHECK_OK(dump_all(&other, same)); /* from begin to end inside the other's */
    release(&rig, 1);
    CHECK_OK(finish(&rig, first_task));
    size_t bytes = 0, first = 0, second = 0;
    uint8_t *content = read_file(final(&rig, block), &bytes);
    CHECK(content != NULL);
    CHECK_EQ(bytes, whole.block);
    for (size_t at = 0; at < bytes; at++) {
        first += content[at] == content_at(id_of(block), at);
        second += content[at] == 0x77;
    }
    CHECK(first == bytes || second == bytes);
    CHECK_OK(kvpath_close(other.store));
    rig_stop(&rig);
}

CASE(dump_shard_twice)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    kvpath_shard_t twice[] = {block->shards[0], block->shards[1], block->shards[0]};
    kvpath_task_t task = 77;
    CHECK_STATUS(kvpath_dump(rig.store, twice, 3, &task), KVPATH_INVALID_PARAM);
    CHECK_EQ(task, 77);
    for (int at = 0; at < N; at++) CHECK_EQ(seen(&rig, at, "create", "*"), 0);
    rig_stop(&rig);
}

/* A child with a half-written block: SIGKILL. What it left goes with the next sweep. */
CASE(dump_killed)
{
    rig_t rig;
    int told[2];
    rig_mount(&rig, N);
    CHECK(pipe(told) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        rig_begin(&rig, (options_t){0}); /* it does not die with the lease in its hand */
        batch_t *half = block_on(&rig, 1, 0), *stored = block_on(&rig, 2, 0);
        dump_batch(rig.store, stored);
        batch_fill(half);
        CHECK_OK(dump(rig.store, half->shards, 1));
        CHECK(write(told[1], "h", 1) == 1);
        for (;;) pause();
    }
    close(told[1]);
    char word;
    bool ready = read(told[0], &word, 1) == 1;
    kill(child, SIGKILL);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (!ready && WIFEXITED(status) && WEXITSTATUS(status) == FAULTFS_SKIP) SKIP("no such engine");
    CHECK(ready);
    CHECK_EQ(count_files(rig.storage, ".tmp"), 1);
    rig_open(&rig, (options_t){0});
    wait_gone(text("%s/data", rig.storage), ".tmp");
    batch_t *half = block_on(&rig, 1, 0);
    load_right(&rig, block_on(&rig, 2, 0));
    CHECK(!present(rig.store, id_of(half)));
    dump_batch(rig.store, half);
    rig_stop(&rig);
}

/* 65,536 unfinished blocks: two shards of a byte each, of which one is written. */
CASE(dump_table_full)
{
    enum { MOST = 65536, TASK = 8192 };
    static const shape_t tiny = {1, 1, 2};
    const char *root = temp_dir();
    kvpath_store_t store = open_root(root, tiny, "");
    batch_t *blocks = batch(tiny, 0, MOST + 1, 0);
    static kvpath_shard_t firsts[MOST + 1];
    for (size_t at = 0; at <= MOST; at++) firsts[at] = blocks->shards[2 * at];
    for (size_t at = 0; at < MOST; at += TASK) CHECK_OK(dump(store, &firsts[at], TASK));
    CHECK_EQ(stats_of(store).unfinished_blocks, MOST);
    kvpath_task_t task = 77;
    CHECK_STATUS(kvpath_dump(store, &firsts[MOST], 1, &task), KVPATH_RETRY);
    CHECK_EQ(task, 77);
    CHECK_OK(dump(store, &blocks->shards[1], 1)); /* one is finished: there is room */
    CHECK_OK(dump(store, &firsts[MOST], 1));
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}

/* ---- commits ---- */

CASE(commit_path_error)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    fault(&rig, 1, "rename data/* always fail EIO");
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    check_health(&rig, 1, ANY, ANY, 1);
    rig_stop(&rig);
}

CASE(commit_lost_cache)
{
    rig_t rig;
    options_t options = {.buffered = true, .threshold = 1};
    batch_t *block = started(&rig, options);
    CHECK_OK(dump(rig.store, block->shards, 1)); /* in the cache of path 1 */
    fault(&rig, 1, "any data/* always fail EIO");
    CHECK_STATUS(dump(rig.store, &block->shards[1], 1), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "shards are only in the cache of a path");
    CHECK(!exists(final(&rig, block)));
    CHECK_OK(kvpath_commit(rig.store, id_of(block), false));
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    heal(&rig, 1);
    rig_stop(&rig);

    /* One task with the whole block: written again. */
    options.shape = whole;
    options.extra = ", \"commit_sync\": \"none\"";
    block = started(&rig, options);
    fault(&rig, 1, "rename data/* always fail EIO");
    CHECK_OK(dump_all(&rig, block));
    CHECK(seen(&rig, 2, "write", files_of(block)) > 0);
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(commit_sync_fails)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){.buffered = true});
    CHECK_OK(dump(rig.store, block->shards, 1));
    fault(&rig, 1, "fsync data/* always fail EIO");
    CHECK_STATUS(dump(rig.store, &block->shards[1], 1), KVPATH_OS_ERROR);
    CHECK_EQ(seen(&rig, 1, "fsync", files_of(block)), 1); /* a second one would not be believed */
    CHECK(!exists(final(&rig, block)));
    heal(&rig, 1);
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    rig_stop(&rig);

    block = started(&rig, (options_t){.buffered = true, .shape = whole});
    fault(&rig, 1, "fsync data/* always fail EIO");
    CHECK_OK(dump_all(&rig, block)); /* one task has it all */
    CHECK(seen(&rig, 2, "write", files_of(block)) > 0);
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(commit_wrong_size_there)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    write_file(final(&rig, block), "short", 5);
    CHECK_OK(dump_all(&rig, block));
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(commit_shards_missing)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){.extra = ", \"commit_policy\": \"explicit\""});
    CHECK_OK(dump(rig.store, block->shards, 1));
    CHECK_STATUS(kvpath_commit(rig.store, id_of(block), true), KVPATH_INVALID_PARAM);
    CHECK_HAS(kvpath_last_error(), "1");
    CHECK(!exists(final(&rig, block)));
    CHECK_OK(dump(rig.store, &block->shards[1], 1));
    CHECK_OK(kvpath_commit(rig.store, id_of(block), true));
    check_stored(&rig, block);
    rig_stop(&rig);
}

CASE(commit_dropped)
{
    rig_t rig;
    batch_t *block = started(&rig, (options_t){0});
    CHECK_OK(dump(rig.store, block->shards, 1));
    CHECK_EQ(count_files(rig.storage, ".tmp"), 1);
    CHECK_OK(kvpath_commit(rig.store, id_of(block), false));
    wait_gone(text("%s/data", rig.storage), ".tmp");
    CHECK_EQ(stats_of(rig.store).unfinished_blocks, 0);
    CHECK_OK(dump(rig.store, &block->shards[1], 1)); /* the first is needed again */
    CHECK(!exists(final(&rig, block)));
    rig_stop(&rig);
}

/* Of two dumps, as the table says; dropped first, of one. */
CASE(dump_other_bytes)
{
    rig_t rig;
    for (int drop = 0; drop <= 1; drop++) {
        batch_t *block = started(&rig, (options_t){0});
        CHECK_OK(dump(rig.store, block->shards, 1));
        on_all(&rig, "write data/* always fail EIO");
        CHECK_STATUS(dump(rig.store, &block->shards[1], 1), KVPATH_OS_ERROR);
        heal_all(&rig);
        if (drop) CHECK_OK(kvpath_commit(rig.store, id_of(block), false));
        for (size_t at = 0; at < block->count; at++) memset(block->shards[at].addrs[0], 0x77, 4096);
        CHECK_OK(dump_all(&rig, block));
        size_t bytes = 0, old = 0;
        uint8_t *content = read_file(final(&rig, block), &bytes);
        CHECK(content != NULL);
        CHECK_EQ(bytes, pair.block);
        for (size_t at = 0; at < 4096; at++) old += content[at] == content_at(id_of(block), at);
        CHECK_EQ(old == 4096, !drop);
        for (size_t at = drop ? 0 : 4096; at < bytes; at++) CHECK_EQ(content[at], 0x77);
        rig_stop(&rig);
    }
}
