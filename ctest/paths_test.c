/* The paths of a configuration, and a start that fails: R3, R8, R10, R12. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static const shape_t small = {4096, 4096, 4096};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static size_t backends_of(kvpath_store_t store)
{
    size_t count = 0;
    CHECK_OK(kvpath_health(store, NULL, 0, &count));
    return count;
}

CASE(paths_relative_or_empty)
{
    static const char *const roots[] = {"\"data\"", "[\"./data\"]", "[\"\"]", "[\"/tmp\", \"x\"]"};
    for (size_t at = 0; at < COUNT(roots); at++)
        CHECK_HAS(open_fails(config(roots[at], small, ""), KVPATH_INVALID_PARAM),
                  "storage_backends");
}

CASE(paths_more_than_64)
{
    const char *roots = "\"/nowhere/0\"";
    for (int at = 1; at < 65; at++) roots = text("%s, \"/nowhere/%d\"", roots, at);
    CHECK_HAS(open_fails(config(text("[%s]", roots), small, ""), KVPATH_INVALID_PARAM), "64");
}

CASE(paths_normalised_and_unique)
{
    const char *root = temp_dir();
    const char *roots = text("[\"%s\", \"%s/\", \"%s//\", \"%s/./\"]", root, root, root, root);
    kvpath_store_t store = open_store(config(roots, small, ""));
    CHECK_EQ(backends_of(store), 1);
    kvpath_backend_health_t health = {0};
    size_t count = 0;
    health.size = sizeof health;
    CHECK_OK(kvpath_health(store, &health, 1, &count));
    CHECK(strncmp(health.path, text("%s/", root), sizeof health.path - 1) == 0);
    CHECK_OK(kvpath_close(store));
}

CASE(paths_as_one_string)
{
    const char *root = temp_dir();
    const char *other = text("%s-link", root);
    CHECK(symlink(root, other) == 0); /* R3: a root may be a symbolic link */
    kvpath_store_t store = open_store(config(text("\"%s:%s\"", root, other), small, ""));
    CHECK_EQ(backends_of(store), 2);
    CHECK_OK(kvpath_close(store));
    CHECK(unlink(other) == 0);
}

CASE(paths_list_element_is_never_split)
{
    const char *root = text("%s/a:b", temp_dir());
    CHECK(mkdir(root, 0777) == 0);
    kvpath_store_t store = open_root(root, small, "");
    CHECK_EQ(backends_of(store), 1);
    CHECK_OK(kvpath_close(store));
}

/* R10, R12: a root that is not there fails open with backend, operation and errno; nothing stays.
 */
CASE(missing_root_leaves_nothing)
{
    const char *root = temp_dir();
    size_t threads = thread_count(), descriptors = descriptor_count();
    const char *json = config(text("[\"%s\", \"%s/absent\"]", root, root), small, "");
    const char *told = open_fails(json, KVPATH_STORE_UNHEALTHY);
    CHECK_HAS(told, text("%s/absent", root));
    CHECK_HAS(told, "errno 2");
    CHECK_EQ(thread_count(), threads);
    CHECK_EQ(descriptor_count(), descriptors);
    CHECK_EQ(count_files(root, ".tmp"), 0);
}
