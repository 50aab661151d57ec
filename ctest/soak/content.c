/* soak.h: whether bytes are one writer's block, whole. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "soak.h"

static bool mixed(const kvpath_block_id_t *id, const uint8_t *bytes)
{
    const uint8_t writer = bytes[0] ^ content_at(id, 0);
    uint8_t wrong = writer == 0;
    for (size_t at = 0; at < BLOCK_BYTES; at++) wrong |= bytes[at] ^ content_at(id, at) ^ writer;
    return wrong != 0;
}

/* Whether the storage has what a load did not give: where paths are somebody else's mounts, it may
 * be their caches that are wrong. */
static const char *file_text(const kvpath_block_id_t *id, const uint8_t *loaded)
{
    size_t bytes = 0;
    const char *storage = getenv("KVPATH_SOAK_STORAGE");
    if (storage == NULL) return "";
    uint8_t *file = read_file(block_path(storage, id, 0), &bytes);
    if (file == NULL) return "; its file is gone";
    if (bytes != BLOCK_BYTES) return text("; its file has %zu bytes", bytes);
    const char *state = mixed(id, file) ? "wrong, too" : "right";
    return text("; its file is %s, and %s what was loaded", state,
                memcmp(file, loaded, BLOCK_BYTES) == 0 ? "is" : "is not");
}

uint8_t check_block(const kvpath_block_id_t *id, const uint8_t *bytes, const char *what)
{
    size_t at = 0;
    const uint8_t writer = bytes[0] ^ content_at(id, 0);
    if (!mixed(id, bytes)) return writer;
    while (at + 1 < BLOCK_BYTES && (bytes[at] ^ content_at(id, at)) == writer) at++;
    size_t zeros = 0;
    for (size_t each = 0; each < BLOCK_BYTES; each++) zeros += bytes[each] == 0;
    FAIL("%s: block %s is wrong: its first byte is of writer %u, byte %zu is not; %zu bytes are 0%s",
         what, block_name(id), writer, at, zeros, file_text(id, bytes));
}

uint8_t check_block_file(const char *storage, const kvpath_block_id_t *id)
{
    char path[512], name[33];
    static uint8_t bytes[BLOCK_BYTES + 1]; /* the main thread's */
    for (size_t at = 0; at < 16; at++) snprintf(name + 2 * at, 3, "%02x", id->bytes[at]);
    snprintf(path, sizeof path, "%s/data/%s", storage, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno == ENOENT) return 0;
    CHECK(file >= 0);
    ssize_t got = read(file, bytes, sizeof bytes);
    close(file);
    if (got != BLOCK_BYTES) FAIL("%s has %zd bytes", path, got);
    return check_block(id, bytes, "the file");
}
