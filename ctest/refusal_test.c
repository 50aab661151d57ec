/* What the system refuses: a store either fails to open with the cause and the remedy in its text,
 * or makes do with less. A seccomp filter refuses here as a container's profile, a system setting
 * or a limit would; each case is a process of its own, so nobody else meets it. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "check.h"

static const shape_t shape = {65536, 65536, 65536};
enum { BLOCKS = 64 };

/* From here on, system call `number` gives `refusal` where its first argument is `least` or more. */
static void refuse(unsigned number, unsigned least, unsigned refusal)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, least, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | refusal),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        SKIP("no seccomp filters here: %s", strerror(errno));
}

static const char *json(const char *engine)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": %zu, "
                "\"shard_size\": %zu, \"block_size\": %zu, \"data_dir_shard_bytes\": 0, "
                "\"io_direct\": %s, \"posix_io_engine\": \"%s\"}",
                temp_dir(), shape.tensor, shape.shard, shape.block,
                direct_works(temp_dir()) ? "true" : "false", engine);
}

static void moves_blocks(const char *configuration)
{
    kvpath_store_t store = open_store(configuration);
    batch_t *blocks = batch(shape, 1, BLOCKS, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK_OK(kvpath_close(store));
}

CASE(a_filter_that_forbids_io_uring_is_named_with_its_remedy)
{
    refuse(SYS_io_uring_setup, 0, EPERM);
    const char *why = open_fails(json("io_uring"), KVPATH_UNSUPPORTED);
    CHECK_HAS(why, "io_uring_setup");
    CHECK_HAS(why, "EPERM");
    CHECK_HAS(why, "kernel.io_uring_disabled is ");
    CHECK_HAS(why, "seccomp");
}

CASE(a_filter_that_hides_io_uring_is_named_with_its_remedy)
{
    refuse(SYS_io_uring_setup, 0, ENOSYS);
    const char *why = open_fails(json("io_uring"), KVPATH_UNSUPPORTED);
    CHECK_HAS(why, "ENOSYS");
    CHECK_HAS(why, "allow io_uring_setup");
}

CASE(auto_goes_without_io_uring_and_says_why)
{
    refuse(SYS_io_uring_setup, 0, EPERM);
    const char *configuration = json("auto");
    kvpath_store_t store = open_store(configuration);
    CHECK_HAS(report(kvpath_stats_json, store), "io_uring_setup");
    CHECK_OK(kvpath_close(store));
    moves_blocks(configuration);
}

CASE(memory_that_may_not_be_locked_is_named_with_its_limit)
{
    refuse(SYS_io_uring_setup, 0, ENOMEM);
    struct rlimit none = {0, 0};
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    CHECK_HAS(open_fails(json("io_uring"), KVPATH_UNSUPPORTED), "RLIMIT_MEMLOCK is 0");
}

CASE(a_ring_works_without_locked_memory)
{
    struct rlimit none = {0, 0};
    CHECK_EQ(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    moves_blocks(json("io_uring"));
}

CASE(a_ring_that_is_too_large_is_halved)
{
    refuse(SYS_io_uring_setup, 65, ENOMEM);
    moves_blocks(json("io_uring"));
}

CASE(a_filter_that_forbids_aio_is_named_with_its_remedy)
{
    refuse(SYS_io_setup, 0, EPERM);
    const char *why = open_fails(json("aio"), KVPATH_UNSUPPORTED);
    CHECK_HAS(why, "io_setup");
    CHECK_HAS(why, "seccomp");
    CHECK_HAS(why, "psync");
}

CASE(a_context_that_is_too_large_is_halved)
{
    refuse(SYS_io_setup, 33, EAGAIN);
    moves_blocks(json("aio"));
}

CASE(without_room_for_any_context_blocks_are_moved_all_the_same)
{
    refuse(SYS_io_setup, 1, EAGAIN);
    moves_blocks(json("aio"));
}

/* Calls of which some are refused, by a thread of the test that the kernel asks about each. */
static struct {
    int listener;
    sem_t listening;
    _Atomic int refusal;
    atomic_uint asked, refused, allowed;
} some;

/* Of so many calls one is refused. */
enum { EVERY = 3 };

static void *judge(void *unused)
{
    while (sem_wait(&some.listening) != 0) continue;
    for (;;) {
        struct seccomp_notif call = {0};
        if (ioctl(some.listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0) {
            if (errno == EINTR || errno == ENOENT) continue;
            return unused;
        }
        bool refuses = atomic_fetch_add(&some.asked, 1) % EVERY == EVERY - 1;
        struct seccomp_notif_resp answer = {.id = call.id};
        if (refuses)
            answer.error = -atomic_load(&some.refusal);
        else
            answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
        /* Fails where the caller was interrupted: it calls again, and that is asked about. */
        if (ioctl(some.listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0)
            atomic_fetch_add(refuses ? &some.refused : &some.allowed, 1);
    }
}

/* From here on, some calls of `number` are refused, by this thread and those that it makes. */
static void refuse_some(unsigned number)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    pthread_t thread;
    CHECK_EQ(sem_init(&some.listening, 0, 0), 0);
    CHECK_EQ(pthread_create(&thread, NULL, judge, NULL), 0);
    CHECK_EQ(pthread_detach(thread), 0);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) SKIP("no seccomp filters here");
    some.listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                                 SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (some.listener < 0) SKIP("no seccomp listeners here: %s", strerror(errno));
    CHECK_EQ(sem_post(&some.listening), 0);
}

/* Whatever a submission is refused with, each block is moved, once, and the path is not blamed.
 * Returns how many calls were let through. */
static unsigned moves_in_spite_of(const char *configuration, int refusal)
{
    atomic_store(&some.refusal, refusal);
    unsigned refused = atomic_load(&some.refused), allowed = atomic_load(&some.allowed);
    kvpath_store_t store = open_store(configuration);
    batch_t *blocks = batch(shape, 1000 * (uint64_t)refusal, BLOCKS, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    CHECK(atomic_load(&some.refused) > refused);
    kvpath_stats_t stats = stats_of(store);
    CHECK_EQ(stats.loaded_shards, BLOCKS);
    CHECK_EQ(stats.dumped_shards, BLOCKS);
    CHECK_EQ(stats.retries + stats.failovers + stats.timeouts, 0);
    CHECK_EQ(stats.in_flight + stats.abandoned + stats.queued_shards, 0);
    CHECK_OK(kvpath_close(store));
    return atomic_load(&some.allowed) - allowed;
}

CASE(aio_submissions_that_are_refused_for_now_are_made_once_more)
{
    if (!direct_works(temp_dir())) SKIP("no O_DIRECT here, and AIO is for nothing else");
    const char *configuration = json("aio");
    refuse_some(SYS_io_submit);
    static const int refusals[] = {EAGAIN, EINTR, ENOMEM};
    for (size_t at = 0; at < sizeof refusals / sizeof refusals[0]; at++) {
        /* One for each block and way; what a worker did before the lane knew its files has none. */
        unsigned allowed = moves_in_spite_of(configuration, refusals[at]);
        CHECK(allowed >= BLOCKS && allowed <= 2 * BLOCKS);
    }
}

CASE(entries_of_a_ring_that_are_refused_for_now_are_made_once_more)
{
    const char *configuration = json("io_uring");
    refuse_some(SYS_io_uring_enter);
    /* EBUSY: completions have no room until some are taken. */
    static const int refusals[] = {EAGAIN, EINTR, EBUSY};
    for (size_t at = 0; at < sizeof refusals / sizeof refusals[0]; at++)
        moves_in_spite_of(configuration, refusals[at]);
}
