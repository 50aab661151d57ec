/* The lease of collection while removals hang (R36, R83), on a file system of this host. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "check.h"

enum {
    BYTES = 4096,
    STUCK = 16, /* one in each directory: as many as are collected at once by default */
    OTHERS = 48,
    TRIGGER = 40,
    HUNG_MIN = 4,
    BEATS = 3,
    LOOK_MS = 10,
    LOOKS = 10,
    LIMIT_MS = 60000,
};

/* ---- files that nobody can remove for a while ---- */

/* A write holds the lock of its file while it waits for the memory that it copies from: so does
 * whoever removes the file wait, and everybody who wants to do the same in its directory. */
static struct {
    int fault; /* a userfaultfd: memory that is not there until this case provides it */
    uint8_t *memory;
    size_t page;
    pthread_t writers[STUCK];
    int files[STUCK];
} stuck;

static void *write_stuck(void *file)
{
    CHECK(pwrite(*(int *)file, stuck.memory, BYTES, 0) == BYTES);
    return NULL;
}

static void stuck_make(void)
{
    stuck.page = (size_t)sysconf(_SC_PAGESIZE);
    stuck.fault = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (stuck.fault < 0) SKIP("no userfaultfd");
    struct uffdio_api api = {.api = UFFD_API};
    CHECK(ioctl(stuck.fault, UFFDIO_API, &api) == 0);
    stuck.memory = mmap(NULL, stuck.page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    CHECK(stuck.memory != MAP_FAILED);
    struct uffdio_register range = {
        .range = {.start = (uintptr_t)stuck.memory, .len = stuck.page},
        .mode = UFFDIO_REGISTER_MODE_MISSING};
    CHECK(ioctl(stuck.fault, UFFDIO_REGISTER, &range) == 0);
}

static void stuck_begin(unsigned which, const char *path)
{
    stuck.files[which] = open(path, O_WRONLY | O_CLOEXEC);
    CHECK(stuck.files[which] >= 0);
    CHECK(pthread_create(&stuck.writers[which], NULL, write_stuck, &stuck.files[which]) == 0);
    struct uffd_msg message; /* the writer is there, and waits */
    CHECK(read(stuck.fault, &message, sizeof message) == sizeof message);
    CHECK_EQ(message.event, UFFD_EVENT_PAGEFAULT);
}

static void stuck_end(void)
{
    struct uffdio_zeropage zero = {
        .range = {.start = (uintptr_t)stuck.memory, .len = stuck.page}};
    CHECK(ioctl(stuck.fault, UFFDIO_ZEROPAGE, &zero) == 0);
    for (int at = 0; at < STUCK; at++) {
        CHECK(pthread_join(stuck.writers[at], NULL) == 0);
        close(stuck.files[at]);
    }
}

/* ---- what is waited for ---- */

static bool until(bool (*is_so)(void *), void *argument)
{
    for (int waited = 0; waited < LIMIT_MS; waited += LOOK_MS) {
        if (is_so(argument)) return true;
        nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000L}, NULL);
    }
    return false;
}

static bool has_passed(void *store)
{
    return stats_of(*(kvpath_store_t *)store).collector_passes > 0;
}

static unsigned uninterruptible(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char line[128];
        FILE *status = fopen(text("/proc/self/task/%s/status", task->d_name), "r");
        if (status == NULL) continue;
        while (fgets(line, sizeof line, status) != NULL)
            count += strncmp(line, "State:\tD", 8) == 0;
        fclose(status);
    }
    closedir(tasks);
    return count;
}

/* So many threads wait in the kernel, and stay there: it tells of no event when one begins to. */
static bool threads_hang(void *least)
{
    static unsigned looks;
    looks = uninterruptible() >= *(unsigned *)least ? looks + 1 : 0;
    return looks >= LOOKS;
}

typedef struct {
    const char *lease;
    struct timespec last;
    unsigned beats;
} pulse_t;

/* Counts the changes of the holder's mark. */
static bool has_beaten(void *argument)
{
    pulse_t *pulse = argument;
    DIR *lease = opendir(pulse->lease);
    if (lease == NULL) return false;
    for (struct dirent *entry; (entry = readdir(lease)) != NULL;) {
        struct stat info;
        if (strncmp(entry->d_name, "hb.", 3) != 0) continue;
        if (fstatat(dirfd(lease), entry->d_name, &info, 0) != 0) continue;
        pulse->beats += memcmp(&info.st_mtim, &pulse->last, sizeof pulse->last) != 0;
        pulse->last = info.st_mtim;
    }
    closedir(lease);
    return pulse->beats > BEATS;
}

/* ---- the case ---- */

/* A block of the directory of this digit. */
static const char *put(const char *root, unsigned digit, unsigned number, time_t mtime)
{
    static const uint8_t content[BYTES];
    kvpath_block_id_t id = block_id(number);
    id.bytes[0] = (uint8_t)(digit << 4 | (id.bytes[0] & 15));
    const char *path = block_path(root, &id, 1);
    write_file(path, content, sizeof content);
    struct timespec times[2] = {{.tv_sec = mtime}, {.tv_sec = mtime}};
    CHECK(utimensat(AT_FDCWD, path, times, 0) == 0);
    return path;
}

/* Without time limits nothing replaces a worker that hangs. */
CASE(r83_the_holder_shows_that_it_lives_while_removals_hang)
{
    static const shape_t whole = {BYTES, BYTES, BYTES};
    const char *root = temp_dir();
    stuck_make();
    kvpath_store_t store = open_store(text(
        "{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": %d, \"shard_size\": %d, "
        "\"block_size\": %d, \"io_direct\": false, \"commit_sync\": \"none\", "
        "\"posix_io_engine\": \"%s\", \"timeout_ms\": 0, \"data_dir_shard_bytes\": 1, "
        "\"posix_gc_trigger_threshold_ratio\": 1, \"posix_gc_shard_sample_ratio\": 1, "
        "\"posix_gc_check_interval_sec\": 1, \"posix_gc_task_timeout_ms\": 0, "
        "\"posix_capacity_gb\": %.17g}",
        root, BYTES, BYTES, BYTES, engine(), (double)TRIGGER * BYTES / (1 << 30)));
    /* The engine learns what file system it is on. */
    dump_batch(store, batch(whole, 1000, 1, 0));
    if (!until(has_passed, &store)) FAIL("no pass");
    for (unsigned at = 0; at < STUCK; at++) stuck_begin(at, put(root, at, at, 1000));
    const unsigned hanging = uninterruptible();
    for (unsigned at = 0; at < OTHERS; at++) put(root, at % 16, STUCK + at, time(NULL) + 1000);
    unsigned least = hanging + HUNG_MIN;
    if (!until(threads_hang, &least)) FAIL("no removal hangs");
    pulse_t pulse = {.lease = text("%s/.ucm_gc.lock", root)};
    const bool beats = until(has_beaten, &pulse);
    stuck_end();
    if (!beats) FAIL("the holder showed %u times that it lives", pulse.beats);
    CHECK_OK(kvpath_close(store));
}
