/* What the C and C++ tests share: named cases, checks, temporary directories, stores and blocks.
 *
 * A test file is one program; each CASE(name) in it is one CTest case, run as `program name`. A
 * case that cannot run on this machine ends with SKIP. Nothing here waits by the clock. */
#ifndef KVPATH_CHECK_H
#define KVPATH_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvpath.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- cases and checks ---- */

typedef void (*case_fn)(void);
void case_register(const char *name, case_fn run);
void check_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4), noreturn));
void check_skip(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
/* What is to be looked at when the case has passed so far; one for all cases of a process. */
void check_at_end(case_fn look);

/* Defines a case; CMake finds it by this word at the start of a line. */
#define CASE(name)                                                                                 \
    static void case_##name(void);                                                                 \
    __attribute__((constructor)) static void case_register_##name(void)                            \
    {                                                                                              \
        case_register(#name, case_##name);                                                         \
    }                                                                                              \
    static void case_##name(void)

#define FAIL(...) check_failed(__FILE__, __LINE__, __VA_ARGS__)
#define SKIP(...) check_skip(__VA_ARGS__)

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) FAIL("%s", #condition);                                                  \
    } while (0)

#define CHECK_EQ(left, right)                                                                      \
    do {                                                                                           \
        long long left_ = (long long)(left), right_ = (long long)(right);                          \
        if (left_ != right_) FAIL("%s is %lld, not %s (%lld)", #left, left_, #right, right_);      \
    } while (0)

/* Checks the status of a call; a failure shows kvpath's text. */
#define CHECK_STATUS(call, expected)                                                               \
    do {                                                                                           \
        kvpath_status_t got_ = (call);                                                             \
        if (got_ != (expected))                                                                    \
            FAIL("%s gave %s, not %s: %s", #call, kvpath_status_name(got_),                        \
                 kvpath_status_name(expected), got_ ? kvpath_last_error() : "");                   \
    } while (0)

#define CHECK_OK(call) CHECK_STATUS(call, KVPATH_OK)

/* Checks that a text has a part. */
#define CHECK_HAS(text, part) check_has(__FILE__, __LINE__, text, part)
void check_has(const char *file, int line, const char *text, const char *part);

/* ---- files ---- */

/* A fresh directory that is removed with the case. */
const char *temp_dir(void);
/* A memory file system of its own, mounted on such a directory; gone with the process, which gets a
 * mount namespace of its own. Skips where that is not allowed. */
const char *own_tmpfs(const char *options);
/* printf into memory that lives as long as the case. */
const char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
bool exists(const char *path);
/* Whole content; *bytes becomes its length. NULL when it cannot be read. */
uint8_t *read_file(const char *path, size_t *bytes);
void write_file(const char *path, const void *bytes, size_t count);
/* Files below `dir` (directories apart) whose path contains `part`; NULL counts all. */
size_t count_files(const char *dir, const char *part);
/* Waits for the event that the last name with `part` has left the directory `dir` itself. */
void wait_gone(const char *dir, const char *part);
/* Entries of /proc/self/task, threads that have ended and are still listed apart, and of
 * /proc/self/fd. */
size_t thread_count(void);
size_t descriptor_count(void);
/* Resident memory of this process in KiB. */
size_t resident_kib(void);
/* Whether the file system of `dir` takes O_DIRECT. */
bool direct_works(const char *dir);

/* ---- stores ---- */

typedef struct {
    size_t tensor, shard, block;
} shape_t;

/* The engine under test: KVPATH_TEST_ENGINE, or "psync". */
const char *engine(void);
/* A configuration: buffered, that engine, no directory digits, no time limits, roots as given (a
 * JSON string or list), and then `extra`, which begins with a comma or is "". */
const char *config(const char *roots_json, shape_t shape, const char *extra);
/* kvpath_open() that must succeed; skips where the system lacks the engine under test. */
kvpath_store_t open_store(const char *json);
/* A store on one root, buffered. */
kvpath_store_t open_root(const char *root, shape_t shape, const char *extra);
/* kvpath_open() that must fail with `expected`; gives the text. Skips as open_store() does. */
const char *open_fails(const char *json, kvpath_status_t expected);
/* The engine that really runs. */
const char *engine_of(kvpath_store_t store);
kvpath_stats_t stats_of(kvpath_store_t store);
/* Until so many sweeps are complete; fails after two minutes. */
void wait_sweeps(kvpath_store_t store, uint64_t count);
/* The text of kvpath_stats_json(), kvpath_health_json() or kvpath_metrics(). */
typedef kvpath_status_t (*report_fn)(kvpath_store_t, char *, size_t, size_t *);
const char *report(report_fn function, kvpath_store_t store);

/* ---- blocks ---- */

/* An id that depends on `number` only, well spread. */
kvpath_block_id_t block_id(uint64_t number);
const char *block_name(const kvpath_block_id_t *id);
/* Where a block's file is: digits = data_dir_shard_bytes. */
const char *block_path(const char *root, const kvpath_block_id_t *id, unsigned digits);
/* The content that a block of this id has in these tests. */
uint8_t content_at(const kvpath_block_id_t *id, size_t offset);

/* Blocks in memory with the shard list that dumps or loads them, block by block. Tensors are apart,
 * each `misalign` bytes after a 64-byte boundary, with guard bytes between them. */
typedef struct batch {
    shape_t shape;
    size_t blocks, per_block, tensors, count;
    uint8_t *memory;
    size_t memory_bytes, stride, misalign;
    void **addrs;
    kvpath_shard_t *shards;
} batch_t;

/* Blocks numbered from `first`. Lives as long as the case. */
batch_t *batch(shape_t shape, uint64_t first, size_t blocks, size_t misalign);
/* Gives the memory the blocks' content, or something else everywhere. */
void batch_fill(batch_t *batch);
void batch_wipe(batch_t *batch);
/* Bytes of shard `at` that are not its content. */
size_t shard_wrong(const batch_t *batch, size_t at);
/* Fails where any byte is wrong, guard bytes included. */
void batch_check(const batch_t *batch);

/* Starts a task and waits for it. */
kvpath_status_t dump(kvpath_store_t store, const kvpath_shard_t *shards, size_t count);
kvpath_status_t load(kvpath_store_t store, const kvpath_shard_t *shards, size_t count);
/* Fills and dumps, or wipes, loads and checks, a whole batch in one task; must succeed. */
void dump_batch(kvpath_store_t store, batch_t *batch);
void load_batch(kvpath_store_t store, batch_t *batch);
bool present(kvpath_store_t store, const kvpath_block_id_t *id);
/* Fails unless the file is exactly the block. */
void check_file(const char *path, const kvpath_block_id_t *id, size_t block_bytes);

#ifdef __cplusplus
}
#endif

#endif
