/* soak.h: the case. One epoch after the other: open, use, break, close, and look. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "soak.h"

enum {
    SECONDS = 20,
    WARM_EPOCHS = 3, /* and a fifth of the time */
    ALLOCATOR_KEEPS_BYTES = 128 << 10,
    ARENAS = 4,
    TELL_EPOCHS = 50,
    GROWTH_MAX_KIB = 5 * 1024,
    EPOCH_MIN_MS = 1200,
    EPOCH_MAX_MS = 3500,
    HANG_MS = 60,
    OPEN_LIMIT_MS = 3000,
    CLOSE_LIMIT_MS = 300,
    WAIT_MS = 120000,
    /* Where a store was closed while the path of its lease hung, the next one takes that over after
     * a minute of silence. It looks after 5, 10, 20, 40 and 80 s more, and up to a half longer; a
     * call of the old one that was held back starts the minute again. */
    SWEEP_MS = 300000,
    LOOK_AGAIN_MS = 20,
};

/* How an epoch ends. */
typedef enum { CALM, ROUGH, RACE } ending_t;

static struct {
    const char *storage;
    worker_t workers[WORKERS];
    uint64_t seed, epochs;
    unsigned stores; /* opened so far: gives the stamps */
    size_t threads, descriptors, resident_kib;
    uint64_t refused, timed_out;
    char configs[STORES][4096]; /* of the present epoch */
    bool passed;
} soak;

static void at_exit(void)
{
    if (soak.passed) return;
    fprintf(stderr, "seed %llu, engine %s, epoch %llu; its faults:\n",
            (unsigned long long)soak.seed, engine(), (unsigned long long)soak.epochs);
    storm_story();
    for (int which = 0; which < STORES; which++)
        fprintf(stderr, "store %d: %s\n", which, soak.configs[which]);
}

static void heard(int32_t level, const char *id, const char *line, void *user)
{
    (void)level, (void)user;
    mounts_heard(id, line);
    storm_note(-1, line);
}

static unsigned long long setting(const char *name, unsigned long long otherwise)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? strtoull(value, NULL, 10) : otherwise;
}

/* Looks again and again until it is so. */
static void wait_longer(const char *what, bool (*is_so)(void *), void *argument, unsigned limit_ms)
{
    const struct timespec moment = {.tv_nsec = LOOK_AGAIN_MS * 1000000L};
    const uint64_t limit = now_us() + limit_ms * 1000ull;
    while (!is_so(argument)) {
        if (now_us() > limit) FAIL("%s did not happen", what);
        nanosleep(&moment, NULL);
    }
}

static void wait_for(const char *what, bool (*is_so)(void *), void *argument)
{
    wait_longer(what, is_so, argument, WAIT_MS);
}

static unsigned open_limit_ms(void) { return OPEN_LIMIT_MS * mounts_slower(); }

/* ---- stores ---- */

static void make_config(char *json, size_t bytes, dice_t *dice, epoch_t *epoch, int close_ms)
{
    static const char *const syncs[] = {"none", "none", "data", "full"};
    const unsigned window = dice_from(dice, 2, 3);
    snprintf(json, bytes,
             "{\"storage_backends\": [\"%s\", \"%s\", \"%s\"], \"device_id\": 0,"
             " \"tensor_size\": %d, \"shard_size\": %d, \"block_size\": %d,"
             " \"posix_io_engine\": \"%s\", \"data_dir_shard_bytes\": 0, \"io_direct\": %s,"
             " \"commit_sync\": \"%s\", \"buffer_mode\": \"%s\", \"timeout_ms\": %u,"
             " \"lookup_timeout_ms\": %u, \"open_timeout_ms\": %u, \"close_timeout_ms\": %d,"
             " \"posix_data_trans_concurrency\": %u, \"posix_lookup_concurrency\": %u,"
             " \"store_health\": {\"enabled\": %s, \"health_check_interval_s\": 0.6,"
             " \"health_check_timeout_s\": 0.5, \"health_window_size\": %u,"
             " \"failure_threshold\": %u}}",
             mounts_path(0), mounts_path(1), mounts_path(2), TENSOR_BYTES, SHARD_BYTES,
             BLOCK_BYTES, engine(), dice_one_in(dice, 2) ? "true" : "false",
             syncs[dice_from(dice, 0, 3)], epoch->borrowed ? "borrowed" : "isolated",
             epoch->timeout_ms, epoch->lookup_timeout_ms, open_limit_ms(), close_ms,
             dice_from(dice, 2, 16), dice_from(dice, 1, 4), dice_one_in(dice, 3) ? "true" : "false",
             window, dice_from(dice, 1, window));
}

/* Under faults an open may fail, but not later than it says; when all is well it may not. */
static void open_one(const char *json, int which, epoch_t *epoch, bool faults)
{
    const uint64_t start_us = now_us();
    kvpath_status_t status = kvpath_open(json, &epoch->store[which]);
    within(start_us, open_limit_ms(), "open");
    if (status == KVPATH_UNSUPPORTED && soak.stores == 0) {
        soak.passed = true;
        SKIP("%s", kvpath_last_error());
    }
    if (status != KVPATH_OK && faults) {
        soak.refused++;
        CHECK(status == KVPATH_STORE_UNHEALTHY || status == KVPATH_TIMEOUT);
        storm_end();
        mounts_calm();
        CHECK_OK(kvpath_open(json, &epoch->store[which]));
        storm_begin(epoch->seed + 1);
    } else {
        CHECK_STATUS(status, KVPATH_OK);
    }
    epoch->stamp[which] = (uint8_t)(1 + soak.stores++ % STAMPS);
}

static bool all_available(void *argument)
{
    const kvpath_store_t *store = argument;
    kvpath_backend_health_t health[MOUNTS] = {{.size = sizeof health[0]}};
    size_t count = 0;
    CHECK_OK(kvpath_health(*store, health, MOUNTS, &count));
    for (int at = 0; at < MOUNTS; at++)
        if (health[at].state != KVPATH_BACKEND_AVAILABLE) return false;
    return kvpath_check_health(*store) == KVPATH_OK;
}

static bool is_at_rest(void *argument)
{
    kvpath_stats_t stats = {.size = sizeof stats};
    CHECK_OK(kvpath_stats(*(kvpath_store_t *)argument, &stats));
    return stats.abandoned == 0 && stats.in_flight == 0 && stats.queued_shards == 0;
}

static void close_one(epoch_t *epoch, int which, ending_t ending)
{
    const uint64_t start_us = now_us();
    kvpath_status_t status = kvpath_close(epoch->store[which]);
    if (ending == CALM) {
        CHECK_STATUS(status, KVPATH_OK);
        return;
    }
    within(start_us, CLOSE_LIMIT_MS, "close");
    soak.timed_out += status == KVPATH_TIMEOUT;
    CHECK(status == KVPATH_OK || status == KVPATH_TIMEOUT);
}

/* ---- an epoch ---- */

static void over(epoch_t *epoch)
{
    pthread_mutex_lock(&epoch->lock);
    epoch->over = true;
    pthread_cond_broadcast(&epoch->changed);
    pthread_mutex_unlock(&epoch->lock);
}

static void use_for(unsigned ms)
{
    const struct timespec use = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&use, NULL); /* how long the workers work: nothing is waited for */
}

static bool has_threads(void *argument)
{
    (void)argument;
    mounts_let_go();
    return thread_count() <= soak.threads;
}

static bool has_descriptors(void *argument)
{
    (void)argument;
    return descriptor_count() <= soak.descriptors;
}

/* Nothing of the epoch is left but its blocks. */
static void look(void)
{
    wait_for("the end of all threads", has_threads, NULL);
    wait_for("the end of all descriptors", has_descriptors, NULL);
    for (int at = 0; at < WORKERS; at++) {
        worker_memory_check(&soak.workers[at]);
        worker_settle(&soak.workers[at], soak.storage);
    }
    for (unsigned block = 0; block < COMMON; block++) {
        const kvpath_block_id_t id = common_id(block);
        check_block_file(soak.storage, &id);
    }
}

static void run_epoch(uint64_t number)
{
    static epoch_t epoch; /* workers of a failed case may still look at it */
    soak.epochs = number;
    epoch = (epoch_t){.seed = soak.seed + number,
                      .storage = soak.storage,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER};
    dice_t roll = dice(epoch.seed, 0);
    const ending_t ending = (ending_t)dice_from(&roll, CALM, RACE);
    const bool faults_at_open = dice_one_in(&roll, 4);
    epoch.borrowed = dice_one_in(&roll, 5);
    epoch.timeout_ms = dice_from(&roll, 600, 1500) * mounts_slower();
    epoch.lookup_timeout_ms = dice_from(&roll, 300, 1200) * mounts_slower();
    if (faults_at_open) storm_begin(epoch.seed);
    for (int which = 0; which < STORES; which++) {
        char *json = soak.configs[which];
        make_config(json, sizeof soak.configs[0], &roll, &epoch,
                    ending == CALM ? 0 : CLOSE_LIMIT_MS);
        open_one(json, which, &epoch, faults_at_open);
    }
    if (!faults_at_open) storm_begin(epoch.seed);
    for (int at = 0; at < WORKERS; at++) worker_begin(&soak.workers[at], &epoch);
    const unsigned hangs = dice_from(&roll, 0, MOUNTS - 1);
    use_for(dice_from(&roll, EPOCH_MIN_MS, EPOCH_MAX_MS) * mounts_slower());
    if (ending != CALM && dice_one_in(&roll, 2) && !(ending == ROUGH && epoch.borrowed)) {
        /* A path hangs when the store is closed; where workers are joined before that, and wait for
         * the kernel, it must not. */
        mounts_freeze((int)hangs);
        use_for(HANG_MS);
    }
    if (ending != RACE) over(&epoch);
    if (ending == CALM) {
        storm_end();
        mounts_calm();
    }
    for (int at = 0; at < WORKERS && ending != RACE; at++) worker_join(&soak.workers[at]);
    for (int which = 0; which < STORES && ending == CALM; which++) {
        wait_for("that all paths work", all_available, &epoch.store[which]);
        wait_for("an end of all operations", is_at_rest, &epoch.store[which]);
    }
    for (int at = 0; at < WORKERS && ending == CALM; at++) worker_verify(&soak.workers[at]);
    for (int which = 0; which < STORES; which++) close_one(&epoch, which, ending);
    if (ending != CALM) storm_end();
    if (ending == RACE) over(&epoch);
    /* A wait for what runs on the caller's memory ends when the kernel lets go, and not before,
     * whatever close said (R32). Other waits end with the store. */
    if (epoch.borrowed) mounts_calm();
    for (int at = 0; at < WORKERS && ending == RACE; at++) worker_join(&soak.workers[at]);
    if (!epoch.borrowed) mounts_calm();
    look();
}

/* ---- the case ---- */

static bool no_temporaries(void *argument)
{
    (void)argument;
    return count_files(soak.storage, ".tmp") == 0;
}

/* What rough ends left goes with the next store (R46). */
static void sweep(void)
{
    epoch_t epoch = {.timeout_ms = 30000, .lookup_timeout_ms = 30000};
    dice_t roll = dice(soak.seed, 1);
    char json[4096];
    make_config(json, sizeof json, &roll, &epoch, 0);
    open_one(json, 0, &epoch, false);
    wait_longer("the sweep", no_temporaries, NULL, SWEEP_MS);
    close_one(&epoch, 0, CALM);
}

static void mount_all(unsigned long long seconds)
{
    if (mounts_cannot() != NULL) {
        soak.passed = true;
        SKIP("%s", mounts_cannot());
    }
    mounts_make((unsigned)seconds);
    soak.storage = mounts_storage();
}

static size_t resident_now(void)
{
    malloc_trim(0);
    return resident_kib();
}

CASE(chaos)
{
    const unsigned long long seconds = setting("KVPATH_SOAK_SECONDS", SECONDS);
    soak.seed = setting("KVPATH_SOAK_SEED", 1);
    atexit(at_exit);
    printf("%llu s, seed %llu, engine %s\n", seconds, (unsigned long long)soak.seed, engine());
    fflush(stdout);
    mount_all(seconds);
    CHECK_OK(kvpath_set_log_callback(heard, KVPATH_LOG_WARN, NULL));
    /* What the allocator keeps for later would hide a leak: little, and the same all the time. */
    CHECK(mallopt(M_MMAP_THRESHOLD, ALLOCATOR_KEEPS_BYTES) == 1);
    CHECK(mallopt(M_TRIM_THRESHOLD, ALLOCATOR_KEEPS_BYTES) == 1);
    CHECK(mallopt(M_ARENA_MAX, ARENAS) == 1);
    meter_start();
    for (int at = 0; at < WORKERS; at++) worker_make(&soak.workers[at], at);
    soak.threads = thread_count();
    soak.descriptors = descriptor_count();
    const uint64_t start_us = now_us(), all_us = seconds * 1000000;
    const uint64_t first = setting("KVPATH_SOAK_EPOCH", 1), warm = first + WARM_EPOCHS - 1;
    for (uint64_t epoch = first; epoch <= warm || now_us() < start_us + all_us; epoch++) {
        run_epoch(epoch);
        if (epoch <= warm || now_us() < start_us + all_us / 5)
            soak.resident_kib = resident_now();
        if (epoch % TELL_EPOCHS == 0)
            printf("epoch %llu: %zu KiB\n", (unsigned long long)epoch, resident_now());
        fflush(stdout);
    }
    sweep();
    wait_for("the end of all threads", has_threads, NULL);
    const size_t resident = resident_now();
    uint64_t calls = 0, right = 0;
    for (int at = 0; at < WORKERS; at++) {
        calls += soak.workers[at].calls;
        right += soak.workers[at].right;
    }
    printf("%llu epochs, %u stores, %llu calls (%llu right), %llu opens refused, %llu closes timed"
           " out; latest call %llu ms over its limit; memory %zu -> %zu KiB\n",
           (unsigned long long)soak.epochs, soak.stores, (unsigned long long)calls,
           (unsigned long long)right, (unsigned long long)soak.refused,
           (unsigned long long)soak.timed_out, (unsigned long long)meter_most_over_ms(),
           soak.resident_kib, resident);
    CHECK(right > 0 && calls > right);
    CHECK(resident <= soak.resident_kib + GROWTH_MAX_KIB);
    meter_stop();
    mounts_report();
    mounts_end();
    soak.passed = true;
}
