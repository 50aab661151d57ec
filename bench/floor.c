#include "floor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void floor_prepare(struct floor_files *files, const struct plan *plan)
{
    const struct options *options = plan->options;
    memset(files, 0, sizeof *files);
    files->plan = plan;
    files->dump = strcmp(options->op, "dump") == 0;
    files->flags = O_CLOEXEC | O_NOFOLLOW | (options->direct ? O_DIRECT : 0);
    /* Shards of a block come in any order; whoever is first makes the file. */
    files->flags |= files->dump ? O_RDWR | O_CREAT : O_RDONLY;
    files->final = calloc(plan->all_blocks, PATH_BYTES);
    files->temporary = files->dump ? calloc(plan->all_blocks, PATH_BYTES) : NULL;
    files->written = calloc(plan->all_blocks, sizeof *files->written);
    if (!files->final || (files->dump && !files->temporary) || !files->written) die("no memory");
    for (size_t block = 0; block < plan->all_blocks; block++) {
        uint64_t number = options->first_id + block;
        size_t digits = options->dir_digits;
        block_path(files->final[block], options->roots[0], digits, number, "");
        if (files->dump) {
            block_path(files->temporary[block], options->roots[0], digits, number, ".floor-1.tmp");
        }
    }
}

int floor_open(struct floor_files *files, size_t block)
{
    const char *path = files->dump ? files->temporary[block] : files->final[block];
    int fd = open(path, files->flags, 0644);
    if (fd < 0) die("open %s: %s", path, strerror(errno));
    return fd;
}

/* A block whose shards are all written gets its name. */
void floor_done(struct floor_files *files, const struct transfer *transfer)
{
    if (!files->dump) return;
    size_t block = transfer->block;
    unsigned shards = (unsigned)transfer->shards;
    if (atomic_fetch_add(&files->written[block], shards) + shards != files->plan->options->shards) {
        return;
    }
    if (rename(files->temporary[block], files->final[block]) != 0) {
        die("rename %s: %s", files->temporary[block], strerror(errno));
    }
}

void floor_free(struct floor_files *files)
{
    free(files->final);
    free(files->temporary);
    free(files->written);
}
