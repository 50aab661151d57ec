/* Clients that remember what names and files were like, for a while or until they change them
 * themselves (GlusterFS, NFS): what they say costs no block and no byte. */
#define _GNU_SOURCE
#include <unistd.h>

#include "ha.h"

static options_t quick(void)
{
    return (options_t){.shape = whole, .window = 4, .threshold = 2};
}

/* R40: the client of one path remembers a block that was removed through another. A rename that
 * must not replace would find it there, and the dump would be dropped for a file that is gone. */
CASE(a_block_that_was_removed_is_stored_again)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    batch_t *block = block_on(&rig, 0, 0);
    const char *file = block_path(rig.storage, id_of(block), 0);
    fault(&rig, 0, "lookup,getattr data/* always remember");
    for (int at = 0; at < 2; at++) {
        dump_batch(rig.store, block);
        CHECK(exists(file));
        load_right(&rig, block); /* and the client remembers it */
        CHECK(unlink(file) == 0);
    }
    dump_batch(rig.store, block);
    heal(&rig, 0);
    load_right(&rig, block);
    rig_stop(&rig);
}

static void dump_shard(rig_t *rig, batch_t *block, unsigned shard)
{
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig->store, block->shards + shard, 1, &task));
    CHECK_OK(finish(rig, task));
}

static options_t in_shards(void)
{
    options_t options = quick();
    options.shape = pair;
    options.buffered = true;
    return options;
}

/* The first shard of a block is written through 1. Path 0 will see the half block when it is to
 * write the other shard, which it cannot, and remember it. */
static void dump_half(rig_t *rig, batch_t *block)
{
    batch_fill(block);
    fault(rig, 0, "create data/* count=1 fail EIO");
    dump_shard(rig, block, 0);
    fault(rig, 0, "lookup,getattr data/* always remember");
    fault(rig, 0, "write data/* count=1 fail EIO");
    forget_counts(rig);
}

/* R42: the client of one path saw the block's file before another path had written all of it, and
 * is then the one that names it: it must look anew, or it would give what it remembers. */
CASE(who_names_a_block_looks_anew)
{
    rig_t rig;
    rig_start(&rig, 2, in_shards());
    for (unsigned nth = 0; nth < 2; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        dump_half(&rig, block);
        if (nth == 1) fault(&rig, 0, "setattr data/* always fail EIO");
        dump_shard(&rig, block, 1); /* through 1, and 0 has seen half */
        CHECK_EQ(seen(&rig, (int)nth, "rename", file_of(block)), 1);
        load_right(&rig, block);
        heal(&rig, 0);
        load_right(&rig, block);
    }
    rig_stop(&rig);
}

/* The same where the path that saw half cannot look anew before another one names the block: it
 * does before it gives the block to anybody. */
CASE(who_saw_less_looks_anew_before_a_load)
{
    rig_t rig;
    options_t options = in_shards();
    options.threshold = 4;
    rig_start(&rig, 2, options);
    batch_t *block = block_on(&rig, 0, 0);
    dump_half(&rig, block);
    fault(&rig, 0, "setattr data/* count=1 fail EIO");
    dump_shard(&rig, block, 1);
    CHECK_EQ(seen(&rig, 0, "rename", file_of(block)), 0);
    CHECK_EQ(seen(&rig, 1, "rename", file_of(block)), 1);
    for (int at = 0; at < 2; at++) load_right(&rig, block);
    CHECK(seen(&rig, 0, "read", file_of(block)) >= 2);
    CHECK_EQ(seen(&rig, 0, "setattr", file_of(block)), 1); /* once is enough */
    rig_stop(&rig);
}

/* R42: a rename that was given up was done, late; and then another host removed the block. That the
 * clients remember it makes no dump of it a success. */
CASE(a_late_rename_of_what_was_removed_is_no_success)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 4000, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    const char *file = block_path(rig.storage, id_of(block), 0);
    long long rename = fault(&rig, 0, "rename data/* count=1 hang");
    fault(&rig, 1, "rename data/* count=1 fail EIO");
    batch_fill(block);
    CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_OS_ERROR);
    tell(&rig, 0, "release %lld", rename);
    wait_late_results(&rig, 1);
    CHECK(exists(file));
    for (int at = 0; at < 2; at++) fault(&rig, at, "lookup,getattr data/* always remember");
    load_right(&rig, block);
    CHECK(unlink(file) == 0);
    CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_OS_ERROR);
    dump_batch(rig.store, block); /* its file was given up: now all of it is written again */
    CHECK(exists(file));
    for (int at = 0; at < 2; at++) heal(&rig, at);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R5, R40: a creation and a rename that hung on two paths are done late, one after the other: the
 * empty file does not take the block's place. */
CASE(a_late_create_and_a_late_rename_replace_nothing)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .timeout_ms = 6000, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    long long create = fault(&rig, 0, "create data/* count=1 hang");
    long long rename = fault(&rig, 1, "rename data/* count=1 hang");
    dump_batch(rig.store, block);
    tell(&rig, 0, "release %lld", create);
    tell(&rig, 1, "release %lld", rename);
    wait_late_results(&rig, 2);
    wait_at_rest(&rig);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    load_right(&rig, block);
    rig_stop(&rig);
}
