/* soak.h: what a worker has lately done with a block of its own, for the text of a failure. */
#define _GNU_SOURCE
#include <stdio.h>

#include "soak.h"

void history_add(own_t *own, char call, kvpath_status_t status, uint64_t start_us)
{
    if (own == NULL) return;
    const unsigned at = own->history_count++ % HISTORY;
    own->history[at].call = call;
    own->history[at].status = status;
    own->history[at].start_us = start_us;
    own->history[at].end_us = now_us();
}

const char *history_text(const own_t *own, const char *storage, const kvpath_block_id_t *id)
{
    const bool there = exists(block_path(storage, id, 0));
    const char *all = there ? " (its file is there)" : " (its file is not there)";
    const unsigned count = own->history_count < HISTORY ? own->history_count : HISTORY;
    all = text("%s at %.3f s", all, storm_at(now_us()));
    for (unsigned at = own->history_count - count; at < own->history_count; at++) {
        const unsigned which = at % HISTORY;
        all = text("%s\n  %.3f to %.3f s: %s gave %s", all,
                   storm_at(own->history[which].start_us), storm_at(own->history[which].end_us),
                   own->history[which].call == 'd'   ? "dump"
                   : own->history[which].call == 'r' ? "remove"
                                                     : "load",
                   kvpath_status_name(own->history[which].status));
    }
    return all;
}

bool may_be_missed(const own_t *own)
{
    return own->known != PRESENT || mounts_stale(own->dumped_us);
}

bool may_be_shown(const own_t *own)
{
    return own->known != ABSENT || mounts_stale(own->removed_us);
}

void check_stamp(const own_t *own, uint8_t stamp, const char *storage, const kvpath_block_id_t *id)
{
    if (stamp == own->settled || stamp == own->dumped || mounts_stale(own->removed_us)) return;
    FAIL("block %s is of store %u, not of %u or %u%s", block_name(id), stamp, own->settled,
         own->dumped, history_text(own, storage, id));
}
