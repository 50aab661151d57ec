/* `startup_policy: "any"` (R13): one passing backend is enough, each check has a limit, and the
 * others come back by probes. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "ha.h"

enum { N = 3, W = 3 };

static const char *const any = ", \"startup_policy\": \"any\"";

static options_t quick(void)
{
    return (options_t){
        .window = W, .interval_s = 0.8, .probe_timeout_s = 0.75, .extra = any};
}

static void make_storage(rig_t *rig)
{
    rig_open(rig, (options_t){0});
    CHECK_OK(kvpath_close(rig->store));
    forget_counts(rig);
}

/* Excluded with an empty window, and back after exactly W probes (R21, R53). */
CASE(one_fails_and_comes_back)
{
    rig_t rig;
    rig_mount(&rig, N);
    make_storage(&rig);
    fault(&rig, 1, "read data/probe-* always fail EIO");
    options_t slow = quick();
    slow.interval_s = 3600;
    rig_open(&rig, slow);
    check_health(&rig, 0, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    check_health(&rig, 1, KVPATH_BACKEND_EXCLUDED, 0, 0);
    check_health(&rig, 2, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_HAS(health_of(&rig, 1).last_error, "EIO");
    wait_log("excluded at open");
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    CHECK_EQ(seen(&rig, 1, "total", files_of(block)), 0);
    CHECK_OK(kvpath_close(rig.store));

    rig_open(&rig, quick());
    check_health(&rig, 1, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    heal(&rig, 1);
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    check_health(&rig, 1, KVPATH_BACKEND_AVAILABLE, W, 0);
    forget_counts(&rig);
    load_right(&rig, block);
    CHECK(seen(&rig, 1, "open", file_of(block)) > 0);
    rig_stop(&rig);
}

/* The first backend may be the one that fails: the storage is made through the next. */
CASE(first_fails_in_a_new_storage)
{
    rig_t rig;
    rig_mount(&rig, 2);
    fault(&rig, 0, "any * always fail EIO");
    rig_open(&rig, quick());
    check_health(&rig, 0, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    heal(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* Each check under health_check_timeout_s. The thread that hangs is the probes', and is gone when
 * the kernel lets go. */
CASE(one_hangs_and_comes_back)
{
    rig_t rig;
    rig_mount(&rig, N);
    make_storage(&rig);
    tell(&rig, 1, "freeze");
    uint64_t start = now_ms();
    rig_open(&rig, quick());
    CHECK(now_ms() - start < SLACK_MS);
    check_health(&rig, 1, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    CHECK_HAS(health_of(&rig, 1).last_error, "timed out");
    CHECK(health_of(&rig, 1).probe_threads >= 1);
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    load_right(&rig, block);
    tell(&rig, 1, "thaw");
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    rig_stop(&rig);
}

/* Open fails only where none passed, with every backend's reason. */
CASE(all_fail)
{
    rig_t rig;
    rig_mount(&rig, N);
    make_storage(&rig);
    size_t threads = thread_count(), descriptors = descriptor_count();
    fault(&rig, 0, "create data/probe-* always fail EACCES");
    fault(&rig, 1, "read data/probe-* always fail EIO");
    tell(&rig, 2, "freeze");
    const char *error = open_fails(rig_config(&rig, quick()), KVPATH_STORE_UNHEALTHY);
    printf("%s\n", error);
    for (int at = 0; at < N; at++) CHECK_HAS(error, rig.path[at]);
    CHECK_HAS(error, "EACCES");
    CHECK_HAS(error, "EIO");
    CHECK_HAS(error, "timed out");
    tell(&rig, 2, "thaw");
    wait_threads(threads);
    CHECK_EQ(descriptor_count(), descriptors);
    CHECK_EQ(count_files(rig.storage, "probe"), 0);
}

/* A path that was broken at open and is another storage when it answers (R8). */
static void comes_back_as_another(rig_t *rig, const char *extra)
{
    rig_mount(rig, 2);
    make_storage(rig);
    const char *other = temp_dir();
    CHECK_OK(kvpath_close(open_root(other, pair, "")));
    rig->path[1] = text("%s/late", temp_dir());
    options_t options = quick();
    options.extra = text("%s%s", any, extra);
    rig_open(rig, options);
    check_health(rig, 1, KVPATH_BACKEND_EXCLUDED, 0, 0);
    CHECK(symlink(other, rig->path[1]) == 0);
}

CASE(another_storage_stays_out_where_the_same_is_required)
{
    rig_t rig;
    comes_back_as_another(&rig, ", \"require_same_storage\": true");
    while (health_of(&rig, 1).probe_failures < W || state_of(&rig, 1) != KVPATH_BACKEND_EXCLUDED) {
        CHECK_EQ(health_of(&rig, 1).transitions, 0);
        wait_probes(&rig, 1, health_of(&rig, 1).probes + 1);
    }
    CHECK_HAS(health_of(&rig, 1).last_error, "not the storage");
    CHECK_HAS(report(kvpath_health_json, rig.store), "\"same_storage\":true");
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* Where it is not required: a warning that names both, and the report tells. */
CASE(another_storage_that_comes_back_is_told)
{
    rig_t rig;
    comes_back_as_another(&rig, "");
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    wait_log("KV1007");
    wait_log(text("%s/ shows", rig.path[1]));
    CHECK_HAS(report(kvpath_health_json, rig.store), "\"same_storage\":false");
    rig_stop(&rig);
}
