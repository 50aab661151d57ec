// Stores a block in the directory that is given, and finds it.
#include <kvpath.hpp>

#include <iostream>

int main(int count, char **words)
try {
    if (count != 2) return 2;
    kvpath::Store store("{\"storage_backends\": \"" + std::string(words[1]) +
                        "\", \"device_id\": 0, \"io_direct\": false, \"tensor_size\": 4096, "
                        "\"shard_size\": 4096, \"block_size\": 4096, \"data_dir_shard_bytes\": 0}");
    kvpath::Memory memory(4096);
    void *addrs[] = {memory.data()};
    kvpath::Shard shard{};
    shard.addr_count = 1;
    shard.addrs = addrs;
    store.dump(&shard, 1).wait();
    return store.lookup({shard.block}).at(0) == 1 ? 0 : 1;
} catch (const kvpath::Error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
