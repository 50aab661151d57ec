/* Mounts that fall off, come back as others, are wiped, or are the wrong ones (R8, R24, R35). A
 * missing mount is no cache miss. Real mounts in a mount namespace of the case's own: they are gone
 * with it, however it ends. */
#define _GNU_SOURCE
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ha.h"

enum { W = 3 };

static options_t quick(void)
{
    return (options_t){.shape = whole, .window = W, .threshold = 2, .interval_s = 0.8,
                       .probe_timeout_s = 0.75};
}

/* R24: that the path is the storage was seen less than 100 ms ago, and may be believed so long;
 * then no load may miss any more. */
static void load_after_verdict(rig_t *rig, batch_t *block)
{
    kvpath_status_t status;
    while ((status = load(rig->store, block->shards, block->count)) == KVPATH_NOT_FOUND) {
    }
    CHECK_OK(status);
    for (int round = 0; round < 20; round++) load_right(rig, block);
}

/* Two blocks of backend 0: the second one is what excludes it (one bad block does not). */
typedef struct {
    batch_t *first, *second;
} blocks_t;

static blocks_t dump_two(rig_t *rig, int which)
{
    blocks_t blocks = {block_on(rig, which, 0), block_on(rig, which, 1)};
    dump_batch(rig->store, blocks.first);
    dump_batch(rig->store, blocks.second);
    return blocks;
}

static void load_two(rig_t *rig, blocks_t blocks)
{
    load_after_verdict(rig, blocks.first);
    load_after_verdict(rig, blocks.second);
}

/* R24: an empty directory in the mount's place: excluded instead of missing everything, dumps and
 * lookups go elsewhere, nothing is written into what is there; back when the storage is. */
CASE(a_path_that_falls_off_is_excluded)
{
    rig_t rig;
    options_t slow = quick();
    slow.interval_s = 1;
    rig_start(&rig, 2, slow);
    blocks_t blocks = dump_two(&rig, 0);
    char stand_in[FAULTFS_TEXT_BYTES];
    CHECK(faultfs_command(&rig.fs[0], stand_in, sizeof stand_in, "vanish") == 0);
    load_two(&rig, blocks);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK_HAS(health_of(&rig, 0).last_error, "not the storage");
    CHECK(present(rig.store, id_of(blocks.first)));
    batch_t *new = block_on(&rig, 0, 2);
    dump_batch(rig.store, new);
    check_file(block_path(rig.storage, id_of(new), 0), id_of(new), whole.block);
    wait_log("available -> excluded");
    uint64_t failed = health_of(&rig, 0).probe_failures;
    while (health_of(&rig, 0).probe_failures <= failed) wait_seen(&rig, 0, "lookup", ".kvpath", 1);
    CHECK_EQ(count_files(stand_in, NULL), 0); /* no probe, no block, no marker */
    CHECK(!exists(text("%s/data", stand_in)));
    tell(&rig, 0, "return");
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    forget_counts(&rig);
    load_right(&rig, new);
    CHECK(seen(&rig, 0, "open", file_of(new)) == 1);
    CHECK_EQ(stats_of(rig.store).corrupt, 0);
    rig_stop(&rig);
}

/* R7, R24: the path falls off while a directory is made again that had been lost: nothing is stored
 * in what is there then, and the dump goes on to the next path. */
CASE(a_directory_is_made_where_the_path_fell_off_meanwhile)
{
    rig_t rig;
    char stand_in[FAULTFS_TEXT_BYTES];
    rig_start(&rig, 2, (options_t){.shape = whole});
    batch_t *block = block_on(&rig, 0, 0);
    CHECK(rmdir(text("%s/data", rig.storage)) == 0);
    fault(&rig, 0, "mkdir data count=1 hang");
    kvpath_task_t task = begin_dump(&rig, block);
    wait_hung(&rig, 0, 1, "mkdir");
    CHECK(faultfs_command(&rig.fs[0], stand_in, sizeof stand_in, "vanish") == 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    CHECK_EQ(count_files(stand_in, NULL), 0);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    tell(&rig, 0, "return");
    rig_stop(&rig);
}

/* The same with a probe that has seen the storage and then waits: it makes no directory. */
CASE(a_probe_makes_no_directory_where_the_path_fell_off_meanwhile)
{
    rig_t rig;
    char stand_in[FAULTFS_TEXT_BYTES];
    options_t slow = quick();
    slow.interval_s = 1;
    rig_start(&rig, 2, slow);
    exclude(&rig, 0);
    fault(&rig, 0, "create data/probe-* count=1 hang");
    wait_hung(&rig, 0, 1, "create");
    CHECK(faultfs_command(&rig.fs[0], stand_in, sizeof stand_in, "vanish") == 0);
    uint64_t failed = health_of(&rig, 0).probe_failures;
    release(&rig, 0);
    while (health_of(&rig, 0).probe_failures <= failed + 1)
        wait_seen(&rig, 0, "lookup", ".kvpath", 1);
    CHECK(!exists(text("%s/data", stand_in)));
    tell(&rig, 0, "return");
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    rig_stop(&rig);
}

/* Dumps find out as well: R24 covers the creation of a temporary (within a second). */
CASE(nothing_is_dumped_beside_the_storage)
{
    rig_t rig;
    options_t options = quick();
    options.interval_s = 3600;
    rig_start(&rig, 2, options);
    char stand_in[FAULTFS_TEXT_BYTES];
    CHECK(faultfs_command(&rig.fs[0], stand_in, sizeof stand_in, "vanish") == 0);
    for (unsigned nth = 0; nth < 3; nth++) {
        batch_t *block = block_on(&rig, 0, nth);
        dump_batch(rig.store, block);
        check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    }
    CHECK_EQ(count_files(stand_in, NULL), 0);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    tell(&rig, 0, "return");
    rig_stop(&rig);
}

/* R22, R24: one bad block says nothing about its path, a marker that is not there does: whoever asks
 * for one block only, again and again, sees its path excluded, too. */
CASE(one_block_shows_that_its_path_fell_off)
{
    rig_t rig;
    options_t options = quick();
    options.window = 8;
    options.threshold = 3;
    options.interval_s = 3600;
    rig_start(&rig, 2, options);
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    tell(&rig, 0, "vanish");
    /* A miss while the verdict is fresh. */
    while (health_of(&rig, 0).failures == 0) (void)load(rig.store, block->shards, block->count);
    for (int round = 0; round < 2; round++) load_right(&rig, block);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK_HAS(health_of(&rig, 0).last_error, "not the storage");
    tell(&rig, 0, "return");
    rig_stop(&rig);
}

/* R100: without verify_mount a missing mount is a miss. */
CASE(without_verify_mount_it_is_a_miss)
{
    rig_t rig;
    options_t options = quick();
    options.extra = ", \"verify_mount\": false";
    rig_start(&rig, 2, options);
    blocks_t blocks = dump_two(&rig, 0);
    tell(&rig, 0, "vanish");
    for (int round = 0; round < 5; round++)
        CHECK_STATUS(load(rig.store, blocks.first->shards, blocks.first->count),
                     KVPATH_NOT_FOUND);
    CHECK(!present(rig.store, id_of(blocks.second)));
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    tell(&rig, 0, "return");
    rig_stop(&rig);
}

/* ---- real mounts ---- */

/* From now on mounts of this process are its own. */
static void own_mounts(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        SKIP("no mount namespace: not root?");
}

static void mount_at(const char *what, const char *where)
{
    CHECK(mount(what, where, NULL, MS_BIND, NULL) == 0);
}

static void off(const char *where) { CHECK(umount2(where, MNT_DETACH) == 0); }

static dev_t device_of(const char *path)
{
    struct stat what;
    CHECK(stat(path, &what) == 0);
    return what.st_dev;
}

/* Two backends, each a directory on which a faultfs mount is mounted in turn. */
static void rig_on_mounts(rig_t *rig, const char *points[2], options_t options)
{
    own_mounts();
    rig_mount(rig, 2);
    for (int at = 0; at < 2; at++) {
        points[at] = temp_dir();
        mount_at(rig->fs[at].mount, points[at]);
        rig->path[at] = points[at];
    }
    rig_begin(rig, options);
}

/* R35: nothing is kept open, so that a remount works, whatever its device number is. */
CASE(a_remount_with_another_device_number)
{
    rig_t rig;
    const char *points[2];
    rig_on_mounts(&rig, points, quick());
    blocks_t blocks = dump_two(&rig, 0);
    dev_t before = device_of(points[0]);
    off(points[0]);
    CHECK_EQ(faultfs_stop(&rig.fs[0]), 0); /* nothing holds it: the server ends in order */
    load_two(&rig, blocks);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK_EQ(count_files(points[0], NULL), 0);
    struct faultfs taken[8]; /* a free device number is given again at once */
    int takers = 0;
    CHECK(faultfs_start(&rig.fs[0], rig.storage, 240) == 0);
    while (device_of(rig.fs[0].mount) == before) {
        CHECK(takers < (int)(sizeof taken / sizeof taken[0]));
        taken[takers++] = rig.fs[0];
        CHECK(faultfs_start(&rig.fs[0], rig.storage, 240) == 0);
    }
    mount_at(rig.fs[0].mount, points[0]);
    CHECK(device_of(points[0]) != before);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    forget_counts(&rig);
    load_right(&rig, blocks.first);
    CHECK_EQ(seen(&rig, 0, "open", file_of(blocks.first)), 1);
    dump_batch(rig.store, block_on(&rig, 0, 2));
    while (takers > 0) CHECK_EQ(faultfs_stop(&taken[--takers]), 0);
    for (int at = 0; at < 2; at++) off(points[at]);
    CHECK_OK(kvpath_close(rig.store));
}

/* R24: another storage where the right one was: its marker has another UUID, and nothing of it is
 * given, changed or added. */
CASE(a_wrong_storage_on_one_path)
{
    rig_t rig;
    const char *points[2], *stranger = temp_dir();
    rig_on_mounts(&rig, points, quick());
    kvpath_store_t other = open_root(stranger, whole, "");
    batch_t *theirs = batch(whole, block_for(2, 0, 7), 1, 0);
    dump_batch(other, theirs);
    CHECK_OK(kvpath_close(other));
    size_t files = count_files(stranger, NULL);
    blocks_t blocks = dump_two(&rig, 0);
    off(points[0]);
    mount_at(stranger, points[0]);
    load_two(&rig, blocks);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK_HAS(health_of(&rig, 0).last_error, "not the storage");
    dump_batch(rig.store, block_on(&rig, 0, 2));
    CHECK_EQ(count_files(stranger, NULL), files);
    CHECK_STATUS(load(rig.store, theirs->shards, theirs->count), KVPATH_NOT_FOUND);
    off(points[0]);
    mount_at(rig.fs[0].mount, points[0]);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    load_right(&rig, blocks.first);
    for (int at = 0; at < 2; at++) off(points[at]);
    CHECK_OK(kvpath_close(rig.store));
}

static int remove_entry(const char *path, const struct stat *what, int type, struct FTW *where)
{
    (void)what, (void)type;
    if (where->level > 0) CHECK(remove(path) == 0);
    return 0;
}

/* R8: gone from everywhere while the mounts are what they were: wiped. It has its marker again and
 * the store goes on with an empty storage; what was there is missing, and says so. */
CASE(a_wiped_storage_goes_on_empty)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    blocks_t blocks[2] = {dump_two(&rig, 0), dump_two(&rig, 1)};
    size_t marker_bytes = 0, again_bytes = 0;
    uint8_t *marker = read_file(text("%s/.kvpath", rig.storage), &marker_bytes);
    CHECK(marker != NULL);
    CHECK(nftw(rig.storage, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
    for (int at = 0; at < 2; at++) {
        /* A miss while the verdict is fresh, and then an error: never a wrong byte. */
        while (load(rig.store, blocks[at].first->shards, 1) == KVPATH_NOT_FOUND &&
               log_count("KV2001") == 0) {
        }
        (void)load(rig.store, blocks[at].second->shards, 1);
    }
    wait_log("KV2005");
    wait_log("wiped");
    for (int at = 0; at < 2; at++) wait_state(&rig, at, KVPATH_BACKEND_AVAILABLE);
    uint8_t *again = read_file(text("%s/.kvpath", rig.storage), &again_bytes);
    CHECK(again != NULL);
    CHECK_EQ(again_bytes, marker_bytes);
    CHECK(memcmp(again, marker, marker_bytes) == 0);
    for (int at = 0; at < 2; at++) {
        CHECK_STATUS(load(rig.store, blocks[at].first->shards, 1), KVPATH_NOT_FOUND);
        dump_batch(rig.store, blocks[at].first);
        load_right(&rig, blocks[at].first);
    }
    rig_stop(&rig);
}

/* A wipe is not believed while a mount is another than at open. */
CASE(an_empty_mount_is_not_a_wipe)
{
    rig_t rig;
    const char *points[2], *empty = temp_dir();
    rig_on_mounts(&rig, points, quick());
    blocks_t blocks[2] = {dump_two(&rig, 0), dump_two(&rig, 1)};
    for (int at = 0; at < 2; at++) off(points[at]), mount_at(empty, points[at]);
    for (int at = 0; at < 2; at++) {
        while (load(rig.store, blocks[at].first->shards, 1) == KVPATH_NOT_FOUND) {
        }
        (void)load(rig.store, blocks[at].second->shards, 1);
    }
    for (int at = 0; at < 2; at++) wait_state(&rig, at, KVPATH_BACKEND_EXCLUDED);
    while (health_of(&rig, 1).probe_failures < 2) wait_log("KV2001");
    CHECK_EQ(count_files(empty, NULL), 0);
    CHECK_EQ(log_count("KV2005"), 0);
    CHECK_STATUS(load(rig.store, blocks[0].first->shards, 1), KVPATH_STORE_UNHEALTHY);
    for (int at = 0; at < 2; at++) off(points[at]), mount_at(rig.fs[at].mount, points[at]);
    for (int at = 0; at < 2; at++) wait_state(&rig, at, KVPATH_BACKEND_AVAILABLE);
    load_right(&rig, blocks[0].first);
    for (int at = 0; at < 2; at++) off(points[at]);
    CHECK_OK(kvpath_close(rig.store));
}

/* ---- at open: R8 ---- */

CASE(same_storage_is_told)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.extra = ", \"require_same_storage\": true"});
    CHECK_HAS(report(kvpath_health_json, rig.store), "\"same_storage\":true");
    rig_stop(&rig);
}

/* Different UUIDs: a warning that names the paths, or no store. */
CASE(different_storages_are_told)
{
    rig_t rig;
    rig_mount(&rig, 2);
    rig_open(&rig, (options_t){0});
    CHECK_OK(kvpath_close(rig.store));
    const char *other = temp_dir();
    CHECK_OK(kvpath_close(open_root(other, pair, "")));
    rig.path[1] = other;
    const char *error = open_fails(
        rig_config(&rig, (options_t){.extra = ", \"require_same_storage\": true"}),
        KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(error, "different storages");
    CHECK_HAS(error, rig.path[0]);
    CHECK_HAS(error, rig.path[1]);
    rig_open(&rig, (options_t){0});
    CHECK_HAS(report(kvpath_health_json, rig.store), "\"same_storage\":false");
    wait_log(text("%s/ shows", rig.path[1]));
    rig_stop(&rig);
}

/* A path without a marker while another shows one is not the storage. */
CASE(a_path_without_a_marker_fails_open)
{
    rig_t rig;
    rig_mount(&rig, 2);
    rig_open(&rig, (options_t){0});
    CHECK_OK(kvpath_close(rig.store));
    rig.path[1] = temp_dir();
    const char *error = open_fails(rig_config(&rig, (options_t){0}), KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(error, rig.path[1]);
    CHECK_HAS(error, "verify: not the storage");
    CHECK_EQ(count_files(rig.path[1], NULL), 0);
    CHECK_HAS(open_fails(text("{\"storage_backends\": [\"%s\"], \"device_id\": -1, "
                              "\"create_storage\": false}",
                              rig.path[1]),
                         KVPATH_STORE_UNHEALTHY),
              "create_storage");
}
