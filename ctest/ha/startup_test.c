/* Start-up (R8, R10-R13, R50): every backend is probed in order and cleaned up; whatever fails ends
 * the open by name, nothing is left behind, and nothing is written to the paths after it. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ha.h"

enum { N = 3 };

static const char *const writers = "create,write,mkdir,unlink,rename,link,fallocate,setattr";

static long long written(rig_t *rig, int which)
{
    long long total = 0;
    char words[128];
    snprintf(words, sizeof words, "%s", writers);
    for (char *word = strtok(words, ","); word != NULL; word = strtok(NULL, ","))
        total += seen(rig, which, word, "*");
    return total;
}

static void check_probed(rig_t *rig, int which, bool direct)
{
    CHECK_EQ(seen(rig, which, "create", "data/probe-*"), 1);
    CHECK(seen(rig, which, "write", "data/probe-*") >= 1);
    CHECK(seen(rig, which, "read", "data/probe-*") >= 1);
    CHECK_EQ(seen(rig, which, "fsync", "data/probe-*"), direct ? 0 : 1);
    CHECK_EQ(seen(rig, which, "flush", "data/probe-*"), 1);
    CHECK_EQ(seen(rig, which, "unlink", "data/probe-*"), 1);
}

/* R10, R50: all of them, once each, with O_DIRECT and without (then with fsync). */
CASE(every_backend_is_probed_and_cleaned_up)
{
    rig_t rig;
    for (int direct = 0; direct <= 1; direct++) {
        rig_mount(&rig, N);
        rig_open(&rig, (options_t){.buffered = !direct});
        for (int at = 0; at < N; at++) {
            check_probed(&rig, at, direct);
            check_health(&rig, at, KVPATH_BACKEND_AVAILABLE, ANY, 0);
            CHECK_EQ(health_of(&rig, at).direct, direct);
        }
        CHECK_EQ(count_files(rig.storage, "probe"), 0);
        rig_stop(&rig);
    }
}

/* R3, R10: the same path written in three ways is one backend, probed once. */
CASE(duplicates_and_trailing_slashes_are_one_backend)
{
    rig_t rig;
    rig_mount(&rig, 2);
    const char *first = rig.path[0];
    rig.path[0] = text("%s/\", \"%s//./\", \"%s", first, first, first);
    rig_open(&rig, (options_t){0});
    kvpath_backend_health_t health[4] = {{.size = sizeof health[0]}};
    size_t count = 0;
    CHECK_OK(kvpath_health(rig.store, health, 4, &count));
    CHECK_EQ(count, 2);
    check_probed(&rig, 0, true);
    check_probed(&rig, 1, true);
    rig_stop(&rig);
}

/* ---- R10, R12: one failing operation ---- */

typedef struct {
    const char *rule; /* on the backend that fails */
    const char *word, *errno_text;
    bool buffered_only, leaves_probe;
} failing_t;

/* What a process has, to be compared after a failed open. */
typedef struct {
    size_t threads, descriptors;
} left_t;

static left_t left_now(void) { return (left_t){thread_count(), descriptor_count()}; }

static void check_nothing_left(left_t before)
{
    wait_threads(before.threads);
    CHECK_EQ(descriptor_count(), before.descriptors);
}

static void prepare_storage(rig_t *rig)
{
    rig_open(rig, (options_t){0}); /* skips where the engine is not there */
    CHECK_OK(kvpath_close(rig->store));
}

/* So that it has to be made: by the open through the first backend (R6), by the probe that finds it
 * gone through a later one (R7). */
static void hide_directory(rig_t *rig, int which)
{
    if (which == 0)
        CHECK(rmdir(text("%s/data", rig->storage)) == 0);
    else
        fault(rig, which, "lookup data always fail ENOENT");
}

static void fails_on(const failing_t *failing, int which, bool buffered)
{
    rig_t rig;
    rig_mount(&rig, N);
    prepare_storage(&rig);
    forget_counts(&rig);
    left_t before = left_now();
    fault(&rig, which, "%s", failing->rule);
    if (strcmp(failing->word, "mkdir") == 0) hide_directory(&rig, which);
    const char *error =
        open_fails(rig_config(&rig, (options_t){.buffered = buffered}), KVPATH_STORE_UNHEALTHY);
    printf("%s\n", error);
    CHECK_HAS(error, rig.path[which]);
    CHECK_HAS(error, text(" %s:", failing->word));
    CHECK_HAS(error, failing->errno_text);
    wait_log(error);
    check_nothing_left(before);
    for (int at = which + 1; at < N; at++) CHECK_EQ(written(&rig, at), 0);
    CHECK_EQ(count_files(rig.storage, "probe"), failing->leaves_probe ? 1 : 0);
    if (seen(&rig, which, "write", "data/probe-*") > 0)
        CHECK(seen(&rig, which, "unlink", "data/probe-*") >= 1); /* tried on every exit */
    heal(&rig, which);
    rig_open(&rig, (options_t){.buffered = buffered});
    CHECK_OK(kvpath_close(rig.store));
    for (int at = 0; at < N; at++) CHECK_EQ(faultfs_stop(&rig.fs[at]), 0);
}

static void fails_everywhere(failing_t failing)
{
    fails_on(&failing, 0, true);
    fails_on(&failing, N - 1, true);
    if (failing.buffered_only) return;
    fails_on(&failing, 0, false);
    fails_on(&failing, N - 1, false);
}

CASE(mkdir_fails)
{
    fails_everywhere((failing_t){"mkdir data always fail EACCES", "mkdir", "EACCES", false, false});
}

CASE(open_fails)
{
    fails_everywhere(
        (failing_t){"create data/probe-* always fail EACCES", "open", "EACCES", false, false});
}

CASE(write_fails)
{
    fails_everywhere(
        (failing_t){"write data/probe-* always fail EIO", "write", "EIO", false, false});
}

CASE(fsync_fails)
{
    fails_everywhere(
        (failing_t){"fsync data/probe-* always fail EIO", "fsync", "EIO", true, false});
}

CASE(read_fails)
{
    fails_everywhere((failing_t){"read data/probe-* always fail EIO", "read", "EIO", false, false});
}

/* What came back differs: the text says how. */
CASE(verify_fails)
{
    fails_everywhere((failing_t){"read data/probe-* always flip", "verify",
                                 "byte 2048 was written as", false, false});
}

CASE(write_without_progress_fails)
{
    fails_everywhere((failing_t){"write data/probe-* always short 100", "write", "no progress",
                                 false, false});
}

CASE(close_fails)
{
    fails_everywhere(
        (failing_t){"flush data/probe-* always fail EIO", "close", "EIO", false, false});
}

/* The file that cannot be removed stays; nothing else does. */
CASE(remove_fails)
{
    fails_everywhere(
        (failing_t){"unlink data/probe-* always fail EACCES", "remove", "EACCES", false, true});
}

/* R50: at start-up a full disk is a failure whose text names the remedy. */
CASE(full_disk_names_the_remedy)
{
    fails_everywhere(
        (failing_t){"write data/probe-* always fail ENOSPC", "write", "ENOSPC", false, false});
    rig_t rig;
    rig_mount(&rig, 2);
    prepare_storage(&rig);
    fault(&rig, 1, "write data/probe-* always fail ENOSPC");
    CHECK_HAS(open_fails(rig_config(&rig, (options_t){0}), KVPATH_STORE_UNHEALTHY), "free space");
}

/* R33: a refusal of O_DIRECT says what to set; with the fallback the backend says that it is
 * buffered. */
CASE(direct_refused)
{
    rig_t rig;
    rig_mount(&rig, 2);
    prepare_storage(&rig);
    fault(&rig, 1, "open-direct * always fail EINVAL");
    const char *error = open_fails(rig_config(&rig, (options_t){0}), KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(error, "io_direct_fallback");
    rig_open(&rig, (options_t){.extra = ", \"io_direct_fallback\": true"});
    CHECK_EQ(health_of(&rig, 0).direct, 1);
    CHECK_EQ(health_of(&rig, 1).direct, 0);
    wait_log("runs buffered");
    batch_t *block = block_on(&rig, 1, 0);
    dump_batch(rig.store, block);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R10: not-found is a failure, too: a path that is not there, a file in its place. */
static void unusable(int which, const char *place, const char *errno_text)
{
    rig_t rig;
    rig_mount(&rig, N);
    prepare_storage(&rig);
    forget_counts(&rig);
    left_t before = left_now();
    rig.path[which] = place;
    const char *error = open_fails(rig_config(&rig, (options_t){0}), KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(error, place);
    CHECK_HAS(error, " open:");
    CHECK_HAS(error, errno_text);
    wait_log(error);
    check_nothing_left(before);
    for (int at = 0; at < N; at++) CHECK_EQ(written(&rig, at), 0);
}

CASE(first_backend_unusable)
{
    unusable(0, "/nowhere/at/all", "ENOENT");
    const char *file = text("%s/file", temp_dir());
    write_file(file, "", 0);
    unusable(0, file, "ENOTDIR");
}

CASE(later_backend_unusable)
{
    unusable(2, "/nowhere/at/all", "ENOENT");
    const char *file = text("%s/file", temp_dir());
    write_file(file, "", 0);
    unusable(2, file, "ENOTDIR");
}

/* R1: `enabled` is the outer breaker only; the checks run in any case. */
CASE(checked_with_the_breaker_on_and_off)
{
    for (int breaker = 0; breaker <= 1; breaker++) {
        rig_t rig;
        rig_mount(&rig, 2);
        prepare_storage(&rig);
        fault(&rig, 1, "read data/probe-* always fail EIO");
        const char *json = rig_config(&rig, (options_t){.breaker = breaker});
        CHECK_HAS(open_fails(json, KVPATH_STORE_UNHEALTHY), "EIO");
    }
}

/* R9: a `dir` that is a symbolic link fails the check. */
CASE(linked_directory_fails)
{
    rig_t rig;
    rig_mount(&rig, 2);
    prepare_storage(&rig);
    CHECK(rename(text("%s/data", rig.storage), text("%s/elsewhere", rig.storage)) == 0);
    CHECK(symlink("elsewhere", text("%s/data", rig.storage)) == 0);
    const char *error = open_fails(rig_config(&rig, (options_t){0}), KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(error, "symbolic link");
}

/* R10, R12: open_timeout_ms ends the wait for a backend that hangs, at whatever step; when the
 * kernel lets go, nothing is left either. */
typedef struct {
    rig_t *rig;
    left_t before;
} hanging_t;

static bool hangs_or_is_over(void *argument)
{
    hanging_t *hanging = argument;
    return hung(hanging->rig, 1) > 0 || thread_count() <= hanging->before.threads;
}

static void open_hangs(const char *rule)
{
    rig_t rig;
    rig_mount(&rig, N);
    prepare_storage(&rig);
    forget_counts(&rig);
    left_t before = left_now();
    fault(&rig, 1, "%s", rule);
    hanging_t hanging = {&rig, before};
    /* Again where a busy machine did not come as far as the path that hangs. */
    for (unsigned limit_ms = 300; hung(&rig, 1) == 0; limit_ms *= 4) {
        uint64_t start = now_ms();
        const char *extra = text(", \"open_timeout_ms\": %u", limit_ms);
        const char *json = rig_config(&rig, (options_t){.extra = extra});
        CHECK_HAS(open_fails(json, KVPATH_TIMEOUT), "open_timeout_ms");
        uint64_t took = now_ms() - start;
        CHECK(took >= limit_ms && took < limit_ms + SLACK_MS);
        wait_for("what hangs, or the end of the open", hangs_or_is_over, &hanging);
    }
    CHECK_EQ(written(&rig, 2), 0);
    heal(&rig, 1);
    release(&rig, 1);
    check_nothing_left(before);
    CHECK_EQ(written(&rig, 2), 0);
    CHECK_EQ(count_files(rig.storage, "probe"), 0);
}

CASE(open_timeout_while_the_marker_hangs) { open_hangs("open .kvpath always hang"); }
CASE(open_timeout_while_the_create_hangs) { open_hangs("create data/probe-* always hang"); }
CASE(open_timeout_while_the_write_hangs) { open_hangs("write data/probe-* always hang"); }
CASE(open_timeout_while_the_remove_hangs) { open_hangs("unlink data/probe-* always hang"); }
