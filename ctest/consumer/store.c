/* Stores a block in the directory that is given, and finds it. */
#include <kvpath.h>
#include <stdio.h>

int main(int count, char **words)
{
    char config[4096];
    static char content[4096];
    void *addrs[] = {content};
    kvpath_shard_t shard = {.addr_count = 1, .addrs = addrs};
    kvpath_store_t store;
    kvpath_task_t task;
    uint8_t found = 0;
    if (count != 2) return 2;
    snprintf(config, sizeof config,
             "{\"storage_backends\": \"%s\", \"device_id\": 0, \"io_direct\": false, "
             "\"tensor_size\": 4096, \"shard_size\": 4096, \"block_size\": 4096, "
             "\"data_dir_shard_bytes\": 0}",
             words[1]);
    if (kvpath_open(config, &store) == KVPATH_OK &&
        kvpath_dump(store, &shard, 1, &task) == KVPATH_OK &&
        kvpath_wait(store, task, 0) == KVPATH_OK &&
        kvpath_lookup(store, &shard.block, 1, &found) == KVPATH_OK && found == 1 &&
        kvpath_close(store) == KVPATH_OK)
        return 0;
    fprintf(stderr, "%s\n", kvpath_last_error());
    return 1;
}
