// The adapter for the C++ pipeline, driven through the pipeline's interface (a stand-in of it), in
// its oldest and its newest version: this file is compiled once with each, and with the real one
// where KVPATH_UCM_DIR names a checkout.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "check.h"
#include "json.h"
#include "kvpath/ucm_store_v1.hpp"

extern "C" UC::StoreV1 *MakePosixStore() { return new kvpath::UcmStoreV1; }

namespace
{

const shape_t shape = {4096, 8192, 32768}; // 4 shards of 2 tensors

// As the pipeline fills it: numbers as ssize_t, other stages' keys beside ours.
UC::Detail::Dictionary dictionary(const std::string &root)
{
    UC::Detail::Dictionary config;
    config.Set("storage_backends", std::vector<std::string>{root});
    config.SetNumber("device_id", 0);
    config.SetNumber("tensor_size", shape.tensor);
    config.SetNumber("shard_size", shape.shard);
    config.SetNumber("block_size", shape.block);
    config.Set("posix_io_engine", std::string("psync"));
    config.Set("io_direct", false);
    config.SetNumber("data_dir_shard_bytes", 0);
    config.Set("cpu_affinity_cores", std::vector<std::any>{}); // what it makes of []
    config.SetNumber("share_buffer_enable", 1); // another stage's
    config.Set<UC::StoreV1 *>("store_backend", nullptr);
    return config;
}

std::unique_ptr<UC::StoreV1> set_up(const UC::Detail::Dictionary &config)
{
    std::unique_ptr<UC::StoreV1> store(MakePosixStore());
    const auto status = store->Setup(config);
    if (status.Failure()) FAIL("Setup: %s", status.ToString().c_str());
    return store;
}

UC::Detail::BlockId owner(uint64_t number)
{
    const kvpath_block_id_t id = block_id(number);
    UC::Detail::BlockId owner;
    std::memcpy(owner.data(), id.bytes, owner.size());
    return owner;
}

UC::Detail::TaskDesc task_of(const batch_t *blocks)
{
    UC::Detail::TaskDesc task;
    task.brief = "test";
    for (size_t at = 0; at < blocks->count; at++) {
        const kvpath_shard_t &shard = blocks->shards[at];
        UC::Detail::Shard each;
        std::memcpy(each.owner.data(), shard.block.bytes, each.owner.size());
        each.index = shard.index;
        each.addrs.assign(shard.addrs, shard.addrs + shard.addr_count);
        task.push_back(each);
    }
    return task;
}

template <class T> T value(UC::Expected<T> expected)
{
    if (!expected) FAIL("%s", expected.Error().ToString().c_str());
    return expected.Value();
}

template <class T> void check_error(const UC::Expected<T> &expected, int32_t code)
{
    CHECK(!expected);
    CHECK_EQ(expected.Error().Underlying(), code);
    CHECK(expected.Error().ToString().size() > 12); // the text came along
}

} // namespace

CASE(dump_wait_lookup_load)
{
    auto store = set_up(dictionary(temp_dir()));
    batch_t *blocks = batch(shape, 1, 6, 0);
    batch_fill(blocks);
    const auto dumped = value(store->Dump(task_of(blocks)));
    CHECK(dumped != 0);
    CHECK(store->Wait(dumped).Success());
    std::vector<UC::Detail::BlockId> ids;
    for (uint64_t number = 1; number < 10; number++) ids.push_back(owner(number));
    const auto found = value(store->Lookup(ids.data(), ids.size()));
    CHECK_EQ(found.size(), ids.size());
    for (size_t at = 0; at < found.size(); at++) CHECK_EQ(found[at], at < 6);
    CHECK_EQ(value(store->LookupOnPrefix(ids.data(), ids.size())), 5);
    CHECK_EQ(value(store->LookupOnPrefix(ids.data() + 6, 3)), -1);
    store->Prefetch(ids.data(), ids.size());
    batch_wipe(blocks);
    const auto loaded = value(store->Load(task_of(blocks)));
    CHECK(loaded > dumped); // the cache stage relies on it
    while (!value(store->Check(loaded))) std::this_thread::yield();
    CHECK(store->Wait(loaded).Success());
    batch_check(blocks);
    CHECK_HAS(store->Readme().c_str(), "kvpath");
}

CASE(newer_functions)
{
    const std::string root = temp_dir();
    auto store = set_up(dictionary(root));
    batch_t *blocks = batch(shape, 1, 3, 0);
    batch_fill(blocks);
    CHECK(store->Wait(value(store->Dump(task_of(blocks)))).Success());
    const UC::Detail::BlockId ids[] = {owner(77), owner(2), owner(78), owner(3), owner(79)};
#ifdef KVPATH_TEST_UCM_NEWER
    UC::StoreV1 *face = store.get(); // through the interface: they do override
#else
    auto *face = static_cast<kvpath::UcmStoreV1 *>(store.get());
#endif
    CHECK(face->CheckHealth().Success());
    CHECK_EQ(value(face->LookupOnReverse(ids, 5)), 3);
    CHECK_EQ(value(face->LookupOnReverse(ids, 1)), -1);
}

CASE(absent_device_is_lookup_only)
{
    const std::string root = temp_dir();
    batch_t *blocks = batch(shape, 1, 1, 0);
    {
        auto worker = set_up(dictionary(root));
        batch_fill(blocks);
        CHECK(worker->Wait(value(worker->Dump(task_of(blocks)))).Success());
    }
    UC::Detail::Dictionary config;
    config.Set("storage_backends", std::vector<std::string>{root});
    config.SetNumber("tensor_size", shape.tensor); // the sizes alone must not switch it on
    config.SetNumber("shard_size", shape.shard);
    config.SetNumber("block_size", shape.block);
    config.Set("io_direct", false);
    config.SetNumber("data_dir_shard_bytes", 0);
    auto scheduler = set_up(config);
    const auto id = owner(1);
    CHECK_EQ(value(scheduler->LookupOnPrefix(&id, 1)), 0);
    check_error(scheduler->Load(task_of(blocks)), KVPATH_UNSUPPORTED);
}

CASE(setup_failures_keep_code_and_text)
{
    const std::string root = temp_dir();
    auto fails = [](const UC::Detail::Dictionary &config, int32_t code, const char *part) {
        std::unique_ptr<UC::StoreV1> store(MakePosixStore());
        const auto status = store->Setup(config);
        CHECK_EQ(status.Underlying(), code);
        CHECK_HAS(status.ToString().c_str(), part);
    };
    fails(UC::Detail::Dictionary(), KVPATH_INVALID_PARAM, "storage_backends");
    auto config = dictionary(root);
    config.Set("timeout_ms", std::string("soon"));
    fails(config, KVPATH_INVALID_PARAM, "timeout_ms");
    config = dictionary(root);
    config.Set("timeout_ms", std::map<int, int>());
    fails(config, KVPATH_INVALID_PARAM, "timeout_ms");
    config = dictionary(root + "/absent");
    fails(config, KVPATH_STORE_UNHEALTHY, "/absent");
    auto store = set_up(dictionary(root));
    CHECK_EQ(store->Setup(dictionary(root)).Underlying(), KVPATH_INVALID_PARAM);
}

CASE(task_failures_keep_code_and_text)
{
    auto store = set_up(dictionary(temp_dir()));
    batch_t *absent = batch(shape, 5, 1, 0);
    const auto task = value(store->Load(task_of(absent)));
    const auto status = store->Wait(task);
    CHECK_EQ(status.Underlying(), KVPATH_NOT_FOUND);
    CHECK_HAS(status.ToString().c_str(), block_name(&absent->shards[0].block));
    check_error(store->Check(task), KVPATH_NOT_FOUND); // consumed
    CHECK_EQ(store->Wait(12345).Underlying(), KVPATH_NOT_FOUND);
    auto bad = task_of(absent);
    bad[0].index = size_t(1) << 32; // must not become 0
    check_error(store->Dump(bad), KVPATH_INVALID_PARAM);
    bad[0].index = 4;
    check_error(store->Dump(bad), KVPATH_INVALID_PARAM);
    bad[0].index = 0;
    bad[0].addrs.pop_back();
    check_error(store->Load(bad), KVPATH_INVALID_PARAM);
    std::unique_ptr<UC::StoreV1> unset(MakePosixStore());
    check_error(unset->Load(task_of(absent)), KVPATH_INVALID_PARAM);
    CHECK(unset->Wait(1).Failure());
}

// kvpath's own codes mean nothing to the pipeline: they become ERROR, the name stays in the text.
CASE(own_codes_become_error)
{
    auto store = set_up(dictionary(temp_dir()));
    CHECK_OK(kvpath_close(static_cast<kvpath::UcmStoreV1 *>(store.get())->Handle()));
    const auto status = store->Wait(1);
    CHECK_EQ(status.Underlying(), KVPATH_ERROR);
    CHECK_HAS(status.ToString().c_str(), "KVPATH_CLOSED");
}

// The pipeline's cache stage skips waiting for most handles, and after a failure for the rest.
CASE(handles_that_nobody_waits_for)
{
    auto store = set_up(dictionary(temp_dir()));
    batch_t *blocks = batch(shape, 1, 1, 0);
    batch_fill(blocks);
    UC::Detail::TaskHandle last = 0;
    for (int round = 0; round < 100; round++) {
        const auto task = value(store->Dump(task_of(blocks)));
        CHECK(task > last);
        last = task;
    }
    CHECK(store->Wait(last).Success());
}

// The keys of the configuration, as src/config/limits.rs lists them.
static std::set<std::string> known_keys()
{
    std::set<std::string> keys;
    std::ifstream source(KVPATH_TEST_KEYS);
    bool inside = false;
    for (std::string line; std::getline(source, line);) {
        if (line.find("pub const KEYS") == 0) inside = true;
        if (inside && line.find("];") == 0) return keys;
        const auto from = line.find('"'), to = line.rfind('"');
        if (inside && from != to) keys.insert(line.substr(from + 1, to - from - 1));
    }
    FAIL("no list of keys in %s", KVPATH_TEST_KEYS);
}

// A key that kvpath learns must reach it through the adapter, too.
CASE(every_key_is_passed)
{
    UC::Detail::Dictionary config, health;
    std::set<std::string> plain;
    std::string json, wrong;
    for (const auto &key : known_keys()) {
        const auto dot = key.find('.');
        if (dot == std::string::npos) {
            plain.insert(key);
            config.SetNumber(key, 1);
        } else {
            CHECK(key.substr(0, dot) == "store_health");
            health.SetNumber(key.substr(dot + 1), 1);
        }
    }
    CHECK(plain.size() > 40);
    const auto &keys = kvpath::UcmConfig::Keys();
    for (const auto &key : keys)
        if (plain.count(key) == 0) FAIL("%s is no key of kvpath", key.c_str());
    CHECK_EQ(keys.size(), plain.size());
    config.Set("store_health", health);
    CHECK(kvpath::UcmConfig::ToJson(config, json, wrong));
    for (const auto &key : known_keys()) {
        const auto name = key.substr(key.find('.') + 1); // all of it where there is no dot
        const char *value = name == "enabled" ? "false" : "1";
        CHECK_HAS(json.c_str(), ("\"" + name + "\":" + value).c_str());
    }
}

// The pipeline's own default is buffered: a file system that refuses direct I/O must go on working
// where nobody asked for it, and must be told of where somebody did.
CASE(absent_io_direct_may_fall_back)
{
    UC::Detail::Dictionary config;
    std::string json, wrong;
    const char *fallback = "\"io_direct_fallback\":true";
    CHECK(kvpath::UcmConfig::ToJson(config, json, wrong));
    CHECK_HAS(json.c_str(), fallback);
    config.Set("io_direct", true);
    CHECK(kvpath::UcmConfig::ToJson(config, json, wrong));
    CHECK(json.find("fallback") == std::string::npos);
    config = UC::Detail::Dictionary();
    config.Set("io_direct_fallback", false);
    CHECK(kvpath::UcmConfig::ToJson(config, json, wrong));
    CHECK_HAS(json.c_str(), "\"io_direct_fallback\":false");
    CHECK(json.find(fallback) == std::string::npos);
}

// kvpath takes absolute paths only; the pipeline's store takes any, so a relative one is meant from
// the working directory at Setup.
CASE(relative_paths_become_absolute)
{
    const std::string root = temp_dir();
    std::filesystem::create_directories(root + "/one/two");
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(root + "/one");
    auto config = dictionary("./two");
    auto store = set_up(config);
    config.Set("storage_backends", std::string("two:..:" + root));
    std::string json, wrong;
    CHECK(kvpath::UcmConfig::ToJson(config, json, wrong));
    const auto here = std::filesystem::current_path().string();
    CHECK_HAS(json.c_str(), (":\"" + here + "/two:" + here + "/..:" + root + "\"").c_str());
    std::filesystem::current_path(before);
    batch_t *blocks = batch(shape, 1, 1, 0);
    batch_fill(blocks);
    CHECK(store->Wait(value(store->Dump(task_of(blocks)))).Success());
    CHECK(exists(block_path((root + "/one/two").c_str(), &blocks->shards[0].block, 0)));
    std::unique_ptr<UC::StoreV1> empty(MakePosixStore());
    CHECK_EQ(empty->Setup(dictionary("")).Underlying(), KVPATH_INVALID_PARAM);
}

CASE(dictionary_becomes_json)
{
    UC::Detail::Dictionary config, health;
    std::string json, wrong;
    config.Set("storage_backends", std::string("/a \"b\"\\\n:/c"));
    config.SetNumber("timeout_ms", 8000000000);
    config.Set("io_direct", true);
    config.Set("posix_gc_recycle_percent", 0.1);
    config.Set("posix_gc_trigger_threshold_ratio", 0.5f);
    config.Set("cpu_affinity_cores", std::vector<ssize_t>{0, 3});
    config.Set("health_cores", std::vector<std::any>{});
    config.Set("block_size", size_t(1) << 40);
    config.Set("unknown to kvpath", std::string("x"));
    health.Set("enabled", true);
    health.Set("health_check_interval_s", 2.5);
    health.SetNumber("failure_threshold", 3);
    config.Set("store_health", health);
    CHECK(kvpath::UcmConfig::ToJson(config, json, wrong));
    CHECK_HAS(json_error(json.c_str()), "none");
    for (const char *part :
         {"\"storage_backends\":\"/a \\\"b\\\"\\\\\\u000a:/c\"", "\"timeout_ms\":8000000000",
          "\"io_direct\":true", "\"posix_gc_recycle_percent\":0.1",
          "\"posix_gc_trigger_threshold_ratio\":0.5", "\"cpu_affinity_cores\":[0,3]",
          "\"health_cores\":[]", "\"block_size\":1099511627776", "\"device_id\":-1",
          "\"enabled\":false", "\"health_check_interval_s\":2.5", "\"failure_threshold\":3"})
        CHECK_HAS(json.c_str(), part);
    CHECK(json.find("unknown") == std::string::npos);
    CHECK(json.find("\"enabled\":true") == std::string::npos);
}
