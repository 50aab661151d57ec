// The newest version of the pipeline's store interface, as a stand-in (../types.h). Versions
// between the two have CheckHealth alone, or lack the overloads with a default.
#ifndef KVPATH_TEST_UCM_STORE_V1_H
#define KVPATH_TEST_UCM_STORE_V1_H

#include "../types.h"

namespace UC
{

class StoreV1
{
  public:
    virtual ~StoreV1() = default;
    virtual Status Setup(const Detail::Dictionary &config) = 0;
    virtual std::string Readme() const = 0;
    virtual Expected<std::vector<uint8_t>> Lookup(const Detail::BlockId *blocks, size_t num) = 0;
    virtual Expected<ssize_t> LookupOnPrefix(const Detail::BlockId *blocks, size_t num) = 0;
    virtual void Prefetch(const Detail::BlockId *blocks, size_t num) = 0;
    virtual Expected<Detail::TaskHandle> Load(Detail::TaskDesc task) = 0;
    virtual Expected<Detail::TaskHandle> Dump(Detail::TaskDesc task) = 0;
    virtual Expected<bool> Check(Detail::TaskHandle task) = 0;
    virtual Status Wait(Detail::TaskHandle task) = 0;
    virtual Status CheckHealth() { return Status::OK(); }
    virtual Expected<ssize_t> LookupOnReverse(const Detail::BlockId *blocks, size_t num) = 0;
    virtual Expected<ssize_t> LookupOnPrefix(const Detail::BlockId *blocks, size_t num, uint64_t)
    {
        return LookupOnPrefix(blocks, num);
    }
    virtual Expected<Detail::TaskHandle> Dump(Detail::TaskDesc task, uint64_t)
    {
        return Dump(std::move(task));
    }

  protected:
    StoreV1() = default;
};

} // namespace UC

#endif
