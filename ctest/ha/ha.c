/* ha.h: the rig, its faults, and blocks. What is waited for is in events.c. */
#define _GNU_SOURCE
#include "ha.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOUNT_SECONDS = 240, WARM_BLOCK = 400, WARM_MS = 2000 };

const shape_t pair = {4096, 4096, 8192};
const shape_t whole = {8192, 8192, 8192};

const char *ha_engine(void)
{
    const char *engine = getenv("KVPATH_TEST_ENGINE");
    return engine != NULL && engine[0] != '\0' ? engine : "psync";
}

int wait_ms(void)
{
    const char *limit = getenv("KVPATH_TEST_WAIT_MS");
    return limit != NULL && limit[0] != '\0' ? atoi(limit) : 60000;
}

void check_engine(kvpath_store_t store)
{
    const char *name = engine_of(store);
    printf("engine: %s\n", name);
    if (strcmp(name, ha_engine()) != 0) SKIP("the engine is %s, not %s", name, ha_engine());
}

void rig_mount(rig_t *rig, int n)
{
    memset(rig, 0, sizeof *rig);
    if (faultfs_cannot() != NULL) SKIP("%s", faultfs_cannot());
    CHECK(n <= MOUNTS_MAX);
    rig->n = n;
    rig->storage = temp_dir();
    for (int at = 0; at < n; at++) {
        if (faultfs_start(&rig->fs[at], rig->storage, MOUNT_SECONDS) != 0)
            FAIL("faultfs: %s", rig->fs[at].error);
        rig->path[at] = rig->fs[at].mount;
    }
}

static options_t filled(options_t options)
{
    if (options.shape.block == 0) options.shape = pair;
    if (options.window == 0) options.window = 4;
    if (options.threshold == 0) options.threshold = 2;
    if (options.interval_s == 0) options.interval_s = 3600;
    if (options.probe_timeout_s == 0) options.probe_timeout_s = 3;
    if (options.extra == NULL) options.extra = "";
    return options;
}

const char *rig_config(const rig_t *rig, options_t options)
{
    const options_t with = filled(options);
    const char *roots = "";
    for (int at = 0; at < rig->n; at++)
        roots = text("%s%s\"%s\"", roots, at > 0 ? ", " : "", rig->path[at]);
    return text("{\"storage_backends\": [%s], \"device_id\": 0, \"tensor_size\": %zu, "
                "\"shard_size\": %zu, \"block_size\": %zu, \"posix_io_engine\": \"%s\", "
                "\"io_direct\": %s, \"data_dir_shard_bytes\": 0, \"timeout_ms\": %u, "
                "\"store_health\": {\"enabled\": %s, \"health_window_size\": %u, "
                "\"failure_threshold\": %u, \"health_check_interval_s\": %g, "
                "\"health_check_timeout_s\": %g}%s}",
                roots, with.shape.tensor, with.shape.shard, with.shape.block, ha_engine(),
                with.buffered ? "false" : "true", with.timeout_ms, with.breaker ? "true" : "false",
                with.window, with.threshold, with.interval_s, with.probe_timeout_s, with.extra);
}

void rig_open(rig_t *rig, options_t options)
{
    rig->options = filled(options);
    log_collect();
    kvpath_status_t status = kvpath_open(rig_config(rig, options), &rig->store);
    if (status == KVPATH_UNSUPPORTED) SKIP("%s", kvpath_last_error());
    if (status != KVPATH_OK)
        FAIL("kvpath_open gave %s: %s", kvpath_status_name(status), kvpath_last_error());
    check_engine(rig->store);
}

int swept(const rig_t *rig, int which) { return rig->swept[which]; }

static bool has_swept(void *argument)
{
    return stats_of(((rig_t *)argument)->store).sweep_passes > 0;
}

/* The first transfer of a lane is a worker's, whatever the engine: it learns what kind of file system
 * there is. What comes after it is the engine's own. */
static void warm(rig_t *rig)
{
    for (int at = 0; at < rig->n; at++) {
        batch_t *block = block_on(rig, at, WARM_BLOCK);
        batch_fill(block);
        CHECK_OK(dump(rig->store, block->shards, block->count));
        bool waits = kvpath_remove(rig->store, id_of(block), 1) == KVPATH_NOT_FOUND;
        if (waits) CHECK_OK(kvpath_commit(rig->store, id_of(block), false));
    }
    wait_at_rest(rig);
}

void rig_begin(rig_t *rig, options_t options)
{
    rig_open(rig, options);
    wait_for("the first sweep", has_swept, rig);
    /* With less the limit may pass on a busy machine. */
    bool has_time = options.timeout_ms == 0 || options.timeout_ms >= WARM_MS;
    if (!options.cold && has_time) warm(rig);
    for (int at = 0; at < rig->n; at++) rig->swept[at] = (int)health_of(rig, at).samples;
    forget_counts(rig);
}

void rig_start(rig_t *rig, int n, options_t options)
{
    rig_mount(rig, n);
    rig_begin(rig, options);
}

void rig_stop(rig_t *rig)
{
    CHECK_OK(kvpath_close(rig->store));
    for (int at = 0; at < rig->n; at++)
        if (faultfs_stop(&rig->fs[at]) != 0) FAIL("backend %d: faultfs ended badly", at);
    CHECK_EQ(count_files(rig->storage, ".tmp"), 0);
}

/* ---- faults ---- */

static void check_told(rig_t *rig, int which, long long result)
{
    if (result < 0) FAIL("backend %d: %s", which, rig->fs[which].error);
}

long long fault(rig_t *rig, int which, const char *rule, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, rule);
    vsnprintf(line, sizeof line, rule, arguments);
    va_end(arguments);
    long long id = faultfs_number(&rig->fs[which], "rule add %s", line);
    check_told(rig, which, id);
    return id;
}

void tell(rig_t *rig, int which, const char *command, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, command);
    vsnprintf(line, sizeof line, command, arguments);
    va_end(arguments);
    check_told(rig, which, faultfs_command(&rig->fs[which], NULL, 0, "%s", line));
}

void heal(rig_t *rig, int which) { tell(rig, which, "rules clear"); }

void wait_hung(rig_t *rig, int which, int count, const char *op)
{
    bool any = strcmp(op, "any") == 0;
    tell(rig, which, "wait-hung %d %d%s%s", count, wait_ms(), any ? "" : " ", any ? "" : op);
}

int hung(rig_t *rig, int which)
{
    char reply[FAULTFS_TEXT_BYTES];
    int total = -1;
    check_told(rig, which, faultfs_command(&rig->fs[which], reply, sizeof reply, "hung"));
    CHECK(sscanf(reply, "total=%d", &total) == 1);
    return total;
}

void release(rig_t *rig, int which) { tell(rig, which, "release"); }

void release_failing(rig_t *rig, int which, const char *errno_name)
{
    tell(rig, which, "release fail %s", errno_name);
}

long long seen(rig_t *rig, int which, const char *op, const char *pattern)
{
    long long count = faultfs_count(&rig->fs[which], op, pattern);
    check_told(rig, which, count);
    return count;
}

void wait_seen(rig_t *rig, int which, const char *op, const char *pattern, int count)
{
    tell(rig, which, "wait-count %s %s %d %d", op, pattern, count, wait_ms());
}

void forget_counts(rig_t *rig)
{
    for (int at = 0; at < rig->n; at++) tell(rig, at, "counts reset");
}

/* ---- blocks ---- */

uint64_t hash_of(const kvpath_block_id_t *id)
{
    const uint64_t multiplier = 0xc6a4a7935bd1e995u;
    uint64_t state = 0xc70f6907u ^ 16 * multiplier, words[2];
    memcpy(words, id->bytes, sizeof words);
    for (int at = 0; at < 2; at++) {
        uint64_t data = words[at] * multiplier;
        state = (state ^ (data ^ data >> 47) * multiplier) * multiplier;
    }
    state = (state ^ state >> 47) * multiplier;
    return state ^ state >> 47;
}

uint64_t block_for(int n, int primary, unsigned nth)
{
    for (uint64_t number = 0;; number++) {
        kvpath_block_id_t id = block_id(number);
        if (hash_of(&id) % (uint64_t)n == (uint64_t)primary && nth-- == 0) return number;
    }
}

batch_t *block_on(rig_t *rig, int primary, unsigned nth)
{
    batch_t *block = batch(rig->options.shape, block_for(rig->n, primary, nth), 1, 0);
    batch_fill(block);
    return block;
}

const kvpath_block_id_t *id_of(const batch_t *block) { return &block->shards[0].block; }

const char *file_of(const batch_t *block) { return text("data/%s", block_name(id_of(block))); }

const char *files_of(const batch_t *block) { return text("data/%s*", block_name(id_of(block))); }

kvpath_task_t begin_load(rig_t *rig, batch_t *block)
{
    kvpath_task_t task = 0;
    batch_wipe(block);
    CHECK_OK(kvpath_load(rig->store, block->shards, block->count, &task));
    return task;
}

kvpath_task_t begin_dump(rig_t *rig, batch_t *block)
{
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig->store, block->shards, block->count, &task));
    return task;
}

kvpath_status_t finish(rig_t *rig, kvpath_task_t task)
{
    return kvpath_wait(rig->store, task, 0);
}

kvpath_status_t dump_shard(rig_t *rig, batch_t *block, unsigned shard)
{
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_dump(rig->store, block->shards + shard, 1, &task));
    return finish(rig, task);
}

void load_right(rig_t *rig, batch_t *block) { load_batch(rig->store, block); }

void exclude(rig_t *rig, int which)
{
    /* Far from the numbers that tests use. */
    for (unsigned nth = 0; nth < rig->options.threshold; nth++) {
        batch_t *block = block_on(rig, which, 1000 + nth);
        long long rule = fault(rig, which, "any %s always fail EIO", files_of(block));
        kvpath_status_t status = load(rig->store, block->shards, block->count);
        /* Through another path: there is no such block. */
        CHECK(status == KVPATH_NOT_FOUND || status == KVPATH_OS_ERROR);
        tell(rig, which, "rule del %lld", rule);
    }
    CHECK_EQ(state_of(rig, which), KVPATH_BACKEND_EXCLUDED);
}
