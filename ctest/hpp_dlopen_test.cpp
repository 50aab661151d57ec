// kvpath.hpp in a program that is not linked with the library.
#include <dlfcn.h>

#include "check.h"
#include "kvpath.hpp"

CASE(store_over_dlopen)
{
    void *library = dlopen(KVPATH_TEST_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) FAIL("dlopen: %s", dlerror());
    const kvpath_api_t &api = kvpath::api(library);
    {
        kvpath::Store store(text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"io_direct\": "
                                 "false, \"tensor_size\": 4096, \"shard_size\": 4096, "
                                 "\"block_size\": 4096}",
                                 temp_dir()),
                            api);
        kvpath::Memory memory(4096, api);
        void *addrs[] = {memory.data()};
        kvpath::Shard shard{};
        shard.addr_count = 1;
        shard.addrs = addrs;
        store.dump(&shard, 1).wait();
        store.load(&shard, 1).wait();
        CHECK_EQ(store.lookup_prefix({shard.block}), 0);
    }
    try {
        kvpath::Store store("[]", api);
        FAIL("no exception");
    } catch (const kvpath::Error &error) {
        CHECK_EQ(error.status(), KVPATH_INVALID_PARAM);
    }
    CHECK(dlclose(library) == 0);
}

CASE(library_without_the_table)
{
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    CHECK(library != nullptr);
    try {
        kvpath::api(library);
        FAIL("no exception");
    } catch (const kvpath::Error &error) {
        CHECK_EQ(error.status(), KVPATH_UNSUPPORTED);
    }
    dlclose(library);
}
