/* No locked memory: an ordinary user with `ulimit -l 0`. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "limits.h"

static const shape_t shape = {65536, 65536, 262144};
enum { BLOCKS = 40 };

/* An ordinary user with so much memory to lock, in KiB, that `json` opens a store that works. */
static rlim_t locked_kib;

static const char *asking(const char *root, const char *name, const char *extra)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": 65536, "
                "\"shard_size\": 65536, \"block_size\": 262144, \"posix_io_engine\": \"%s\", "
                "\"io_direct_fallback\": true, \"data_dir_shard_bytes\": 0, \"timeout_ms\": 0%s}",
                root, name, extra);
}

static const char *const many = ", \"posix_data_trans_concurrency\": 4096, "
                                "\"posix_lookup_concurrency\": 1024";

static void works(const char *json)
{
    kvpath_store_t store = open_shown(json);
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    for (size_t at = 0; at < blocks->count; at += blocks->per_block)
        CHECK(present(store, &blocks->shards[at].block));
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
}

/* The engine under test; where the kernel counts rings against the limit, its refusal names it. */
static void by_name(const char *root, const char *extra)
{
    kvpath_store_t store = 0;
    const char *json = asking(root, engine(), extra);
    become_ordinary();
    set_hard(RLIMIT_MEMLOCK, locked_kib << 10);
    kvpath_status_t status = kvpath_open(json, &store);
    if (status != KVPATH_OK) {
        CHECK_EQ(strcmp(engine(), "io_uring"), 0);
        CHECK_STATUS(status, KVPATH_UNSUPPORTED);
        printf("%llu KiB: %s\n", (unsigned long long)locked_kib, kvpath_last_error());
        CHECK_HAS(kvpath_last_error(), "ENOMEM");
        CHECK_HAS(kvpath_last_error(), text("RLIMIT_MEMLOCK is %llu; raise it",
                                            (unsigned long long)locked_kib << 10));
        CHECK_EQ(count_files(root, NULL), 0);
        return;
    }
    CHECK_OK(kvpath_close(store));
    works(json);
}

static void usual(const char *root) { by_name(root, ""); }
static void large(const char *root) { by_name(root, many); }

CASE(ulimit_l_0)
{
    locked_kib = 0;
    in_child(usual, temp_dir());
    in_child(large, temp_dir());
}

/* Enough for a small ring and too little for the one that is wanted: it is made smaller, or the
 * work is done without. */
CASE(ulimit_l_small)
{
    for (locked_kib = 16; locked_kib <= 4096; locked_kib *= 2) {
        in_child(usual, temp_dir());
        in_child(large, temp_dir());
    }
}

static void any(const char *root)
{
    become_ordinary();
    set_hard(RLIMIT_MEMLOCK, 0);
    works(asking(root, "auto", ""));
}

CASE(ulimit_l_0_auto) { in_child(any, temp_dir()); }
