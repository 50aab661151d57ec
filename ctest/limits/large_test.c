/* Blocks of 3 GiB: more than one call of the kernel moves, and than a signed 32 bits count (R34). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "limits.h"

static const size_t large = (size_t)3 << 30;

/* So much of it is marked: at its ends and around what one call of the kernel can move. */
static const uint64_t marks[] = {0, 1u << 30, 0x7ffff000u - 4096, 0x7ffff000u, 0x7fffffffu - 8,
                                 0x80000000u, 0xa0000000u, ((uint64_t)3 << 30) - 8};
enum { MARKS = sizeof marks / sizeof *marks };

static uint8_t *reserve(void)
{
    uint8_t *memory = mmap(NULL, large, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) SKIP("no 3 GiB of addresses");
    return memory;
}

static uint64_t mark_of(size_t at) { return 0xabcdef0123456789u * (at + 1); }

/* A block of 3 GiB that is nothing but holes and marks: moving it costs no disk. */
static void write_sparse(const char *path)
{
    int file = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
    CHECK(file >= 0);
    CHECK(ftruncate(file, (off_t)large) == 0);
    for (size_t at = 0; at < MARKS; at++) {
        uint64_t mark = mark_of(at);
        CHECK(pwrite(file, &mark, sizeof mark, (off_t)marks[at]) == sizeof mark);
    }
    close(file);
}

static bool room_for(const char *dir, size_t bytes)
{
    struct statvfs facts;
    CHECK(statvfs(dir, &facts) == 0);
    return (uint64_t)facts.f_bavail * facts.f_frsize > bytes;
}

static bool memory_for(size_t bytes)
{
    long long pages = sysconf(_SC_AVPHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    return (uint64_t)(pages * page) > bytes;
}

static void check_marks(const uint8_t *memory)
{
    for (size_t at = 0; at < MARKS; at++) {
        uint64_t mark;
        memcpy(&mark, memory + marks[at], sizeof mark);
        if (mark != mark_of(at)) FAIL("the mark at %#llx is wrong", (unsigned long long)marks[at]);
    }
}

static const char *extra_of(const char *mode)
{
    return text(", \"buffer_mode\": \"%s\", \"timeout_ms\": 0", mode);
}

/* The shard of a large block. */
static kvpath_shard_t large_shard(kvpath_block_id_t id, void **address)
{
    return (kvpath_shard_t){.block = id, .index = 0, .addr_count = 1, .addrs = address};
}

/* The first transfer of a path is one of blocking calls, as all of psync are, whatever the engine,
 * which learns from it what file system that is: only those that follow are the engine's own. It
 * loads this sparse block, and leaves no memory used. */
static void teach(kvpath_store_t store, kvpath_block_id_t id, uint8_t *memory)
{
    void *address = memory;
    kvpath_shard_t shard = large_shard(id, &address);
    if (strcmp(engine(), "psync") == 0) return;
    CHECK_OK(load(store, &shard, 1));
    check_marks(memory);
    CHECK(madvise(memory, large, MADV_DONTNEED) == 0);
}

static void load_3_gib(const char *mode, bool direct)
{
    const char *root = temp_dir();
    const shape_t shape = {large, large, large};
    /* What is buffered is in the page cache, too. */
    if (!memory_for(large * (direct ? 2 : 3))) SKIP("too little memory");
    kvpath_store_t store =
        open_shown(direct ? direct_config(root, shape, extra_of(mode))
                          : config(text("[\"%s\"]", root), shape,
                                   text(", \"buffer_mode\": \"%s\"", mode)));
    uint8_t *memory = reserve();
    void *address = memory;
    kvpath_shard_t shard = large_shard(block_id(3), &address);
    madvise(memory, large, MADV_HUGEPAGE);
    write_sparse(block_path(root, &shard.block, 0));
    teach(store, shard.block, memory);
    const uint64_t before = stats_of(store).loaded_bytes;
    CHECK_OK(load(store, &shard, 1));
    check_marks(memory);
    CHECK_EQ(stats_of(store).loaded_bytes - before, large);
    check_nothing_counted(store);
    CHECK_OK(kvpath_close(store));
    munmap(memory, large);
}

CASE(block_of_3_gib_loads_isolated) { load_3_gib("isolated", true); }
CASE(block_of_3_gib_loads_borrowed) { load_3_gib("borrowed", true); }
CASE(block_of_3_gib_loads_isolated_buffered) { load_3_gib("isolated", false); }
CASE(block_of_3_gib_loads_borrowed_buffered) { load_3_gib("borrowed", false); }

/* A dump of memory that was never touched reads the kernel's one page of zeros. */
static void dump_3_gib(const char *mode)
{
    const char *root = temp_dir();
    const shape_t shape = {large, large, large};
    if (!room_for(root, large * 2)) SKIP("too little disk");
    if (!memory_for(large * 2)) SKIP("too little memory");
    kvpath_store_t store = open_shown(direct_config(root, shape, extra_of(mode)));
    uint8_t *memory = reserve();
    void *address = memory;
    kvpath_block_id_t sparse = block_id(3);
    kvpath_shard_t shard = large_shard(block_id(4), &address);
    write_sparse(block_path(root, &sparse, 0));
    teach(store, sparse, memory);
    for (size_t at = 0; at < MARKS; at++) {
        uint64_t mark = mark_of(at);
        memcpy(memory + marks[at], &mark, sizeof mark);
    }
    CHECK_OK(dump(store, &shard, 1));
    check_nothing_counted(store);
    int file = open(block_path(root, &shard.block, 0), O_RDONLY);
    CHECK(file >= 0);
    CHECK_EQ(lseek(file, 0, SEEK_END), (long long)large);
    for (size_t at = 0; at < MARKS; at++) {
        uint64_t mark;
        CHECK(pread(file, &mark, sizeof mark, (off_t)marks[at]) == sizeof mark);
        if (mark != mark_of(at)) FAIL("the mark at %#llx is wrong", (unsigned long long)marks[at]);
    }
    close(file);
    CHECK_OK(kvpath_close(store));
    munmap(memory, large);
}

CASE(block_of_3_gib_dumps_isolated) { dump_3_gib("isolated"); }
CASE(block_of_3_gib_dumps_borrowed) { dump_3_gib("borrowed"); }
