/* Threads and the outer breaker (R51, R57, R60, R74): names, affinity from /proc, and that all are
 * gone after close. */
#define _GNU_SOURCE
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ha.h"

enum { W = 3 };

static options_t quick(void)
{
    return (options_t){.shape = whole, .window = W, .interval_s = 0.8, .probe_timeout_s = 0.75,
                       .breaker = true};
}

/* Two cores that this process may use, or a skip. */
static void two_cores(int *first, int *last)
{
    cpu_set_t allowed;
    *first = *last = -1;
    CHECK(sched_getaffinity(0, sizeof allowed, &allowed) == 0);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed)) continue;
        if (*first < 0)
            *first = core;
        else
            *last = core;
    }
    if (*last < 0) SKIP("only one core");
}

/* The caller's own affinity must not be what a library thread gets. */
static void run_caller_on(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(core, &set);
    CHECK(sched_setaffinity(0, sizeof set, &set) == 0);
}

struct thread {
    char name[64], cores[256];
};

/* Both from one file, since a thread may end at any moment; `false`: it has. */
static bool look_at(const char *id, struct thread *thread)
{
    char line[512];
    FILE *file = fopen(text("/proc/self/task/%s/status", id), "r");
    *thread = (struct thread){0};
    if (file == NULL) return false;
    while (fgets(line, sizeof line, file) != NULL) {
        (void)sscanf(line, "Name: %63[^\n]", thread->name);
        if (sscanf(line, "Cpus_allowed_list: %255s", thread->cores) == 1) break;
    }
    fclose(file);
    return thread->cores[0] != '\0';
}

/* All threads of a name are on this core; how many there are. */
static int check_all_cores(const char *name, int core)
{
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    struct thread thread;
    int checked = 0;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (!look_at(entry->d_name, &thread) || strcmp(thread.name, name) != 0) continue;
        if (strcmp(thread.cores, text("%d", core)) != 0)
            FAIL("%s %s runs on cores %s, not %d", name, entry->d_name, thread.cores, core);
        checked++;
    }
    closedir(tasks);
    return checked;
}

static void check_cores(const char *name, int core)
{
    const char *cores = cores_of(thread_named(name));
    if (strcmp(cores, text("%d", core)) != 0)
        FAIL("%s runs on cores %s, not %d", name, cores, core);
}

/* Looks at all threads while a transfer and a probe hang, so that there is one of each kind. */
static void affinity(const char *extra, bool swapped)
{
    rig_t rig;
    int first, last;
    two_cores(&first, &last);
    int store = swapped ? last : first, health = swapped ? first : last;
    rig_mount(&rig, 2);
    options_t options = quick();
    options.extra = text("%s, \"cpu_affinity_cores\": [%d, %d]", extra, store, health);
    run_caller_on(health);
    options.probe_timeout_s = 2.4;
    options.interval_s = 2.5;
    rig_open(&rig, options);
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    fault(&rig, 1, "read %s always hang", file_of(block));
    run_caller_on(store); /* whoever submits does not matter either */
    begin_load(&rig, block);
    wait_hung(&rig, 1, 1, "read");
    exclude(&rig, 0);
    fault(&rig, 0, "write data/probe-* always hang");
    wait_hung(&rig, 0, 1, "write");
    check_cores("ucm_health_pmon", health);
    check_cores("ucm_health_mon", health);
    check_cores("ucm_health_io", health);
    check_cores("ucm_posix_sup", store);
    wait_hung(&rig, 0, 2, "write"); /* a worker made later */
    CHECK(check_all_cores("ucm_health_io", health) >= 2);
    for (int at = 0; at < 2; at++) heal(&rig, at), release(&rig, at);
    rig_stop(&rig);
}

/* With VLLM_CPU_AFFINITY=1 the health threads get the last core of the list. */
CASE(health_threads_run_on_the_last_core)
{
    setenv("VLLM_CPU_AFFINITY", "1", 1);
    affinity("", false);
}

CASE(health_threads_run_on_health_cores)
{
    int first, last;
    unsetenv("VLLM_CPU_AFFINITY");
    two_cores(&first, &last);
    affinity(text(", \"health_cores\": [%d]", first), true);
}

/* Every thread of the library, workers included, is on the cores of its role. */
CASE(every_thread_is_on_the_cores_of_its_role)
{
    rig_t rig;
    int first, last;
    two_cores(&first, &last);
    setenv("VLLM_CPU_AFFINITY", "1", 1);
    rig_mount(&rig, 3);
    options_t options = quick();
    options.extra = text(", \"cpu_affinity_cores\": [%d, %d]", first, last);
    run_caller_on(last);
    rig_open(&rig, options);
    exclude(&rig, 2);
    fault(&rig, 2, "write data/probe-* always hang"); /* so that there is a thread that probes */
    wait_hung(&rig, 2, 1, "write");
    batch_t *blocks = batch(whole, 0, 16, 0);
    dump_batch(rig.store, blocks);
    for (int at = 0; at < 2; at++) fault(&rig, at, "read data/* always hang");
    kvpath_task_t task = 0;
    CHECK_OK(kvpath_load(rig.store, blocks->shards, blocks->count, &task));
    for (int at = 0; at < 2; at++) wait_hung(&rig, at, 3, "read");
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    struct thread thread;
    const char *name = thread.name;
    int checked = 0, probes = 0;
    for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
        if (!look_at(entry->d_name, &thread)) continue;
        if (strncmp(name, "ha_", 3) == 0) continue; /* the test itself */
        if (strncmp(name, "iou-", 4) == 0) continue; /* the kernel's, of a ring */
        CHECK(strncmp(name, "ucm_", 4) == 0);
        CHECK(strlen(name) <= 15);
        bool health = strncmp(name, "ucm_health_", 11) == 0;
        if (strcmp(thread.cores, text("%d", health ? last : first)) != 0)
            FAIL("thread %s runs on cores %s", name, thread.cores);
        checked++;
        probes += strcmp(name, "ucm_health_io") == 0;
    }
    closedir(tasks);
    CHECK(checked >= 2 + 6 && probes >= 1);
    for (int at = 0; at < 3; at++) heal(&rig, at), release(&rig, at);
    CHECK_OK(finish(&rig, task));
    rig_stop(&rig);
}

static bool has_health_threads(void *nothing)
{
    (void)nothing;
    return threads_named("ucm_health_pmon") == 1 && threads_named("ucm_health_mon") == 1;
}

static bool has_only_named_threads(void *before)
{
    size_t named = threads_named("ucm_*") + threads_named("iou-*");
    return thread_count() == named + *(size_t *)before;
}

/* R57, R74: names, and nothing left after close, with every kind of thread made. */
CASE(threads_are_named_and_gone_after_close)
{
    rig_t rig;
    rig_mount(&rig, 2);
    log_collect();
    size_t threads = thread_count(), descriptors = descriptor_count();
    rig_begin(&rig, quick());
    wait_for("the names", has_health_threads, NULL); /* a thread gives itself its name */
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    exclude(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(threads_named("ucm_health_io"), 1);
    /* A ring's threads have helpers that the kernel makes (iou-wrk-…): they are not the library's. */
    wait_for("no other threads", has_only_named_threads, &threads); /* those come and go */
    CHECK_OK(kvpath_close(rig.store));
    CHECK_EQ(threads_named("ucm_*"), 0);
    CHECK_EQ(thread_count(), threads);
    CHECK_EQ(descriptor_count(), descriptors);
}

/* R1: without the breaker its thread is not there; recovery is. */
CASE(no_breaker_thread_where_it_is_off)
{
    rig_t rig;
    options_t options = quick();
    options.breaker = false;
    rig_start(&rig, 2, options);
    CHECK_EQ(threads_named("ucm_health_mon"), 0);
    exclude(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE);
    CHECK_HAS(report(kvpath_health_json, rig.store), "\"breaker\":null");
    rig_stop(&rig);
}

/* ---- R60: the breaker ---- */

static bool breaker_is(rig_t *rig, const char *state)
{
    const char *json = report(kvpath_health_json, rig->store);
    return strstr(json, text("\"breaker\":\"%s\"", state)) != NULL;
}

static bool is_open(void *rig) { return breaker_is(rig, "open"); }
static bool is_closed(void *rig) { return breaker_is(rig, "closed"); }

struct task {
    rig_t *rig;
    kvpath_task_t task;
};

static bool is_finished(void *argument)
{
    struct task *task = argument;
    uint8_t finished = 9;
    CHECK_OK(kvpath_check(task->rig->store, task->task, &finished));
    return finished == 1;
}

CASE(the_breaker_opens_and_closes)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    CHECK(is_closed(&rig));
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    kvpath_task_t kept = begin_load(&rig, block);
    struct task task_kept = {&rig, kept};
    wait_for("the end of the task", is_finished, &task_kept);
    for (int at = 0; at < 2; at++)
        CHECK_OK(kvpath_backend_set(rig.store, rig.path[at], KVPATH_BACKEND_SET_OUT));
    wait_for("an open breaker", is_open, &rig);
    wait_log("KV2004 breaker open");

    /* One path is back: health is, the breaker takes a window of clean evaluations. */
    CHECK_OK(kvpath_backend_set(rig.store, rig.path[1], KVPATH_BACKEND_SET_AUTO));
    CHECK_OK(kvpath_check_health(rig.store));
    CHECK(is_open(&rig));
    forget_counts(&rig);
    uint8_t found = 9;
    kvpath_task_t task = 0;
    CHECK_STATUS(kvpath_lookup(rig.store, id_of(block), 1, &found), KVPATH_STORE_UNHEALTHY);
    CHECK_EQ(found, 0);
    CHECK_STATUS(kvpath_load(rig.store, block->shards, block->count, &task),
                 KVPATH_STORE_UNHEALTHY);
    CHECK_STATUS(kvpath_dump(rig.store, block->shards, block->count, &task),
                 KVPATH_STORE_UNHEALTHY);
    CHECK_OK(kvpath_check(rig.store, kept, &found));
    CHECK_OK(finish(&rig, kept));
    for (int at = 0; at < 2; at++) CHECK_EQ(seen(&rig, at, "total", "*"), 0); /* it never probes */

    wait_for("a closed breaker", is_closed, &rig);
    wait_log(text("KV2004 breaker closed: 0 unhealthy of %d evaluations", W));
    load_right(&rig, block);
    rig_stop(&rig);
}

/* One path of two is enough: nothing opens. */
CASE(the_breaker_stays_closed_while_one_path_is_left)
{
    rig_t rig;
    rig_start(&rig, 2, quick());
    exclude(&rig, 0);
    wait_state(&rig, 0, KVPATH_BACKEND_AVAILABLE); /* W intervals */
    CHECK(is_closed(&rig));
    CHECK_EQ(log_count("KV2004"), 0);
    rig_stop(&rig);
}
