/* Isolation (R5, R29, R30): once a task is finished nothing reads or writes the caller's memory, and
 * what the kernel still does late harms no block. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "ha.h"

enum { POISON = 0xee };

static void poison(batch_t *block) { memset(block->memory, POISON, block->memory_bytes); }

static void check_poison(const batch_t *block)
{
    for (size_t at = 0; at < block->memory_bytes; at++)
        if (block->memory[at] != POISON) FAIL("byte %zu of the caller's memory was written", at);
}

/* R30: the task is over, by its limit or through another backend; the read is let go, as it is,
 * flipped, short or failing: the memory stays as it is. */
static void hung_read(int n, bool buffered, const char *op, const char *late)
{
    rig_t rig;
    rig_start(&rig, n, (options_t){.shape = whole, .buffered = buffered, .timeout_ms = 2000});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "%s %s always hang", op, file_of(block));
    if (late != NULL) fault(&rig, 0, "read %s always %s", file_of(block), late);
    kvpath_task_t task = begin_load(&rig, block);
    kvpath_status_t status = finish(&rig, task);
    CHECK_EQ(status, n > 1 ? KVPATH_OK : KVPATH_TIMEOUT);
    if (n > 1) batch_check(block);
    poison(block);
    CHECK(hung(&rig, 0) >= 1);
    wait_abandoned(&rig, 0, 1);
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, 1); /* the library has the bytes, and keeps them */
    check_poison(block);
    /* R5: no step follows one that was given up; what io_uring has linked is one step. */
    if (strcmp(op, "open") == 0 && strcmp(ha_engine(), "io_uring") != 0)
        CHECK_EQ(seen(&rig, 0, "read", file_of(block)), 0);
    rig_stop(&rig);
    check_poison(block);
}

/* How many workers of backend 0 are in system call `number`. */
static int workers_in(long number)
{
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    int count = 0;
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char name[32] = "", call[32] = "";
        FILE *file = fopen(text("/proc/self/task/%s/comm", task->d_name), "r");
        if (file != NULL && fscanf(file, "%31s", name) != 1) name[0] = '\0';
        if (file != NULL) fclose(file);
        if (strncmp(name, "ucm_posix_0_", 12) != 0) continue;
        file = fopen(text("/proc/self/task/%s/syscall", task->d_name), "r");
        if (file != NULL && fscanf(file, "%31s", call) != 1) call[0] = '\0';
        if (file != NULL) fclose(file);
        count += strtol(call, NULL, 10) == number;
    }
    closedir(tasks);
    return count;
}

/* That the cases here are about the engine they name: what hangs is in a worker's call with psync
 * only, since on FUSE the others' reads, and writes of Linux AIO, are requests. */
CASE(the_engine_has_what_hangs)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole});
    batch_t *read = block_on(&rig, 0, 0), *written = block_on(&rig, 0, 1);
    dump_batch(rig.store, read);
    batch_fill(written);
    fault(&rig, 0, "read,write data/* always hang");
    kvpath_task_t load = begin_load(&rig, read);
    wait_hung(&rig, 0, 1, "read");
    CHECK_EQ(workers_in(SYS_pread64), strcmp(ha_engine(), "psync") == 0);
    kvpath_task_t dump = begin_dump(&rig, written);
    wait_hung(&rig, 0, 1, "write");
    bool rings_write = getenv("KVPATH_FAULT_FUSE_IS_NETWORK") != NULL;
    CHECK_EQ(workers_in(SYS_pwrite64), strcmp(ha_engine(), "aio") != 0 && !rings_write);
    heal(&rig, 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, load));
    CHECK_OK(finish(&rig, dump));
    batch_check(read);
    rig_stop(&rig);
}

CASE(a_late_read_does_not_touch_the_callers_memory)
{
    hung_read(1, false, "read", NULL);
    hung_read(1, true, "read", NULL);
    hung_read(2, false, "read", NULL);
    hung_read(2, true, "read", NULL);
    hung_read(2, false, "read", "flip");
    hung_read(2, false, "open", NULL);
    hung_read(1, true, "open", NULL);
    hung_read(2, false, "getattr,open", NULL);
}

/* The memory may even be gone. */
CASE(a_late_read_into_memory_that_is_gone)
{
    rig_t rig;
    rig_start(&rig, 1, (options_t){.shape = whole, .timeout_ms = 1500});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "read %s always hang", file_of(block));
    void *memory = aligned_alloc(4096, whole.block);
    CHECK(memory != NULL);
    kvpath_shard_t shard = {*id_of(block), 0, 1, &memory};
    CHECK_STATUS(load(rig.store, &shard, 1), KVPATH_TIMEOUT);
    free(memory);
    wait_abandoned(&rig, 0, 1);
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    load_right(&rig, block);
    rig_stop(&rig);
}

/* R32, R100: borrowed memory is the caller's only when the kernel is done with it: the task waits,
 * whatever its limit says. */
CASE(borrowed_memory_is_waited_for)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 2000,
                                   .extra = ", \"buffer_mode\": \"borrowed\""});
    batch_t *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, block);
    fault(&rig, 0, "read %s always hang", file_of(block));
    kvpath_task_t task = begin_load(&rig, block);
    CHECK_STATUS(kvpath_wait(rig.store, task, 3000), KVPATH_RETRY); /* well past its limit */
    check_health(&rig, 0, ANY, ANY, 1); /* the window knows */
    heal(&rig, 0);
    release(&rig, 0);
    CHECK_OK(finish(&rig, task));
    batch_check(block);
    poison(block);
    rig_stop(&rig);
    check_poison(block);
}

/* R30, R32: and nobody waits for a file that is not open yet. When it is, the kernel gets no memory
 * of a task that is over, to read into or to write from. Aligned, so that each engine moves the
 * bytes itself, as direct I/O or, on the ring, in one call. */
static void late_open(bool buffered)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .buffered = buffered, .timeout_ms = 2000,
                                   .extra = ", \"buffer_mode\": \"borrowed\""});
    const batch_t *block = block_on(&rig, 0, 0);
    uint8_t *memory = aligned_alloc(4096, whole.block);
    CHECK(memory != NULL);
    void *address = memory;
    const kvpath_shard_t shard = {*id_of(block), 0, 1, &address};
    memset(memory, POISON, whole.block);
    fault(&rig, 0, "create data/* always hang");
    CHECK_OK(dump(rig.store, &shard, 1)); /* through 1 */
    wait_abandoned(&rig, 0, 1);
    heal(&rig, 0);
    forget_counts(&rig);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    wait_at_rest(&rig);
    CHECK_EQ(seen(&rig, 0, "write", "data/*"), 0);

    fault(&rig, 0, "open %s always hang", file_of(block));
    CHECK_OK(load(rig.store, &shard, 1));
    memset(memory, 0x77, whole.block);
    wait_abandoned(&rig, 0, 1);
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, 2);
    wait_at_rest(&rig);
    rig_stop(&rig);
    for (size_t at = 0; at < whole.block; at++) CHECK_EQ(memory[at], 0x77);
    free(memory);
}

CASE(a_late_open_uses_no_borrowed_memory)
{
    late_open(false);
    late_open(true);
}

/* ---- R5: late writes ---- */

/* The same block with other bytes. */
static void other_bytes(batch_t *block)
{
    for (size_t at = 0; at < block->count * block->tensors; at++)
        memset(block->addrs[at], 0x77, block->shape.tensor);
}

static void check_other_bytes(rig_t *rig, const batch_t *block)
{
    size_t bytes = 0;
    uint8_t *content = read_file(block_path(rig->storage, id_of(block), 0), &bytes);
    CHECK(content != NULL);
    CHECK_EQ(bytes, block->shape.block);
    for (size_t at = 0; at < bytes; at++)
        if (content[at] != 0x77) FAIL("byte %zu of the block is of the old dump", at);
    free(content);
}

/* A step of the first dump hangs on one backend while another finishes it. The block is removed and
 * dumped anew with other bytes; then the old step is let go. */
static void late_step(const char *op, options_t options)
{
    rig_t rig;
    options.shape = whole;
    options.threshold = 1;
    options.timeout_ms = 3000;
    rig_start(&rig, 3, options);
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "%s data/* count=1 hang", op);
    CHECK_OK(dump(rig.store, block->shards, block->count));
    CHECK_EQ(hung(&rig, 0), 1);
    long long writes = seen(&rig, 0, "write", files_of(block));
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    CHECK_EQ(state_of(&rig, 0), KVPATH_BACKEND_EXCLUDED);
    CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    CHECK(!present(rig.store, id_of(block)));
    other_bytes(block);
    CHECK_OK(dump(rig.store, block->shards, block->count));
    poison(block);
    heal(&rig, 0);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    CHECK_EQ(seen(&rig, 0, "write", files_of(block)), writes); /* R5: no further step */
    check_other_bytes(&rig, block);
    check_poison(block);
    rig_stop(&rig); /* no temporary of either dump is left */
    check_other_bytes(&rig, block);
}

CASE(a_late_create_harms_no_later_dump)
{
    late_step("create", (options_t){0});
    late_step("create", (options_t){.buffered = true});
}

CASE(a_late_write_harms_no_later_dump)
{
    late_step("write", (options_t){0});
    late_step("write", (options_t){.buffered = true});
}

CASE(a_late_rename_harms_no_later_dump)
{
    late_step("rename", (options_t){0});
    late_step("rename", (options_t){.buffered = true});
}

CASE(a_late_flush_harms_no_later_dump)
{
    late_step("flush", (options_t){0});
}

/* R5, R40: a creation that is let go late makes the temporary's name again. No rename may wait
 * behind it: where the file system cannot tell that the block is there it would replace it. */
CASE(a_late_create_is_not_renamed_over_the_block)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = whole, .timeout_ms = 3000});
    for (int at = 0; at < 3; at++) fault(&rig, at, "rename-flags * always fail EINVAL");
    batch_t *first = block_on(&rig, 0, 10), *block = block_on(&rig, 0, 0);
    dump_batch(rig.store, first); /* from now on the plain form is used */
    fault(&rig, 0, "create data/* count=1 hang");
    CHECK_OK(dump(rig.store, block->shards, block->count));
    CHECK_EQ(hung(&rig, 0), 1);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
    load_right(&rig, block);
    rig_stop(&rig);
    check_file(block_path(rig.storage, id_of(block), 0), id_of(block), whole.block);
}

/* R5, R42: where the write hangs on every path the generation is closed: a later dump starts
 * another one, with every shard, and the old bytes never get into it. */
CASE(a_generation_with_hung_writes_is_never_committed)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = pair, .timeout_ms = 4000, .window = 64, .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    CHECK_OK(dump(rig.store, &block->shards[0], 1)); /* the first shard is written */
    for (int at = 0; at < 2; at++) fault(&rig, at, "write data/* count=1 hang");
    CHECK_STATUS(dump(rig.store, &block->shards[1], 1), KVPATH_TIMEOUT);
    for (int at = 0; at < 2; at++) CHECK_EQ(hung(&rig, at), 1);
    CHECK_EQ(stats_of(rig.store).closed_generations, 1);
    other_bytes(block);
    CHECK_OK(dump(rig.store, &block->shards[1], 1));
    CHECK(!exists(block_path(rig.storage, id_of(block), 0))); /* shard 0 is needed again */
    CHECK_OK(dump(rig.store, &block->shards[0], 1));
    check_other_bytes(&rig, block);
    for (int at = 0; at < 2; at++) release(&rig, at);
    wait_at_rest(&rig);
    check_other_bytes(&rig, block);
    rig_stop(&rig);
    check_other_bytes(&rig, block);
}

/* The same where the caller drops the block (kvpath_commit(id, false)) while its write hangs. */
CASE(a_dropped_block_is_not_written_late)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 4000, .window = 64, .threshold = 64,
                                   .extra = ", \"commit_policy\": \"explicit\""});
    batch_t *block = block_on(&rig, 0, 0);
    fault(&rig, 0, "write data/* count=1 hang");
    kvpath_task_t task = begin_dump(&rig, block);
    wait_hung(&rig, 0, 1, "write");
    CHECK_OK(kvpath_commit(rig.store, id_of(block), false));
    CHECK(finish(&rig, task) != KVPATH_OK);
    other_bytes(block);
    CHECK_OK(dump(rig.store, block->shards, block->count));
    CHECK_OK(kvpath_commit(rig.store, id_of(block), true));
    poison(block);
    release(&rig, 0);
    check_other_bytes(&rig, block);
    rig_stop(&rig);
    check_other_bytes(&rig, block);
    check_poison(block);
}

/* What was begun before the task's end has come as far as it comes. */
static bool all_hangs(void *argument)
{
    rig_t *rig = argument;
    for (int at = 0; at < rig->n; at++) {
        const kvpath_backend_health_t health = health_of(rig, at);
        /* One operation of a path, but maybe several requests. */
        if (health.in_flight + health.abandoned > 0 && hung(rig, at) == 0) return false;
    }
    return true;
}

/* R30: after the task's end the caller's bytes are not read any more: neither a retry of a write nor
 * the next piece of a large one. */
static void no_write_after(shape_t shape, const char *errno_name, long long rest)
{
    rig_t rig;
    rig_start(&rig, 3, (options_t){.shape = shape, .timeout_ms = 3000, .window = 64,
                                   .threshold = 64});
    batch_t *block = block_on(&rig, 0, 0);
    for (int at = 0; at < 3; at++) fault(&rig, at, "write data/* always hang");
    CHECK_STATUS(dump(rig.store, block->shards, block->count), KVPATH_TIMEOUT);
    const char *file = file_of(block);
    /* From now on whoever reads it dies of it. */
    CHECK(mprotect(block->memory, block->memory_bytes / 4096 * 4096, PROT_NONE) == 0);
    wait_for("that all that runs hangs", all_hangs, &rig);
    forget_counts(&rig);
    for (int at = 0; at < 3; at++) {
        heal(&rig, at);
        if (errno_name != NULL)
            release_failing(&rig, at, errno_name);
        else
            release(&rig, at);
    }
    wait_at_rest(&rig);
    CHECK_OK(kvpath_close(rig.store));
    for (int at = 0; at < 3; at++) {
        long long writes = seen(&rig, at, "write", "data/*");
        CHECK(writes >= 0 && writes <= rest);
        CHECK_EQ(seen(&rig, at, "create", "data/*"), 0);
        CHECK_EQ(seen(&rig, at, "rename", "data/*"), 0);
        CHECK_EQ(faultfs_stop(&rig.fs[at]), 0);
    }
    CHECK(!exists(text("%s/%s", rig.storage, file)));
    CHECK_EQ(count_files(rig.storage, ".tmp"), 0);
    CHECK(mprotect(block->memory, block->memory_bytes / 4096 * 4096, PROT_READ | PROT_WRITE) == 0);
}

CASE(no_write_is_tried_again_after_the_task)
{
    no_write_after(whole, "EIO", 0);
    no_write_after(whole, NULL, 0);
}

CASE(no_piece_is_written_after_the_task)
{
    static const shape_t large = {8 << 20, 8 << 20, 8 << 20};
    /* A piece is one call of 2 MiB, which FUSE cuts into requests of 1 MiB: the second one is sent
     * when the first is answered. Of the other three pieces there is none. */
    no_write_after(large, NULL, 1);
}

static bool is_gone(void *path)
{
    return !exists(path);
}

static bool is_there(void *path)
{
    return exists(path);
}

/* R23: a file that is no whole block is moved to quarantine by a rename that hangs, and then through
 * the next path; the block is dumped again. The first rename, let go then, takes it away for a
 * moment only. */
static void late_quarantine(const char *then)
{
    rig_t rig;
    rig_start(&rig, 2, (options_t){.shape = whole, .timeout_ms = 2000, .window = 64, .threshold = 64,
                                   .extra = ", \"quarantine\": true"});
    batch_t *block = block_on(&rig, 0, 0);
    const char *path = text("%s/%s", rig.storage, file_of(block));
    CHECK(mkdir(text("%s/.quarantine", rig.storage), 0774) == 0);
    write_file(path, "short", 5);
    fault(&rig, 0, "rename .quarantine/* always hang");
    CHECK_STATUS(finish(&rig, begin_load(&rig, block)), KVPATH_NOT_FOUND);
    wait_hung(&rig, 0, 1, "rename");
    wait_for("the file is moved through the other path", is_gone, (void *)path);
    heal(&rig, 0);
    dump_batch(rig.store, block);
    CHECK_EQ(hung(&rig, 0), 1);
    if (then) fault(&rig, 0, "%s", then);
    release(&rig, 0);
    wait_late_results(&rig, 1);
    wait_for("the block is there", is_there, (void *)path);
    load_right(&rig, block);
    CHECK_OK(kvpath_remove(rig.store, id_of(block), 1));
    CHECK(!exists(path));
    rig_stop(&rig);
}

CASE(a_late_quarantine_takes_no_block_dumped_meanwhile)
{
    late_quarantine(NULL);
    late_quarantine("lookup .quarantine/?* count=2 fail EIO"); /* what it took cannot be seen */
    late_quarantine("rename-flags data/* always fail EEXIST"); /* as a client may remember it */
    late_quarantine("rename-flags * always fail EINVAL");
}
