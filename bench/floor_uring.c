/* The floor of one io_uring, entered by one thread: the queue is kept at `depth`, transfers go by
 * the ring and in batches, names (open, close, rename) by plain calls, which is the faster way on a
 * local file system. */
#include "bench.h"
#include "floor.h"

#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct slot {
    const struct transfer *transfer;
    int fd;
};

struct floor_ring {
    struct plan *plan;
    struct floor_files *files;
    struct io_uring ring;
    struct slot *slots;
    size_t *free;
    size_t free_count;
};

static void begin(struct floor_ring *floor, const struct transfer *transfer)
{
    const struct options *options = floor->plan->options;
    size_t shard_bytes = options->block_bytes / options->shards;
    unsigned bytes = (unsigned)(transfer->shards * shard_bytes);
    unsigned long long offset = transfer->first_shard * shard_bytes;
    size_t slot = floor->free[--floor->free_count];
    int fd = floor_open(floor->files, transfer->block);
    floor->slots[slot] = (struct slot){.transfer = transfer, .fd = fd};
    struct io_uring_sqe *entry = io_uring_get_sqe(&floor->ring);
    if (!entry) die("the ring is full");
    if (transfer->shards == 1 && floor->files->dump) {
        io_uring_prep_write(entry, fd, transfer->parts[0].iov_base, bytes, offset);
    } else if (transfer->shards == 1) {
        io_uring_prep_read(entry, fd, transfer->parts[0].iov_base, bytes, offset);
    } else if (floor->files->dump) {
        io_uring_prep_writev(entry, fd, transfer->parts, (unsigned)transfer->shards, offset);
    } else {
        io_uring_prep_readv(entry, fd, transfer->parts, (unsigned)transfer->shards, offset);
    }
    io_uring_sqe_set_data64(entry, slot);
}

static void finish(struct floor_ring *floor, const struct io_uring_cqe *entry)
{
    const struct options *options = floor->plan->options;
    size_t index = (size_t)io_uring_cqe_get_data64(entry);
    struct slot *slot = &floor->slots[index];
    size_t bytes = slot->transfer->shards * (options->block_bytes / options->shards);
    if (entry->res != (int)bytes) die("moved %d of %zu bytes", entry->res, bytes);
    if (close(slot->fd) != 0) die("close");
    floor_done(floor->files, slot->transfer);
    floor->free[floor->free_count++] = index;
}

static void run_range(struct floor_ring *floor, size_t from, size_t to)
{
    size_t running = 0;
    while (from < to || running > 0) {
        while (from < to && floor->free_count > 0) {
            begin(floor, &floor->plan->transfers[from++]);
            running++;
        }
        if (io_uring_submit_and_wait(&floor->ring, 1) < 0) die("io_uring_enter");
        struct io_uring_cqe *entry;
        unsigned head, seen = 0;
        io_uring_for_each_cqe(&floor->ring, head, entry)
        {
            finish(floor, entry);
            seen++;
        }
        io_uring_cq_advance(&floor->ring, seen);
        running -= seen;
    }
}

void run_uring(struct plan *plan, struct cost *cost)
{
    const struct options *options = plan->options;
    size_t depth = options->single ? 1 : options->depth;
    struct floor_files files;
    floor_prepare(&files, plan);
    struct floor_ring floor = {.plan = plan, .files = &files};
    int error = io_uring_queue_init((unsigned)depth, &floor.ring, 0);
    if (error < 0) die("io_uring_queue_init: %s", strerror(-error));
    floor.slots = calloc(depth, sizeof *floor.slots);
    floor.free = calloc(depth, sizeof *floor.free);
    for (size_t at = 0; at < depth; at++) floor.free[at] = at;
    floor.free_count = depth;
    run_range(&floor, 0, plan->warm_transfers);
    cost_begin(cost);
    if (options->single) {
        for (size_t at = plan->warm_tasks; at < plan->task_count; at++) {
            const struct task *task = &plan->tasks[at];
            double start = now_s();
            run_range(&floor, task->first, task->first + task->count);
            plan->latency_us[plan->latencies++] = (now_s() - start) * 1e6;
        }
    } else {
        run_range(&floor, plan->warm_transfers, plan->transfer_count);
    }
    cost_end(cost);
    io_uring_queue_exit(&floor.ring);
    free(floor.slots);
    free(floor.free);
    floor_free(&files);
}
