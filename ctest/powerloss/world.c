/* world.h */
#define _GNU_SOURCE
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "check.h"

enum { PIECE_BYTES = 4096, FILE_MAX_BYTES = 1 << 16, WRITES_MAX = 64, RUBBISH = 0xdb };

const outcome_t outcomes[OUTCOMES] = {
    {"only what was synced", PICK_NONE, PICK_NONE, PICK_NONE},
    {"everything", PICK_ALL, PICK_ALL, PICK_ALL},
    {"names, no data", PICK_ALL, PICK_NONE, PICK_NONE},
    {"names and lengths, no data", PICK_ALL, PICK_NONE, PICK_ALL},
    {"names and lengths, some data", PICK_ALL, PICK_SOME, PICK_ALL},
    {"data, no names", PICK_NONE, PICK_ALL, PICK_ALL},
    {"the first names, some data", PICK_FIRST, PICK_SOME, PICK_SOME},
    {"some names, some data", PICK_SOME, PICK_SOME, PICK_SOME},
    {"some names, all data", PICK_SOME, PICK_ALL, PICK_ALL},
    {"some names, first data", PICK_SOME, PICK_FIRST, PICK_NONE},
};

/* One write of a file. */
typedef struct {
    const event_t *event;
    size_t ended; /* event, or SIZE_MAX */
    size_t bytes;
    bool synced, lost;
} write_t;

typedef struct {
    uint64_t ino;
    write_t writes[WRITES_MAX];
    size_t count;
} file_t;

/* One change of names. */
typedef struct {
    const event_t *event;
    size_t at;
    int file;
    bool synced;
} change_t;

static struct {
    file_t files[FILES_MAX];
    size_t file_count;
    change_t changes[NAMES_MAX];
    size_t change_count;
} world;

/* Names of files at one moment. */
typedef struct {
    const char *path[FILES_MAX];
    int file[FILES_MAX];
    size_t count;
} names_t;

static int *name_slot(names_t *names, const char *path)
{
    for (size_t at = 0; at < names->count; at++)
        if (strcmp(names->path[at], path) == 0) return &names->file[at];
    return NULL;
}

static void name_drop(names_t *names, const char *path)
{
    int *slot = name_slot(names, path);
    if (slot == NULL) return;
    const size_t at = (size_t)(slot - names->file), last = --names->count;
    names->path[at] = names->path[last];
    names->file[at] = names->file[last];
}

static void name_set(names_t *names, const char *path, int file)
{
    name_drop(names, path);
    CHECK(names->count < FILES_MAX);
    names->path[names->count] = path;
    names->file[names->count++] = file;
}

static void name_change(names_t *names, const change_t *change)
{
    const event_t *event = change->event;
    if (event->kind == EVENT_CREATE) name_set(names, event->path, change->file);
    if (event->kind == EVENT_RENAME || event->kind == EVENT_UNLINK) name_drop(names, event->path);
    if (event->kind == EVENT_RENAME || event->kind == EVENT_LINK)
        name_set(names, event->path_to, change->file);
}

static file_t *file_of(uint64_t ino)
{
    for (size_t at = world.file_count; at > 0; at--)
        if (world.files[at - 1].ino == ino) return &world.files[at - 1];
    return NULL;
}

/* Whether a path lies in this directory itself. */
static bool lies_in(const char *path, const char *dir)
{
    const char *slash = strrchr(path, '/');
    if (strcmp(dir, ".") == 0) return slash == NULL;
    return slash != NULL && strlen(dir) == (size_t)(slash - path) &&
           strncmp(path, dir, (size_t)(slash - path)) == 0;
}

/* ---- what has happened ---- */

static void happen_end(const record_t *record, size_t at)
{
    const event_t *end = &record->events[at], *begin = &record->events[end->begin];
    if (begin->kind == EVENT_SYNC_DIR) {
        for (size_t which = 0; which < world.change_count && end->detail > 0; which++) {
            change_t *change = &world.changes[which];
            const char *path = change->event->path, *to = change->event->path_to;
            const bool here = lies_in(path, begin->path) || lies_in(to, begin->path);
            if (here && change->at < end->begin) change->synced = true;
        }
        return;
    }
    file_t *file = file_of(begin->ino);
    if (file == NULL) return; /* a file that was there before the record */
    for (size_t which = 0; which < file->count; which++) {
        write_t *write = &file->writes[which];
        if (begin->kind == EVENT_WRITE) {
            if (write->event != begin) continue;
            write->ended = at;
            if (end->detail >= 0) write->bytes = (size_t)end->detail;
        } else if (write->event->detail == 1 || write->event->source == begin->source) {
            if (end->detail < 0)
                write->lost |= !write->synced && write->ended < at;
            else
                write->synced |= !write->lost && write->ended < end->begin;
        }
    }
}

static void happen_change(const event_t *event, size_t at, names_t *now)
{
    int file = -1;
    if (event->kind == EVENT_CREATE) {
        CHECK(world.file_count < FILES_MAX);
        file = (int)world.file_count++;
        world.files[file].ino = event->ino;
        world.files[file].count = 0;
    } else if (event->kind == EVENT_RENAME || event->kind == EVENT_LINK) {
        const int *slot = name_slot(now, event->path);
        if (slot == NULL) FAIL("event %zu: nothing is named %s", at, event->path);
        file = *slot;
    }
    CHECK(world.change_count < NAMES_MAX);
    change_t *change = &world.changes[world.change_count++];
    *change = (change_t){.event = event, .at = at, .file = file};
    name_change(now, change);
}

static void happen(const record_t *record, size_t moment)
{
    static names_t now;
    now.count = world.file_count = world.change_count = 0;
    for (size_t at = 0; at < moment; at++) {
        const event_t *event = &record->events[at];
        file_t *file;
        switch (event->kind) {
        case EVENT_CREATE:
        case EVENT_RENAME:
        case EVENT_LINK:
        case EVENT_UNLINK:
        case EVENT_MKDIR:
        case EVENT_RMDIR:
            happen_change(event, at, &now);
            break;
        case EVENT_WRITE:
            if ((file = file_of(event->ino)) == NULL) FAIL("a write to an unknown file");
            CHECK(file->count < WRITES_MAX);
            file->writes[file->count++] =
                (write_t){.event = event, .ended = SIZE_MAX, .bytes = event->bytes};
            break;
        case EVENT_END:
            happen_end(record, at);
            break;
        case EVENT_TRUNCATE:
            /* The kernel's, after a direct write that failed: what it cuts off may be there. */
            if ((file = file_of(event->ino)) == NULL) break;
            for (size_t which = 0; which < file->count; which++)
                file->writes[which].lost |= !file->writes[which].synced &&
                                            file->writes[which].event->offset >= event->offset;
            break;
        case EVENT_SYNC:
        case EVENT_SYNC_DIR:
        case EVENT_MARK:
            break;
        }
    }
}

/* ---- what is left ---- */

static uint64_t state;

static uint64_t roll(void)
{
    uint64_t value = state += 0x9e3779b97f4a7c15u;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

static void add_to_sum(image_t *image, const void *bytes, size_t count)
{
    for (size_t at = 0; at < count; at++)
        image->sum = (image->sum ^ ((const uint8_t *)bytes)[at]) * 0x100000001b3u;
}

/* The content of a file, and its length. */
static void fill(const file_t *file, const outcome_t *outcome, left_t *left, image_t *image)
{
    size_t whole = 0;
    left->bytes = 0;
    memset(left->content, RUBBISH, FILE_MAX_BYTES);
    for (size_t which = 0; which < file->count; which++) {
        const write_t *write = &file->writes[which];
        const size_t from = write->event->offset, to = from + write->bytes;
        CHECK(to <= FILE_MAX_BYTES);
        if (to > whole) whole = to;
        for (size_t at = from, next; at < to; at = next) {
            next = (at / PIECE_BYTES + 1) * PIECE_BYTES;
            if (next > to) next = to;
            const bool there = write->synced || outcome->data == PICK_ALL ||
                               (outcome->data == PICK_SOME && roll() % 2 == 0) ||
                               (outcome->data == PICK_FIRST && at == 0);
            add_to_sum(image, &there, sizeof there);
            if (!there) continue;
            memcpy(left->content + at, write->event->data + (at - from), next - at);
            if (next > left->bytes) left->bytes = next;
        }
    }
    if (outcome->lengths == PICK_ALL || (outcome->lengths == PICK_SOME && roll() % 2 == 0))
        left->bytes = whole;
}

static bool dir_is_there(const image_t *image, const char *path)
{
    const char *slash = strrchr(path, '/');
    for (size_t at = 0; at < image->dir_count && slash != NULL; at++)
        if (lies_in(path, image->dirs[at])) return true;
    return slash == NULL;
}

static void apply_names(const outcome_t *outcome, names_t *names, image_t *image)
{
    const size_t first = world.change_count > 0 ? roll() % (world.change_count + 1) : 0;
    for (size_t which = 0; which < world.change_count; which++) {
        const change_t *change = &world.changes[which];
        const bool there = change->synced || outcome->names == PICK_ALL ||
                           (outcome->names == PICK_SOME && roll() % 2 == 0) ||
                           (outcome->names == PICK_FIRST && which < first);
        if (!there) continue;
        name_change(names, change);
        if (change->event->kind != EVENT_MKDIR) continue;
        CHECK(image->dir_count < sizeof image->dirs / sizeof image->dirs[0]);
        image->dirs[image->dir_count++] = change->event->path;
    }
}

const image_t *world_after(const record_t *record, size_t moment, const outcome_t *outcome,
                           uint64_t seed)
{
    static image_t image;
    static names_t names;
    static uint8_t *memory[FILES_MAX];
    happen(record, moment);
    names.count = image.count = image.dir_count = 0;
    image.sum = 0xcbf29ce484222325u;
    state = seed * 1000003 + moment * 31 + (uint64_t)(outcome - outcomes);
    apply_names(outcome, &names, &image);
    for (size_t at = 0; at < names.count; at++) {
        if (!dir_is_there(&image, names.path[at])) continue;
        if (memory[image.count] == NULL) memory[image.count] = malloc(FILE_MAX_BYTES);
        CHECK(memory[image.count] != NULL);
        left_t *left = &image.files[image.count];
        left->path = names.path[at];
        left->content = memory[image.count++];
        add_to_sum(&image, left->path, strlen(left->path));
        add_to_sum(&image, &names.file[at], sizeof names.file[at]);
        fill(&world.files[names.file[at]], outcome, left, &image);
        add_to_sum(&image, &left->bytes, sizeof left->bytes);
    }
    for (size_t at = 0; at < image.dir_count; at++)
        add_to_sum(&image, image.dirs[at], strlen(image.dirs[at]));
    return &image;
}

void world_write(const image_t *image, const char *root)
{
    char path[4096];
    for (size_t at = 0; at < image->dir_count; at++) {
        snprintf(path, sizeof path, "%s/%s", root, image->dirs[at]);
        if (mkdir(path, 0774) != 0 && errno != EEXIST) FAIL("%s: %s", path, strerror(errno));
    }
    for (size_t at = 0; at < image->count; at++) {
        snprintf(path, sizeof path, "%s/%s", root, image->files[at].path);
        write_file(path, image->files[at].content, image->files[at].bytes);
    }
}
