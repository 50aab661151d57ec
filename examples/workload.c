/* See workload.h. */
#define _XOPEN_SOURCE 700
#include "workload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The finaliser of splitmix64: every input bit changes every output bit with probability 1/2. */
static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* 128 bits from a number of the trace, so that ids spread over directories and paths. */
static kvpath_block_id_t id_of(uint64_t number) {
    uint64_t high = mix(number + UINT64_C(0x9e3779b97f4a7c15));
    uint64_t low = mix(high ^ (number * UINT64_C(0xd6e8feb86659fd93) + 1));
    kvpath_block_id_t id;
    for (int at = 0; at < 8; at++) {
        id.bytes[at] = (uint8_t)(high >> (8 * at));
        id.bytes[8 + at] = (uint8_t)(low >> (8 * at));
    }
    return id;
}

/* The content of a block is a stream of 64-bit words, each computed from its position alone: any
 * shard can be made or checked by itself, and one that lands at another's place is noticed. */
static uint64_t seed_of(const kvpath_block_id_t *id) {
    uint64_t halves[2];
    memcpy(halves, id->bytes, sizeof halves);
    return mix(halves[0]) + halves[1];
}

static uint64_t word_at(uint64_t seed, uint64_t index) {
    return mix(seed + index * UINT64_C(0x9e3779b97f4a7c15));
}

void workload_fill(const kvpath_block_id_t *id, size_t offset, void *memory, size_t bytes) {
    uint64_t seed = seed_of(id), first = offset / 8;
    unsigned char *to = memory;
    for (size_t at = 0; at < bytes / 8; at++) {
        uint64_t word = word_at(seed, first + at);
        memcpy(to + 8 * at, &word, 8);
    }
}

uint64_t workload_wrong_bytes(const kvpath_block_id_t *id, size_t offset, const void *memory,
                              size_t bytes) {
    uint64_t seed = seed_of(id), first = offset / 8, wrong = 0;
    const unsigned char *from = memory;
    for (size_t at = 0; at < bytes / 8; at++) {
        uint64_t word;
        memcpy(&word, from + 8 * at, 8);
        for (uint64_t difference = word ^ word_at(seed, first + at); difference; difference >>= 8)
            wrong += (difference & 0xff) != 0;
    }
    return wrong;
}

/* A list of numbers that grows. */
struct numbers {
    uint64_t *at;
    size_t count, capacity;
};

static int push(struct numbers *list, uint64_t number) {
    if (list->count == list->capacity) {
        size_t capacity = list->capacity ? 2 * list->capacity : 1024;
        uint64_t *grown = realloc(list->at, capacity * sizeof *grown);
        if (!grown) return -1;
        list->at = grown;
        list->capacity = capacity;
    }
    list->at[list->count++] = number;
    return 0;
}

/* Appends the numbers of one line's "hash_ids". NULL, or what is wrong. */
static const char *parse_line(const char *line, struct numbers *list) {
    const char *at = strstr(line, "\"hash_ids\"");
    if (!at) return "no \"hash_ids\"";
    at += strlen("\"hash_ids\"");
    at += strspn(at, " \t:");
    if (*at++ != '[') return "\"hash_ids\" is no list";
    for (at += strspn(at, " \t"); *at != ']'; at += strspn(at, " \t,")) {
        if (*at < '0' || *at > '9') return "\"hash_ids\" has an entry that is no number";
        char *end;
        errno = 0;
        uint64_t number = strtoull(at, &end, 10);
        if (errno) return "\"hash_ids\" has a number above 64 bits";
        if (push(list, number)) return "out of memory";
        at = end;
    }
    return NULL;
}

static int ascending(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Turns numbers into indices of different blocks; what a request names twice is kept once. */
static int index_blocks(struct workload *w, const struct numbers *all) {
    uint64_t *sorted = malloc(all->count * sizeof *sorted);
    size_t *last_request = calloc(all->count, sizeof *last_request);
    w->blocks = malloc(all->count * sizeof *w->blocks);
    w->ids = malloc(all->count * sizeof *w->ids);
    int result = sorted && last_request && w->blocks && w->ids ? 0 : -1;
    if (result == 0) {
        memcpy(sorted, all->at, all->count * sizeof *sorted);
        qsort(sorted, all->count, sizeof *sorted, ascending);
        for (size_t at = 0; at < all->count; at++)
            if (at == 0 || sorted[at] != sorted[w->block_count - 1]) {
                sorted[w->block_count] = sorted[at];
                w->ids[w->block_count++] = id_of(sorted[at]);
            }
        for (size_t r = 0; r < w->request_count; r++) {
            struct request named = w->requests[r];
            w->requests[r] = (struct request){w->use_count, 0};
            for (size_t at = named.start; at < named.start + named.count; at++) {
                uint64_t *found =
                    bsearch(&all->at[at], sorted, w->block_count, sizeof *sorted, ascending);
                size_t index = (size_t)(found - sorted);
                if (last_request[index] == r + 1) continue;
                last_request[index] = r + 1;
                w->blocks[w->use_count++] = (uint32_t)index;
                w->requests[r].count++;
            }
            if (w->requests[r].count > w->longest) w->longest = w->requests[r].count;
        }
    }
    free(sorted);
    free(last_request);
    return result;
}

static int read_lines(FILE *file, const char *path, size_t max_requests, struct workload *w,
                      struct numbers *all) {
    char *line = NULL;
    size_t room = 0, line_number = 0;
    const char *wrong = NULL;
    while (!wrong && (max_requests == 0 || w->request_count < max_requests) &&
           getline(&line, &room, file) > 0) {
        line_number++;
        if (line[strspn(line, " \t\r\n")] == '\0') continue;
        size_t start = all->count;
        wrong = parse_line(line, all);
        struct request *grown =
            realloc(w->requests, (w->request_count + 1) * sizeof *w->requests);
        if (!grown) wrong = "out of memory";
        if (wrong) break;
        w->requests = grown;
        w->requests[w->request_count++] = (struct request){start, all->count - start};
    }
    free(line);
    if (!wrong && ferror(file)) wrong = strerror(errno);
    if (!wrong && all->count == 0) wrong = "no blocks in this trace";
    if (!wrong && index_blocks(w, all)) wrong = "out of memory";
    if (wrong) fprintf(stderr, "%s: line %zu: %s\n", path, line_number, wrong);
    return wrong ? -1 : 0;
}

int workload_read(const char *path, size_t max_requests, struct workload *workload) {
    memset(workload, 0, sizeof *workload);
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s: %s (--trace names the file)\n", path, strerror(errno));
        return -1;
    }
    struct numbers all = {0};
    int result = read_lines(file, path, max_requests, workload, &all);
    free(all.at);
    fclose(file);
    if (result) workload_free(workload);
    return result;
}

void workload_free(struct workload *workload) {
    free(workload->requests);
    free(workload->blocks);
    free(workload->ids);
    memset(workload, 0, sizeof *workload);
}
