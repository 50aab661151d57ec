/* Clients that remember what names and files were like, for a while or until they change them
 * themselves (GlusterFS, NFS): what they say costs no block and no byte. */
#define _GNU_SOURCE
#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>
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
    CHECK_OK(dump_shard(rig, block, 0));
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
        CHECK_OK(dump_shard(&rig, block, 1)); /* through 1, and 0 has seen half */
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
    CHECK_OK(dump_shard(&rig, block, 1));
    CHECK_EQ(seen(&rig, 0, "rename", file_of(block)), 0);
    CHECK_EQ(seen(&rig, 1, "rename", file_of(block)), 1);
    for (int at = 0; at < 2; at++) load_right(&rig, block);
    CHECK(seen(&rig, 0, "read", file_of(block)) >= 2);
    CHECK_EQ(seen(&rig, 0, "setattr", file_of(block)), 2); /* times and length, once */
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
static void late_create_and_rename(bool with_flags)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .timeout_ms = 6000, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    for (int at = 0; at < 3 && !with_flags; at++) {
        fault(&rig, at, "rename-flags * always fail EINVAL");
        dump_batch(rig.store, block_on(&rig, at, 1)); /* the plain form is learned */
    }
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

CASE(a_late_create_and_a_late_rename_replace_nothing)
{
    late_create_and_rename(true);
    late_create_and_rename(false);
}

static void look_at_unfinished(const char *path, const batch_t *block)
{
    char pattern[4096];
    snprintf(pattern, sizeof pattern, "%s.*.tmp", block_path(path, id_of(block), 0));
    glob_t found;
    CHECK_EQ(glob(pattern, 0, NULL, &found), 0);
    struct stat file;
    CHECK(found.gl_pathc == 1 && stat(found.gl_pathv[0], &file) == 0);
    globfree(&found);
}

/* R42: another process on the same paths knows nothing of what happened while the block was
 * written. Every path that it was begun on, and which saw less than all, has looked anew before the
 * block has its name. */
CASE(other_processes_get_the_whole_block)
{
    static const shape_t triple = {4096, 4096, 3 * 4096};
    rig_t rig;
    options_t options = in_shards();
    options.shape = triple;
    options.timeout_ms = 60000;
    options.window = options.threshold = 64;
    rig_start(&rig, 2, options);
    rig_t theirs = rig;
    theirs.store = open_store(rig_config(&rig, options));
    for (unsigned nth = 0; nth < 2; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        batch_fill(block);
        CHECK_OK(dump_shard(&rig, block, 0));
        fault(&rig, 0, "write data/* count=1 fail EIO");
        /* Through 1, whose client sees two shards, and remembers them. */
        CHECK_OK(dump_shard(&rig, block, 1));
        fault(&rig, 1, "lookup,getattr data/* always remember");
        look_at_unfinished(rig.path[1], block);
        if (nth == 1) fault(&rig, 1, "setattr data/* always fail EIO"); /* costs no commit */
        forget_counts(&rig);
        CHECK_OK(dump_shard(&rig, block, 2));
        CHECK_EQ(seen(&rig, 0, "rename", file_of(block)), 1);
        CHECK(seen(&rig, 1, "setattr", files_of(block)) > 0);
        fault(&rig, 0, "open data/* always fail EIO");
        if (nth == 0) load_right(&theirs, block);
        heal(&rig, 1);
        load_right(&rig, block);
        heal(&rig, 0);
    }
    CHECK_OK(kvpath_close(theirs.store));
    rig_stop(&rig);
}

/* R5: what a commit left hanging at a block's unfinished file keeps the directory of that path, for
 * whoever wants to change a name in it. The file is removed through another path. */
CASE(a_hung_look_keeps_no_directory)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = pair, .timeout_ms = 6000, .window = 64,
                                   .threshold = 64,
                                   .extra = ", \"commit_policy\": \"explicit\""});
    batch_t *block = block_on(&rig, 0, 0), *other = block_on(&rig, 0, 1);
    batch_fill(block);
    batch_fill(other);
    fault(&rig, 0, "create data/* count=1 fail EIO");
    CHECK_OK(dump_shard(&rig, block, 0)); /* through 1 */
    CHECK_OK(dump_shard(&rig, block, 1)); /* through 0, which has to look anew and name it */
    fault(&rig, 0, "setattr data/* count=1 hang");
    fault(&rig, 1, "rename data/* always fail EIO");
    CHECK_STATUS(kvpath_commit(rig.store, id_of(block), 1), KVPATH_OS_ERROR);
    CHECK_EQ(hung(&rig, 0), 1);
    CHECK_OK(kvpath_commit(rig.store, id_of(block), 0));
    wait_seen(&rig, 1, "unlink", files_of(block), 1);
    CHECK_OK(dump_shard(&rig, other, 0));
    CHECK_EQ(stats_of(rig.store).abandoned, 1); /* the look: nothing waits behind it */
    release(&rig, 0);
    wait_at_rest(&rig);
    rig_stop(&rig);
}

/* R5, R42: a rename that was given up could still name a file of which shards were lost meanwhile,
 * and the caller was told so. */
static bool no_temporary(void *rig)
{
    return count_files(((rig_t *)rig)->storage, ".tmp") == 0;
}

static void late_rename_of_what_was_lost(bool before_the_removal)
{
    rig_t rig;
    options_t options = in_shards();
    options.timeout_ms = 6000;
    options.window = options.threshold = 64;
    options.extra = ", \"commit_sync\": \"none\"";
    rig_start(&rig, 2, options);
    batch_t *block = block_on(&rig, 0, 0);
    batch_fill(block);
    fault(&rig, 0, "create data/* count=1 fail EIO");
    CHECK_OK(dump_shard(&rig, block, 0)); /* through 1: that one is not lost */
    long long rename = fault(&rig, 0, "rename data/* count=1 hang");
    if (before_the_removal) fault(&rig, 1, "unlink data/* count=1 hang");
    fault(&rig, 0, "fsync data/* always fail EIO");
    CHECK(dump_shard(&rig, block, 1) != KVPATH_OK);
    if (before_the_removal) wait_hung(&rig, 1, 1, "unlink");
    else wait_for("the removal", no_temporary, &rig);
    tell(&rig, 0, "release %lld", rename);
    wait_late_results(&rig, 1);
    release(&rig, 1);
    wait_for("the removal", no_temporary, &rig);
    wait_at_rest(&rig);
    CHECK(!exists(block_path(rig.storage, id_of(block), 0)));
    heal(&rig, 0);
    for (unsigned shard = 0; shard < 2; shard++) CHECK_OK(dump_shard(&rig, block, shard));
    load_right(&rig, block);
    wait_at_rest(&rig);
    rig_stop(&rig);
}

CASE(a_late_rename_of_what_was_lost_names_nothing)
{
    late_rename_of_what_was_lost(false);
    late_rename_of_what_was_lost(true);
}
