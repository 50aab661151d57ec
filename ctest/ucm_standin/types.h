// A stand-in for the types of the C++ pipeline's store interface, written from its description:
// just enough to compile and drive the adapter. Not the pipeline's code.
#ifndef KVPATH_TEST_UCM_TYPES_H
#define KVPATH_TEST_UCM_TYPES_H

#include <any>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace UC
{

class Status
{
  public:
    Status(int32_t code, std::string message) : code_(code), message_(std::move(message)) {}
    static Status OK() { return Status(0, ""); }
    int32_t Underlying() const { return code_; }
    bool Success() const noexcept { return code_ == 0; }
    bool Failure() const noexcept { return code_ != 0; }
    std::string ToString() const { return std::to_string(code_) + ", " + message_; }

  private:
    int32_t code_;
    std::string message_;
};

template <class T> class Expected
{
  public:
    Expected(T &&value) : value_(std::move(value)), error_(Status::OK()) {}
    Expected(Status error) : error_(std::move(error)) {}
    explicit operator bool() const noexcept { return value_.has_value(); }
    T &Value() & { return *value_; }
    Status Error() const { return error_; }

  private:
    std::optional<T> value_;
    Status error_;
};

namespace Detail
{

class Dictionary
{
  public:
    bool Contains(const std::string &key) const { return values_.count(key) != 0; }
    template <class T> void Set(const std::string &key, const T &value) { values_[key] = value; }
    template <class T> void SetNumber(const std::string &key, const T &value)
    {
        values_[key] = static_cast<ssize_t>(value);
    }
    template <class T> void Get(const std::string &key, T &target) const
    {
        if (Contains(key)) target = std::any_cast<T>(values_.at(key));
    }
    template <class T> void GetNumber(const std::string &key, T &target) const
    {
        if (Contains(key)) target = static_cast<T>(std::any_cast<ssize_t>(values_.at(key)));
    }

  private:
    std::map<std::string, std::any> values_;
};

using BlockId = std::array<std::byte, 16>;
using TaskHandle = std::size_t;

struct Shard {
    BlockId owner;
    std::size_t index;
    std::vector<void *> addrs;
};

struct TaskDesc : std::vector<Shard> {
    using vector::vector;
    std::string brief;
};

} // namespace Detail
} // namespace UC

#endif
