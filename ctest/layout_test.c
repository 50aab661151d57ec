/* The header alone, twice, as the very first thing: it needs nothing before it. */
/* clang-format off */
#include "kvpath.h"
#include "kvpath.h"
/* clang-format on */

#include "check.h"

/* R76: the layout of every struct, as layout.def has it; the Rust side checks the same lines. */
#define SIZE(name, bytes) _Static_assert(sizeof(name) == (bytes), "size of " #name);
#define OFFSET(name, field, bytes)                                                                 \
    _Static_assert(offsetof(name, field) == (bytes), "offset of " #name "." #field);
#include "layout.def"

/* The pipeline's numbers (R71). */
_Static_assert(KVPATH_OK == 0 && KVPATH_ERROR == -1 && KVPATH_INVALID_PARAM == -50000 &&
                   KVPATH_OUT_OF_MEMORY == -50001 && KVPATH_OS_ERROR == -50002 &&
                   KVPATH_DUPLICATE_KEY == -50003 && KVPATH_RETRY == -50004 &&
                   KVPATH_NOT_FOUND == -50005 && KVPATH_UNSUPPORTED == -50008 &&
                   KVPATH_NO_SPACE == -50009 && KVPATH_TIMEOUT == -50010 &&
                   KVPATH_STORE_UNHEALTHY == -50011 && KVPATH_CORRUPT == -51000 &&
                   KVPATH_FORKED == -51001 && KVPATH_CLOSED == -51002 && KVPATH_CANCELLED == -51003,
               "a status number changed");

CASE(table_is_as_long_as_the_header_says)
{
    const kvpath_api_t *api = kvpath_api(KVPATH_ABI_VERSION);
    CHECK(api != NULL);
    CHECK_EQ(api->size, sizeof(kvpath_api_t));
    CHECK_EQ(api->table_version, KVPATH_ABI_VERSION);
}

/* A caller compiled against a shorter struct gets no byte more than it has room for. */
CASE(stats_of_an_older_caller)
{
    kvpath_store_t store = open_root(temp_dir(), (shape_t){64, 64, 64}, "");
    unsigned char room[sizeof(kvpath_stats_t) + 8];
    for (uint32_t size = 4; size <= sizeof(kvpath_stats_t); size += 4) {
        for (size_t at = 0; at < sizeof room; at++) room[at] = 0xa5;
        kvpath_stats_t *stats = (kvpath_stats_t *)(void *)room;
        stats->size = size;
        CHECK_OK(kvpath_stats(store, stats));
        CHECK_EQ(stats->size, size);
        for (size_t at = size; at < sizeof room; at++)
            if (room[at] != 0xa5) FAIL("size %u: byte %zu was written", size, at);
    }
    CHECK_OK(kvpath_close(store));
}

/* A newer caller's larger struct: the library fills what it knows and says how much that is. */
CASE(stats_of_a_newer_caller)
{
    kvpath_store_t store = open_root(temp_dir(), (shape_t){64, 64, 64}, "");
    struct {
        kvpath_stats_t known;
        uint64_t newer;
    } stats = {.known = {.size = sizeof stats}, .newer = 77};
    CHECK_OK(kvpath_stats(store, &stats.known));
    CHECK_EQ(stats.known.size, sizeof(kvpath_stats_t));
    CHECK_EQ(stats.newer, 77);
    CHECK_OK(kvpath_close(store));
}

/* kvpath_health() steps through the array by the caller's element size. */
CASE(health_array_of_other_callers)
{
    const char *root = temp_dir();
    const char *roots =
        text("[\"%s\", \"%s/../%s\"]", root, root, __builtin_strrchr(root, '/') + 1);
    kvpath_store_t store = open_store(config(roots, (shape_t){64, 64, 64}, ""));
    size_t count = 0;
    struct {
        kvpath_backend_health_t known;
        uint64_t newer;
    } wide[2] = {{.known = {.size = sizeof wide[0]}, .newer = 77}, {.newer = 78}};
    CHECK_OK(kvpath_health(store, &wide[0].known, 2, &count));
    CHECK_EQ(count, 2);
    CHECK_EQ(wide[0].newer, 77);
    CHECK_EQ(wide[1].newer, 78);
    CHECK_HAS(wide[0].known.path, root);
    CHECK_HAS(wide[1].known.path, "/../");
    CHECK_EQ(wide[1].known.size, sizeof(kvpath_backend_health_t));

    struct narrow {
        uint32_t size;
        int32_t state;
    } narrow[3] = {{sizeof(struct narrow), -7}, {0, -7}, {99, -7}};
    CHECK_OK(kvpath_health(store, (kvpath_backend_health_t *)(void *)narrow, 3, &count));
    CHECK_EQ(count, 2);
    CHECK_EQ(narrow[0].state, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(narrow[1].state, KVPATH_BACKEND_AVAILABLE);
    CHECK_EQ(narrow[2].size, 99);
    CHECK_EQ(narrow[2].state, -7);
    CHECK_OK(kvpath_close(store));
}
