// kvpath.hpp: RAII, exceptions and their no-throw twins, linked and over dlopen().
#include <dlfcn.h>
#include <poll.h>

#include <type_traits>

#include "check.h"
#include "json.h"
#include "kvpath.hpp"

static_assert(!std::is_copy_constructible_v<kvpath::Store>, "a store has one owner");
static_assert(!std::is_copy_constructible_v<kvpath::Task>, "a task has one owner");
static_assert(!std::is_copy_constructible_v<kvpath::Memory>, "memory has one owner");
static_assert(std::is_nothrow_move_constructible_v<kvpath::Store>, "moves do not throw");
static_assert(std::is_nothrow_move_assignable_v<kvpath::Task>, "moves do not throw");

namespace
{

const shape_t small = {4096, 4096, 16384};

std::vector<kvpath::Shard> shards_of(const batch_t *blocks)
{
    return {blocks->shards, blocks->shards + blocks->count};
}

kvpath::Store open(const char *root) // a store can be returned
{
    return kvpath::Store(config(text("\"%s\"", root), small, ""));
}

} // namespace

CASE(round_trip)
{
    kvpath::Store store = open(temp_dir());
    batch_t *blocks = batch(small, 1, 4, 0);
    batch_fill(blocks);
    store.dump(shards_of(blocks)).wait();
    std::vector<kvpath::BlockId> ids;
    for (uint64_t number = 1; number <= 6; number++) ids.push_back(block_id(number));
    CHECK((store.lookup(ids) == std::vector<uint8_t>{1, 1, 1, 1, 0, 0}));
    CHECK_EQ(store.lookup_prefix(ids), 3);
    CHECK_EQ(store.lookup_last(ids), 3);
    batch_wipe(blocks);
    kvpath::Task task = store.load(shards_of(blocks));
    while (!task.wait_for(60000)) {
    }
    CHECK(!task);
    batch_check(blocks);
    store.remove({ids[0]});
    CHECK_EQ(store.lookup_last({ids[0]}), -1);
    CHECK(store.healthy());
    CHECK_EQ(store.stats().committed_blocks, 4);
    CHECK_HAS(json_error(store.stats_json().c_str()), "none");
    CHECK_HAS(json_error(store.health_json().c_str()), "none");
    store.close();
    CHECK(!store);
}

CASE(errors_are_exceptions)
{
    try {
        kvpath::Store store("{}");
        FAIL("no exception");
    } catch (const kvpath::Error &error) {
        CHECK_EQ(error.status(), KVPATH_INVALID_PARAM);
        CHECK_EQ(error.detail(), KVPATH_INVALID_PARAM);
        CHECK_HAS(error.what(), "KVPATH_INVALID_PARAM");
        CHECK_HAS(error.what(), "storage_backends");
    }
    const char *root = temp_dir();
    kvpath::Store store = open(root);
    batch_t *blocks = batch(small, 1, 1, 0);
    write_file(block_path(root, &blocks->shards[0].block, 0), "short", 5);
    kvpath::Task task = store.load(shards_of(blocks));
    try {
        task.wait();
        FAIL("no exception");
    } catch (const kvpath::Error &error) {
        CHECK_EQ(error.status(), KVPATH_NOT_FOUND);
        CHECK_EQ(error.detail(), KVPATH_CORRUPT);
    }
    CHECK(!task); // consumed all the same
}

CASE(no_throw_twins)
{
    kvpath::Store store;
    CHECK_EQ(store.try_open("{", kvpath::api()), KVPATH_INVALID_PARAM);
    CHECK(!store);
    CHECK_OK(store.try_open(config(text("\"%s\"", temp_dir()), small, ""), kvpath::api()));
    batch_t *blocks = batch(small, 1, 2, 0);
    batch_fill(blocks);
    kvpath::Task task;
    CHECK_OK(store.try_dump(blocks->shards, blocks->count, task));
    std::vector<kvpath::Status> statuses(blocks->count, 9);
    CHECK_EQ(task.try_wait(0, statuses.data(), 1), KVPATH_INVALID_PARAM);
    CHECK(bool(task)); // too little room keeps the handle
    CHECK_OK(task.try_wait(0, statuses.data(), statuses.size()));
    for (auto status : statuses) CHECK_EQ(status, KVPATH_OK);
    CHECK_OK(store.try_load(blocks->shards, blocks->count, task));
    CHECK_OK(task.try_wait(60000));
    uint8_t found = 9;
    CHECK_OK(store.try_lookup(&blocks->shards[0].block, 1, &found));
    CHECK_EQ(found, 1);
    CHECK_OK(store.try_close());
    CHECK_OK(store.try_close());
}

CASE(owners_move)
{
    const char *root = temp_dir();
    kvpath::Store first = open(root);
    const kvpath_store_t handle = first.handle();
    kvpath::Store second(std::move(first));
    CHECK(!first && second.handle() == handle);
    second = open(root); // closes the one that it had
    CHECK_STATUS(kvpath_check_health(handle), KVPATH_CLOSED);
    batch_t *blocks = batch(small, 1, 8, 0);
    batch_fill(blocks);
    kvpath::Task task = second.dump(shards_of(blocks));
    kvpath::Task moved(std::move(task));
    CHECK(!task && moved);
    moved.wait();
    moved = second.dump(shards_of(blocks));
    moved = kvpath::Task(); // waits for the one that it had
    CHECK_EQ(second.stats().queued_shards, 0);
    kvpath::Memory memory(1 << 20), other(std::move(memory));
    CHECK(memory.data() == nullptr && memory.size() == 0);
    CHECK(other.data() != nullptr && other.size() == 1 << 20);
    memory = std::move(other);
    CHECK(memory.data() != nullptr && other.data() == nullptr);
}

CASE(task_ends_before_its_memory)
{
    kvpath::Store store = open(temp_dir());
    for (int round = 0; round < 50; round++) {
        kvpath::Memory memory(small.block);
        void *addrs[] = {memory.data()};
        kvpath::Shard shard{};
        shard.block = block_id(7);
        shard.addr_count = 1;
        shard.addrs = addrs;
        kvpath::Task task = store.dump(&shard, 1);
        // Gone with the task first: the destructor waits, AddressSanitizer would see it otherwise.
    }
}

CASE(finished_and_event)
{
    kvpath::Store store = open(temp_dir());
    batch_t *blocks = batch(small, 1, 1, 0);
    batch_fill(blocks);
    kvpath::Task task = store.dump(shards_of(blocks));
    pollfd event = {store.event_fd(), POLLIN, 0};
    CHECK_EQ(poll(&event, 1, 60000), 1);
    const auto listed = store.finished();
    CHECK(listed.size() == 1 && listed[0] == task.handle());
    CHECK(task.finished());
    task.wait();
}

CASE(explicit_commit)
{
    kvpath::Store store(
        config(text("\"%s\"", temp_dir()), small, ", \"commit_policy\": \"explicit\""));
    batch_t *block = batch(small, 1, 1, 0);
    batch_fill(block);
    store.dump(shards_of(block)).wait();
    CHECK_EQ(store.lookup_prefix({block_id(1)}), -1);
    store.commit(block_id(1));
    CHECK_EQ(store.lookup_prefix({block_id(1)}), 0);
}
