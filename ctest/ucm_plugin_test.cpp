// The plug-in, loaded as the pipeline loads it (lazily, locally, by the maker's name), against the
// real interface. Usage: ucm_plugin_test /path/to/libposixstore.so DIRECTORY
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ucmstore_v1.h"

namespace
{

bool fails(const UC::Status &status)
{
    if (status.Failure()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
    return status.Failure();
}

bool block_comes_back(UC::StoreV1 &store)
{
    std::vector<char> out(8192, 'k'), in(8192, 0);
    UC::Detail::Shard shard{};
    UC::Detail::TaskDesc task;
    shard.addrs = {out.data()};
    task.push_back(shard);
    auto dumped = store.Dump(task);
    if (!dumped || fails(store.Wait(dumped.Value()))) return false;
    task[0].addrs = {in.data()};
    auto loaded = store.Load(task);
    if (!loaded || fails(store.Wait(loaded.Value()))) return false;
    auto last = store.LookupOnPrefix(&shard.owner, 1);
    return last && last.Value() == 0 && in == out;
}

} // namespace

int main(int count, char **words)
{
    if (count != 3) return 2;
    std::string root = std::string(words[2]) + "/plugin-XXXXXX";
    if (!mkdtemp(root.data())) return 1;
    void *library = dlopen(words[1], RTLD_LAZY | RTLD_LOCAL);
    if (!library) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    const auto maker = reinterpret_cast<UC::StoreV1 *(*)()>(dlsym(library, "MakePosixStore"));
    if (!maker) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    bool good = false;
    {
        const std::shared_ptr<UC::StoreV1> store(maker());
        UC::Detail::Dictionary config;
        config.Set("storage_backends", std::vector<std::string>{root});
        for (const char *key : {"tensor_size", "shard_size", "block_size"})
            config.SetNumber(key, 8192);
        config.SetNumber("device_id", 0);
        config.SetNumber("data_dir_shard_bytes", 0);
        config.Set("cpu_affinity_cores", std::vector<std::any>{}); // the pipeline's empty list
        config.Set<UC::StoreV1 *>("store_backend", nullptr);
        good = !fails(store->Setup(config)) && block_comes_back(*store);
    }
    dlclose(library);
    std::filesystem::remove_all(root);
    return good ? 0 : 1;
}
