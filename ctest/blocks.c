/* check.h: stores, and blocks in memory and in files. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

enum { GUARD = 64, GUARD_BYTE = 0xa5, WIPED_BYTE = 0x5a };

const char *config(const char *roots_json, shape_t shape, const char *extra)
{
    return text("{\"storage_backends\": %s, \"device_id\": 0, \"tensor_size\": %zu, "
                "\"shard_size\": %zu, \"block_size\": %zu, \"posix_io_engine\": \"%s\", "
                "\"io_direct\": false, \"commit_sync\": \"none\", \"data_dir_shard_bytes\": 0, "
                "\"timeout_ms\": 0%s}",
                roots_json, shape.tensor, shape.shard, shape.block, engine(), extra);
}

/* Skips where an open failed for want of the engine under test. */
static void skip_without_engine(kvpath_status_t status)
{
    if (status == KVPATH_UNSUPPORTED && strcmp(engine(), "psync") != 0 &&
        strstr(kvpath_last_error(), "posix_io_engine") != NULL)
        SKIP("%s", kvpath_last_error());
}

const char *engine_of(kvpath_store_t store)
{
    const char *stats = report(kvpath_stats_json, store);
    const char *at = strstr(stats, "\"engine\":{\"name\":\"");
    char name[32] = "";
    if (at == NULL || sscanf(at, "\"engine\":{\"name\":\"%31[a-z_]\"", name) != 1)
        FAIL("no engine in: %.2000s", stats);
    return text("%s", name);
}

/* Once for each process: so a run's output tells what it proves. */
static void show_engine(kvpath_store_t store)
{
    static bool shown;
    if (!shown) printf("engine: %s\n", engine_of(store));
    shown = true;
}

kvpath_store_t open_store(const char *json)
{
    kvpath_store_t store = 0;
    kvpath_status_t status = kvpath_open(json, &store);
    skip_without_engine(status);
    if (status != KVPATH_OK)
        FAIL("kvpath_open gave %s: %s\n%.2000s", kvpath_status_name(status), kvpath_last_error(),
             json);
    CHECK(store != 0);
    show_engine(store);
    return store;
}

kvpath_store_t open_root(const char *root, shape_t shape, const char *extra)
{
    return open_store(config(text("[\"%s\"]", root), shape, extra));
}

const char *open_fails(const char *json, kvpath_status_t expected)
{
    kvpath_store_t store = 12345;
    kvpath_status_t status = kvpath_open(json, &store);
    if (expected != KVPATH_UNSUPPORTED) skip_without_engine(status);
    if (status != expected)
        FAIL("kvpath_open gave %s (%s), not %s\n%.2000s", kvpath_status_name(status),
             status ? kvpath_last_error() : "", kvpath_status_name(expected), json);
    CHECK_EQ(store, 12345);
    CHECK(kvpath_last_error()[0] != '\0');
    return text("%s", kvpath_last_error());
}

kvpath_stats_t stats_of(kvpath_store_t store)
{
    kvpath_stats_t stats = {0};
    stats.size = sizeof stats;
    CHECK_OK(kvpath_stats(store, &stats));
    return stats;
}

void wait_sweeps(kvpath_store_t store, uint64_t count)
{
    for (int left = 120 * 100; stats_of(store).sweep_passes < count; left--) {
        if (left == 0) FAIL("a sweep does not come");
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
}

const char *report(report_fn function, kvpath_store_t store)
{
    size_t need = 0, length = 0;
    CHECK_OK(function(store, NULL, 0, &need));
    /* It may have grown by the second call. */
    size_t capacity = need * 2 + 256;
    char *buffer = malloc(capacity);
    CHECK(buffer != NULL);
    CHECK_OK(function(store, buffer, capacity, &length));
    CHECK_EQ(strlen(buffer), length);
    const char *copy = text("%s", buffer);
    free(buffer);
    return copy;
}

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

kvpath_block_id_t block_id(uint64_t number)
{
    kvpath_block_id_t id;
    uint64_t words[2] = {mix(number), mix(~number)};
    memcpy(id.bytes, words, sizeof id.bytes);
    return id;
}

const char *block_name(const kvpath_block_id_t *id)
{
    char name[33];
    for (size_t at = 0; at < 16; at++) snprintf(name + 2 * at, 3, "%02x", id->bytes[at]);
    return text("%s", name);
}

const char *block_path(const char *root, const kvpath_block_id_t *id, unsigned digits)
{
    const char *name = block_name(id);
    if (digits == 0) return text("%s/data/%s", root, name);
    return text("%s/%.*s/%s", root, (int)digits, name, name);
}

uint8_t content_at(const kvpath_block_id_t *id, size_t offset)
{
    uint64_t words[2];
    memcpy(words, id->bytes, sizeof words);
    return (uint8_t)(mix(words[0] ^ (words[1] + offset / 8)) >> (offset % 8 * 8));
}

batch_t *batch(shape_t shape, uint64_t first, size_t blocks, size_t misalign)
{
    static struct all {
        struct all *next;
        batch_t batch;
    } * all; /* reachable, so no leak */
    struct all *entry = calloc(1, sizeof *entry);
    CHECK(entry != NULL && misalign < GUARD);
    entry->next = all;
    all = entry;
    batch_t *made = &entry->batch;
    made->shape = shape;
    made->blocks = blocks;
    made->per_block = shape.block / shape.shard;
    made->tensors = shape.shard / shape.tensor;
    made->count = blocks * made->per_block;
    made->misalign = misalign;
    made->stride = (shape.tensor + GUARD - 1) / GUARD * GUARD + GUARD;
    made->memory_bytes = (made->count * made->tensors + 1) * made->stride;
    CHECK(posix_memalign((void **)&made->memory, 4096, made->memory_bytes) == 0);
    made->addrs = calloc(made->count * made->tensors + 1, sizeof *made->addrs);
    made->shards = calloc(made->count + 1, sizeof *made->shards);
    CHECK(made->addrs != NULL && made->shards != NULL);
    for (size_t at = 0; at < made->count * made->tensors; at++)
        made->addrs[at] = made->memory + at * made->stride + misalign;
    for (size_t at = 0; at < made->count; at++) {
        made->shards[at].block = block_id(first + at / made->per_block);
        made->shards[at].index = (uint32_t)(at % made->per_block);
        made->shards[at].addr_count = (uint32_t)made->tensors;
        made->shards[at].addrs = made->addrs + at * made->tensors;
    }
    batch_wipe(made);
    return made;
}

void batch_fill(batch_t *batch)
{
    for (size_t at = 0; at < batch->count; at++) {
        const kvpath_shard_t *shard = &batch->shards[at];
        for (size_t tensor = 0; tensor < batch->tensors; tensor++) {
            uint8_t *memory = shard->addrs[tensor];
            size_t start = shard->index * batch->shape.shard + tensor * batch->shape.tensor;
            for (size_t byte = 0; byte < batch->shape.tensor; byte++)
                memory[byte] = content_at(&shard->block, start + byte);
        }
    }
}

void batch_wipe(batch_t *batch)
{
    memset(batch->memory, GUARD_BYTE, batch->memory_bytes);
    for (size_t at = 0; at < batch->count * batch->tensors; at++)
        memset(batch->addrs[at], WIPED_BYTE, batch->shape.tensor);
}

size_t shard_wrong(const batch_t *batch, size_t at)
{
    size_t wrong = 0;
    const kvpath_shard_t *shard = &batch->shards[at];
    for (size_t tensor = 0; tensor < batch->tensors; tensor++) {
        const uint8_t *memory = shard->addrs[tensor];
        size_t start = shard->index * batch->shape.shard + tensor * batch->shape.tensor;
        for (size_t byte = 0; byte < batch->shape.tensor; byte++)
            wrong += memory[byte] != content_at(&shard->block, start + byte);
    }
    return wrong;
}

static void check_guards(const batch_t *batch)
{
    const uint8_t *from = batch->memory;
    for (size_t at = 0; at <= batch->count * batch->tensors; at++) {
        bool last = at == batch->count * batch->tensors;
        const uint8_t *to = last ? batch->memory + batch->memory_bytes : batch->addrs[at];
        for (; from < to; from++)
            if (*from != GUARD_BYTE)
                FAIL("a byte before tensor %zu was overwritten (%td before it)", at, to - from);
        from += batch->shape.tensor;
    }
}

void batch_check(const batch_t *batch)
{
    for (size_t at = 0; at < batch->count; at++) {
        size_t wrong = shard_wrong(batch, at);
        if (wrong != 0)
            FAIL("shard %u of block %s: %zu of %zu bytes are wrong", batch->shards[at].index,
                 block_name(&batch->shards[at].block), wrong, batch->shape.shard);
    }
    check_guards(batch);
}

kvpath_status_t dump(kvpath_store_t store, const kvpath_shard_t *shards, size_t count)
{
    kvpath_task_t task = 0;
    kvpath_status_t status = kvpath_dump(store, shards, count, &task);
    return status != KVPATH_OK ? status : kvpath_wait(store, task, 0);
}

kvpath_status_t load(kvpath_store_t store, const kvpath_shard_t *shards, size_t count)
{
    kvpath_task_t task = 0;
    kvpath_status_t status = kvpath_load(store, shards, count, &task);
    return status != KVPATH_OK ? status : kvpath_wait(store, task, 0);
}

void dump_batch(kvpath_store_t store, batch_t *batch)
{
    batch_fill(batch);
    CHECK_OK(dump(store, batch->shards, batch->count));
    batch_check(batch); /* a dump only reads */
}

void load_batch(kvpath_store_t store, batch_t *batch)
{
    batch_wipe(batch);
    CHECK_OK(load(store, batch->shards, batch->count));
    batch_check(batch);
}

bool present(kvpath_store_t store, const kvpath_block_id_t *id)
{
    uint8_t found = 2;
    CHECK_OK(kvpath_lookup(store, id, 1, &found));
    CHECK(found < 2);
    return found == 1;
}

void check_file(const char *path, const kvpath_block_id_t *id, size_t block_bytes)
{
    size_t bytes = 0;
    uint8_t *content = read_file(path, &bytes);
    if (content == NULL) FAIL("no file %s", path);
    CHECK_EQ(bytes, block_bytes);
    for (size_t at = 0; at < bytes; at++)
        if (content[at] != content_at(id, at)) FAIL("%s: byte %zu is wrong", path, at);
    free(content);
}
