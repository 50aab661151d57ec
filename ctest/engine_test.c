/* Which engine a store runs, and that it says why: R1 `posix_io_engine`, R92. */
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static const char *valid(const char *root)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": 4096, "
                "\"shard_size\": 4096, \"block_size\": 4096, \"io_direct\": false",
                root);
}

/* Whether the kernel gives a ring with all that kvpath needs of one, without kvpath's help. */
static bool ring_can_be_had(void)
{
    const unsigned needed = IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_CQE_SKIP |
                            IORING_FEAT_LINKED_FILE;
    struct io_uring_params params = {0};
    int none = -1, ring = (int)syscall(SYS_io_uring_setup, 64, &params);
    if (ring < 0) return false;
    const bool can = (params.features & needed) == needed &&
                     syscall(SYS_io_uring_register, ring, IORING_REGISTER_FILES, &none, 1) == 0 &&
                     syscall(SYS_io_uring_enter, ring, 0, 0, 0, NULL, 0) == 0;
    close(ring);
    return can;
}

/* Without a ring, Linux AIO gains nothing for what is buffered. */
CASE(engine_auto)
{
    const char *best = ring_can_be_had() ? "io_uring" : "psync";
    const char *json =
        text("%s, \"data_dir_shard_bytes\": 0, \"posix_io_engine\": \"auto\"}", valid(temp_dir()));
    kvpath_store_t store = open_store(json);
    /* Which one depends on the kernel; the report says which, and why. */
    CHECK_HAS(report(kvpath_stats_json, store), text("\"engine\":{\"name\":\"%s\"", best));
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
