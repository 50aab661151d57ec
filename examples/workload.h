/* The demo's workload: a trace of requests, block ids made from its numbers, and block contents
 * made from the ids, so that every byte that comes back can be checked without keeping a copy. */
#ifndef EXAMPLES_WORKLOAD_H
#define EXAMPLES_WORKLOAD_H

#include <kvpath.h>
#include <stddef.h>
#include <stdint.h>

/* One request: `count` entries of workload.blocks from `start` on. */
struct request {
    size_t start;
    size_t count;
};

struct workload {
    struct request *requests;
    size_t request_count;
    uint32_t *blocks;       /* all requests' blocks one after another, as indices into `ids` */
    kvpath_block_id_t *ids; /* the different blocks */
    size_t block_count;     /* how many different blocks there are */
    size_t use_count;       /* how many entries `blocks` has */
    size_t longest;         /* blocks of the longest request */
};

/* Reads at most max_requests (0: all) lines, each a JSON object with "hash_ids": [numbers].
 * Returns 0, or -1 after it has said on stderr what is wrong. */
int workload_read(const char *path, size_t max_requests, struct workload *workload);
void workload_free(struct workload *workload);

/* Fills memory with bytes offset … offset + bytes of a block; both are multiples of 8. */
void workload_fill(const kvpath_block_id_t *id, size_t offset, void *memory, size_t bytes);

/* Counts the bytes that are not what workload_fill() would write there. */
uint64_t workload_wrong_bytes(const kvpath_block_id_t *id, size_t offset, const void *memory,
                              size_t bytes);

#endif
