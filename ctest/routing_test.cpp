// R14, R15: which backend a block goes to. The library shows its hash by where it puts files, so
// the backends here are different directories, each a storage of its own.
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"

namespace
{

const shape_t tiny = {64, 64, 64};

// Roots that are different storages: each was opened alone once, so each has its own marker (R8).
std::vector<std::string> storages(size_t count)
{
    std::vector<std::string> roots;
    for (size_t at = 0; at < count; at++) {
        roots.emplace_back(temp_dir());
        CHECK_OK(kvpath_close(open_root(roots.back().c_str(), tiny, "")));
    }
    return roots;
}

std::string list_of(const std::vector<std::string> &roots)
{
    std::string list = "[";
    for (const auto &root : roots) list += (list.size() > 1 ? ", \"" : "\"") + root + "\"";
    return list + "]";
}

size_t real_hash(const kvpath_block_id_t &id)
{
    char bytes[sizeof id.bytes];
    std::memcpy(bytes, id.bytes, sizeof bytes);
    return std::hash<std::string_view>{}(std::string_view(bytes, sizeof bytes));
}

// Dumps one-shard blocks and checks that each file is in the root of its primary and no other.
void check_routes(size_t backends, const std::vector<kvpath_block_id_t> &ids)
{
    const auto roots = storages(backends);
    kvpath_store_t store = open_store(config(list_of(roots).c_str(), tiny, ""));
    std::vector<uint8_t> memory(tiny.block * ids.size(), 7);
    std::vector<void *> addrs(ids.size());
    std::vector<kvpath_shard_t> shards(ids.size());
    for (size_t at = 0; at < ids.size(); at++) {
        addrs[at] = memory.data() + at * tiny.block;
        shards[at] = kvpath_shard_t{ids[at], 0, 1, &addrs[at]};
    }
    CHECK_OK(dump(store, shards.data(), shards.size()));
    for (const auto &id : ids) {
        const size_t primary = real_hash(id) % backends;
        for (size_t root = 0; root < backends; root++)
            if (exists(block_path(roots[root].c_str(), &id, 0)) != (root == primary))
                FAIL("block %s is not where H %% %zu = %zu says", block_name(&id), backends,
                     primary);
    }
    CHECK_OK(kvpath_close(store));
}

} // namespace

CASE(hash_is_std_hash_for_10000_random_ids)
{
    std::mt19937_64 random(20240607); // seeded: a failing id can be found again
    std::vector<kvpath_block_id_t> ids(10000);
    for (auto &id : ids) {
        const uint64_t words[2] = {random(), random()};
        std::memcpy(id.bytes, words, sizeof id.bytes);
    }
    check_routes(7, ids);
}

CASE(hash_is_std_hash_for_special_ids)
{
    std::vector<kvpath_block_id_t> ids;
    for (int byte : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
        kvpath_block_id_t id;
        std::memset(id.bytes, byte, sizeof id.bytes);
        ids.push_back(id);
    }
    for (size_t at = 0; at < 16; at++) {
        kvpath_block_id_t id = {};
        id.bytes[at] = 0x80; // sign extension shows here
        ids.push_back(id);
    }
    check_routes(5, ids);
}

CASE(modulus_is_the_number_of_backends)
{
    std::vector<kvpath_block_id_t> ids;
    for (uint64_t number = 0; number < 200; number++) ids.push_back(block_id(number));
    for (size_t backends : {1, 2, 3, 4, 8, 64}) check_routes(backends, ids);
}

// Loads, lookups and removes take the dump's route (R17).
CASE(every_operation_takes_the_same_route)
{
    const auto roots = storages(4);
    kvpath_store_t store = open_store(config(list_of(roots).c_str(), tiny, ""));
    batch_t *blocks = batch(tiny, 500, 100, 0);
    dump_batch(store, blocks);
    load_batch(store, blocks);
    std::vector<kvpath_block_id_t> ids;
    for (size_t at = 0; at < blocks->count; at++) ids.push_back(blocks->shards[at].block);
    std::vector<uint8_t> found(ids.size(), 9);
    CHECK_OK(kvpath_lookup(store, ids.data(), ids.size(), found.data()));
    for (uint8_t each : found) CHECK_EQ(each, 1);
    CHECK_OK(kvpath_remove(store, ids.data(), ids.size()));
    for (const auto &root : roots) CHECK_EQ(count_files((root + "/data").c_str(), nullptr), 0);
    CHECK_OK(kvpath_close(store));
}
