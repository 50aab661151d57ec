/* What a run moves: blocks, transfers and tasks, in memory that every contender gets alike. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_BYTES ((size_t)2 << 20)
#define STEP 0x9e3779b97f4a7c15ULL

static uint64_t mix(uint64_t value)
{
    value += STEP;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
    return value ^ (value >> 31);
}

void block_id(uint64_t number, unsigned char id[16])
{
    uint64_t words[2] = {mix(number), mix(~number)};
    memcpy(id, words, 16);
}

void block_path(char path[PATH_BYTES], const char *root, size_t dir_digits, uint64_t number,
                const char *suffix)
{
    unsigned char id[16];
    char hex[ID_HEX + 1];
    block_id(number, id);
    for (int at = 0; at < 16; at++) snprintf(hex + 2 * at, 3, "%02x", id[at]);
    int digits = (int)dir_digits;
    if (digits == 0) {
        snprintf(path, PATH_BYTES, "%s/data/%s%s", root, hex, suffix);
    } else {
        snprintf(path, PATH_BYTES, "%s/%.*s/%s%s", root, digits, hex, hex, suffix);
    }
}

/* Memory on huge pages, touched, with content that no block has. */
unsigned char *map_memory(size_t bytes)
{
    size_t length = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES + HUGE_BYTES;
    unsigned char *memory =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) die("mmap of %zu bytes", length);
    memory += (HUGE_BYTES - (uintptr_t)memory % HUGE_BYTES) % HUGE_BYTES;
    /* Where there are none, everybody has small pages. */
    (void)madvise(memory, length - HUGE_BYTES, MADV_HUGEPAGE);
    memset(memory, 0xee, bytes);
    return memory;
}

static void add_transfer(struct plan *plan, size_t block, size_t first_shard, size_t shards)
{
    const struct options *options = plan->options;
    size_t at = plan->transfer_count++;
    struct iovec *parts = plan->parts + block * options->shards + first_shard;
    plan->transfers[at] =
        (struct transfer){.block = block, .first_shard = first_shard, .shards = shards,
                          .parts = parts};
}

static void end_task(struct plan *plan, size_t first)
{
    plan->tasks[plan->task_count++] =
        (struct task){.first = first, .count = plan->transfer_count - first};
}

/* The tasks of blocks `from` to `to`. */
static void add_tasks(struct plan *plan, size_t from, size_t to)
{
    const struct options *options = plan->options;
    size_t group = options->task_blocks;
    for (size_t start = from; start < to; start += group) {
        size_t end = start + group < to ? start + group : to;
        size_t first = plan->transfer_count;
        if (options->shape == SHAPE_WHOLE || options->shape == SHAPE_SHARDS) {
            for (size_t block = start; block < end; block++) {
                add_transfer(plan, block, 0, options->shards);
            }
            end_task(plan, first);
            continue;
        }
        for (size_t shard = 0; shard < options->shards; shard++) {
            for (size_t block = start; block < end; block++) {
                if (options->shape == SHAPE_ONE) first = plan->transfer_count;
                add_transfer(plan, block, shard, 1);
                if (options->shape == SHAPE_ONE) end_task(plan, first);
            }
            if (options->shape == SHAPE_LAYERS) {
                end_task(plan, first);
                first = plan->transfer_count;
            }
        }
    }
}

/* Shards of a block are not neighbours in memory; a layer's are, as in an inference server. */
static void place_parts(struct plan *plan)
{
    const struct options *options = plan->options;
    size_t shard_bytes = options->block_bytes / options->shards;
    for (size_t block = 0; block < plan->all_blocks; block++) {
        for (size_t shard = 0; shard < options->shards; shard++) {
            size_t place = shard * plan->all_blocks + block;
            plan->parts[block * options->shards + shard] = (struct iovec){
                .iov_base = plan->memory + place * shard_bytes, .iov_len = shard_bytes};
        }
    }
}

void plan_make(struct plan *plan, const struct options *options)
{
    memset(plan, 0, sizeof *plan);
    plan->options = options;
    plan->all_blocks = options->warm + options->blocks;
    plan->memory_bytes = plan->all_blocks * options->block_bytes;
    plan->memory = map_memory(plan->memory_bytes);
    size_t parts = plan->all_blocks * options->shards;
    plan->parts = calloc(parts, sizeof *plan->parts);
    plan->transfers = calloc(parts, sizeof *plan->transfers);
    plan->tasks = calloc(parts, sizeof *plan->tasks);
    plan->latency_us = calloc(parts, sizeof *plan->latency_us);
    if (!plan->parts || !plan->transfers || !plan->tasks || !plan->latency_us) die("no memory");
    place_parts(plan);
    add_tasks(plan, 0, options->warm);
    plan->warm_tasks = plan->task_count;
    plan->warm_transfers = plan->transfer_count;
    add_tasks(plan, options->warm, plan->all_blocks);
}

static uint64_t word(const struct options *options, size_t block, size_t shard, size_t at)
{
    return (mix(options->first_id + block) + shard * 0xabcdef1234567ULL) ^ (at * STEP);
}

/* Gives every block content of its own. */
void plan_fill(struct plan *plan)
{
    const struct options *options = plan->options;
    size_t words = options->block_bytes / options->shards / 8;
    for (size_t block = 0; block < plan->all_blocks; block++) {
        for (size_t shard = 0; shard < options->shards; shard++) {
            uint64_t *to = plan->parts[block * options->shards + shard].iov_base;
            for (size_t at = 0; at < words; at++) to[at] = word(options, block, shard, at);
        }
    }
}

/* Compares every byte of every block. */
void plan_check(const struct plan *plan)
{
    const struct options *options = plan->options;
    size_t words = options->block_bytes / options->shards / 8;
    for (size_t block = 0; block < plan->all_blocks; block++) {
        for (size_t shard = 0; shard < options->shards; shard++) {
            const uint64_t *from = plan->parts[block * options->shards + shard].iov_base;
            uint64_t differs = 0;
            for (size_t at = 0; at < words; at++) {
                differs |= from[at] ^ word(options, block, shard, at);
            }
            if (differs) die("block %zu, shard %zu: not the bytes that were dumped", block, shard);
        }
    }
}

void plan_free(struct plan *plan)
{
    free(plan->parts);
    free(plan->transfers);
    free(plan->tasks);
    free(plan->latency_us);
}
