/* The floor of blocking calls: a pool of threads, each doing one block's open, transfer, close and
 * rename in order, and nothing else. No library could do the same work with less. */
#include "bench.h"
#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct pool {
    struct plan *plan;
    struct floor_files *files;
    atomic_size_t next;
    size_t end;
    sem_t work;
    sem_t done;
    atomic_bool stop;
};

static void transfer_once(const struct plan *plan, struct floor_files *files,
                          const struct transfer *transfer)
{
    const struct options *options = plan->options;
    size_t shard_bytes = options->block_bytes / options->shards;
    size_t bytes = transfer->shards * shard_bytes;
    off_t offset = (off_t)(transfer->first_shard * shard_bytes);
    int fd = floor_open(files, transfer->block);
    ssize_t moved;
    if (transfer->shards == 1) {
        void *memory = transfer->parts[0].iov_base;
        moved = files->dump ? pwrite(fd, memory, bytes, offset) : pread(fd, memory, bytes, offset);
    } else {
        int count = (int)transfer->shards;
        moved = files->dump ? pwritev(fd, transfer->parts, count, offset)
                            : preadv(fd, transfer->parts, count, offset);
    }
    if (moved != (ssize_t)bytes) die("moved %zd of %zu bytes: %s", moved, bytes, strerror(errno));
    if (close(fd) != 0) die("close: %s", strerror(errno));
    floor_done(files, transfer);
}

/* Each thread takes the next transfer until there is none: no queue, no hand-over. */
static void *work(void *argument)
{
    struct pool *pool = argument;
    for (;;) {
        while (sem_wait(&pool->work) != 0) continue;
        if (atomic_load(&pool->stop)) return NULL;
        for (;;) {
            size_t at = atomic_fetch_add(&pool->next, 1);
            if (at >= pool->end) break;
            transfer_once(pool->plan, pool->files, &pool->plan->transfers[at]);
        }
        sem_post(&pool->done);
    }
}

static void run_range(struct pool *pool, size_t from, size_t to, size_t threads)
{
    atomic_store(&pool->next, from);
    pool->end = to;
    for (size_t at = 0; at < threads; at++) sem_post(&pool->work);
    for (size_t at = 0; at < threads; at++) {
        while (sem_wait(&pool->done) != 0) continue;
    }
}

void run_sync(struct plan *plan, struct cost *cost)
{
    const struct options *options = plan->options;
    size_t threads = options->single ? 1 : options->threads;
    struct floor_files files;
    floor_prepare(&files, plan);
    struct pool pool = {.plan = plan, .files = &files};
    sem_init(&pool.work, 0, 0);
    sem_init(&pool.done, 0, 0);
    pthread_t *handles = calloc(threads, sizeof *handles);
    for (size_t at = 0; at < threads; at++) {
        if (pthread_create(&handles[at], NULL, work, &pool) != 0) die("no thread");
    }
    run_range(&pool, 0, plan->warm_transfers, threads);
    cost_begin(cost);
    if (options->single) {
        for (size_t at = plan->warm_tasks; at < plan->task_count; at++) {
            const struct task *task = &plan->tasks[at];
            double start = now_s();
            run_range(&pool, task->first, task->first + task->count, 1);
            plan->latency_us[plan->latencies++] = (now_s() - start) * 1e6;
        }
    } else {
        run_range(&pool, plan->warm_transfers, plan->transfer_count, threads);
    }
    cost_end(cost);
    atomic_store(&pool.stop, true);
    for (size_t at = 0; at < threads; at++) sem_post(&pool.work);
    for (size_t at = 0; at < threads; at++) pthread_join(handles[at], NULL);
    free(handles);
    floor_free(&files);
}
