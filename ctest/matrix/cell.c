/* matrix.h: running cells. A cell is prepared and judged on the main thread; what takes time (a
 * hang, a shortage) is waited for by all such cells of a row together, while the others run. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "matrix.h"

enum { PRIMARY = 1, SLOW_MS = 4500, OPEN_MS = 3600, PATIENT_MS = 120000, SLOW_CELLS = 6 };

static int wrong; /* cells that are not as the table says */

static void differs(const cell_t *cell, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s, %s: ", cell->fault, place_name(cell->place));
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    wrong++;
}

int candidate(const cell_t *cell, int nth)
{
    return cell->operation->at_open ? nth : (PRIMARY + nth) % PATHS;
}

/* ---- faults ---- */

static const char *rule_of(const cell_t *cell, const char *fault_name)
{
    const operation_t *operation = cell->operation;
    const char *what = text("always fail %s", fault_name);
    if (strcmp(fault_name, "EINTR") == 0) what = "count=3 fail EINTR";
    if (strcmp(fault_name, "hang") == 0) what = "always hang";
    if (strcmp(fault_name, "short") == 0)
        what = operation->at_open || strstr(operation->pattern, ".kvpath") ? "count=1 short 50"
                                                                           : "count=1 short 4096";
    if (strcmp(fault_name, "corrupt") == 0) what = "always flip";
    const char *pattern = operation->pattern, *name = block_name(id_of(cell->block));
    const char *at = strstr(pattern, "%s");
    if (at != NULL) pattern = text("%.*s%s%s", (int)(at - pattern), pattern, name, at + 2);
    return text("%s %s %s", operation->ops, pattern, what);
}

static void set_faults(cell_t *cell)
{
    for (int nth = 0; nth < PATHS; nth++) {
        const char *name = NULL;
        if (cell->place == ALL || (cell->place == FIRST && nth == 0)) name = cell->fault;
        if (cell->place == MIDDLE && nth == 1) name = cell->fault;
        if (cell->place == MIDDLE && nth == 0 && !cell->operation->at_open) name = "EIO";
        cell->rules[nth] = 0;
        if (name != NULL)
            cell->rules[nth] = fault(cell->rig, candidate(cell, nth), "%s", rule_of(cell, name));
    }
}

long long fired(const cell_t *cell, int nth)
{
    struct faultfs *fs = &cell->rig->fs[candidate(cell, nth)];
    return cell->rules[nth] == 0
               ? 0
               : faultfs_number(fs, "rule fired %lld", cell->rules[nth]);
}

/* This engine makes the request that is to fail. */
static bool is_made(const operation_t *operation)
{
    return operation->without == NULL || strcmp(operation->without, ha_engine()) != 0;
}

/* The fault was met at all: otherwise the cell proves nothing. */
static void check_met(cell_t *cell)
{
    if (!is_made(cell->operation)) return;
    if (fired(cell, cell->place == MIDDLE ? 1 : 0) < 1) differs(cell, "the fault was never met");
}

/* ---- before, during, after ---- */

/* The first sweep may have looked at a marker; what it saw is believed for up to a second (R24). There
 * is no event for its end. */
static void outlast_verdicts(void)
{
    struct timespec left = {.tv_sec = 1, .tv_nsec = 100 * 1000 * 1000};
    while (nanosleep(&left, &left) != 0) {
    }
}

static void begin(cell_t *cell)
{
    rig_t *rig = cell->rig;
    options_t options = cell->operation->options;
    printf("%s, %s\n", cell->fault, place_name(cell->place));
    options.window = 4;
    options.threshold = 1;
    options.timeout_ms = cell->slow ? SLOW_MS : PATIENT_MS;
    options.buffered |= strcmp(cell->fault, "short") == 0;
    if (cell->operation->at_open && strcmp(cell->fault, "hang") == 0)
        options.extra = text(", \"open_timeout_ms\": %d", OPEN_MS);
    /* A marker that was just seen is not looked at, and looks are a worker's in any case. */
    options.cold = strstr(cell->operation->pattern, ".kvpath") != NULL;
    rig_begin(rig, options);
    if (cell->place == ALL && strstr(cell->operation->pattern, ".kvpath") != NULL)
        outlast_verdicts();
    cell->block = block_on(rig, PRIMARY, 0);
    if (cell->operation->prepare != NULL) cell->operation->prepare(cell);
    if (!cell->operation->at_open) cell->before = stats_of(rig->store);
    forget_counts(rig);
    set_faults(cell);
}

static void *act(void *argument)
{
    cell_t *cell = argument;
    cell->status = cell->operation->act(cell);
    if (cell->operation->settle != NULL) cell->operation->settle(cell);
    if (cell->status != KVPATH_OK)
        snprintf(cell->error, sizeof cell->error, "%s", kvpath_last_error());
    return NULL;
}

static kvpath_status_t wanted_status(const cell_t *cell)
{
    static const struct {
        const char *word;
        kvpath_status_t status;
    } statuses[] = {{"OS_ERROR", KVPATH_OS_ERROR},
                    {"NO_SPACE", KVPATH_NO_SPACE},
                    {"TIMEOUT", KVPATH_TIMEOUT},
                    {"UNHEALTHY", KVPATH_STORE_UNHEALTHY}};
    const char *word = cell->want->status;
    if (strcmp(word, "OK") == 0) return cell->operation->right;
    if (strcmp(word, "ABSENT") == 0) return cell->operation->absent;
    for (size_t at = 0; at < sizeof statuses / sizeof statuses[0]; at++)
        if (strcmp(word, statuses[at].word) == 0) return statuses[at].status;
    FAIL("no status \"%s\"", word);
}

static void check_status(cell_t *cell)
{
    kvpath_status_t wanted = wanted_status(cell);
    if (cell->status != wanted)
        differs(cell, "%s, not %s: %s", kvpath_status_name(cell->status),
                kvpath_status_name(wanted), cell->error);
    /* A marker that "does not exist" is another finding. */
    bool names_errno = cell->fault[0] == 'E' && cell->place == ALL &&
                       strcmp(cell->operation->pattern, ".kvpath") != 0;
    if (cell->status == wanted && (wanted == KVPATH_OS_ERROR || wanted == KVPATH_NO_SPACE) &&
        names_errno && strstr(cell->error, cell->fault) == NULL)
        differs(cell, "the text does not name %s: %s", cell->fault, cell->error);
    if (wanted == KVPATH_STORE_UNHEALTHY) {
        int which = cell->place == MIDDLE ? 1 : 0;
        if (strstr(cell->error, cell->rig->path[which]) == NULL)
            differs(cell, "the text does not name path %d: %s", which, cell->error);
    }
}

static void check_counted(cell_t *cell)
{
    long long retries = (long long)(stats_of(cell->rig->store).retries - cell->before.retries);
    if (cell->want->retries != ANY && retries != cell->want->retries)
        differs(cell, "%lld retries, not %d", retries, cell->want->retries);
    for (int nth = 0; nth < PATHS; nth++) {
        kvpath_backend_health_t health = health_of(cell->rig, candidate(cell, nth));
        bool excluded = health.state == KVPATH_BACKEND_EXCLUDED;
        char wanted = cell->want->counted[nth];
        bool is_right = health.failures == (wanted == 'x') && excluded == (wanted == 'x');
        if (wanted != '?' && !is_right)
            differs(cell, "candidate %d: %u failures, %s; wanted %c; %s", nth, health.failures,
                    excluded ? "excluded" : "available", wanted, health.last_error);
    }
}

/* ---- what is in the storage, read past the store ---- */

static const char *file_path(const cell_t *cell)
{
    return block_path(cell->rig->storage, id_of(cell->block), 0);
}

static void check_file_is(cell_t *cell, bool must)
{
    size_t bytes = 0, off = 0;
    uint8_t *content = read_file(file_path(cell), &bytes);
    if (content == NULL) {
        if (must) differs(cell, "the block is not there");
        return;
    }
    if (bytes != cell->block->shape.block) differs(cell, "the block has %zu bytes", bytes);
    for (size_t at = 0; at < bytes; at++) off += content[at] != content_at(id_of(cell->block), at);
    free(content);
    size_t flipped = cell->flips && cell->operation->kept == BLOCK_MADE;
    if (off != flipped) differs(cell, "%zu bytes of the block are wrong, not %zu", off, flipped);
}

static void check_storage(cell_t *cell)
{
    bool ok = cell->status == KVPATH_OK;
    switch (cell->operation->kept) {
    case BLOCK_STAYS: check_file_is(cell, true); break;
    case BLOCK_MADE:
    case BLOCK_MAYBE:
        /* What hangs in the kernel may still be done when it is let go. */
        if (ok || cell->operation->kept == BLOCK_MAYBE || cell->slow)
            check_file_is(cell, ok);
        else if (exists(file_path(cell)))
            differs(cell, "the block is there after an error");
        break;
    case BLOCK_GONE:
        /* What says ENOENT of a file that is there has not removed it. */
        if (!ok || strcmp(cell->want->status, "ABSENT") == 0)
            check_file_is(cell, !cell->slow);
        else if (exists(file_path(cell)))
            differs(cell, "the block is there");
        break;
    case NOTHING_MADE:
        if (exists(file_path(cell))) differs(cell, "the block is there");
        break;
    }
}

/* What was loaded is right, and no guard byte was touched. */
static void check_memory(cell_t *cell)
{
    size_t off = 0, flipped = cell->flips && cell->operation->kept == BLOCK_STAYS;
    if (cell->status != KVPATH_OK || cell->operation->absent != KVPATH_NOT_FOUND) return;
    size_t loaded = cell->operation->act == load_first ? 1 : cell->block->count;
    for (size_t at = 0; at < loaded; at++) off += shard_wrong(cell->block, at);
    if (off != flipped) differs(cell, "%zu bytes in memory are wrong, not %zu", off, flipped);
}

/* A name in `data` that is no block of this cell. */
static void check_nothing_else(cell_t *cell)
{
    const char *data = text("%s/data", cell->rig->storage);
    DIR *dir = opendir(data);
    if (dir == NULL) return;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        /* A probe that could not be removed goes when this process, its writer, is gone. */
        bool probe = cell->operation->at_open && strcmp(cell->operation->ops, "unlink") == 0;
        if (strstr(entry->d_name, ".tmp") != NULL && !probe)
            differs(cell, "a temporary is left: %s", entry->d_name);
        unlink(text("%s/%s", data, entry->d_name));
    }
    closedir(dir);
}

static void heal_all(cell_t *cell)
{
    for (int at = 0; at < PATHS; at++) {
        heal(cell->rig, at);
        release(cell->rig, at);
    }
}

static bool no_probe_is_left(void *cell)
{
    return count_files(((cell_t *)cell)->rig->storage, "probe") == 0;
}

/* The fault is over: the same call is right now, and the store closes without a trace. */
static void end_open(cell_t *cell)
{
    bool may = strcmp(cell->operation->ops, "unlink") == 0;
    if (!cell->slow && !may && !no_probe_is_left(cell)) differs(cell, "a probe file is left");
    heal_all(cell);
    if (cell->slow && !may) wait_for("the end of a late probe", no_probe_is_left, cell);
    if (cell->status == KVPATH_OK) CHECK_OK(kvpath_close(cell->rig->store));
    kvpath_status_t again = cell->operation->act(cell);
    if (again != KVPATH_OK) {
        differs(cell, "healed: %s: %s", kvpath_status_name(again), kvpath_last_error());
        return;
    }
    CHECK_OK(kvpath_close(cell->rig->store));
    check_nothing_else(cell);
}

static void end_call(cell_t *cell)
{
    static const want_t healed = {.makes_sense = true, .status = "OK"};
    rig_t *rig = cell->rig;
    check_counted(cell);
    heal_all(cell);
    wait_at_rest(rig);
    check_storage(cell);
    check_memory(cell);
    for (int at = 0; at < PATHS; at++)
        CHECK_OK(kvpath_backend_set(rig->store, rig->path[at], KVPATH_BACKEND_SET_IN));
    kvpath_status_t again = cell->operation->again != NULL ? cell->operation->again(cell)
                                                           : cell->operation->act(cell);
    if (again != cell->operation->right)
        differs(cell, "healed: %s: %s", kvpath_status_name(again), kvpath_last_error());
    /* A block that was dumped with a byte flipped is stored, and stays so. */
    cell->status = again;
    cell->want = &healed;
    check_storage(cell);
    /* Excluded again, so that the end finds no available path; but of one that has just hung close
     * rather leaves a temporary behind (R54). */
    for (int at = 0; at < PATHS && !cell->slow; at++)
        CHECK_OK(kvpath_backend_set(rig->store, rig->path[at], KVPATH_BACKEND_SET_AUTO));
    CHECK_OK(kvpath_close(rig->store));
    check_nothing_else(cell);
}

static void end(cell_t *cell)
{
    check_status(cell);
    check_met(cell);
    if (cell->operation->at_open)
        end_open(cell);
    else
        end_call(cell);
}

/* ---- rows ---- */

/* Time must pass for these, whatever the table says follows. */
static bool takes_time(const char *fault_name)
{
    return strcmp(fault_name, "hang") == 0 || strcmp(fault_name, "EMFILE") == 0;
}

static cell_t cell_of(const operation_t *operation, const entry_t *entry, int place, rig_t *rig)
{
    static const want_t unmet = {.makes_sense = true, .status = "OK", .counted = "..."};
    const want_t *want = &entry->places[place];
    if (want->makes_sense && !is_made(operation)) want = &unmet;
    /* FUSE itself makes EIO of what a ring has left to write of a short buffered write. */
    static const want_t senseless = {.makes_sense = false};
    bool is_short = strcmp(entry->fault, "short") == 0 && strcmp(operation->ops, "write") == 0;
    if (is_short && getenv("KVPATH_FAULT_FUSE_IS_NETWORK") != NULL) want = &senseless;
    if (!want->makes_sense)
        printf("%s, %s: makes no sense (%s)\n", entry->fault, place_name(place), entry->word);
    return (cell_t){.operation = operation, .fault = entry->fault, .place = place, .want = want,
                    .slow = takes_time(entry->fault),
                    .flips = strcmp(entry->word, "taken") == 0, .rig = rig};
}

static void run_quick(const operation_t *operation, const entry_t *entries, int count, rig_t *rig)
{
    for (int at = 0; at < count; at++) {
        for (int place = 0; place < PLACES && !takes_time(entries[at].fault); place++) {
            cell_t cell = cell_of(operation, &entries[at], place, rig);
            if (!cell.want->makes_sense) continue;
            begin(&cell);
            act(&cell);
            end(&cell);
        }
    }
    for (int at = 0; at < PATHS; at++) CHECK_EQ(faultfs_stop(&rig->fs[at]), 0);
}

/* The cells of a row that take time, each on a rig of its own. */
typedef struct {
    int count;
    rig_t rigs[SLOW_CELLS];
    cell_t cells[SLOW_CELLS];
    aside_t threads[SLOW_CELLS];
} slow_t;

static void begin_slow(slow_t *slow, const operation_t *operation, const entry_t *entries,
                       int count)
{
    for (int at = 0; at < count; at++) {
        for (int place = 0; place < PLACES && takes_time(entries[at].fault); place++) {
            int made = slow->count;
            CHECK(made < SLOW_CELLS);
            slow->cells[made] = cell_of(operation, &entries[at], place, &slow->rigs[made]);
            if (!slow->cells[made].want->makes_sense) continue;
            rig_mount(&slow->rigs[made], PATHS);
            begin(&slow->cells[made]);
            slow->count++;
        }
    }
    for (int at = 0; at < slow->count; at++) slow->threads[at] = aside(act, &slow->cells[at]);
}

static void end_slow(slow_t *slow)
{
    for (int at = 0; at < slow->count; at++) join(slow->threads[at]);
    for (int at = 0; at < slow->count; at++) {
        end(&slow->cells[at]);
        for (int path = 0; path < PATHS; path++)
            CHECK_EQ(faultfs_stop(&slow->rigs[at].fs[path]), 0);
    }
}

void run_row(const char *name, const operation_t *operation)
{
    static slow_t slow;
    static rig_t quick;
    entry_t entries[FAULTS_MAX];
    int count = table_row(name, entries);
    /* Every mount before the first call that hangs: a mount is a fork, and the child closes what
     * files the store has open on the other mounts, where closing may be what hangs. */
    rig_mount(&quick, PATHS);
    begin_slow(&slow, operation, entries, count);
    run_quick(operation, entries, count, &quick);
    end_slow(&slow);
    if (wrong > 0) FAIL("%s: %d differences from the table", name, wrong);
}
