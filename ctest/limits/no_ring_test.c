/* No io_uring: by a seccomp filter (as container profiles do) and by kernel.io_uring_disabled.
 * `auto` takes the next engine and says why; `io_uring` fails with cause and remedy (R1, R92). */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "limits.h"

static const shape_t shape = {4096, 4096, 16384};
enum { BLOCKS = 40 };

static const char *asking(const char *root, const char *name, bool direct)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": 4096, "
                "\"shard_size\": 4096, \"block_size\": 16384, \"posix_io_engine\": \"%s\", "
                "\"io_direct\": %s, \"data_dir_shard_bytes\": 0}",
                root, name, direct ? "true" : "false");
}

static void works(kvpath_store_t store)
{
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK(present(store, &blocks->shards[0].block));
    check_nothing_counted(store);
}

/* Nothing is taken in its place, and nothing is made on disk. */
static void refused(const char *call, const char *code, const char *remedy)
{
    const char *root = temp_dir();
    const char *why = open_fails(asking(root, "io_uring", false), KVPATH_UNSUPPORTED);
    printf("%s\n", why);
    CHECK_HAS(why, "posix_io_engine \"io_uring\"");
    CHECK_HAS(why, call);
    CHECK_HAS(why, code);
    CHECK_HAS(why, remedy);
    CHECK_EQ(count_files(root, NULL), 0);
}

CASE(asked_for_and_forbidden)
{
    refuse_call(SYS_io_uring_setup, EPERM);
    refused("io_uring_setup", "EPERM", "seccomp");
    const char *value = text("kernel.io_uring_disabled is %lld", sysctl_of("kernel/io_uring_disabled"));
    if (sysctl_of("kernel/io_uring_disabled") >= 0)
        CHECK_HAS(open_fails(asking(temp_dir(), "io_uring", false), KVPATH_UNSUPPORTED), value);
}

CASE(asked_for_and_hidden)
{
    refuse_call(SYS_io_uring_setup, ENOSYS);
    refused("io_uring_setup", "ENOSYS", "seccomp");
}

/* A profile that forgot two of the three calls. */
CASE(asked_for_and_registering_is_forbidden)
{
    refuse_call(SYS_io_uring_register, EPERM);
    refused("io_uring_register", "EPERM", "seccomp");
}

CASE(asked_for_and_entering_is_forbidden)
{
    refuse_call(SYS_io_uring_enter, EPERM);
    refused("io_uring_enter", "EPERM", "seccomp");
}

static void falls_to(const char *expected, bool direct, const char *reason)
{
    const char *root = temp_dir();
    if (direct && !direct_works(root)) SKIP("the file system takes no O_DIRECT");
    log_keep();
    kvpath_store_t store = open_store(asking(root, "auto", direct));
    const char *stats = report(kvpath_stats_json, store);
    printf("auto runs %s\n", engine_used(store));
    CHECK_HAS(engine_used(store), expected);
    CHECK_HAS(stats, reason);
    CHECK_HAS(stats, "auto: no io_uring here");
    log_wait("KV1001");
    CHECK_HAS(log_text(), text("engine %s (auto: no io_uring here", expected));
    CHECK_HAS(log_text(), reason);
    works(store);
    CHECK_OK(kvpath_close(store));
}

CASE(auto_direct_takes_aio)
{
    refuse_call(SYS_io_uring_setup, EPERM);
    falls_to("aio", true, "EPERM");
}

CASE(auto_buffered_takes_psync)
{
    refuse_call(SYS_io_uring_setup, ENOSYS);
    falls_to("psync", false, "ENOSYS");
}

CASE(auto_without_entering_takes_another)
{
    refuse_call(SYS_io_uring_enter, EPERM);
    falls_to("psync", false, "io_uring_enter");
}

CASE(auto_without_aio_takes_psync)
{
    refuse_call(SYS_io_uring_setup, EPERM);
    refuse_call(SYS_io_setup, EPERM);
    falls_to("psync", true, "no aio: posix_io_engine aio: io_setup: EPERM");
}

/* A process that locks itself in after it has opened its store: no further ring, and the work is
 * done all the same. */
CASE(forbidden_while_the_store_is_open)
{
    const char *root = temp_dir();
    kvpath_store_t store = 0;
    log_keep();
    if (kvpath_open(asking(root, "io_uring", true), &store) != KVPATH_OK)
        SKIP("%s", kvpath_last_error());
    refuse_call(SYS_io_uring_setup, EPERM);
    works(store);
    /* Told only where no ring was there before, which the sweep at open may have made. */
    printf("%s\n", log_text());
    CHECK_OK(kvpath_close(store));
}

CASE(disabled_by_the_kernel)
{
    if (sysctl_of("kernel/io_uring_disabled") < 0) SKIP("there is no kernel.io_uring_disabled");
    long long before = sysctl_of("kernel/io_uring_disabled");
    const char *asked = asking(temp_dir(), "io_uring", false);
    const char *any = asking(temp_dir(), "auto", false);
    kvpath_store_t store = 0;
    sysctl_set("kernel/io_uring_disabled", 2);
    kvpath_status_t status = kvpath_open(asked, &store);
    const char *why = text("%s", status != KVPATH_OK ? kvpath_last_error() : "");
    kvpath_store_t other = open_store(any);
    sysctl_set("kernel/io_uring_disabled", before);
    CHECK_EQ(status, KVPATH_UNSUPPORTED);
    printf("%s\n", why);
    CHECK_HAS(why, "kernel.io_uring_disabled is 2");
    CHECK_HAS(engine_used(other), "psync");
    CHECK_HAS(report(kvpath_stats_json, other), "kernel.io_uring_disabled is 2");
    works(other);
    CHECK_OK(kvpath_close(other));
}
