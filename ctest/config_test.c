/* The configuration text of kvpath_open(): R1, R2. Every bad text is refused with a text that
 * names the key, and nothing is made on disk before the whole of it is found valid. */
#define _GNU_SOURCE
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t small = {4096, 4096, 4096};

/* A valid object without its last brace: roots and sizes. */
static const char *valid(const char *root)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": 4096, "
                "\"shard_size\": 4096, \"block_size\": 4096, \"io_direct\": false",
                root);
}

static void check_untouched(const char *root) { CHECK_EQ(count_files(root, NULL), 0); }

CASE(null_text) { CHECK_HAS(open_fails(NULL, KVPATH_INVALID_PARAM), "config_json"); }

CASE(null_store)
{
    const char *root = temp_dir();
    CHECK_STATUS(kvpath_open(config(text("[\"%s\"]", root), small, ""), NULL),
                 KVPATH_INVALID_PARAM);
    CHECK_HAS(kvpath_last_error(), "store");
    check_untouched(root);
}

CASE(invalid_utf8)
{
    const char *root = temp_dir();
    CHECK_HAS(open_fails(text("%s, \"posix_io_engine\": \"ps\xff\xfe\"}", valid(root)),
                         KVPATH_INVALID_PARAM),
              "UTF-8");
    check_untouched(root);
}

CASE(empty_text)
{
    open_fails("", KVPATH_INVALID_PARAM);
    open_fails("  \n\t ", KVPATH_INVALID_PARAM);
}

CASE(not_json)
{
    static const char *const texts[] = {"hello",
                                        "{",
                                        "}",
                                        "{]",
                                        "{\"a\"}",
                                        "{'storage_backends': []}",
                                        "{\"a\": 1,}",
                                        "{\"a\": 01}",
                                        "{\"a\": NaN}",
                                        "{} {}",
                                        "\"text\"\"",
                                        "{\"a\": \"\\x\"}",
                                        "{\"a\": \"open",
                                        "nul",
                                        "{\"a\" 1}"};
    for (size_t at = 0; at < sizeof texts / sizeof *texts; at++)
        open_fails(texts[at], KVPATH_INVALID_PARAM);
}

CASE(not_an_object)
{
    static const char *const texts[] = {"[]", "1", "\"text\"", "null", "true", "[{}]"};
    for (size_t at = 0; at < sizeof texts / sizeof *texts; at++)
        open_fails(texts[at], KVPATH_INVALID_PARAM);
}

static char *repeated(const char *start, const char *part, size_t bytes, const char *end)
{
    char *whole = malloc(bytes + strlen(start) + strlen(part) + strlen(end) + 1);
    CHECK(whole != NULL);
    char *at = stpcpy(whole, start);
    while ((size_t)(at - whole) < bytes) at = stpcpy(at, part);
    strcpy(at, end);
    return whole;
}

CASE(one_megabyte_of_json)
{
    enum { MIB = 1 << 20 };
    const char *root = temp_dir();
    /* A huge unknown key, a huge value, huge nesting, a huge list of paths: refused or warned of,
     * never a crash, and no error text as long as its cause. */
    char *deep = repeated("{\"storage_backends\": ", "[", MIB, "");
    char *value = repeated(text("%s, \"posix_io_engine\": \"", valid(root)), "psync", MIB, "\"}");
    char *list = repeated("{\"storage_backends\": [\"/a\"", ", \"/a/b\"", MIB, ", 7]}");
    char *key = repeated(text("%s, \"strict\": true, \"", valid(root)), "key", MIB, "\": 1}");
    const char *const texts[] = {deep, value, list, key};
    for (size_t at = 0; at < 4; at++) {
        CHECK(strlen(open_fails(texts[at], KVPATH_INVALID_PARAM)) < 4096);
        free((void *)texts[at]);
    }
    check_untouched(root);
}

CASE(half_a_megabyte_of_spaces_is_fine)
{
    char *spaced = repeated(valid(temp_dir()), "     ", 1 << 19, "}");
    kvpath_store_t store = open_store(spaced);
    free(spaced);
    CHECK_OK(kvpath_close(store));
}

CASE(missing_storage_backends)
{
    CHECK_HAS(open_fails("{}", KVPATH_INVALID_PARAM), "storage_backends");
    CHECK_HAS(open_fails("{\"storage_backends\": null}", KVPATH_INVALID_PARAM), "storage_backends");
    CHECK_HAS(open_fails("{\"storage_backends\": []}", KVPATH_INVALID_PARAM), "storage_backends");
    CHECK_HAS(open_fails("{\"storage_backends\": \"\"}", KVPATH_INVALID_PARAM), "storage_backends");
}

/* Sizes are required where transfers are on. */
static void missing_size(const char *key)
{
    static const char *const keys[] = {"tensor_size", "shard_size", "block_size"};
    const char *root = temp_dir();
    const char *sizes = "";
    for (size_t at = 0; at < 3; at++)
        if (strcmp(keys[at], key) != 0) sizes = text("%s, \"%s\": 4096", sizes, keys[at]);
    const char *json = text("{\"storage_backends\": [\"%s\"], \"device_id\": 0%s}", root, sizes);
    CHECK_HAS(open_fails(json, KVPATH_INVALID_PARAM), key);
    check_untouched(root);
}

CASE(missing_tensor_size) { missing_size("tensor_size"); }
CASE(missing_shard_size) { missing_size("shard_size"); }
CASE(missing_block_size) { missing_size("block_size"); }

static const char *const integer_keys[] = {"device_id",
                                           "tensor_size",
                                           "shard_size",
                                           "block_size",
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
                                           "temp_ttl_s",
                                           "close_timeout_ms"};
static const char *const bool_keys[] = {"io_direct",
                                        "require_same_storage",
                                        "create_storage",
                                        "verify_mount",
                                        "metadata_time_limits",
                                        "io_direct_fallback",
                                        "quarantine",
                                        "strict",
                                        "lookup_checks_size"};
static const char *const word_keys[] = {"posix_io_engine", "startup_policy", "commit_policy",
                                        "commit_sync",     "buffer_mode",    "failure_scope"};

/* `key` with this value must be refused: the text names the key and the value. */
static void refuse(const char *key, const char *value)
{
    const char *root = temp_dir();
    const char *json = text("{\"storage_backends\": [\"%s\"]", root);
    static const char *const sizes[] = {"tensor_size", "shard_size", "block_size"};
    for (size_t at = 0; at < 3; at++)
        if (strcmp(key, sizes[at]) != 0) json = text("%s, \"%s\": 4096", json, sizes[at]);
    if (strcmp(key, "device_id") != 0) json = text("%s, \"device_id\": 0", json);
    const char *told = open_fails(text("%s, \"%s\": %s}", json, key, value), KVPATH_INVALID_PARAM);
    CHECK_HAS(told, key);
    /* Containers and numbers beyond 64 bits are shown in some other form. */
    if (strchr("{[", value[0]) == NULL && strchr(value, 'e') == NULL && strlen(value) < 20) {
        bool quoted = value[0] == '"';
        CHECK_HAS(told, text("%.*s", (int)strlen(value) - 2 * quoted, value + quoted));
    }
    check_untouched(root);
    CHECK(rmdir(root) == 0);
}

static void refuse_each(const char *const *keys, size_t count, const char *const *values)
{
    for (size_t at = 0; at < count; at++)
        for (size_t value = 0; values[value] != NULL; value++) refuse(keys[at], values[value]);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

CASE(wrong_type_integers_text)
{
    static const char *const values[] = {"\"8\"", NULL};
    refuse_each(integer_keys, COUNT(integer_keys), values);
}

CASE(wrong_type_integers_bool)
{
    static const char *const values[] = {"true", NULL};
    refuse_each(integer_keys, COUNT(integer_keys), values);
}

CASE(wrong_type_integers_fraction)
{
    static const char *const values[] = {"8.5", NULL};
    refuse_each(integer_keys, COUNT(integer_keys), values);
}

CASE(wrong_type_integers_containers)
{
    static const char *const values[] = {"[8]", "{}", NULL};
    refuse_each(integer_keys, COUNT(integer_keys), values);
}

CASE(wrong_type_booleans)
{
    static const char *const values[] = {"1", "\"true\"", "[]", NULL};
    refuse_each(bool_keys, COUNT(bool_keys), values);
}

CASE(wrong_type_words)
{
    static const char *const values[] = {"1", "true", "[\"auto\"]", "\"no-such\"", "\"\"", NULL};
    refuse_each(word_keys, COUNT(word_keys), values);
}

CASE(wrong_type_lists)
{
    refuse("cpu_affinity_cores", "3");
    refuse("cpu_affinity_cores", "[\"3\"]");
    refuse("cpu_affinity_cores", "[true]");
    refuse("health_cores", "\"0,1\"");
    refuse("health_cores", "[1.5]");
    CHECK_HAS(open_fails("{\"storage_backends\": 7}", KVPATH_INVALID_PARAM), "storage_backends");
    CHECK_HAS(open_fails("{\"storage_backends\": [7]}", KVPATH_INVALID_PARAM), "storage_backends");
}

CASE(wrong_type_store_health)
{
    static const char *const bad[][2] = {{"enabled", "1"},
                                         {"enabled", "\"true\""},
                                         {"health_check_interval_s", "\"10\""},
                                         {"health_check_interval_s", "true"},
                                         {"health_check_timeout_s", "[]"},
                                         {"health_window_size", "8.5"},
                                         {"health_window_size", "\"8\""},
                                         {"failure_threshold", "true"},
                                         {"failure_threshold", "{}"}};
    refuse("store_health", "true");
    refuse("store_health", "[]");
    for (size_t at = 0; at < COUNT(bad); at++) {
        const char *json =
            text("%s, \"store_health\": {\"%s\": %s}}", valid(temp_dir()), bad[at][0], bad[at][1]);
        CHECK_HAS(open_fails(json, KVPATH_INVALID_PARAM), bad[at][0]);
    }
}

CASE(out_of_range_sizes)
{
    static const char *const values[] = {"0", "-1", "-4096", "1e30", NULL};
    refuse_each(integer_keys + 1, 3, values);
    refuse("tensor_size", "4095"); /* shard % tensor */
    refuse("tensor_size", "8192"); /* larger than its shard */
    refuse("block_size", "4097");  /* block % shard */
    refuse("block_size", "2048");
}

CASE(out_of_range_counts)
{
    static const char *const positive[] = {
        "posix_data_trans_concurrency", "posix_lookup_concurrency", "posix_open_concurrency",
        "posix_commit_concurrency",     "max_queued_shards",        "buffer_mb_max"};
    static const char *const zero[] = {"0", "-1", "99999999999999999999", NULL};
    static const char *const below_zero[] = {"-1", "-9223372036854775808", NULL};
    static const char *const limits[] = {"timeout_ms",      "lookup_timeout_ms",
                                         "open_timeout_ms", "close_timeout_ms",
                                         "temp_ttl_s",      "data_dir_shard_bytes"};
    refuse_each(positive, COUNT(positive), zero);
    refuse_each(limits, COUNT(limits), below_zero);
    refuse("device_id", "-2");
    refuse("data_dir_shard_bytes", "6");
}

CASE(out_of_range_cores)
{
    refuse("cpu_affinity_cores", "[-1]");
    refuse("cpu_affinity_cores", "[0, 1024]"); /* CPU_SETSIZE */
    refuse("health_cores", "[1024]");
}

CASE(out_of_range_store_health)
{
    static const char *const bad[][2] = {
        {"health_check_interval_s", "\"health_check_interval_s\": 0"},
        {"health_check_interval_s", "\"health_check_interval_s\": -1"},
        {"health_check_timeout_s", "\"health_check_timeout_s\": 0"},
        {"health_check_timeout_s", "\"health_check_timeout_s\": 10"},
        {"health_check_timeout_s", "\"health_check_interval_s\": 1"},
        {"health_window_size", "\"health_window_size\": 0"},
        {"failure_threshold", "\"failure_threshold\": 0"},
        {"failure_threshold", "\"failure_threshold\": 9"},
        {"failure_threshold", "\"health_window_size\": 1"}};
    for (size_t at = 0; at < COUNT(bad); at++) {
        const char *json = text("%s, \"store_health\": {%s}}", valid(temp_dir()), bad[at][1]);
        CHECK_HAS(open_fails(json, KVPATH_INVALID_PARAM), bad[at][0]);
    }
}

CASE(duplicate_key)
{
    const char *root = temp_dir();
    CHECK_HAS(open_fails(text("%s, \"timeout_ms\": 5, \"timeout_ms\": 5}", valid(root)),
                         KVPATH_INVALID_PARAM),
              "timeout_ms");
    CHECK_HAS(open_fails(text("%s, \"store_health\": {\"enabled\": true, \"enabled\": true}}",
                              valid(root)),
                         KVPATH_INVALID_PARAM),
              "enabled");
    check_untouched(root);
}

CASE(unknown_key_strict)
{
    const char *root = temp_dir();
    const char *told = open_fails(text("%s, \"strict\": true, \"time_out_ms\": 5}", valid(root)),
                                  KVPATH_INVALID_PARAM);
    CHECK_HAS(told, "time_out_ms");
    CHECK_HAS(told, "timeout_ms"); /* the nearest known name */
    told =
        open_fails(text("%s, \"strict\": true, \"store_health\": {\"enable\": true}}", valid(root)),
                   KVPATH_INVALID_PARAM);
    CHECK_HAS(told, "enabled");
    check_untouched(root);
}

CASE(whole_number_and_null_are_accepted)
{
    const char *json = text("%s, \"data_dir_shard_bytes\": 0.0, \"timeout_ms\": 8.0, "
                            "\"commit_policy\": null, \"store_health\": null}",
                            valid(temp_dir()));
    kvpath_store_t store = open_store(json);
    const char *effective = report(kvpath_stats_json, store);
    CHECK_HAS(effective, "all_shards");
    CHECK_OK(kvpath_close(store));
}

/* R80: a capacity that never collects a block names the one that does. */
CASE(collection_capacity_too_small)
{
    const char *root = temp_dir();
    const char *said = open_fails(text("%s, \"posix_capacity_gb\": 1e-7}", valid(root)),
                                  KVPATH_INVALID_PARAM);
    CHECK_HAS(said, "posix_capacity_gb");
    CHECK_HAS(said, "at least ");
    check_untouched(root);
    /* A tenth of ten blocks is one, and ten are 0.7 of 15, rounded up; of 14 they are not. */
    double least = strtod(strstr(said, "at least ") + strlen("at least "), NULL);
    CHECK_EQ(least * (1 << 30) / 4096, 15);
    const char *fewer = text("%s, \"posix_capacity_gb\": %.17g}", valid(root),
                             14.9 * 4096 / (1 << 30));
    CHECK_HAS(open_fails(fewer, KVPATH_INVALID_PARAM), "posix_capacity_gb");
    check_untouched(root);
    CHECK_OK(kvpath_close(
        open_store(text("%s, \"posix_capacity_gb\": %.17g}", valid(root), least))));
}
