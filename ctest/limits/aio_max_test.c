/* fs.aio-max-nr too small: what is asked for is halved, then refused with the values (R1). These
 * cases change a setting of the whole machine for a moment, so they run alone. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "limits.h"

static const shape_t shape = {65536, 65536, 262144};
enum { BLOCKS = 40 };

static const char *aio_config(const char *root)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": 65536, "
                "\"shard_size\": 65536, \"block_size\": 262144, \"posix_io_engine\": \"aio\", "
                "\"data_dir_shard_bytes\": 0, \"io_direct_fallback\": true, \"timeout_ms\": 0}",
                root);
}

static const char *direct_dir(void)
{
    const char *root = temp_dir();
    if (!direct_works(root)) SKIP("the file system takes no O_DIRECT");
    if (sysctl_of("fs/aio-max-nr") < 0) SKIP("no Linux AIO here");
    return root;
}

/* Leaves room for `events` requests of contexts. */
static void leave_room(long long events)
{
    sysctl_set("fs/aio-max-nr", sysctl_of("fs/aio-nr") + events);
}

CASE(refused_with_the_values)
{
    const char *root = direct_dir();
    leave_room(0);
    long long used = sysctl_of("fs/aio-nr"), most = sysctl_of("fs/aio-max-nr");
    const char *why = open_fails(aio_config(root), KVPATH_UNSUPPORTED);
    printf("%s\n", why);
    CHECK_HAS(why, "io_setup: EAGAIN");
    CHECK_HAS(why, text("fs.aio-nr is %lld of fs.aio-max-nr %lld", used, most));
    CHECK_HAS(why, "sysctl -w fs.aio-max-nr");
    CHECK_EQ(count_files(root, NULL), 0);
}

CASE(a_smaller_context_first)
{
    enum { ROOM = 100 }; /* 3 x 128 + 1 are wanted, 96 fit */
    const char *root = direct_dir();
    leave_room(ROOM);
    long long before = sysctl_of("fs/aio-nr");
    kvpath_store_t store = open_store(aio_config(root));
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    CHECK_HAS(engine_used(store), "aio");
    dump_batch(store, blocks);
    load_batch(store, blocks);
    long long now = sysctl_of("fs/aio-nr");
    printf("a context of %lld\n", now - before);
    CHECK(now > before && now <= before + ROOM);
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
}

/* There was room at open and there is none when the first context is made. */
CASE(no_room_any_more)
{
    const char *root = direct_dir();
    log_keep();
    kvpath_store_t store = open_store(aio_config(root));
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    leave_room(0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    log_wait("KV1011");
    CHECK_HAS(log_text(), "fs.aio-max-nr");
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
    CHECK_EQ(count_files(root, ".tmp"), 0);
}
