/* R70, R75: the library loaded again and again by a program that is not linked with it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#define SIZES "\"tensor_size\": 65536, \"shard_size\": 65536, \"block_size\": 262144"
enum { SHARD = 65536, SHARDS = 4 };

static void *load_library(const kvpath_api_t **api)
{
    void *library = dlopen(KVPATH_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) FAIL("dlopen: %s", dlerror());
    const kvpath_api_t *(*find)(uint32_t) = NULL;
    *(void **)&find = dlsym(library, "kvpath_api");
    CHECK(find != NULL);
    *api = find(KVPATH_ABI_VERSION);
    CHECK(*api != NULL);
    return library;
}

#define OK(call)                                                                                   \
    do {                                                                                           \
        kvpath_status_t status_ = (call);                                                          \
        if (status_ != 0) FAIL("%s: %s %s", #call, api->status_name(status_), api->last_error());  \
    } while (0)

/* Opens a store, dumps a block, finds it, loads it, compares, closes. */
static void use(const kvpath_api_t *api, const char *json, unsigned round)
{
    kvpath_store_t store = 0;
    kvpath_task_t task = 0;
    uint8_t found = 0;
    uint8_t *memory = api->alloc((size_t)SHARD * SHARDS);
    CHECK(memory != NULL);
    void *addrs[SHARDS];
    kvpath_shard_t shards[SHARDS] = {{.index = 0}};
    for (unsigned at = 0; at < SHARDS; at++) {
        addrs[at] = memory + (size_t)at * SHARD;
        shards[at].block.bytes[3] = (uint8_t)(round % 7);
        shards[at].index = at;
        shards[at].addr_count = 1;
        shards[at].addrs = &addrs[at];
        memset(addrs[at], (int)(at + round % 7), SHARD);
    }
    kvpath_status_t status = api->open(json, &store);
    if (status == KVPATH_UNSUPPORTED) SKIP("%s", api->last_error());
    OK(status);
    OK(api->dump(store, shards, SHARDS, &task));
    OK(api->wait(store, task, 0));
    memset(memory, 99, (size_t)SHARD * SHARDS);
    OK(api->lookup(store, &shards[0].block, 1, &found));
    CHECK_EQ(found, 1);
    OK(api->load(store, shards, SHARDS, &task));
    OK(api->wait(store, task, 0));
    for (size_t at = 0; at < (size_t)SHARD * SHARDS; at++)
        CHECK(memory[at] == at / SHARD + round % 7);
    OK(api->close(store));
    api->free(memory);
}

CASE(rounds_of_open_use_close_200)
{
    enum { WARM = 20, ROUNDS = 200, GROWTH_KIB = 8 * 1024 };
    const char *json = text("{\"storage_backends\": \"%s\", \"device_id\": 0, " SIZES
                            ", \"io_direct\": false, \"posix_io_engine\": \"%s\"}",
                            temp_dir(), engine());
    size_t threads = thread_count(), descriptors = 0, resident = 0;
    for (unsigned round = 0; round < WARM + ROUNDS; round++) {
        const kvpath_api_t *api = NULL;
        void *library = load_library(&api);
        use(api, json, round);
        CHECK(dlclose(library) == 0);
        CHECK_EQ(thread_count(), threads);
        if (round == WARM) descriptors = descriptor_count(), resident = resident_kib();
        if (round > WARM) CHECK_EQ(descriptor_count(), descriptors);
    }
    size_t now = resident_kib();
    if (now > resident + GROWTH_KIB) FAIL("memory grew from %zu to %zu KiB", resident, now);
}

/* Every function of exports.txt is in the library, and the table has the same ones in every slot.
 */
CASE(table_is_the_exported_functions)
{
    const kvpath_api_t *api = NULL;
    void *library = load_library(&api);
    char name[128];
    FILE *exports = fopen(KVPATH_TEST_EXPORTS, "r");
    CHECK(exports != NULL);
    void *const *slots = (void *const *)(const void *)&api->open;
    size_t slot_count = (api->size - offsetof(kvpath_api_t, open)) / sizeof *slots;
    size_t functions = 0;
    while (fscanf(exports, "%127s", name) == 1) {
        void *symbol = dlsym(library, name);
        if (symbol == NULL) FAIL("%s is not exported", name);
        if (strcmp(name, "kvpath_api") == 0) continue;
        size_t at = 0;
        while (at < slot_count && slots[at] != symbol) at++;
        if (at == slot_count) FAIL("%s is not in the table", name);
        functions++;
    }
    fclose(exports);
    CHECK_EQ(functions, slot_count);
    CHECK(api->abi_version() == KVPATH_ABI_VERSION && api->table_version == KVPATH_ABI_VERSION);
    CHECK(dlclose(library) == 0);
}

/* A store that is still open does not make dlclose dangerous: the library stays (-z nodelete). */
CASE(dlclose_with_an_open_store)
{
    const kvpath_api_t *api = NULL;
    void *library = load_library(&api);
    kvpath_store_t store = 0;
    OK(api->open(text("{\"storage_backends\": \"%s\", \"device_id\": 0, " SIZES
                      ", \"io_direct\": false}",
                      temp_dir()),
                 &store));
    CHECK(dlclose(library) == 0);
    library = load_library(&api);
    OK(api->check_health(store));
    OK(api->close(store));
    CHECK(dlclose(library) == 0);
}
