/* Routing and retry (R14-R18, R22, R27, R31): what is tried, in which order, how often, and which
 * backends are not touched. Everything is told from the operations that faultfs has seen. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "ha.h"

static void untouched(rig_t *rig, int which, const batch_t *block)
{
    CHECK_EQ(seen(rig, which, "total", files_of(block)), 0);
}

/* R17: all that is done about a block goes through its primary, and nothing through another. */
CASE(everything_about_a_block_uses_one_backend)
{
    rig_t rig;
    rig_start(&rig, 4, (options_t){.shape = {4096, 4096, 32768}, .extra =
                                   ", \"commit_policy\": \"explicit\""});
    for (int primary = 0; primary < 4; primary++) {
        batch_t *block = block_on(&rig, primary, 0);
        for (size_t at = 0; at < block->count; at++) /* a task a shard */
            CHECK_OK(dump(rig.store, &block->shards[at], 1));
        CHECK_OK(kvpath_commit(rig.store, id_of(block), true));
        CHECK(present(rig.store, id_of(block)));
        for (size_t at = 0; at < block->count; at++)
            CHECK_OK(load(rig.store, &block->shards[at], 1));
        CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
        for (int at = 0; at < 4; at++)
            if (at != primary) untouched(&rig, at, block);
        CHECK(seen(&rig, primary, "write", files_of(block)) >= 8);
        CHECK(seen(&rig, primary, "read", files_of(block)) >= 8);
        CHECK_EQ(seen(&rig, primary, "create", files_of(block)), 1);
        CHECK_EQ(seen(&rig, primary, "rename", files_of(block)), 1);
        CHECK_EQ(seen(&rig, primary, "unlink", files_of(block)), 1);
    }
    CHECK_EQ(stats_of(rig.store).retries, 0);
    rig_stop(&rig);
}

/* R27: an error goes to the next backend, and no further. */
CASE(an_error_goes_to_the_next_backend)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){0});
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    forget_counts(&rig);
    fault(&rig, 1, "read data/* always fail EIO");
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 1, "open", file_of(block)), 1);
    CHECK_EQ(seen(&rig, 2, "open", file_of(block)), 1);
    untouched(&rig, 0, block);
    CHECK_EQ(stats_of(rig.store).retries, 1);
    CHECK_EQ(stats_of(rig.store).failovers, 1);
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, ANY, 1);
    check_health(&rig, 2, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_EQ(health_of(&rig, 1).last_errno, 5);
    rig_stop(&rig);
}

/* R15: 3, 0, 1, 2, one after another and none twice; R16: the last real error is the answer. */
CASE(order_wraps_and_the_last_error_is_told)
{
    static const int order[] = {3, 0, 1, 2};
    static const char *const errors[] = {"EIO", "EACCES", "EROFS", "ENOTCONN"};
    rig_t rig;
    rig_start(&rig, 4, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 3, 0);
    dump_batch(rig.store, block);
    forget_counts(&rig);
    for (int at = 0; at < 4; at++) fault(&rig, at, "open %s always hang", file_of(block));
    kvpath_task_t task = begin_load(&rig, block);
    for (int step = 0; step < 4; step++) {
        wait_hung(&rig, order[step], 1, "open");
        for (int later = step + 1; later < 4; later++) untouched(&rig, order[later], block);
        release_failing(&rig, order[step], errors[step]);
    }
    CHECK_STATUS(finish(&rig, task), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "ENOTCONN");
    CHECK_HAS(kvpath_last_error(), rig.path[2]);
    for (int at = 0; at < 4; at++) {
        CHECK_EQ(seen(&rig, at, "open", file_of(block)), 1);
        check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 1);
    }
    CHECK_EQ(stats_of(rig.store).retries, 3);
    CHECK_EQ(stats_of(rig.store).failovers, 0);
    rig_stop(&rig);
}

/* R27: of a task only the failed transfer is tried again: another block, and other shards of the
 * same file, are not. */
CASE(only_the_failed_transfer_is_tried_again)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = {4096, 4096, 16384}});
    batch_t *blocks = batch(rig.options.shape, 0, 20, 0);
    dump_batch(rig.store, blocks);
    forget_counts(&rig);
    batch_t *bad = block_on(&rig, 0, 0);
    long long rule = fault(&rig, 0, "read %s count=1 fail EIO", file_of(bad));
    load_right(&rig, blocks);
    CHECK_EQ(faultfs_number(&rig.fs[0], "rule fired %lld", rule), 1);
    long long opened = 0;
    for (int at = 0; at < 3; at++) opened += seen(&rig, at, "open", "data/*");
    CHECK_EQ(opened, 20 + 1);
    CHECK_EQ(seen(&rig, 1, "open", file_of(bad)), 1);
    CHECK_EQ(stats_of(rig.store).retries, 1);

    /* Two transfers of one block (R38: shards 0 and 2 are not adjacent). */
    forget_counts(&rig);
    kvpath_shard_t apart[] = {bad->shards[0], bad->shards[2]};
    fault(&rig, 0, "read %s count=1 fail EIO", file_of(bad));
    CHECK_OK(load(rig.store, apart, 2));
    CHECK_EQ(shard_wrong(bad, 0) + shard_wrong(bad, 2), 0);
    CHECK_EQ(seen(&rig, 0, "open", file_of(bad)), 2);
    CHECK_EQ(seen(&rig, 1, "open", file_of(bad)), 1);
    CHECK_EQ(stats_of(rig.store).retries, 2);
    rig_stop(&rig);
}

/* R22: not-found is no outcome and goes nowhere else, in either scope. */
static void not_found(const char *extra)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.extra = extra});
    for (unsigned nth = 0; nth < 10; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        CHECK_STATUS(load(rig.store, block->shards, block->count), KVPATH_NOT_FOUND);
        CHECK(!present(rig.store, id_of(block)));
        CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
        untouched(&rig, 1, block);
        untouched(&rig, 2, block);
    }
    for (int at = 0; at < 3; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_EQ(stats_of(rig.store).retries, 0);
    CHECK_EQ(stats_of(rig.store).load_misses, 10);
    rig_stop(&rig);
}

CASE(not_found_is_neither_tried_again_nor_counted)
{
    not_found("");
    not_found(", \"failure_scope\": \"any\"");
}

/* R42: a rename that fails goes to the next backend; what was written buffered is first made safe
 * for it. */
static void rename_fails(options_t options, bool written_again)
{
    rig_t rig;
    rig_start(&rig, 2, options);
    kvpath_stats_t before = stats_of(rig.store);
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "rename data/* always fail EIO");
    CHECK_OK(dump(rig.store, block->shards, block->count));
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), rig.options.shape.block);
    CHECK_EQ(seen(&rig, 0, "rename", "*"), 1);
    CHECK_EQ(seen(&rig, 1, "rename", "*"), 1);
    CHECK_EQ(seen(&rig, 1, "write", files_of(block)) > 0, written_again);
    CHECK_EQ(stats_of(rig.store).committed_blocks, before.committed_blocks + 1);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 1);
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(a_failed_commit_goes_to_the_next_backend)
{
    rename_fails((options_t){0}, false);
    rename_fails((options_t){.buffered = true}, false);
    rename_fails((options_t){.buffered = true, .extra = ", \"commit_sync\": \"none\""}, true);
    rename_fails((options_t){.extra = ", \"commit_sync\": \"full\""}, false);
}

/* R41: the task carries the commit's error, and the next dump of any shard tries it again (R42). */
CASE(a_commit_that_fails_everywhere_is_told_and_tried_again)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){0});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "rename data/* always fail EIO");
    fault(&rig, 1, "rename data/* always fail EROFS");
    CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "EROFS");
    CHECK(!exists(block_path(rig.storage, id_of(block), 0)));
    heal(&rig, 0);
    heal(&rig, 1);
    forget_counts(&rig);
    CHECK_OK(dump(rig.store, block->shards, 1));
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), rig.options.shape.block);
    CHECK_EQ(seen(&rig, 0, "write", "*") + seen(&rig, 1, "write", "*"), 0);
    rig_stop(&rig);
}

/* R43: with `full` no commit is reported before the directory was synced, through whichever path
 * and whoever made the rename. */
CASE(a_directory_that_was_not_synced_is_synced_through_the_next_path)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .extra = ", \"commit_sync\": \"full\""});
    batch_t *block = block_on(&rig, 1, 0);
    fault(&rig, 1, "fsyncdir data always fail EIO");
    CHECK_OK(dump(rig.store, block->shards, block->count));
    CHECK_EQ(seen(&rig, 1, "rename", "*"), 1);
    CHECK_EQ(seen(&rig, 2, "fsyncdir", "data"), 1);
    fault(&rig, 2, "fsyncdir data always fail EIO");
    fault(&rig, 0, "fsyncdir data always fail EIO");
    /* Stored already, by somebody who may not have synced it. */
    batch_t *other = block_on(&rig, 2, 0);
    batch_fill(other);
    write_file(block_path(rig.storage, id_of(other), 0), other->addrs[0], whole.block);
    CHECK_STATUS(dump(rig.store, other->shards, other->count), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "fsync: errno 5");
    rig_stop(&rig);
}

/* R5: the name that an earlier attempt of the same chain has made is no obstacle. */
CASE(a_name_of_our_own_is_no_obstacle)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "write data/* always fail EIO");
    CHECK_OK(dump(rig.store, block->shards, block->count));
    CHECK_EQ(seen(&rig, 0, "create", files_of(block)), 1);
    /* The kernel sees the name and answers EEXIST itself; then it is opened without creating. */
    CHECK_EQ(seen(&rig, 1, "open", files_of(block)), 1);
    CHECK(seen(&rig, 1, "write", files_of(block)) > 0);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), rig.options.shape.block);
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    rig_stop(&rig);
}

/* R16, R55: with no backend available every call says so at once and does no I/O. */
CASE(none_available_is_unhealthy_without_io)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.threshold = 1});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    for (int at = 0; at < 3; at++) exclude(&rig, at);
    CHECK_STATUS(kvpath_check_health(rig.store), KVPATH_STORE_UNHEALTHY);
    forget_counts(&rig);
    kvpath_task_t task = 0;
    uint8_t found = 9;
    CHECK_STATUS(kvpath_load(rig.store, block->shards, block->count, &task),
                 KVPATH_STORE_UNHEALTHY);
    CHECK_STATUS(kvpath_dump(rig.store, block->shards, block->count, &task),
                 KVPATH_STORE_UNHEALTHY);
    CHECK_STATUS(kvpath_lookup(rig.store, id_of(block), 1, &found), KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(found, 0);
    CHECK_STATUS(kvpath_remove(rig.store, id_of(block), 1), KVPATH_STORE_UNHEALTHY);
    for (int at = 0; at < 3; at++) CHECK_EQ(seen(&rig, at, "total", "*"), 0);
    rig_stop(&rig);
}

/* R15: health never changes the modulus: with one backend out, the blocks of the others stay where
 * they are, its own go to the next; and it is used again when it is back. */
CASE(the_modulus_is_the_configured_count)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole});
    batch_t *blocks[3];
    for (int at = 0; at < 3; at++) dump_batch(rig.store, blocks[at] = block_on(&rig, at, 0));
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[1], KVPATH_BACKEND_SET_OUT));
    forget_counts(&rig);
    for (int at = 0; at < 3; at++) load_right(&rig, blocks[at]);
    for (int at = 0; at < 3; at++) untouched(&rig, 1, blocks[at]);
    CHECK_EQ(seen(&rig, 0, "open", file_of(blocks[0])), 1);
    CHECK_EQ(seen(&rig, 2, "open", file_of(blocks[1])), 1);
    CHECK_EQ(seen(&rig, 2, "open", file_of(blocks[2])), 1);
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[1], KVPATH_BACKEND_SET_AUTO));
    forget_counts(&rig);
    for (int at = 0; at < 3; at++) load_right(&rig, blocks[at]);
    for (int at = 0; at < 3; at++) CHECK_EQ(seen(&rig, at, "open", file_of(blocks[at])), 1);
    CHECK_EQ(stats_of(rig.store).retries, 0); /* choosing another backend is no attempt */
    rig_stop(&rig);
}

/* R20: outcomes are counted when they happen, whether anybody waits for the tasks or not. */
CASE(outcomes_count_without_anybody_waiting)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){0});
    fault(&rig, 0, "any data/* always fail EIO");
    kvpath_task_t tasks[2];
    for (unsigned nth = 0; nth < 2; nth++) tasks[nth] = begin_load(&rig, block_on(&rig, 0, nth));
    wait_log("KV2001"); /* asking the store might be what counts them */
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    for (int at = 0; at < 2; at++) CHECK_STATUS(finish(&rig, tasks[at]), KVPATH_NOT_FOUND);
    rig_stop(&rig);
}

/* R22, R34: a path that gives too few bytes of a file that has them all is broken, and the block is
 * not: the next path is asked. Direct reads get no further, buffered ones do, byte by byte. */
CASE(a_path_that_gives_too_little_is_left)
{
    for (int buffered = 0; buffered < 2; buffered++) {
        rig_t rig;
        rig_start(&rig, 2, (options_t){.shape = whole, .buffered = buffered == 1});
        batch_t *block = block_on(&rig, 0, 0);
        dump_batch(rig.store, block);
        load_right(&rig, block);
        fault(&rig, 0, "read data/* always short 0");
        forget_counts(&rig);
        load_right(&rig, block);
        CHECK_EQ(seen(&rig, 1, "open", file_of(block)), 1);
        CHECK_HAS(health_of(&rig, 0).last_error, "no progress");
        CHECK_EQ(health_of(&rig, 0).failures, 1);
        CHECK_EQ(stats_of(rig.store).corrupt, 0);
        heal(&rig, 0);
        fault(&rig, 0, "read data/* always short 1000");
        load_right(&rig, block);
        rig_stop(&rig);
    }
}

/* R54: what runs when the store closes ends as it ends; it is not tried again. What it was to make
 * is not there, and its temporary is removed, through whichever path. */
static void fails_during_close(const char *op, kvpath_task_t (*begin)(rig_t *, batch_t *),
                               bool dumped)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    if (dumped) dump_batch(rig.store, block);
    forget_counts(&rig);
    fault(&rig, 0, "%s data/* always hang", op);
    begin(&rig, block);
    wait_hung(&rig, 0, 1, op);
    aside_t closing = aside(close_aside, &rig);
    wait_for("the close", is_closing, &rig);
    release_failing(&rig, 0, "EIO");
    join(closing);
    static const char *const tries[] = {"open", "create", "read", "write", "fsync", "rename"};
    for (size_t at = 0; at < sizeof tries / sizeof tries[0]; at++)
        CHECK_EQ(seen(&rig, 1, tries[at], files_of(block)), 0);
    CHECK_EQ(seen(&rig, 0, op, "data/*"), 1);
    CHECK_EQ(exists(block_path(rig.storage, id_of(block), 0)), dumped);
    CHECK_EQ(count_files(rig.storage, ".tmp"), 0);
    for (int at = 0; at < 2; at++) CHECK_EQ(faultfs_stop(&rig.fs[at]), 0);
}

CASE(no_retry_during_close)
{
    fails_during_close("read", begin_load, true);
    fails_during_close("write", begin_dump, false);
    fails_during_close("rename", begin_dump, false);
}
