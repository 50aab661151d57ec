/* powerloss.h: the cases. */
#define _GNU_SOURCE
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "powerloss.h"
#include "world.h"

enum { IMAGES = 10, ROUNDS = 1, IMAGES_MAX = 1 << 16, SWEPT_IMAGES = 2, SWEEP_MS = 120000 };

/* What is known of a block at a moment. */
typedef struct {
    const char *path;
    bool stored;  /* it was reported, and its removal was not begun */
    bool foreign; /* somebody else writes it, and syncs nothing */
} known_t;

typedef enum { ABSENT, WHOLE, TORN, SHORT } found_t;

static const char *const found_names[] = {"absent", "whole", "torn", "of another length"};

/* An image to be opened. */
typedef struct {
    size_t moment;
    int outcome;
    uint64_t seed;
} choice_t;

static size_t setting(const char *name, size_t otherwise)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? strtoul(value, NULL, 10) : otherwise;
}

/* ---- the model's own check ---- */

static void know(known_t *known, const record_t *record, size_t moment)
{
    for (unsigned number = 0; number < BLOCKS; number++) {
        if (known[number].path == NULL) {
            const kvpath_block_id_t id = block_id(number);
            known[number].path = text("data/%s", block_name(&id));
        }
        known[number].stored = known[number].foreign = false;
    }
    for (size_t at = 0; at < moment; at++) {
        unsigned number = 0;
        const event_t *event = &record->events[at];
        if (event->kind != EVENT_MARK) continue;
        if (sscanf(event->path, "stored %u", &number) == 1)
            known[number] = (known_t){.path = known[number].path, .stored = true};
        if (sscanf(event->path, "removing %u", &number) == 1) known[number].stored = false;
        if (sscanf(event->path, "foreign %u", &number) == 1) known[number].foreign = true;
    }
}

static found_t find(const image_t *image, const known_t *known, unsigned number)
{
    const kvpath_block_id_t id = block_id(number);
    for (size_t file = 0; file < image->count; file++) {
        const left_t *left = &image->files[file];
        if (strcmp(left->path, known->path) != 0) continue;
        if (left->bytes != shape.block) return SHORT;
        for (size_t at = 0; at < left->bytes; at++)
            if (left->content[at] != content_at(&id, at)) return TORN;
        return WHOLE;
    }
    return ABSENT;
}

/* What must be so of an image; counts what `none` may lose. */
static void check_image(const recording_t *of, const image_t *image, const known_t *known,
                        const choice_t *choice, size_t *lost)
{
    const bool none = strcmp(of->sync, "none") == 0, full = strcmp(of->sync, "full") == 0;
    const outcome_t *outcome = &outcomes[choice->outcome];
    const bool all = outcome->names == PICK_ALL && outcome->data == PICK_ALL;
    for (unsigned number = 0; number < BLOCKS; number++) {
        const found_t found = find(image, &known[number], number);
        lost[found] += known[number].stored;
        const char *wrong = NULL;
        if (found > WHOLE && (!none || all) && !known[number].foreign)
            wrong = "a visible block must be whole";
        if (found != WHOLE && full && known[number].stored)
            wrong = "a block that was reported must be there";
        if (wrong != NULL)
            FAIL("%s, %s: block %u is %s after event %zu, outcome \"%s\", seed %llu: %s", of->sync,
                 of->direct ? "direct" : "buffered", number, found_names[found], choice->moment,
                 outcome->name, (unsigned long long)choice->seed, wrong);
    }
}

/* ---- a store on an image ---- */

static int remove_entry(const char *path, const struct stat *what, int type, struct FTW *where)
{
    (void)what, (void)type, (void)where;
    return remove(path);
}

static void wait_swept(const char *root)
{
    const struct timespec moment = {.tv_nsec = 10000000};
    for (int waited = 0; count_files(root, ".tmp") > 0; waited += 10) {
        if (waited > SWEEP_MS) FAIL("temporaries stay below %s", root);
        nanosleep(&moment, NULL);
    }
}

static void open_image(const char *root, const image_t *image, const known_t *known, bool sweep)
{
    CHECK(mkdir(root, 0777) == 0);
    world_write(image, root);
    const char *json = text("{\"storage_backends\": \"%s\", \"device_id\": 0, \"tensor_size\": %zu,"
                            " \"shard_size\": %zu, \"block_size\": %zu,"
                            " \"data_dir_shard_bytes\": 0,"
                            " \"posix_io_engine\": \"psync\", \"io_direct\": false,"
                            /* A lease on the image is of a writer that is gone: not waited for. */
                            " \"posix_gc_cross_instance_lock\": false,"
                            " \"commit_sync\": \"none\"}",
                            root, shape.tensor, shape.shard, shape.block);
    kvpath_store_t store = open_store(json);
    static batch_t *block[BLOCKS];
    for (unsigned number = 0; number < BLOCKS; number++) {
        if (block[number] == NULL) block[number] = batch(shape, number, 1, 0);
        const found_t found = find(image, &known[number], number);
        const bool there = found == WHOLE || found == TORN;
        batch_wipe(block[number]);
        CHECK_EQ(present(store, &block[number]->shards[0].block), there);
        const kvpath_status_t status = load(store, block[number]->shards, block[number]->count);
        CHECK_STATUS(status, there ? KVPATH_OK : KVPATH_NOT_FOUND);
        if (found == SHORT) CHECK_EQ(kvpath_last_detail(), KVPATH_CORRUPT);
        if (found == WHOLE) batch_check(block[number]);
        if (there) continue;
        dump_batch(store, block[number]); /* and it goes on */
        load_batch(store, block[number]);
    }
    if (sweep) wait_swept(root);
    CHECK_OK(kvpath_close(store));
    CHECK(nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

/* ---- the replay ---- */

static bool is_new(uint64_t sum, uint64_t *sums, size_t count)
{
    for (size_t at = 0; at < count; at++)
        if (sums[at] == sum) return false;
    return true;
}

static bool is_random(const outcome_t *outcome)
{
    return outcome->names >= PICK_SOME || outcome->data == PICK_SOME ||
           outcome->lengths == PICK_SOME;
}

static void replay(const recording_t *of, size_t lost[4])
{
    static choice_t choices[IMAGES_MAX];
    static uint64_t sums[IMAGES_MAX];
    static known_t known[BLOCKS];
    const record_t events = record_read(of->record);
    const size_t rounds = setting("KVPATH_POWERLOSS_ROUNDS", ROUNDS);
    size_t images = 0, opened = 0, swept = 0;
    for (size_t moment = 0; moment <= events.count; moment++) {
        know(known, &events, moment);
        for (int which = 0; which < OUTCOMES; which++)
            for (uint64_t seed = 0; seed < (is_random(&outcomes[which]) ? rounds : 1); seed++) {
                const choice_t choice = {moment, which, seed};
                const image_t *image = world_after(&events, moment, &outcomes[which], seed);
                check_image(of, image, known, &choice, lost);
                if (!is_new(image->sum, sums, images)) continue;
                if (images == IMAGES_MAX)
                    FAIL("%d images, and only %zu of %zu moments are in them", IMAGES_MAX, moment,
                         events.count);
                choices[images] = choice;
                sums[images++] = image->sum;
            }
    }
    const size_t limit = setting("KVPATH_POWERLOSS_IMAGES", IMAGES);
    const size_t step = limit == 0 || limit > images ? 1 : images / limit;
    const char *root = text("%s/image", temp_dir());
    for (size_t at = images - 1; at < images; at -= step, opened++) {
        const choice_t *choice = &choices[at];
        know(known, &events, choice->moment);
        const image_t *image =
            world_after(&events, choice->moment, &outcomes[choice->outcome], choice->seed);
        open_image(root, image, known, swept++ < SWEPT_IMAGES);
    }
    printf("%s, %s, %s%s: %zu events, %zu images, %zu opened\n", engine(), of->sync,
           of->direct ? "direct" : "buffered", of->failing ? ", failing paths" : "", events.count,
           images, opened);
}

static bool is_dir(const char *path)
{
    return access(path, W_OK) == 0;
}

/* Records direct and buffered, then replays both. */
static void both(const char *sync, bool failing, size_t lost[2][4])
{
    recording_t all[2];
    for (int direct = 0; direct < 2; direct++) {
        all[direct] = (recording_t){.sync = sync, .direct = direct == 1, .failing = failing,
                                    .mounts = failing ? 2 : 1};
        record(&all[direct]);
    }
    /* Images are many and small: in memory, where that is possible. */
    if (is_dir("/dev/shm")) CHECK(setenv("KVPATH_TEST_DIR", "/dev/shm", 1) == 0);
    for (int direct = 0; direct < 2; direct++) replay(&all[direct], lost[direct]);
}

/* Absent or whole; what was reported may be missing, but not torn. */
CASE(data_leaves_blocks_whole_or_absent)
{
    size_t lost[2][4] = {{0}};
    both("data", false, lost);
    for (int direct = 0; direct < 2; direct++) CHECK(lost[direct][ABSENT] > 0);
}

CASE(full_keeps_what_was_reported)
{
    size_t lost[2][4] = {{0}};
    both("full", false, lost);
    for (int direct = 0; direct < 2; direct++) {
        CHECK(lost[direct][WHOLE] > 0);
        CHECK_EQ(lost[direct][ABSENT] + lost[direct][TORN] + lost[direct][SHORT], 0);
    }
}

/* What docs/durability.md says that it can lose, it can; a wrong length is never taken for a block,
 * and where names and data are safe in their order nothing is lost but the last moments. */
CASE(none_can_lose_what_the_docs_say)
{
    size_t lost[2][4] = {{0}};
    both("none", false, lost);
    for (int direct = 0; direct < 2; direct++)
        for (int found = ABSENT; found <= SHORT; found++)
            if (lost[direct][found] == 0) FAIL("no reported block is %s", found_names[found]);
}

/* The same promises with paths that fail, hang and do things late. */
CASE(data_with_failing_paths)
{
    size_t lost[2][4] = {{0}};
    both("data", true, lost);
}

CASE(full_with_failing_paths)
{
    size_t lost[2][4] = {{0}};
    both("full", true, lost);
}
