/* ha.h: what the store says, and what is waited for. */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ha.h"

enum { LOOK_AGAIN_MS = 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static struct message {
    struct message *next;
    char *line;
} * messages;

static void collect(int32_t level, const char *id, const char *line, void *user)
{
    (void)level, (void)user;
    struct message *message = malloc(sizeof *message);
    if (message == NULL || asprintf(&message->line, "%s %s", id, line) < 0) abort();
    pthread_mutex_lock(&lock);
    message->next = messages;
    messages = message;
    pthread_cond_broadcast(&arrived);
    pthread_mutex_unlock(&lock);
}

void log_collect(void)
{
    CHECK_OK(kvpath_set_log_callback(collect, KVPATH_LOG_INFO, NULL));
    check_at_end(check_no_fallback);
}

uint64_t now_ms(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static size_t count_messages(const char *part)
{
    size_t count = 0;
    for (struct message *at = messages; at != NULL; at = at->next)
        count += strstr(at->line, part) != NULL;
    return count;
}

size_t log_count(const char *part)
{
    pthread_mutex_lock(&lock);
    size_t count = count_messages(part);
    pthread_mutex_unlock(&lock);
    return count;
}

void check_no_fallback(void)
{
    static const char *const fallbacks[] = {"KV1010", "KV1011"}; /* no ring, no AIO context */
    pthread_mutex_lock(&lock);
    const char *told = NULL;
    for (struct message *at = messages; at != NULL && told == NULL; at = at->next)
        for (size_t which = 0; which < 2; which++)
            if (strncmp(at->line, fallbacks[which], strlen(fallbacks[which])) == 0)
                told = at->line;
    pthread_mutex_unlock(&lock);
    if (told != NULL) SKIP("not all of this was %s: %s", ha_engine(), told);
}

static void show_log(void)
{
    for (struct message *at = messages; at != NULL; at = at->next)
        fprintf(stderr, "log, latest first: %s\n", at->line);
}

/* Waits for the next message, or a moment: repeated messages are left out of the log. */
static void wait_moment(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += LOOK_AGAIN_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&lock);
    pthread_cond_timedwait(&arrived, &lock, &until);
    pthread_mutex_unlock(&lock);
}

void wait_for(const char *what, is_so_fn is_so, void *argument)
{
    uint64_t limit = now_ms() + (uint64_t)wait_ms();
    while (!is_so(argument)) {
        if (now_ms() > limit) {
            show_log();
            FAIL("%s did not happen in %d ms", what, wait_ms());
        }
        wait_moment();
    }
}

static bool is_logged(void *part) { return log_count(part) > 0; }

void wait_log(const char *part) { wait_for(part, is_logged, (void *)(uintptr_t)part); }

/* ---- health ---- */

kvpath_backend_health_t health_of(rig_t *rig, int which)
{
    kvpath_backend_health_t all[64] = {{.size = sizeof all[0]}};
    size_t count = 0;
    CHECK_OK(kvpath_health(rig->store, all, 64, &count));
    CHECK((size_t)which < count);
    return all[which];
}

int32_t state_of(rig_t *rig, int which) { return health_of(rig, which).state; }

struct wanted {
    rig_t *rig;
    int which;
    int32_t state;
    uint64_t count;
};

static bool has_state(void *argument)
{
    struct wanted *wanted = argument;
    return state_of(wanted->rig, wanted->which) == wanted->state;
}

void wait_state(rig_t *rig, int which, int32_t state)
{
    struct wanted wanted = {.rig = rig, .which = which, .state = state};
    wait_for(text("state %d of backend %d", state, which), has_state, &wanted);
}

static bool has_probes(void *argument)
{
    struct wanted *wanted = argument;
    return health_of(wanted->rig, wanted->which).probes >= wanted->count;
}

void wait_probes(rig_t *rig, int which, uint64_t count)
{
    struct wanted wanted = {.rig = rig, .which = which, .count = count};
    wait_for(text("probe %llu of backend %d", (unsigned long long)count, which), has_probes,
             &wanted);
}

void check_health(rig_t *rig, int which, int32_t state, int samples, int failures)
{
    kvpath_backend_health_t health = health_of(rig, which);
    if ((state != ANY && health.state != state) ||
        (samples != ANY && health.samples != (uint32_t)samples) ||
        (failures != ANY && health.failures != (uint32_t)failures)) {
        show_log();
        FAIL("backend %d: state %d, %u samples, %u failures (last: %s), not %d, %d, %d", which,
             health.state, health.samples, health.failures, health.last_error, state, samples,
             failures);
    }
}

static bool has_late_results(void *argument)
{
    struct wanted *wanted = argument;
    return stats_of(wanted->rig->store).late_results >= wanted->count;
}

void wait_late_results(rig_t *rig, uint64_t count)
{
    struct wanted wanted = {.rig = rig, .count = count};
    wait_for("a late result", has_late_results, &wanted);
}

static bool has_abandoned(void *argument)
{
    struct wanted *wanted = argument;
    return health_of(wanted->rig, wanted->which).abandoned >= wanted->count;
}

void wait_abandoned(rig_t *rig, int which, uint64_t count)
{
    struct wanted wanted = {.rig = rig, .which = which, .count = count};
    wait_for("the time-out of an attempt", has_abandoned, &wanted);
}

static bool is_at_rest(void *argument)
{
    kvpath_stats_t stats = stats_of(((rig_t *)argument)->store);
    return stats.abandoned == 0 && stats.in_flight == 0;
}

/* How many requests one operation makes is the engine's and the kernel's matter. */
void wait_at_rest(rig_t *rig) { wait_for("an end of all operations", is_at_rest, rig); }

void *close_aside(void *rig)
{
    CHECK_OK(kvpath_close(((rig_t *)rig)->store));
    return NULL;
}

bool is_closing(void *rig)
{
    return kvpath_check_health(((rig_t *)rig)->store) == KVPATH_CLOSED;
}

/* ---- threads ---- */

static bool has_threads(void *count) { return thread_count() <= *(size_t *)count; }

void wait_threads(size_t count) { wait_for("the end of threads", has_threads, &count); }

static bool matches(const char *name, const char *wanted)
{
    size_t length = strlen(wanted);
    if (length > 0 && wanted[length - 1] == '*') return strncmp(name, wanted, length - 1) == 0;
    return strcmp(name, wanted) == 0;
}

static size_t find_threads(const char *wanted, int *last)
{
    size_t count = 0;
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        char name[64] = "";
        FILE *file = fopen(text("/proc/self/task/%s/comm", entry->d_name), "r");
        if (file == NULL) continue; /* "." and "..", or it has ended */
        if (fscanf(file, "%63[^\n]", name) == 1 && matches(name, wanted)) {
            count++;
            *last = atoi(entry->d_name);
        }
        fclose(file);
    }
    closedir(tasks);
    return count;
}

size_t threads_named(const char *name)
{
    int last = 0;
    return find_threads(name, &last);
}

int thread_named(const char *name)
{
    int last = 0;
    size_t count = find_threads(name, &last);
    if (count != 1) FAIL("%zu threads %s", count, name);
    return last;
}

const char *cores_of(int thread)
{
    char line[512], cores[256] = "";
    FILE *file = fopen(text("/proc/self/task/%d/status", thread), "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "Cpus_allowed_list: %255s", cores) == 1) break;
    fclose(file);
    return text("%s", cores);
}

aside_t aside(void *(*work)(void *), void *argument)
{
    aside_t made;
    CHECK(pthread_create(&made.thread, NULL, work, argument) == 0);
    return made;
}

void *join(aside_t work)
{
    void *result = NULL;
    CHECK(pthread_join(work.thread, &result) == 0);
    return result;
}
