/* Second tries that meet what the first one left (R5, R22, R30, R32, R42): a stale handle, a rename
 * that was given up and happened, a block that is written again, and memory that is borrowed. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ha.h"

/* R22: ESTALE, in flight, is one reopening by name within the same attempt. */
CASE(a_stale_handle_is_opened_once_more)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "write data/* count=1 fail ESTALE");
    dump_batch(rig.store, block);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    fault(&rig, 0, "read data/* count=1 fail ESTALE");
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK_EQ(seen(&rig, 0, "open", file_of(block)), 2);
    CHECK_EQ(stats_of(rig.store).retries, 0);
    for (int at = 0; at < 2; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    rig_stop(&rig);
}

/* R22: a shortage is waited out; where the call that is made again hangs, that is the path's. */
CASE(a_call_that_hangs_after_a_shortage_is_the_path_s)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 4000});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    int shortage = fault(&rig, 0, "open %s count=2 fail EMFILE", file_of(block)); /* one is a ring's */
    fault(&rig, 0, "open %s after=2 hang", file_of(block));
    load_right(&rig, block);
    CHECK_EQ(faultfs_number(&rig.fs[0], "rule fired %d", shortage), 2);
    CHECK_EQ(stats_of(rig.store).retries, 1);
    check_health(&rig, 0, ANY, ANY, 1);
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    heal(&rig, 0);
    release(&rig, 0);
    wait_at_rest(&rig);
    rig_stop(&rig);
}

/* R42: the first rename is given up, and done all the same; the second one, under way through
 * another path, then finds the name taken, or its own file gone. Either is success. */
static void orphaned_rename(bool with_flags)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .timeout_ms = 9000});
    if (!with_flags)
        for (int at = 0; at < 3; at++) fault(&rig, at, "rename-flags * always fail EINVAL");
    batch_t *block = block_on(&rig, 0, 0), *other = block_on(&rig, 0, 1);
    if (!with_flags) dump_batch(rig.store, other); /* the plain form is learned */
    if (!with_flags) dump_batch(rig.store, block_on(&rig, 1, 1));
    batch_fill(block);
    for (int at = 0; at < 2; at++) fault(&rig, at, "rename %s* count=1 hang", file_of(block));
    kvpath_task_t task = begin_dump(&rig, block);
    wait_hung(&rig, 0, 1, "rename");
    wait_hung(&rig, 1, 1, "rename");
    release(&rig, 0);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    release(&rig, 1);
    CHECK_OK(finish(&rig, task));
    CHECK_EQ(seen(&rig, 2, "rename", files_of(block)), 0);
    wait_at_rest(&rig);
    check_health(&rig, 0, ANY, ANY, 1); /* the time-out */
    check_health(&rig, 1, ANY, ANY, 0);
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(a_rename_that_was_given_up_and_done_is_success)
{
    orphaned_rename(true);
    orphaned_rename(false);
}

/* R40: another writer's whole block stays as it is where a rename cannot tell that it is there, too.
 * Who has it open, or remembers it, would get ESTALE for a block that was replaced. */
CASE(what_is_there_is_not_replaced)
{
    rig_t rig;
    options_t options = {.shape = whole, .timeout_ms = 9000};
    rig_start(&rig, 2, options);
    for (int at = 0; at < 2; at++) fault(&rig, at, "rename-flags * always fail EINVAL");
    kvpath_store_t other = open_store(rig_config(&rig, options));
    batch_t *block = block_on(&rig, 0, 0);
    const char *file = block_path(rig.storage, id_of(block), 0);
    dump_batch(rig.store, block);
    struct stat first, now;
    CHECK(stat(file, &first) == 0);
    for (int twice = 0; twice < 2; twice++) {
        dump_batch(other, block);
        CHECK(stat(file, &now) == 0);
        CHECK_EQ(now.st_ino, first.st_ino);
        dump_batch(other, block_on(&rig, 0, 1)); /* which tells it that flags are refused */
    }
    CHECK(truncate(file, 1) == 0); /* but what is no whole block is */
    dump_batch(other, block);
    check_file(file, id_of(block), whole.block);
    load_right(&rig, block);
    CHECK_OK(kvpath_close(other));
    rig_stop(&rig);
}

/* R30, R42: a commit that fails is a dump again, through the next path; it ends with its task, and
 * takes nothing more from memory that is the caller's again (here: not there any more). */
CASE(a_block_written_again_ends_with_its_task)
{
    static const shape_t large = {4 << 20, 4 << 20, 4 << 20};
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = large, .buffered = true, .timeout_ms = 3000,
                                   .threshold = 4, .extra = ", \"commit_sync\": \"none\""});
    const batch_t *block = block_on(&rig, 0, 0);
    void *memory = mmap(NULL, large.block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                        -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 0x55, large.block);
    fault(&rig, 0, "rename data/* always fail EIO");
    fault(&rig, 1, "write data/* always hang");
    kvpath_shard_t shard = {*id_of(block), 0, 1, &memory};
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig.store, &shard, 1, &task));
    wait_hung(&rig, 1, 1, "write");
    CHECK_STATUS(finish(&rig, task), KVPATH_TIMEOUT);
    CHECK(munmap(memory, large.block) == 0);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    wait_at_rest(&rig);
    CHECK(!present(rig.store, id_of(block)));
    rig_stop(&rig);
}

/* R28, R32: what hangs in borrowed memory has no limit; everybody else has. */
CASE(a_hang_in_borrowed_memory_leaves_other_limits_alone)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 1000, .threshold = 4,
                                   .extra = ", \"buffer_mode\": \"borrowed\""});
    batch_t *hangs = block_on(&rig, 0, 0), *late = block_on(&rig, 0, 1);
    dump_batch(rig.store, hangs);
    dump_batch(rig.store, late);
    fault(&rig, 0, "read %s always hang", file_of(hangs));
    kvpath_task_t first = begin_load(&rig, hangs);
    wait_hung(&rig, 0, 1, "read");
    CHECK_STATUS(kvpath_wait(rig.store, first, 1500), KVPATH_RETRY); /* its limits have passed */
    for (int at = 0; at < 2; at++) fault(&rig, at, "open %s always hang", file_of(late));
    uint64_t start = now_ms();
    CHECK_STATUS(load(rig.store, late->shards, late->count), KVPATH_TIMEOUT);
    CHECK(now_ms() - start >= 1000 - 1 && now_ms() - start < 1000 + SLACK_MS);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    (void)finish(&rig, first);
    rig_stop(&rig);
}

/* R28: the shards of a block wait while the first of them makes its file. Where that hangs they go on
 * to the path that it goes on to, or they would hang in the same directory. */
CASE(who_waited_for_a_hung_creation_goes_elsewhere)
{
    static const shape_t four = {4096, 4096, 4 * 4096};
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = four, .timeout_ms = 6000, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    batch_fill(block);
    fault(&rig, 0, "create data/* count=1 hang");
    kvpath_task_t tasks[4];
    for (int at = 0; at < 4; at++) CHECK_OK(kvpath_dump(rig.store, block->shards + at, 1, tasks + at));
    for (int at = 0; at < 4; at++) CHECK_OK(finish(&rig, tasks[at]));
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), four.block);
    CHECK_EQ(seen(&rig, 0, "write", files_of(block)), 0);
    heal(&rig, 0);
    release(&rig, 0);
    wait_at_rest(&rig);
    load_right(&rig, block);
    rig_stop(&rig);
}

static bool nothing_runs(void *rig)
{
    return stats_of(((rig_t *)rig)->store).in_flight == 0;
}

/* R5, R36: no removal of a left file goes where an older one's creation still holds the directory. */
CASE(removals_wait_behind_no_creation)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .timeout_ms = 6000, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    for (int at = 0; at < 2; at++) fault(&rig, at, "create data/* count=1 hang");
    dump_batch(rig.store, block);
    wait_for("the end of what began", nothing_runs, &rig);
    CHECK_EQ(stats_of(rig.store).abandoned, 2);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    wait_at_rest(&rig);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R22, R40: where a rename cannot tell, the server is asked whether the block is there; a file whose
 * times nobody can set is there all the same. */
CASE(a_block_whose_times_cannot_be_set_is_there)
{
    static const char *const errors[] = {"EOPNOTSUPP", "EROFS"};
    for (size_t at = 0; at < sizeof errors / sizeof errors[0]; at++) {
        rig_t rig;
        rig_start(&rig, 1, (options_t){.shape = whole});
        fault(&rig, 0, "rename-flags * always fail EINVAL");
        batch_t *block = block_on(&rig, 0, 0);
        dump_batch(rig.store, block);
        fault(&rig, 0, "setattr %s always fail %s", file_of(block), errors[at]);
        dump_batch(rig.store, block);
        check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 0);
        heal(&rig, 0);
        load_right(&rig, block);
        rig_stop(&rig);
    }
}
