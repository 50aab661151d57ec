/* Lookups (R61-R63) over many and over failing backends; those that hang are in time_test.c. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ha.h"

/* Block files; a probe's file has a longer name. */
#define BLOCK_FILES "data/" "????????????????????????????????"

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

/* R15: what the last two of 64 cannot answer is asked of the first, whether they fail or are out
 * already: after number 63 comes 0. */
CASE(the_last_of_sixty_four_backends_fail)
{
    enum { ZERO, LAST_BUT_ONE, LAST };
    static const int number[] = {0, MOST - 2, MOST - 1};
    const shape_t page = {4096, 4096, 4096};
    rig_t rig;
    rig_mount(&rig, 3);
    const char *parent = temp_dir(), *roots = "";
    for (int at = 0, mount = 0; at < MOST; at++) {
        const char *path = text("%s/path%02d", parent, at);
        CHECK(symlink(at == number[mount] ? rig.path[mount++] : rig.storage, path) == 0);
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", path);
    }
    log_collect();
    rig.store = open_store(config(text("[%s]", roots), page, ""));
    check_engine(rig.store);
    batch_t *blocks = batch(page, 0, BLOCKS, 0);
    kvpath_block_id_t ids[2 * BLOCKS];
    uint8_t found[2 * BLOCKS];
    dump_batch(rig.store, blocks);
    for (size_t at = 0; at < 2 * BLOCKS; at++) ids[at] = block_id(at);
    const kvpath_block_id_t id = block_id(block_for(MOST, MOST - 1, 0));
    const char *file = text("data/%s", block_name(&id));
    for (int mount = LAST_BUT_ONE; mount <= LAST; mount++)
        fault(&rig, mount, "any data/* always fail EIO");
    forget_counts(&rig);
    CHECK(present(rig.store, &id)); /* the first one: number 63 is still asked */
    CHECK(seen(&rig, LAST, "lookup", file) >= 1);
    CHECK(seen(&rig, ZERO, "lookup", file) >= 1);
    for (int round = 0; round < 2; round++) {
        memset(found, 9, sizeof found);
        CHECK_OK(kvpath_lookup(rig.store, ids, 2 * BLOCKS, found));
        for (size_t at = 0; at < 2 * BLOCKS; at++) CHECK_EQ(found[at], at < BLOCKS);
        load_batch(rig.store, blocks);
        if (round == 1) break;
        for (int mount = LAST_BUT_ONE; mount <= LAST; mount++)
            CHECK_OK(kvpath_backend_set(rig.store, text("%s/path%02d", parent, number[mount]),
                                        KVPATH_BACKEND_SET_OUT));
        wait_at_rest(&rig); /* what hits have begun there, too */
        forget_counts(&rig);
    }
    for (int mount = LAST_BUT_ONE; mount <= LAST; mount++)
        CHECK_EQ(seen(&rig, mount, "total", BLOCK_FILES), 0);
    CHECK(seen(&rig, ZERO, "lookup", file) >= 1);
    int64_t index = -9;
    CHECK_OK(kvpath_lookup_last(rig.store, ids, 2 * BLOCKS, &index));
    CHECK_EQ(index, BLOCKS - 1);
    rig_stop(&rig);
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
