/* The failure table (ctest/matrix/TABLE.md), one case a row by the row's name: opening. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>

#include "ha.h"

enum { N = 3 };

CASE(open_all_pass)
{
    rig_t rig;
    rig_mount(&rig, N);
    rig_open(&rig, (options_t){0});
    for (int at = 0; at < N; at++) check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
    CHECK_OK(kvpath_check_health(rig.store));
    rig_stop(&rig);
}

CASE(open_bad_config)
{
    rig_t rig;
    rig_mount(&rig, N);
    options_t options = {.extra = ", \"temp_ttl_s\": \"soon\""};
    const char *error = open_fails(rig_config(&rig, options), KVPATH_INVALID_PARAM);
    CHECK_HAS(error, "temp_ttl_s");
    CHECK_HAS(error, "soon");
    CHECK_EQ(count_files(rig.storage, NULL), 0);
    for (int at = 0; at < N; at++) CHECK_EQ(seen(&rig, at, "mkdir", "*"), 0);
}

/* The least that the text names is enough, and not too much: half of it is refused again. */
CASE(open_capacity_small)
{
    rig_t rig;
    rig_mount(&rig, N);
    options_t options = {.extra = ", \"posix_capacity_gb\": 1e-7"};
    const char *error = open_fails(rig_config(&rig, options), KVPATH_INVALID_PARAM);
    CHECK_HAS(error, "posix_capacity_gb");
    const char *at = strstr(error, "at least ");
    double least = 0;
    CHECK(at != NULL && sscanf(at, "at least %lf", &least) == 1 && least > 1e-7);
    options.extra = text(", \"posix_capacity_gb\": %.17g", least / 2);
    CHECK_HAS(open_fails(rig_config(&rig, options), KVPATH_INVALID_PARAM), "at least ");
    CHECK_EQ(count_files(rig.storage, NULL), 0);
    options.extra = text(", \"posix_capacity_gb\": %.17g", least);
    rig_open(&rig, options);
    rig_stop(&rig);
}

CASE(open_path_fails)
{
    rig_t rig;
    rig_mount(&rig, N);
    rig_open(&rig, (options_t){0}); /* skips where the engine is not there */
    CHECK_OK(kvpath_close(rig.store));
    forget_counts(&rig);
    size_t threads = thread_count(), descriptors = descriptor_count();
    fault(&rig, 1, "write data/probe-* always fail EROFS");
    const char *error = open_fails(rig_config(&rig, (options_t){0}), KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(error, rig.path[1]);
    CHECK_HAS(error, "write: errno 30 (EROFS");
    CHECK_EQ(seen(&rig, 2, "create", "*") + seen(&rig, 2, "write", "*"), 0);
    CHECK_EQ(count_files(rig.storage, "probe"), 0);
    wait_threads(threads);
    CHECK_EQ(descriptor_count(), descriptors);
}

static const char *const any = ", \"startup_policy\": \"any\"";

CASE(open_path_fails_any)
{
    rig_t rig;
    rig_mount(&rig, N);
    fault(&rig, 1, "write data/probe-* always fail EROFS");
    rig_open(&rig, (options_t){.extra = any, .window = 2, .interval_s = 0.3,
                               .probe_timeout_s = 0.25});
    check_health(&rig, 1, KVPATH_BACKEND_EXCLUDED, ANY, ANY);
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    heal(&rig, 1);
    wait_state(&rig, 1, KVPATH_BACKEND_AVAILABLE);
    load_right(&rig, block);
    rig_stop(&rig);
}

CASE(open_hangs)
{
    rig_t rig;
    rig_mount(&rig, N);
    rig_open(&rig, (options_t){0});
    CHECK_OK(kvpath_close(rig.store));
    size_t threads = thread_count();
    tell(&rig, 1, "freeze");
    options_t options = {.extra = ", \"open_timeout_ms\": 300"};
    uint64_t start = now_ms();
    const char *error = open_fails(rig_config(&rig, options), KVPATH_TIMEOUT);
    CHECK_HAS(error, "open_timeout_ms");
    CHECK(now_ms() - start >= 300 && now_ms() - start < 300 + SLACK_MS);
    tell(&rig, 1, "thaw");
    wait_threads(threads);
    CHECK_EQ(count_files(rig.storage, "probe"), 0);
}
