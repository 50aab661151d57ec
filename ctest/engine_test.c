/* Which engine a store runs, and that it says why: R1 `posix_io_engine`, R92. */
#define _GNU_SOURCE
#include "check.h"

static const char *valid(const char *root)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": 4096, "
                "\"shard_size\": 4096, \"block_size\": 4096, \"io_direct\": false",
                root);
}

CASE(engine_auto)
{
    const char *json =
        text("%s, \"data_dir_shard_bytes\": 0, \"posix_io_engine\": \"auto\"}", valid(temp_dir()));
    kvpath_store_t store = open_store(json);
    /* Which one depends on the kernel; the report says which, and why. */
    CHECK_HAS(report(kvpath_stats_json, store), "\"engine\":{\"name\":\"");
    CHECK_HAS(report(kvpath_stats_json, store), "auto: ");
    CHECK_OK(kvpath_close(store));
}

CASE(engine_aio)
{
    const char *json =
        text("%s, \"data_dir_shard_bytes\": 0, \"posix_io_engine\": \"aio\"}", valid(temp_dir()));
    kvpath_store_t store = 0;
    kvpath_status_t status = kvpath_open(json, &store);
    if (status == KVPATH_UNSUPPORTED) {
        CHECK_HAS(kvpath_last_error(), "io_setup"); /* the cause; the remedy follows it */
        SKIP("no Linux AIO here");
    }
    CHECK_OK(status);
    CHECK_HAS(report(kvpath_stats_json, store), "aio");
    CHECK_OK(kvpath_close(store));
}

/* Where this system refuses it, the text says so, and nothing is taken in its place. */
CASE(engine_io_uring)
{
    const char *root = temp_dir();
    const char *json = text("%s, \"posix_io_engine\": \"io_uring\"}", valid(root));
    kvpath_store_t store = 0;
    kvpath_status_t status = kvpath_open(json, &store);
    if (status == KVPATH_UNSUPPORTED) {
        CHECK_HAS(kvpath_last_error(), "posix_io_engine");
        CHECK_EQ(count_files(root, NULL), 0);
        SKIP("%s", kvpath_last_error());
    }
    CHECK_OK(status);
    CHECK_HAS(report(kvpath_stats_json, store), "\"name\":\"io_uring\"");
    CHECK_OK(kvpath_close(store));
}
