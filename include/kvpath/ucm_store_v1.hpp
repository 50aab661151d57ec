// The C++ pipeline's store interface (class UC::StoreV1) over kvpath, header only. MIT licence.
//
// Include it where the pipeline's own "ucmstore_v1.h" is on the include path, link with libkvpath,
// and give the pipeline a plug-in with a maker function:
//
//     #include <kvpath/ucm_store_v1.hpp>
//     extern "C" UC::StoreV1 *MakePosixStore() { return new kvpath::UcmStoreV1; }
//
// (kvpath's own build makes it with -DKVPATH_UCM_DIR=/path/to/the/pipeline.)
//
// It fits every version of the interface whose block ids have 16 bytes, with CheckHealth and
// LookupOnReverse and without: these two have no `override`. What it decides: an absent device_id
// is -1 (lookups only); relative paths start at the working directory; an absent io_direct is
// "direct where the file system takes it", since the pipeline's own default is buffered and works
// everywhere; kvpath's outer breaker is off, because the pipeline wraps its own around each stage.
// The pipeline's cache stage skips the wait for handles below the last one it waited for, and after
// a failure never waits for the rest; kvpath's handles only grow, and results that nobody asks for
// are kept, the oldest go first.
#ifndef KVPATH_UCM_STORE_V1_HPP
#define KVPATH_UCM_STORE_V1_HPP

#include <sys/types.h>

#include <any>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <locale>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "../kvpath.h"
#include "ucmstore_v1.h"

namespace kvpath
{

// The pipeline's dictionary as the JSON object that kvpath_open() takes.
class UcmConfig
{
  public:
    // Keys that kvpath knows, `store_health` apart; the dictionary also holds those of the other
    // stages, and cannot be listed, so a key that is spelt wrongly is not seen.
    static const std::vector<std::string> &Keys()
    {
        static const std::vector<std::string> keys = {"storage_backends",
                                                      "device_id",
                                                      "tensor_size",
                                                      "shard_size",
                                                      "block_size",
                                                      "posix_io_engine",
                                                      "io_direct",
                                                      "timeout_ms",
                                                      "lookup_timeout_ms",
                                                      "open_timeout_ms",
                                                      "data_dir_shard_bytes",
                                                      "posix_data_trans_concurrency",
                                                      "posix_lookup_concurrency",
                                                      "posix_open_concurrency",
                                                      "posix_commit_concurrency",
                                                      "max_queued_shards",
                                                      "buffer_mb_max",
                                                      "cpu_affinity_cores",
                                                      "health_cores",
                                                      "startup_policy",
                                                      "require_same_storage",
                                                      "create_storage",
                                                      "commit_policy",
                                                      "commit_sync",
                                                      "buffer_mode",
                                                      "failure_scope",
                                                      "verify_mount",
                                                      "metadata_time_limits",
                                                      "io_direct_fallback",
                                                      "quarantine",
                                                      "strict",
                                                      "temp_ttl_s",
                                                      "close_timeout_ms",
                                                      "lookup_checks_size",
                                                      "posix_capacity_gb",
                                                      "posix_gc_enable",
                                                      "posix_gc_recycle_percent",
                                                      "posix_gc_precise_mode",
                                                      "posix_gc_candidate_extra_percent",
                                                      "posix_gc_concurrency",
                                                      "posix_gc_check_interval_sec",
                                                      "posix_gc_trigger_threshold_ratio",
                                                      "posix_gc_max_recycle_count_per_shard",
                                                      "posix_gc_shard_sample_ratio",
                                                      "posix_gc_task_timeout_ms",
                                                      "posix_gc_cross_instance_lock",
                                                      "posix_gc_heartbeat_interval_sec",
                                                      "posix_gc_stale_threshold_sec",
                                                      "reserve_free_percent",
                                                      "quarantine_ttl_s",
                                                      "dir_mode",
                                                      "file_mode"};
        return keys;
    }

    // Writes the object to `json`; otherwise `wrong` is the key whose type is not understood.
    static bool ToJson(const UC::Detail::Dictionary &config, std::string &json, std::string &wrong)
    {
        json = "{";
        for (const auto &key : Keys()) {
            std::string value;
            if (!config.Contains(key)) continue;
            if (!(key == "storage_backends" && Paths(config, key, value)) &&
                !Value(config, key, value))
                return wrong = key, false;
            json += Text(key) + ":" + value + ",";
        }
        if (!config.Contains("device_id")) json += "\"device_id\":-1,";
        if (!config.Contains("io_direct") && !config.Contains("io_direct_fallback"))
            json += "\"io_direct_fallback\":true,";
        json += "\"store_health\":{\"enabled\":false";
        if (config.Contains("store_health")) {
            UC::Detail::Dictionary health;
            if (!Take(config, "store_health", health)) return wrong = "store_health", false;
            for (const char *key : {"health_check_interval_s", "health_check_timeout_s",
                                    "health_window_size", "failure_threshold"}) {
                std::string value;
                if (!health.Contains(key)) continue;
                if (!Value(health, key, value)) return wrong = key, false;
                json += "," + Text(key) + ":" + value;
            }
        }
        json += "}}";
        return true;
    }

  private:
    template <class T>
    static bool Take(const UC::Detail::Dictionary &config, const std::string &key, T &target)
    {
        try {
            config.Get(key, target);
            return true;
        } catch (const std::bad_any_cast &) {
            return false;
        }
    }

    static std::string Text(const std::string &text)
    {
        static const char digits[] = "0123456789abcdef";
        std::string json = "\"";
        for (const char byte : text) {
            if (byte == '"' || byte == '\\') {
                json += '\\';
                json += byte;
            } else if (static_cast<unsigned char>(byte) < 0x20) {
                json += "\\u00";
                json += digits[byte >> 4];
                json += digits[byte & 15];
            } else {
                json += byte;
            }
        }
        return json + "\"";
    }
    static std::string Json(const std::string &value) { return Text(value); }
    static std::string Json(const char *value) { return value ? Text(value) : "null"; }
    static std::string Json(bool value) { return value ? "true" : "false"; }
    static std::string Json(double value)
    {
        if (!std::isfinite(value)) return "\"not a number\""; // refused with the key's name
        std::ostringstream stream;
        stream.imbue(std::locale::classic()); // never a comma
        stream.precision(std::numeric_limits<double>::max_digits10);
        stream << value;
        return stream.str();
    }
    static std::string Json(float value) { return Json(static_cast<double>(value)); }
    template <class T> static std::string Json(T value) { return std::to_string(value); }
    template <class T> static std::string Json(const std::vector<T> &values)
    {
        std::string json = "[";
        for (std::size_t at = 0; at < values.size(); at++) {
            if (at != 0) json += ",";
            json += Json(static_cast<T>(values[at])); // vector<bool> gives proxies
        }
        return json + "]";
    }

    // The pipeline's store takes relative paths, kvpath does not: they are meant from the working
    // directory of now.
    static std::string Absolute(const std::string &path)
    {
        std::error_code failed;
        const auto whole = std::filesystem::absolute(path, failed);
        return path.empty() || failed ? path : whole.string(); // kvpath says what is wrong
    }
    static bool Paths(const UC::Detail::Dictionary &config, const std::string &key,
                      std::string &json)
    {
        std::vector<std::string> paths;
        if (Take(config, key, paths)) {
            for (auto &path : paths) path = Absolute(path);
            json = Json(paths);
            return true;
        }
        std::string list, joined;
        if (!Take(config, key, list)) return false;
        for (std::size_t from = 0, to = 0; to != std::string::npos; from = to + 1) {
            to = list.find(':', from);
            joined += (from == 0 ? "" : ":") + Absolute(list.substr(from, to - from));
        }
        json = Json(joined);
        return true;
    }

    template <class... T>
    static bool AnyOf(const UC::Detail::Dictionary &config, const std::string &key,
                      std::string &json)
    {
        return (One<T>(config, key, json) || ...);
    }
    // What the pipeline makes of a list without elements, whose type it cannot know.
    static bool EmptyList(const UC::Detail::Dictionary &config, const std::string &key,
                          std::string &json)
    {
        std::vector<std::any> values;
        if (!Take(config, key, values) || !values.empty()) return false;
        json = "[]";
        return true;
    }
    template <class T>
    static bool One(const UC::Detail::Dictionary &config, const std::string &key, std::string &json)
    {
        T value{};
        if (!Take(config, key, value)) return false;
        json = Json(value);
        return true;
    }
    static bool Value(const UC::Detail::Dictionary &config, const std::string &key,
                      std::string &json)
    {
        return EmptyList(config, key, json) ||
               AnyOf<std::string, ssize_t, bool, double, std::vector<std::string>,
                     std::vector<ssize_t>, std::vector<double>, std::vector<bool>, int, unsigned,
                     std::size_t, long long, unsigned long long, float, const char *,
                     std::vector<int>, std::vector<unsigned>, std::vector<std::size_t>,
                     std::vector<float>>(config, key, json);
    }
};

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Winconsistent-missing-override" // two may be missing, see above
#endif
class UcmStoreV1 : public UC::StoreV1
{
    using BlockId = UC::Detail::BlockId;
    using TaskHandle = UC::Detail::TaskHandle;
    static_assert(sizeof(BlockId) == sizeof(kvpath_block_id_t), "a block id is 16 bytes");

  public:
    UcmStoreV1() = default;
    UcmStoreV1(const UcmStoreV1 &) = delete;
    UcmStoreV1 &operator=(const UcmStoreV1 &) = delete;
    ~UcmStoreV1() override
    {
        if (store_ != 0) kvpath_close(store_);
    }

    UC::Status Setup(const UC::Detail::Dictionary &config) override
    {
        std::string json, wrong;
        if (store_ != 0) return UC::Status{KVPATH_INVALID_PARAM, "the store is set up already"};
        if (!UcmConfig::ToJson(config, json, wrong))
            return UC::Status{KVPATH_INVALID_PARAM, wrong + " has a type that kvpath cannot take"};
        return Result(kvpath_open(json.c_str(), &store_));
    }
    // Begins with the name by which the pipeline's metrics know this stage.
    std::string Readme() const override
    {
        return std::string("PosixStore (kvpath ") + kvpath_version() + ")";
    }

    UC::Expected<std::vector<uint8_t>> Lookup(const BlockId *blocks, size_t num) override
    {
        std::vector<uint8_t> found(num);
        const auto status = kvpath_lookup(store_, Ids(blocks), num, found.data());
        if (status != KVPATH_OK) return Result(status);
        return found_t(std::move(found));
    }
    UC::Expected<ssize_t> LookupOnPrefix(const BlockId *blocks, size_t num) override
    {
        return Index(kvpath_lookup_prefix, blocks, num);
    }
    // Newer interfaces only: the highest index that is present.
    virtual UC::Expected<ssize_t> LookupOnReverse(const BlockId *blocks, size_t num)
    {
        return Index(kvpath_lookup_last, blocks, num);
    }
    void Prefetch(const BlockId *, size_t) override {} // a disk tier has nothing faster to fill

    UC::Expected<TaskHandle> Load(UC::Detail::TaskDesc task) override
    {
        return Start(kvpath_load, task);
    }
    UC::Expected<TaskHandle> Dump(UC::Detail::TaskDesc task) override
    {
        return Start(kvpath_dump, task);
    }
    UC::Expected<bool> Check(TaskHandle task) override
    {
        uint8_t finished = 0;
        const auto status = kvpath_check(store_, task, &finished);
        if (status != KVPATH_OK) return Result(status);
        return bool(finished != 0);
    }
    UC::Status Wait(TaskHandle task) override { return Result(kvpath_wait(store_, task, 0)); }
    // Newer interfaces only: reads the list of available paths, no I/O.
    virtual UC::Status CheckHealth() { return Result(kvpath_check_health(store_)); }

    // For what the pipeline's interface does not have.
    kvpath_store_t Handle() const noexcept { return store_; }

  private:
    using found_t = UC::Expected<std::vector<uint8_t>>;

    // kvpath's numbers are the pipeline's; its own ones, which the pipeline cannot know, become
    // ERROR with their name in the text.
    static UC::Status Result(kvpath_status_t status)
    {
        if (status == KVPATH_OK) return UC::Status::OK();
        std::string text = kvpath_last_error();
        if (status <= KVPATH_CORRUPT) {
            text = std::string(kvpath_status_name(status)) + ": " + text;
            status = KVPATH_ERROR;
        }
        return UC::Status{status, std::move(text)};
    }
    static const kvpath_block_id_t *Ids(const BlockId *blocks)
    {
        return static_cast<const kvpath_block_id_t *>(static_cast<const void *>(blocks));
    }
    template <class Function>
    UC::Expected<ssize_t> Index(Function lookup, const BlockId *blocks, size_t num)
    {
        int64_t index = -1;
        const auto status = lookup(store_, Ids(blocks), num, &index);
        if (status != KVPATH_OK) return Result(status);
        return ssize_t(index);
    }
    template <class Function>
    UC::Expected<TaskHandle> Start(Function start, const UC::Detail::TaskDesc &task)
    {
        std::vector<kvpath_shard_t> shards(task.size());
        for (size_t at = 0; at < task.size(); at++) {
            const auto &shard = task[at];
            const auto limit = std::numeric_limits<uint32_t>::max();
            if (shard.index > limit || shard.addrs.size() > limit)
                return UC::Status{KVPATH_INVALID_PARAM,
                                  "shard " + std::to_string(at) + " of task `" + task.brief +
                                      "`: index or number of addresses is too large"};
            std::memcpy(shards[at].block.bytes, shard.owner.data(), sizeof shards[at].block);
            shards[at].index = static_cast<uint32_t>(shard.index);
            shards[at].addr_count = static_cast<uint32_t>(shard.addrs.size());
            shards[at].addrs = shard.addrs.data();
        }
        kvpath_task_t handle = 0;
        const auto status = start(store_, shards.data(), shards.size(), &handle);
        if (status != KVPATH_OK) return Result(status);
        return TaskHandle(handle);
    }

    kvpath_store_t store_ = 0;
};
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

} // namespace kvpath

#endif // KVPATH_UCM_STORE_V1_HPP
