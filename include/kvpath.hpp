// kvpath for C++17: RAII over kvpath.h, header only. MIT licence.
//
// Functions throw kvpath::Error; those named try_… return the status and never throw. Everything
// goes through a function table, so a program that is not linked with the library gives the one
// that it found with dlopen():
//
//     kvpath::Store store(json);                       // linked
//     kvpath::Store store(json, kvpath::api(library)); // dlopen(), no kvpath symbol needed
//
// Contracts (threads, blocking, ownership of memory) are those of kvpath.h.
#ifndef KVPATH_HPP
#define KVPATH_HPP

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "kvpath.h"

namespace kvpath
{

using Status = kvpath_status_t;
using BlockId = kvpath_block_id_t;
using Shard = kvpath_shard_t;

// A failed call: what() is the whole story, status() the code, detail() the finer code.
class Error : public std::runtime_error
{
  public:
    Error(Status status, Status detail, const std::string &text)
        : std::runtime_error(text), status_(status), detail_(detail)
    {
    }
    // Of this thread's last failing call.
    Error(const kvpath_api_t &api, Status status)
        : Error(status, api.last_detail(),
                std::string(api.status_name(status)) + ": " + api.last_error())
    {
    }
    Status status() const noexcept { return status_; }
    Status detail() const noexcept { return detail_; }

  private:
    Status status_, detail_;
};

// The table of the library that this program is linked with.
inline const kvpath_api_t &api()
{
    const kvpath_api_t *table = kvpath_api(KVPATH_ABI_VERSION);
    if (table == nullptr)
        throw Error(KVPATH_UNSUPPORTED, KVPATH_UNSUPPORTED, "libkvpath is older than its header");
    return *table;
}

// The table of a library that was opened with dlopen().
inline const kvpath_api_t &api(void *library)
{
    const kvpath_api_t *(*find)(std::uint32_t) = nullptr;
    void *symbol = dlsym(library, "kvpath_api");
    std::memcpy(&find, &symbol, sizeof find);
    const kvpath_api_t *table = find != nullptr ? find(KVPATH_ABI_VERSION) : nullptr;
    if (table == nullptr)
        throw Error(KVPATH_UNSUPPORTED, KVPATH_UNSUPPORTED, "no kvpath_api of this version");
    return *table;
}

// Memory for tensors from kvpath_alloc(). It must live as long as tasks use it.
class Memory
{
  public:
    Memory() noexcept = default;
    explicit Memory(std::size_t bytes, const kvpath_api_t &api = kvpath::api()) : api_(&api)
    {
        data_ = api.alloc(bytes);
        if (data_ == nullptr && bytes != 0) throw std::bad_alloc();
        bytes_ = bytes;
    }
    Memory(Memory &&other) noexcept { swap(other); }
    Memory &operator=(Memory &&other) noexcept
    {
        Memory(std::move(other)).swap(*this);
        return *this;
    }
    ~Memory()
    {
        if (data_ != nullptr) api_->free(data_);
    }
    void *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return bytes_; }
    void swap(Memory &other) noexcept
    {
        std::swap(api_, other.api_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }

  private:
    const kvpath_api_t *api_ = nullptr;
    void *data_ = nullptr;
    std::size_t bytes_ = 0;
};

// A running load or dump. Destroying it cancels what has not started and waits for the rest, so
// that the memory may go after it; forget() gives that up.
class Task
{
  public:
    Task() noexcept = default;
    Task(const kvpath_api_t &api, kvpath_store_t store, kvpath_task_t handle) noexcept
        : api_(&api), store_(store), handle_(handle)
    {
    }
    Task(Task &&other) noexcept { swap(other); }
    Task &operator=(Task &&other) noexcept
    {
        Task(std::move(other)).swap(*this);
        return *this;
    }
    ~Task()
    {
        if (handle_ == 0) return;
        api_->cancel(store_, handle_);
        (void)(api_->wait(store_, handle_, 0) == KVPATH_OK); // nobody is left to tell
    }
    kvpath_task_t handle() const noexcept { return handle_; }
    explicit operator bool() const noexcept { return handle_ != 0; }

    // Waits for the end. Without a limit of its own the task ends by timeout_ms.
    void wait() { check_status(try_wait(0)); }
    // Whether it ended within limit_ms (> 0); throws what it ended with.
    bool wait_for(std::uint64_t limit_ms)
    {
        const Status status = try_wait(limit_ms == 0 ? 1 : limit_ms);
        if (status == KVPATH_RETRY) return false;
        check_status(status);
        return true;
    }
    // RETRY: not finished yet. Everything else consumes the handle.
    Status try_wait(std::uint64_t limit_ms) noexcept
    {
        const Status status = table().wait(store_, handle_, limit_ms);
        if (status != KVPATH_RETRY) handle_ = 0;
        return status;
    }
    // One status per shard in `statuses`; INVALID_PARAM (too little room) keeps the handle.
    Status try_wait(std::uint64_t limit_ms, Status *statuses, std::size_t count) noexcept
    {
        const Status status = table().wait_results(store_, handle_, limit_ms, statuses, count);
        if (status != KVPATH_RETRY && status != KVPATH_INVALID_PARAM) handle_ = 0;
        return status;
    }
    bool finished() const
    {
        std::uint8_t done = 0;
        check_status(table().check(store_, handle_, &done));
        return done != 0;
    }
    void cancel() { check_status(try_cancel()); }
    Status try_cancel() noexcept { return table().cancel(store_, handle_); }
    // The task goes on without anybody asking: its memory must outlive the store.
    Status forget() noexcept { return table().forget(store_, std::exchange(handle_, 0)); }
    void swap(Task &other) noexcept
    {
        std::swap(api_, other.api_);
        std::swap(store_, other.store_);
        std::swap(handle_, other.handle_);
    }

  private:
    const kvpath_api_t &table() const noexcept { return *api_; }
    void check_status(Status status) const
    {
        if (status != KVPATH_OK) throw Error(*api_, status);
    }
    const kvpath_api_t *api_ = nullptr;
    kvpath_store_t store_ = 0;
    kvpath_task_t handle_ = 0;
};

// An open store; closed with it. Tasks of it must be gone before.
class Store
{
  public:
    Store() noexcept = default;
    explicit Store(const std::string &config_json, const kvpath_api_t &api = kvpath::api())
    {
        const Status status = try_open(config_json.c_str(), api);
        if (status != KVPATH_OK) throw Error(api, status);
    }
    Store(Store &&other) noexcept { swap(other); }
    Store &operator=(Store &&other) noexcept
    {
        Store(std::move(other)).swap(*this);
        return *this;
    }
    ~Store() { try_close(); }

    Status try_open(const char *config_json, const kvpath_api_t &api) noexcept
    {
        try_close();
        api_ = &api;
        return api.open(config_json, &store_);
    }
    void close() { check_status(try_close()); }
    Status try_close() noexcept
    {
        return store_ != 0 ? api_->close(std::exchange(store_, 0)) : KVPATH_OK;
    }
    kvpath_store_t handle() const noexcept { return store_; }
    explicit operator bool() const noexcept { return store_ != 0; }

    Task load(const Shard *shards, std::size_t count) { return start(api_->load, shards, count); }
    Task dump(const Shard *shards, std::size_t count) { return start(api_->dump, shards, count); }
    Task load(const std::vector<Shard> &shards) { return load(shards.data(), shards.size()); }
    Task dump(const std::vector<Shard> &shards) { return dump(shards.data(), shards.size()); }
    Status try_load(const Shard *shards, std::size_t count, Task &task) noexcept
    {
        return try_start(api_->load, shards, count, task);
    }
    Status try_dump(const Shard *shards, std::size_t count, Task &task) noexcept
    {
        return try_start(api_->dump, shards, count, task);
    }

    std::vector<std::uint8_t> lookup(const std::vector<BlockId> &ids) const
    {
        std::vector<std::uint8_t> found(ids.size());
        check_status(try_lookup(ids.data(), ids.size(), found.data()));
        return found;
    }
    Status try_lookup(const BlockId *ids, std::size_t count, std::uint8_t *found) const noexcept
    {
        return api_->lookup(store_, ids, count, found);
    }
    std::int64_t lookup_prefix(const std::vector<BlockId> &ids) const
    {
        std::int64_t index = -1;
        check_status(api_->lookup_prefix(store_, ids.data(), ids.size(), &index));
        return index;
    }
    std::int64_t lookup_last(const std::vector<BlockId> &ids) const
    {
        std::int64_t index = -1;
        check_status(api_->lookup_last(store_, ids.data(), ids.size(), &index));
        return index;
    }
    void commit(const BlockId &id, bool success = true)
    {
        check_status(api_->commit(store_, &id, success ? 1 : 0));
    }
    void remove(const std::vector<BlockId> &ids)
    {
        check_status(api_->remove(store_, ids.data(), ids.size()));
    }

    bool healthy() const noexcept { return api_->check_health(store_) == KVPATH_OK; }
    kvpath_stats_t stats() const
    {
        kvpath_stats_t stats{};
        stats.size = sizeof stats;
        check_status(api_->stats(store_, &stats));
        return stats;
    }
    std::string stats_json() const { return report(api_->stats_json); }
    std::string health_json() const { return report(api_->health_json); }
    std::string metrics() const { return report(api_->metrics); }
    int event_fd() const
    {
        std::int32_t fd = -1;
        check_status(api_->event_fd(store_, &fd));
        return fd;
    }
    // Handles that finished since they were last listed, at most `max`.
    std::vector<kvpath_task_t> finished(std::size_t max = 64) const
    {
        std::vector<kvpath_task_t> tasks(max);
        std::size_t count = 0;
        check_status(api_->finished(store_, tasks.data(), max, &count));
        tasks.resize(count);
        return tasks;
    }
    void swap(Store &other) noexcept
    {
        std::swap(api_, other.api_);
        std::swap(store_, other.store_);
    }

  private:
    using StartFn = decltype(kvpath_api_t::load);
    using ReportFn = decltype(kvpath_api_t::stats_json);

    void check_status(Status status) const
    {
        if (status != KVPATH_OK) throw Error(*api_, status);
    }
    Status try_start(StartFn function, const Shard *shards, std::size_t count, Task &task) noexcept
    {
        kvpath_task_t handle = 0;
        const Status status = function(store_, shards, count, &handle);
        if (status == KVPATH_OK) task = Task(*api_, store_, handle);
        return status;
    }
    Task start(StartFn function, const Shard *shards, std::size_t count)
    {
        Task task;
        check_status(try_start(function, shards, count, task));
        return task;
    }
    std::string report(ReportFn function) const
    {
        std::string text;
        std::size_t length = 0;
        check_status(function(store_, nullptr, 0, &length));
        for (;;) { // it may grow between the calls
            text.resize(length + 1);
            const Status status = function(store_, text.data(), text.size(), &length);
            if (status == KVPATH_OK) break;
            if (length < text.size()) throw Error(*api_, status);
        }
        text.resize(length);
        return text;
    }
    const kvpath_api_t *api_ = nullptr;
    kvpath_store_t store_ = 0;
};

} // namespace kvpath

#endif // KVPATH_HPP
