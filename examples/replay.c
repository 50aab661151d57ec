/* The demo: replays a trace of requests against a store, as an inference server would. Per request:
 * how much of the prefix is stored, load that (every byte is checked), dump the rest layer by
 * layer. Part-way one of the paths breaks, and later comes back. Ends with 0 only if all was well.
 *
 * Plain C on the public header and library. The workload is in workload.c, the directories are in
 * ground.c, the options in options.c, what it prints in report.c. */
#define _XOPEN_SOURCE 700
#include "replay.h"
#include "outside.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static volatile sig_atomic_t interrupted;

static void on_signal(int number) {
    interrupted = number;
}

double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Says what failed, with the library's text, and gives back 1 to add to a counter. */
static unsigned failed(struct replay *r, const char *what, kvpath_status_t status) {
    event(r, "%s: %s: %s", what, kvpath_status_name(status), kvpath_last_error());
    return 1;
}

/* One task over `count` blocks of the trace from `first` on: all shards, or those of one layer.
 * The blocks lie one after another in r->memory. */
static kvpath_status_t submit(struct replay *r, int dump, size_t first, size_t count, long layer,
                              kvpath_task_t *task) {
    size_t from = layer < 0 ? 0 : (size_t)layer, to = layer < 0 ? r->shards : from + 1;
    size_t filled = 0;
    for (size_t at = 0; at < count; at++)
        for (size_t index = from; index < to; index++, filled++) {
            r->addresses[filled] = r->memory + at * r->block_bytes + index * r->shard_bytes;
            r->list[filled] = (kvpath_shard_t){
                .block = r->workload.ids[r->workload.blocks[first + at]],
                .index = (uint32_t)index,
                .addr_count = 1,
                .addrs = &r->addresses[filled],
            };
        }
    return dump ? kvpath_dump(r->store, r->list, filled, task)
                : kvpath_load(r->store, r->list, filled, task);
}

/* How much of a request's prefix is stored, asked of the store; less than this run itself has
 * stored is a loss, for nobody removes anything here. */
static size_t look_up(struct replay *r, struct request request) {
    size_t known = 0;
    for (size_t at = 0; at < request.count; at++) {
        r->asked[at] = r->workload.ids[r->workload.blocks[request.start + at]];
        if (known == at && r->stored[r->workload.blocks[request.start + at]]) known++;
    }
    int64_t last = -1;
    kvpath_status_t status = kvpath_lookup_prefix(r->store, r->asked, request.count, &last);
    if (status != KVPATH_OK) r->count.failed_lookups += failed(r, "lookup", status);
    size_t hits = (size_t)(last + 1);
    if (hits < known) {
        r->count.lost_blocks += known - hits;
        event(r, "lookup: %zu blocks of a prefix are stored, %zu were found", known, hits);
    }
    r->count.hits += hits;
    return hits;
}

/* Loads the first `hits` blocks in one task and checks every byte. */
static void load(struct replay *r, struct request request, size_t hits) {
    size_t bytes = hits * r->block_bytes;
    memset(r->memory, 0x5a, bytes); /* so that a load that does nothing is noticed */
    double begun = now_s();
    kvpath_task_t task;
    kvpath_status_t status = submit(r, 0, request.start, hits, -1, &task);
    if (status == KVPATH_OK) status = kvpath_wait(r->store, task, 0);
    double took = now_s() - begun;
    if (status != KVPATH_OK) {
        r->count.failed_loads += failed(r, "load", status);
        return;
    }
    for (size_t at = 0; at < hits; at++) {
        const kvpath_block_id_t *id = &r->workload.ids[r->workload.blocks[request.start + at]];
        r->count.wrong_bytes +=
            workload_wrong_bytes(id, 0, r->memory + at * r->block_bytes, r->block_bytes);
    }
    r->count.loaded_bytes += bytes;
    sample(&r->loads, took);
    sample(&r->phases[r->broken], took);
}

static int run_command(const struct replay *r, const char *command) {
    event(r, "$ %s", command);
    return outside_run(command);
}

static int break_path(struct replay *r) {
    size_t path = r->fault_path;
    switch (r->options.fault) {
    case FAULT_COMMAND:
        return run_command(r, r->options.break_command);
    case FAULT_HANG:
        event(r, "path%zu stops answering: %s", path, hang_means(&r->hang));
        return hang_stop(&r->hang, r->store, path);
    case FAULT_ENOTDIR:
    case FAULT_NONE:
        event(r, "path%zu turns into a file: ENOTDIR for everything below it", path);
    }
    return ground_break(&r->ground, path);
}

static int mend_path(struct replay *r) {
    switch (r->options.fault) {
    case FAULT_COMMAND:
        return run_command(r, r->options.mend_command);
    case FAULT_HANG:
        return hang_go(&r->hang, r->store, r->fault_path);
    case FAULT_ENOTDIR:
    case FAULT_NONE:
        break;
    }
    return ground_mend(&r->ground, r->fault_path);
}

/* Breaks or mends the path when its time has come. Called amid a dump, when work is queued. */
static void fault_step(struct replay *r, size_t request) {
    if (r->options.fault == FAULT_NONE) return;
    if (!r->broken && request == r->break_at) {
        r->broken = 1;
        r->count.other += break_path(r) != 0;
    } else if (r->broken == 1 && request == r->mend_at) {
        r->count.other += mend_path(r) != 0;
        r->broken = 2;
        event(r, "path%zu is what it was again; probes will find out", r->fault_path);
    }
}

/* One task a layer, all submitted before the first is waited for, as a pipeline does whose layers
 * are computed one after another. */
static kvpath_status_t dump_layers(struct replay *r, size_t first, size_t count, size_t request) {
    double begun = now_s();
    kvpath_status_t result = KVPATH_OK;
    int phase = r->broken;
    size_t layers = 0;
    for (; layers < r->shards && result == KVPATH_OK; layers++) {
        if (layers == r->shards / 2) {
            fault_step(r, request);
            phase = r->broken;
        }
        r->begun[layers] = now_s();
        result = submit(r, 1, first, count, (long)layers, &r->tasks[layers]);
        if (result != KVPATH_OK) break;
    }
    if (result != KVPATH_OK) failed(r, "dump", result);
    for (size_t layer = 0; layer < layers; layer++) {
        kvpath_status_t status = kvpath_wait(r->store, r->tasks[layer], 0);
        double took = now_s() - r->begun[layer];
        sample(&r->dumps, took);
        sample(&r->phases[phase], took);
        if (status == KVPATH_OK) continue;
        failed(r, "dump", status);
        if (result == KVPATH_OK) result = status;
    }
    r->count.dump_s += now_s() - begun;
    return result;
}

/* Dumps what the lookup did not find. A dump that fails is begun again once, from the first shard:
 * what was written of blocks that are not visible yet is dropped before. */
static void dump(struct replay *r, struct request request, size_t hits, size_t number) {
    size_t first = request.start + hits, count = request.count - hits;
    for (size_t at = 0; at < count; at++)
        workload_fill(&r->workload.ids[r->workload.blocks[first + at]], 0,
                      r->memory + at * r->block_bytes, r->block_bytes);
    kvpath_status_t status = dump_layers(r, first, count, number);
    if (status != KVPATH_OK) {
        r->count.repeated_dumps++;
        status = kvpath_lookup(r->store, r->asked + hits, count, r->found);
        for (size_t at = 0; at < count && status == KVPATH_OK; at++) {
            if (r->found[at]) continue;
            status = kvpath_commit(r->store, &r->asked[hits + at], 0);
            if (status == KVPATH_NOT_FOUND) status = KVPATH_OK; /* nothing was written of it yet */
        }
        if (status == KVPATH_OK) status = dump_layers(r, first, count, number);
    }
    if (status != KVPATH_OK) {
        r->count.failed_dumps += failed(r, "dump, second time", status);
        return;
    }
    for (size_t at = 0; at < count; at++) {
        uint8_t *stored = &r->stored[r->workload.blocks[first + at]];
        r->count.stored_blocks += !*stored;
        *stored = 1;
    }
    r->count.dumped_bytes += count * r->block_bytes;
}

/* The path that broke must be back in use before the run counts as good. The C ABI has no event for
 * it, and this is the end of a demo: looking now and then is good enough here. */
static void await_recovery(struct replay *r) {
    if (r->broken != 2) return;
    double limit = now_s() + RECOVERY_LIMIT_S;
    while (!interrupted) {
        watch_health(r);
        if (r->health[r->fault_path].state == KVPATH_BACKEND_AVAILABLE) return;
        if (now_s() > limit) break;
        nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    }
    event(r, "path%zu did not come back within %d s", r->fault_path, RECOVERY_LIMIT_S);
    r->count.other++;
}

static void run_requests(struct replay *r) {
    for (size_t at = 0; at < r->workload.request_count && !interrupted; at++) {
        struct request request = r->workload.requests[at];
        r->count.uses += request.count;
        size_t hits = look_up(r, request);
        if (hits > 0) load(r, request, hits);
        if (hits < request.count)
            dump(r, request, hits, at);
        else
            fault_step(r, at);
        r->count.requests++;
        watch_health(r);
        progress(r);
    }
    await_recovery(r);
}

/* Compares the storage, seen by plain system calls, with what was dumped. */
static void check_storage(struct replay *r) {
    size_t blocks = 0, others = 0;
    if (ground_count(&r->ground, r->block_bytes, &blocks, &others)) r->count.other++;
    if (interrupted) return;
    if (blocks != r->count.stored_blocks) {
        event(r, "%zu block files in the storage, %zu blocks were dumped", blocks,
              (size_t)r->count.stored_blocks);
        r->count.other++;
    }
    if (others != 0) {
        event(r, "%zu files in the storage that are no blocks", others);
        r->count.other++;
    }
}

static int open_store(struct replay *r) {
    char *config = config_json(r);
    if (!config) return -1;
    r->started = now_s();
    kvpath_status_t status = kvpath_set_log_callback(on_log, KVPATH_LOG_WARN, r);
    if (status == KVPATH_OK) status = kvpath_open(config, &r->store);
    r->open_s = now_s() - r->started;
    free(config);
    if (status == KVPATH_OK) return 0;
    fprintf(stderr, "open: %s: %s\n", kvpath_status_name(status), kvpath_last_error());
    return -1;
}

static int allocate(struct replay *r) {
    size_t longest = r->workload.longest, shards = longest * r->shards;
    r->memory = kvpath_alloc(longest * r->block_bytes);
    r->list = malloc(shards * sizeof *r->list);
    r->addresses = malloc(shards * sizeof *r->addresses);
    r->asked = malloc(longest * sizeof *r->asked);
    r->found = malloc(longest);
    r->stored = calloc(r->workload.block_count, 1);
    r->tasks = malloc(r->shards * sizeof *r->tasks);
    r->begun = malloc(r->shards * sizeof *r->begun);
    if (r->memory && r->list && r->addresses && r->asked && r->found && r->stored && r->tasks &&
        r->begun)
        return 0;
    fprintf(stderr, "out of memory: the longest request has %zu blocks of %zu bytes\n", longest,
            r->block_bytes);
    return -1;
}

static void release(struct replay *r) {
    kvpath_free(r->memory);
    void *rest[] = {r->list,
                    r->addresses,
                    r->asked,
                    r->found,
                    r->stored,
                    r->tasks,
                    r->begun,
                    r->loads.values,
                    r->dumps.values,
                    r->phases[0].values,
                    r->phases[1].values,
                    r->phases[2].values};
    for (size_t at = 0; at < sizeof rest / sizeof *rest; at++) free(rest[at]);
}

/* Everything between the making of the ground and its removal. */
static int replay(struct replay *r) {
    if (open_store(r)) return EXIT_WRONG;
    watch_health(r);
    say_hello(r);
    run_requests(r);
    r->elapsed_s = now_s() - r->started;

    r->stats.size = sizeof r->stats;
    kvpath_status_t status = kvpath_stats(r->store, &r->stats);
    if (status != KVPATH_OK) r->count.other += failed(r, "stats", status);
    /* Interrupted while it hung: close waits for what is in the kernel. */
    if (r->broken == 1 && r->options.fault != FAULT_ENOTDIR) r->count.other += mend_path(r) != 0;
    status = kvpath_close(r->store);
    if (status != KVPATH_OK) r->count.other += failed(r, "close", status);
    status = kvpath_set_log_callback(NULL, KVPATH_LOG_WARN, NULL);
    if (status != KVPATH_OK) r->count.other += failed(r, "log", status);
    check_storage(r);
    if (r->broken && r->exclusions == 0) {
        event(r, "path%zu broke and was never taken out", r->fault_path);
        r->count.other++;
    }
    int result = report(r);
    if (interrupted) puts("interrupted: not the whole trace was run");
    return interrupted ? 128 + interrupted : result;
}

int main(int argc, char **argv) {
    static struct replay r;
    int result = read_options(argc, argv, &r);
    if (result >= 0) return result;
    if (workload_read(r.options.trace, r.options.requests, &r.workload)) return EXIT_WRONG;

    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (r.options.fault == FAULT_COMMAND && outside_start()) {
        perror("--break");
        return EXIT_WRONG;
    }
    if (ground_make(&r.ground, r.options.dir, r.options.backends)) return EXIT_WRONG;
    result = plan_fault(&r) ? EXIT_USAGE : EXIT_FINE;
    if (result == EXIT_FINE) {
        result = enough_space(&r) || allocate(&r) ? EXIT_WRONG : replay(&r);
        release(&r);
    }
    if (hang_remove(&r.hang) && result == EXIT_FINE) result = EXIT_WRONG;
    if (r.options.keep)
        printf("kept: %s\n", r.ground.storage);
    else {
        printf("removing %s\n", r.ground.storage);
        fflush(stdout);
        if (ground_remove(&r.ground) && result == EXIT_FINE) result = EXIT_WRONG;
    }
    workload_free(&r.workload);
    return result;
}
