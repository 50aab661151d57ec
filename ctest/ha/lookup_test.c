/* Lookups (R61-R63) over many and over failing backends; those that hang are in time_test.c. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ha.h"

enum { MOST = 64, BLOCKS = 640 };

/* R3: 64 backends, all of them paths to one directory. */
CASE(sixty_four_backends)
{
    const char *storage = temp_dir(), *parent = temp_dir(), *roots = "";
    for (int at = 0; at < MOST; at++) {
        const char *path = text("%s/path%02d", parent, at);
        CHECK(symlink(storage, path) == 0);
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", path);
    }
    const char *json = text("{\"storage_backends\": [%s], \"device_id\": 0, \"tensor_size\": 4096, "
                            "\"shard_size\": 4096, \"block_size\": 4096, \"io_direct\": false, "
                            "\"posix_io_engine\": \"%s\", \"data_dir_shard_bytes\": 1}",
                            roots, ha_engine());
    kvpath_store_t store = 0;
    log_collect();
    kvpath_status_t status = kvpath_open(json, &store);
    if (status == KVPATH_UNSUPPORTED) SKIP("%s", kvpath_last_error());
    CHECK_OK(status);
    check_engine(store);
    const shape_t page = {4096, 4096, 4096};
    batch_t *blocks = batch(page, 0, BLOCKS, 0);
    kvpath_block_id_t ids[2 * BLOCKS];
    uint8_t found[2 * BLOCKS];
    bool used[MOST] = {false};
    dump_batch(store, blocks);
    for (size_t at = 0; at < 2 * BLOCKS; at++) {
        ids[at] = block_id(at);
        if (at < BLOCKS) used[hash_of(&ids[at]) % MOST] = true;
    }
    for (int at = 0; at < MOST; at++) CHECK(used[at]); /* each one is somebody's primary */
    CHECK_OK(kvpath_lookup(store, ids, 2 * BLOCKS, found));
    for (size_t at = 0; at < 2 * BLOCKS; at++) CHECK_EQ(found[at], at < BLOCKS);
    int64_t index = -9;
    CHECK_OK(kvpath_lookup_prefix(store, ids, 2 * BLOCKS, &index));
    CHECK_EQ(index, BLOCKS - 1);
    CHECK_OK(kvpath_lookup_last(store, ids, 2 * BLOCKS, &index));
    CHECK_EQ(index, BLOCKS - 1);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}

/* R16, R62: "the store is down" and "absent" are told apart, at every stage: some paths fail, all
 * fail, none is available. */
CASE(store_down_is_not_absent)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .window = 8, .threshold = 3});
    batch_t *block = block_on(&rig, 0, 0);
    const kvpath_block_id_t ids[] = {*id_of(block), *id_of(block_on(&rig, 0, 1))};
    uint8_t found[2] = {9, 9};
    int64_t index = 9;
    dump_batch(rig.store, block);
    CHECK_OK(kvpath_lookup(rig.store, ids, 2, found));
    CHECK_EQ(found[0] * 10 + found[1], 10);

    for (int at = 0; at < 2; at++) fault(&rig, at, "lookup data/* always fail EIO");
    CHECK_OK(kvpath_lookup(rig.store, ids, 2, found)); /* the third one knows */
    CHECK_EQ(found[0] * 10 + found[1], 10);

    fault(&rig, 2, "lookup data/* always fail ENOTCONN");
    CHECK_STATUS(kvpath_lookup(rig.store, ids, 2, found), KVPATH_OS_ERROR);
    CHECK_HAS(kvpath_last_error(), "ENOTCONN");
    CHECK_EQ(found[0] * 10 + found[1], 0);
    CHECK_STATUS(kvpath_lookup_prefix(rig.store, ids, 2, &index), KVPATH_OS_ERROR);
    CHECK_EQ(index, -1);

    for (int at = 0; at < 3; at++)
        CHECK_OK(kvpath_backend_set(rig.store, rig.path[at], KVPATH_BACKEND_SET_OUT));
    found[0] = found[1] = 9;
    CHECK_STATUS(kvpath_lookup(rig.store, ids, 2, found), KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(found[0] * 10 + found[1], 0);
    CHECK_STATUS(kvpath_lookup_last(rig.store, ids, 2, &index), KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(index, -1);

    for (int at = 0; at < 3; at++) {
        heal(&rig, at);
        CHECK_OK(kvpath_backend_set(rig.store, rig.path[at], KVPATH_BACKEND_SET_IN));
    }
    CHECK_OK(kvpath_lookup(rig.store, ids, 2, found));
    CHECK_EQ(found[0] * 10 + found[1], 10);
    rig_stop(&rig);
}

/* An id whose primary is down is looked for elsewhere, the others are not (R61: each by itself). */
CASE(only_the_failed_ids_go_elsewhere)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *bad = block_on(&rig, 0, 0), *good = block_on(&rig, 1, 0);
    dump_batch(rig.store, bad);
    dump_batch(rig.store, good);
    forget_counts(&rig);
    fault(&rig, 0, "lookup data/* always fail EIO");
    const kvpath_block_id_t ids[] = {*id_of(bad), *id_of(good)};
    uint8_t found[2] = {9, 9};
    CHECK_OK(kvpath_lookup(rig.store, ids, 2, found));
    CHECK_EQ(found[0] * 10 + found[1], 11);
    CHECK(seen(&rig, 1, "lookup", file_of(bad)) >= 1);
    CHECK_EQ(seen(&rig, 0, "total", file_of(good)), 0);
    rig_stop(&rig);
}
