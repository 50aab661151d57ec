/* The failure matrix: each row of the matrix in TABLE.md is a case here, which says what the
 * operation is: which call of the store, and which request of the file system fails in it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "matrix.h"

/* ---- calls ---- */

static kvpath_status_t load_block(cell_t *cell)
{
    batch_wipe(cell->block);
    return load(cell->rig->store, cell->block->shards, cell->block->count);
}

kvpath_status_t load_first(cell_t *cell)
{
    batch_wipe(cell->block);
    return load(cell->rig->store, cell->block->shards, 1);
}

static kvpath_status_t dump_block(cell_t *cell)
{
    batch_fill(cell->block);
    return dump(cell->rig->store, cell->block->shards, cell->block->count);
}

/* The second of two shards: the temporary is there, and the commit follows. */
static kvpath_status_t dump_last(cell_t *cell)
{
    return dump(cell->rig->store, &cell->block->shards[1], 1);
}

static kvpath_status_t look_up(cell_t *cell)
{
    uint8_t found = 9;
    kvpath_status_t status = kvpath_lookup(cell->rig->store, id_of(cell->block), 1, &found);
    if (status != KVPATH_OK && found != 0) FAIL("an id that could not be asked is %d", found);
    return status != KVPATH_OK ? status : found == 1 ? KVPATH_OK : KVPATH_NOT_FOUND;
}

static kvpath_status_t remove_block(cell_t *cell)
{
    return kvpath_remove(cell->rig->store, id_of(cell->block), 1);
}

static kvpath_status_t drop_block(cell_t *cell)
{
    return kvpath_commit(cell->rig->store, id_of(cell->block), false);
}

static bool has_temporary(const cell_t *cell)
{
    bool has = false;
    DIR *dir = opendir(text("%s/data", cell->rig->storage));
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        has |= strstr(entry->d_name, ".tmp") != NULL;
    closedir(dir);
    return has;
}

static bool is_removed_or_refused(void *argument)
{
    const cell_t *cell = argument;
    /* A word without retries says that the first path's refusal ends it. */
    int last = cell->place != ALL ? cell->place : cell->want->retries == 0 ? 0 : PATHS - 1;
    return !has_temporary(cell) || fired(cell, last) > 0;
}

static bool is_counted(void *argument)
{
    const cell_t *cell = argument;
    kvpath_stats_t now = stats_of(cell->rig->store);
    if ((long long)(now.retries - cell->before.retries) < cell->want->retries) return false;
    for (int nth = 0; nth < PATHS; nth++)
        if (cell->want->counted[nth] == 'x' &&
            health_of(cell->rig, candidate(cell, nth)).failures == 0)
            return false;
    return true;
}

/* It is gone, or the last path that is asked has refused it. Nobody waits for a drop, and the
 * storage sees a call before the store has its answer: so what is counted is waited for too, and
 * compared with the table afterwards, which finds what is too much. */
static void settle_drop(cell_t *cell)
{
    wait_for("the removal", is_removed_or_refused, cell);
    wait_for("the removal to be counted", is_counted, cell);
    if (!cell->slow) wait_at_rest(cell->rig);
}

static kvpath_status_t nothing_more(cell_t *cell)
{
    (void)cell;
    return KVPATH_OK;
}

static kvpath_status_t open_again(cell_t *cell)
{
    return kvpath_open(rig_config(cell->rig, cell->rig->options), &cell->rig->store);
}

/* ---- what is there before ---- */

/* Written past the store, so that nothing was learned from it. */
static void store_block(cell_t *cell)
{
    const char *path = block_path(cell->rig->storage, id_of(cell->block), 0);
    batch_fill(cell->block);
    write_file(path, cell->block->memory + 64, 0);
    FILE *file = fopen(path, "wb");
    CHECK(file != NULL);
    for (size_t at = 0; at < cell->block->count; at++)
        CHECK(fwrite(cell->block->addrs[at], 1, cell->block->shape.shard, file) ==
              cell->block->shape.shard);
    CHECK(fclose(file) == 0);
}

static void dump_first(cell_t *cell)
{
    batch_fill(cell->block);
    CHECK_OK(dump(cell->rig->store, cell->block->shards, 1));
}

static void lose_directory(cell_t *cell)
{
    CHECK(rmdir(text("%s/data", cell->rig->storage)) == 0);
}

static void close_store(cell_t *cell) { CHECK_OK(kvpath_close(cell->rig->store)); }

static void forget_storage(cell_t *cell)
{
    close_store(cell);
    lose_directory(cell);
    CHECK(unlink(text("%s/.kvpath", cell->rig->storage)) == 0);
}

/* ---- loads ---- */

static void run_load(const char *name, const char *ops)
{
    const operation_t operation = {ops, "data/%s", BLOCK_STAYS, {.shape = whole}, store_block,
                                   load_block, KVPATH_OK, KVPATH_NOT_FOUND, false, NULL, NULL,
                                   NULL};
    run_row(name, &operation);
}

CASE(load_lookup) { run_load("load.lookup", "lookup"); }
CASE(load_open) { run_load("load.open", "open"); }
CASE(load_read) { run_load("load.read", "read"); }

/* What is not read to its end is asked how long it is, by every engine. */
CASE(load_stat)
{
    const operation_t operation = {"getattr", "data/%s", BLOCK_STAYS, {.shape = pair}, store_block,
                                   load_first, KVPATH_OK, KVPATH_NOT_FOUND, false, NULL, NULL,
                                   NULL};
    run_row("load.stat", &operation);
}

/* A file in a ring's own table was never in the process's, and leaving that is what flushes. */
CASE(load_close)
{
    const operation_t operation = {"flush", "data/%s", BLOCK_STAYS, {.shape = whole}, store_block,
                                   load_block, KVPATH_OK, KVPATH_NOT_FOUND, false, NULL, NULL,
                                   "io_uring"};
    run_row("load.close", &operation);
}

/* R24: a block that is not there, and the marker is asked whether to believe it. */
static void run_missing(const char *name, const char *ops,
                        kvpath_status_t (*act)(cell_t *), kvpath_status_t right)
{
    const operation_t operation = {ops, ".kvpath", NOTHING_MADE, {.shape = whole}, NULL, act,
                                   right, right, false, NULL, NULL, NULL};
    run_row(name, &operation);
}

CASE(load_marker_open)
{
    run_missing("load.marker_open", "open", load_block, KVPATH_NOT_FOUND);
}

CASE(load_marker_read)
{
    run_missing("load.marker_read", "read", load_block, KVPATH_NOT_FOUND);
}

/* ---- dumps ---- */

static void run_dump(const char *name, const char *ops, const char *pattern, options_t options,
                     void (*prepare)(cell_t *))
{
    const bool second = options.shape.block != 0 && options.shape.shard < options.shape.block;
    const operation_t operation = {ops, pattern, BLOCK_MADE, options, prepare,
                                   second && prepare == dump_first ? dump_last : dump_block,
                                   KVPATH_OK, KVPATH_OK, false, dump_block, NULL, NULL};
    run_row(name, &operation);
}

static const char *const temporary = "data/%s.*";

CASE(dump_marker_open)
{
    run_dump("dump.marker_open", "open", ".kvpath", (options_t){.shape = whole}, NULL);
}

CASE(dump_marker_read)
{
    run_dump("dump.marker_read", "read", ".kvpath", (options_t){.shape = whole}, NULL);
}

CASE(dump_create)
{
    run_dump("dump.create", "create", temporary, (options_t){.shape = whole}, NULL);
}

/* R7: a lost directory is made again. */
CASE(dump_mkdir)
{
    run_dump("dump.mkdir", "mkdir", "data", (options_t){.shape = whole}, lose_directory);
}

CASE(dump_open)
{
    run_dump("dump.open", "open", temporary, (options_t){.shape = {4096, 4096, 8192}}, dump_first);
}

static kvpath_status_t dump_one_by_one(cell_t *cell)
{
    batch_fill(cell->block);
    kvpath_status_t status = dump(cell->rig->store, cell->block->shards, 1);
    return status != KVPATH_OK ? status : dump_last(cell);
}

/* Space is reserved where the first shard of several makes the file. */
CASE(dump_reserve)
{
    const operation_t operation = {"fallocate", temporary, BLOCK_MADE, {.buffered = false}, NULL,
                                   dump_one_by_one, KVPATH_OK, KVPATH_OK, false, NULL, NULL, NULL};
    run_row("dump.reserve", &operation);
}

CASE(dump_write)
{
    run_dump("dump.write", "write", temporary, (options_t){.shape = whole}, NULL);
}

CASE(dump_sync)
{
    run_dump("dump.sync", "fsync", temporary, (options_t){.shape = whole, .buffered = true}, NULL);
}

CASE(dump_close)
{
    run_dump("dump.close", "flush", temporary, (options_t){.shape = whole}, NULL);
}

/* ---- commits ---- */

CASE(commit_sync)
{
    run_dump("commit.sync", "fsync", temporary,
             (options_t){.shape = {4096, 4096, 8192}, .buffered = true}, dump_first);
}

CASE(commit_rename)
{
    run_dump("commit.rename", "rename", temporary, (options_t){.shape = whole}, NULL);
}

static void run_renamed(const char *name, const char *ops, const char *pattern, const char *extra,
                        void (*prepare)(cell_t *))
{
    const operation_t operation = {ops, pattern, BLOCK_MAYBE, {.shape = whole, .extra = extra},
                                   prepare, dump_block, KVPATH_OK, KVPATH_OK, false, NULL, NULL,
                                   NULL};
    run_row(name, &operation);
}

CASE(commit_sync_dir)
{
    run_renamed("commit.sync_dir", "fsyncdir", "data", ", \"commit_sync\": \"full\"", NULL);
}

/* R40: the block is there already, and its size is asked. */
CASE(commit_stat) { run_renamed("commit.stat", "getattr", "data/%s", "", store_block); }
CASE(commit_drop) { run_renamed("commit.drop", "unlink", temporary, "", store_block); }

/* ---- the rest ---- */

CASE(drop_unlink)
{
    const operation_t operation = {"unlink", temporary, NOTHING_MADE, {.buffered = false},
                                   dump_first, drop_block, KVPATH_OK, KVPATH_OK, false, nothing_more,
                                   settle_drop, NULL};
    run_row("drop.unlink", &operation);
}

CASE(lookup_stat)
{
    const operation_t operation = {"lookup,getattr", "data/%s", BLOCK_STAYS, {.shape = whole},
                                   store_block, look_up, KVPATH_OK, KVPATH_NOT_FOUND, false, NULL,
                                   NULL, NULL};
    run_row("lookup.stat", &operation);
}

CASE(lookup_marker_open)
{
    run_missing("lookup.marker_open", "open", look_up, KVPATH_NOT_FOUND);
}

CASE(remove_unlink)
{
    const operation_t operation = {"unlink", "data/%s", BLOCK_GONE, {.shape = whole}, store_block,
                                   remove_block, KVPATH_OK, KVPATH_OK, false, NULL, NULL, NULL};
    run_row("remove.unlink", &operation);
}

CASE(remove_marker_open) { run_missing("remove.marker_open", "open", remove_block, KVPATH_OK); }

/* ---- start-up ---- */

static void run_open(const char *name, const char *ops, const char *pattern,
                     void (*prepare)(cell_t *))
{
    const options_t options = {.buffered = strcmp(ops, "fsync") == 0};
    const operation_t operation = {ops, pattern, NOTHING_MADE, options, prepare, open_again,
                                   KVPATH_OK, KVPATH_OK, true, NULL, NULL, NULL};
    run_row(name, &operation);
}

static const char *const probe = "data/probe-*";

CASE(open_marker_open) { run_open("open.marker_open", "open", ".kvpath", close_store); }
CASE(open_marker_read) { run_open("open.marker_read", "read", ".kvpath", close_store); }
CASE(open_list) { run_open("open.list", "opendir", ".", close_store); }
CASE(open_mkdir) { run_open("open.mkdir", "mkdir", "data", forget_storage); }
CASE(open_link) { run_open("open.link", "link", ".kvpath*", forget_storage); }
CASE(open_create) { run_open("open.create", "create", probe, close_store); }
CASE(open_write) { run_open("open.write", "write", probe, close_store); }
CASE(open_sync) { run_open("open.sync", "fsync", probe, close_store); }
CASE(open_read) { run_open("open.read", "read", probe, close_store); }
CASE(open_close) { run_open("open.close", "flush", probe, close_store); }
CASE(open_remove) { run_open("open.remove", "unlink", probe, close_store); }
