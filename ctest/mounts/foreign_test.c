/* Mounts that nobody here wrote: bindfs whose server is stopped or killed, a bind mount that
 * becomes read-only, an ext4 that is frozen, and one without space or inodes (R22, R24, R28, R29,
 * R35, R50). Each case skips where the machine cannot do it; ground.h says why none can hang it. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "ground.h"

static options_t options(unsigned timeout_ms)
{
    return (options_t){.shape = whole, .window = 3, .threshold = 2, .interval_s = 0.6,
                       .probe_timeout_s = 0.5, .timeout_ms = timeout_ms};
}

/* The rig's paths are bind mounts of its storage. */
static void bind_paths(rig_t *rig, int n, const char *storage)
{
    memset(rig, 0, sizeof *rig);
    rig->n = n;
    rig->storage = storage;
    for (int at = 0; at < n; at++) {
        rig->path[at] = temp_dir();
        bind_at(storage, rig->path[at]);
    }
}

static void check_stored(const rig_t *rig, const batch_t *block)
{
    check_file(block_path(rig->storage, id_of(block), 0), id_of(block), block->shape.block);
}

static void end(rig_t *rig)
{
    CHECK_OK(kvpath_close(rig->store));
    CHECK_EQ(count_files(rig->storage, ".tmp"), 0);
}

/* ---- bindfs ---- */

static void bindfs_paths(rig_t *rig, int servers[3])
{
    ground_begin();
    memset(rig, 0, sizeof *rig);
    rig->n = 3;
    rig->storage = temp_dir();
    for (int at = 0; at < 3; at++) {
        rig->path[at] = temp_dir();
        servers[at] = bindfs_at(rig->storage, rig->path[at]);
    }
    rig_open(rig, options(3000));
}

/* Two blocks of a path, because one bad block excludes none; both are loaded. */
static void load_two(rig_t *rig, batch_t *const blocks[2])
{
    for (int at = 0; at < 2; at++) load_right(rig, blocks[at]);
}

CASE(bindfs_stopped)
{
    rig_t rig;
    int servers[3];
    bindfs_paths(&rig, servers);
    batch_t *blocks[2] = {block_on(&rig, 0, 0), block_on(&rig, 0, 1)};
    for (int at = 0; at < 2; at++) dump_batch(rig.store, blocks[at]);
    bindfs_signal(servers[0], SIGSTOP);
    uint64_t start = now_ms();
    load_two(&rig, blocks); /* an attempt's limit each, then through path 1 */
    CHECK(now_ms() - start >= 1000 - 1);
    wait_state(&rig, 0, KVPATH_BACKEND_EXCLUDED);
    CHECK_HAS(health_of(&rig, 0).last_error, "timed out");
    batch_t *during = block_on(&rig, 0, 2);
    dump_batch(rig.store, during); /* at once: nothing goes there any more */
    check_stored(&rig, during);
    wait_probes(&rig, 0, 2);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    bindfs_signal(servers[0], SIGCONT);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    wait_at_rest(&rig);
    load_right(&rig, during);
    end(&rig);
}

/* A dump in flight through the path whose server stops. */
CASE(bindfs_stopped_while_dumps_run)
{
    enum { DUMPS = 24 };
    rig_t rig;
    int servers[3];
    bindfs_paths(&rig, servers);
    batch_t *blocks[DUMPS];
    kvpath_task_t tasks[DUMPS];
    for (int at = 0; at < DUMPS; at++) {
        blocks[at] = block_on(&rig, at % 3, (unsigned)at / 3);
        batch_fill(blocks[at]);
    }
    for (int at = 0; at < DUMPS; at++) {
        if (at == DUMPS / 2) bindfs_signal(servers[1], SIGSTOP);
        tasks[at] = begin_dump(&rig, blocks[at]);
    }
    for (int at = 0; at < DUMPS; at++) CHECK_OK(finish(&rig, tasks[at]));
    for (int at = 0; at < DUMPS; at++) check_stored(&rig, blocks[at]);
    bindfs_signal(servers[1], SIGCONT);
    wait_at_rest(&rig);
    for (int at = 0; at < DUMPS; at++) load_right(&rig, blocks[at]);
    for (int at = 0; at < DUMPS; at++) check_stored(&rig, blocks[at]);
    end(&rig);
}

CASE(bindfs_killed)
{
    rig_t rig;
    int servers[3];
    bindfs_paths(&rig, servers);
    batch_t *blocks[2] = {block_on(&rig, 1, 0), block_on(&rig, 1, 1)};
    for (int at = 0; at < 2; at++) dump_batch(rig.store, blocks[at]);
    bindfs_kill(servers[1]);
    load_two(&rig, blocks);
    check_health(&rig, 1, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    CHECK_HAS(health_of(&rig, 1).last_error, "ENOTCONN");
    batch_t *during = block_on(&rig, 1, 2);
    dump_batch(rig.store, during);
    detach(rig.path[1]); /* as an operator would */
    servers[1] = bindfs_at(rig.storage, rig.path[1]);
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    load_right(&rig, during);
    end(&rig);
}

/* While requests are in its hands: they end with ENOTCONN. */
CASE(bindfs_killed_while_stopped)
{
    rig_t rig;
    int servers[3];
    bindfs_paths(&rig, servers);
    batch_t *block = block_on(&rig, 2, 0);
    dump_batch(rig.store, block);
    bindfs_signal(servers[2], SIGSTOP);
    kvpath_task_t task = begin_load(&rig, block);
    bindfs_kill(servers[2]);
    CHECK_OK(finish(&rig, task));
    batch_check(block);
    wait_at_rest(&rig);
    CHECK(health_of(&rig, 2).failures >= 1);
    end(&rig);
}

/* ---- read-only ---- */

static void make_read_only(const char *path, bool read_only)
{
    unsigned long flags = MS_REMOUNT | MS_BIND | (read_only ? MS_RDONLY : 0);
    CHECK(mount(NULL, path, NULL, flags, NULL) == 0);
}

CASE(one_path_becomes_read_only)
{
    rig_t rig;
    ground_begin();
    bind_paths(&rig, 3, temp_dir());
    rig_open(&rig, options(0));
    batch_t *old = block_on(&rig, 0, 0);
    dump_batch(rig.store, old);
    make_read_only(rig.path[0], true);
    load_right(&rig, old);
    for (unsigned nth = 1; nth <= 2; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        dump_batch(rig.store, block);
        check_stored(&rig, block);
    }
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, ANY, 2);
    CHECK_HAS(health_of(&rig, 0).last_error, "EROFS");
    load_right(&rig, old);
    const char *config = rig_config(&rig, options(0));
    const char *error = open_fails(config, KVPATH_STORE_UNHEALTHY); /* another store: refused */
    CHECK_HAS(error, rig.path[0]);
    CHECK_HAS(error, "EROFS");
    make_read_only(rig.path[0], false);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    dump_batch(rig.store, block_on(&rig, 0, 3));
    end(&rig);
}

/* ---- ext4 ---- */

/* Two paths to an ext4, and a store that gives calls two seconds; how many threads there were. */
static size_t open_ext4(rig_t *rig, shape_t shape)
{
    ground_begin();
    bind_paths(rig, 2, ext4_new(32, "-m 0"));
    size_t threads = thread_count();
    options_t slow = options(2000);
    slow.shape = shape;
    slow.extra = ", \"close_timeout_ms\": 60000";
    rig_open(rig, slow);
    return threads;
}

/* What writes hangs, and cannot be interrupted; calls return in their time all the same. */
CASE(frozen_ext4)
{
    rig_t rig;
    const size_t threads = open_ext4(&rig, whole);
    batch_t *old = block_on(&rig, 0, 0), *block = block_on(&rig, 0, 1);
    dump_batch(rig.store, old);
    batch_fill(block);
    freeze(rig.storage);
    uint64_t start = now_ms();
    CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_TIMEOUT);
    CHECK(now_ms() - start < 2000 + SLACK_MS);
    memset(block->memory, 0xee, block->memory_bytes); /* R30: ours again */
    load_right(&rig, old); /* one bad block excludes nothing; reads need no write */
    CHECK_OK(kvpath_check_health(rig.store));
    CHECK(health_of(&rig, 0).failures + health_of(&rig, 1).failures >= 1);
    thaw(rig.storage);
    wait_at_rest(&rig);
    for (size_t at = 0; at < block->memory_bytes; at++) CHECK_EQ(block->memory[at], 0xee);
    CHECK(!exists(block_path(rig.storage, id_of(block), 0)));
    batch_t *again = block_on(&rig, 0, 1);
    dump_batch(rig.store, again);
    check_stored(&rig, again);
    end(&rig);
    wait_threads(threads);
}

/* Frozen between two shards of a block: a write into a file that is there already has a way of its
 * own in some engines, and reads go on as well. */
CASE(frozen_ext4_between_shards)
{
    rig_t rig;
    const size_t threads = open_ext4(&rig, (shape_t){4096, 4096, 16384});
    batch_t *old = block_on(&rig, 0, 0), *block = block_on(&rig, 0, 1);
    dump_batch(rig.store, old);
    batch_fill(block);
    CHECK_OK(dump(rig.store, block->shards, 1));
    freeze(rig.storage);
    uint64_t start = now_ms();
    CHECK_STATUS(dump(rig.store, block->shards + 1, 1), KVPATH_TIMEOUT);
    CHECK(now_ms() - start < 2000 + SLACK_MS);
    load_right(&rig, old);
    CHECK_OK(kvpath_check_health(rig.store));
    thaw(rig.storage);
    wait_at_rest(&rig);
    CHECK(!exists(block_path(rig.storage, id_of(block), 0)));
    dump_batch(rig.store, block);
    check_stored(&rig, block);
    end(&rig);
    wait_threads(threads);
}

/* Frozen for long: everything is excluded, and comes back by itself. */
CASE(frozen_ext4_recovers)
{
    rig_t rig;
    ground_begin();
    bind_paths(&rig, 2, ext4_new(32, "-m 0"));
    rig_open(&rig, options(1500));
    freeze(rig.storage);
    for (unsigned nth = 0; nth < 2; nth++) {
        for (int primary = 0; primary < 2; primary++) {
            batch_t *block = block_on(&rig, primary, nth);
            batch_fill(block);
            kvpath_status_t status = dump(rig.store, block->shards, block->count);
            CHECK(status == KVPATH_TIMEOUT || status == KVPATH_STORE_UNHEALTHY);
        }
    }
    for (int at = 0; at < 2; at++) wait_state(&rig, at, KVPATH_BACKEND_EXCLUDED);
    CHECK_STATUS(kvpath_check_health(rig.store), KVPATH_STORE_UNHEALTHY);
    wait_probes(&rig, 0, 1);
    thaw(rig.storage);
    for (int at = 0; at < 2; at++) wait_state(&rig, at, KVPATH_BACKEND_AVAILABLE);
    for (unsigned nth = 0; nth < 2; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        dump_batch(rig.store, block);
        load_right(&rig, block);
    }
    end(&rig);
}

/* Blocks until there is no room; then loads go on, nothing is excluded, and what is removed makes
 * room again. */
static void fill_up(rig_t *rig, options_t with)
{
    enum { MOST = 4000 };
    rig_open(rig, with);
    static batch_t *stored[MOST];
    int count = 0, refused = 0;
    while (count < MOST && refused < 8) {
        batch_t *block = block_on(rig, count % 2, (unsigned)(count + refused));
        batch_fill(block);
        kvpath_status_t status = dump(rig->store, block->shards, block->count);
        if (status == KVPATH_OK) {
            stored[count++] = block;
            continue;
        }
        CHECK_STATUS(status, KVPATH_NO_SPACE);
        refused++;
    }
    CHECK_EQ(refused, 8);
    CHECK(count > 4);
    CHECK_STATUS(dump(rig->store, block_on(rig, 0, MOST)->shards, 1), KVPATH_NO_SPACE);
    CHECK_HAS(kvpath_last_error(), "ENOSPC");
    for (int at = 0; at < count; at++) load_right(rig, stored[at]);
    for (int at = 0; at < 2; at++) check_health(rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_OK(kvpath_check_health(rig->store));
    CHECK(present(rig->store, id_of(stored[0])));
    /* What is too small for a block. */
    const char *rest = text("%s/rest", rig->storage);
    CHECK(system(text("dd if=/dev/zero of='%s' bs=1k oflag=direct 2>/dev/null", rest)) != 0);
    CHECK_HAS(open_fails(rig_config(rig, with), KVPATH_STORE_UNHEALTHY), "free space or inodes");
    CHECK(unlink(rest) == 0 || errno == ENOENT); /* without inodes it could not be made */
    for (int at = 0; at < 4; at++) CHECK_OK(kvpath_remove(rig->store, id_of(stored[at]), 1));
    dump_batch(rig->store, stored[0]);
    load_right(rig, stored[0]);
    check_stored(rig, stored[0]);
    end(rig);
}

CASE(full_ext4)
{
    rig_t rig;
    ground_begin();
    bind_paths(&rig, 2, ext4_new(4, "-m 0 -O ^has_journal"));
    options_t with = options(0);
    with.shape = (shape_t){65536, 65536, 65536};
    fill_up(&rig, with);
}

CASE(full_ext4_buffered)
{
    rig_t rig;
    ground_begin();
    bind_paths(&rig, 2, ext4_new(4, "-m 0 -O ^has_journal"));
    options_t with = options(0);
    with.shape = (shape_t){65536, 65536, 65536};
    with.buffered = true;
    fill_up(&rig, with);
}

CASE(ext4_without_inodes)
{
    rig_t rig;
    ground_begin();
    bind_paths(&rig, 2, ext4_new(4, "-m 0 -O ^has_journal -N 32"));
    fill_up(&rig, options(0));
}
