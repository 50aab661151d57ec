/* See ground.h. */
#define _XOPEN_SOURCE 700
#include "ground.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int complain(const char *what, const char *path) {
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    return -1;
}

/* snprintf() into a path; -1 where it does not fit. */
__attribute__((format(printf, 2, 3))) static int path_of(char *to, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int length = vsnprintf(to, PATH_MAX, format, list);
    va_end(list);
    if (length >= 0 && length < PATH_MAX) return 0;
    errno = ENAMETOOLONG;
    return complain("path", to);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    (void)info, (void)kind, (void)walk;
    return remove(path);
}

static int remove_tree(const char *path) {
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) == 0 || errno == ENOENT) return 0;
    return complain("remove", path);
}

/* The user's paths: the demo's directory is made through the first, the others must show it. */
static int use_backends(struct ground *ground, const char *backends) {
    const char *name = strrchr(ground->dir, '/') + 1;
    char list[PATH_MAX];
    if (path_of(list, "%s", backends)) return -1;
    char *rest = NULL;
    for (char *path = strtok_r(list, ":", &rest); path; path = strtok_r(NULL, ":", &rest)) {
        if (ground->count == GROUND_MAX_PATHS) {
            fprintf(stderr, "--backends: more than %d paths\n", GROUND_MAX_PATHS);
            return -1;
        }
        char root[PATH_MAX], *target = ground->target[ground->count];
        if (!realpath(path, root)) return complain("--backends", path);
        /* With a suffix: --dir may lie on this storage too. */
        if (path_of(target, "%s/%s.storage", root, name)) return -1;
        struct stat info;
        if (ground->count == 0) {
            if (mkdir(target, 0755)) return complain("mkdir", target);
            memcpy(ground->storage, target, PATH_MAX);
        } else if (stat(target, &info)) {
            fprintf(stderr, "--backends: %s does not show what was made through %s\n", root,
                    ground->storage);
            return -1;
        }
        ground->count++;
    }
    if (ground->count > 0) return 0;
    fprintf(stderr, "--backends: no path\n");
    return -1;
}

static int use_own_storage(struct ground *ground) {
    char storage[PATH_MAX];
    if (path_of(storage, "%s/storage", ground->dir)) return -1;
    if (mkdir(storage, 0755)) return complain("mkdir", storage);
    memcpy(ground->storage, storage, PATH_MAX);
    for (size_t at = 0; at < GROUND_OWN_PATHS; at++) memcpy(ground->target[at], storage, PATH_MAX);
    ground->count = GROUND_OWN_PATHS;
    return 0;
}

int ground_make(struct ground *ground, const char *where, const char *backends) {
    memset(ground, 0, sizeof *ground);
    char real[PATH_MAX], pattern[PATH_MAX];
    if (mkdir(where, 0755) && errno != EEXIST) return complain("mkdir", where);
    if (!realpath(where, real)) return complain("--dir", where);
    if (path_of(pattern, "%s/kvpath-demo-XXXXXX", real)) return -1;
    if (!mkdtemp(pattern)) return complain("mkdir", pattern);
    memcpy(ground->dir, pattern, PATH_MAX);

    int result = backends ? use_backends(ground, backends) : use_own_storage(ground);
    for (size_t at = 0; result == 0 && at < ground->count; at++) {
        result = path_of(ground->paths[at], "%s/path%zu", ground->dir, at);
        if (result == 0 && symlink(ground->target[at], ground->paths[at]))
            result = complain("symlink", ground->paths[at]);
    }
    if (result) ground_remove(ground);
    return result;
}

int ground_remove(struct ground *ground) {
    int result = ground->storage[0] ? remove_tree(ground->storage) : 0;
    if (ground->dir[0] && remove_tree(ground->dir)) result = -1;
    return result;
}

int ground_break(struct ground *ground, size_t path) {
    char file[PATH_MAX];
    if (path_of(file, "%s/broken", ground->dir)) return -1;
    int fd = open(file, O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd < 0 || close(fd)) return complain("create", file);
    /* rename() replaces the link at once: no moment in which the path is missing. */
    return rename(file, ground->paths[path]) ? complain("rename", file) : 0;
}

int ground_mend(struct ground *ground, size_t path) {
    char link[PATH_MAX];
    if (path_of(link, "%s/mended", ground->dir)) return -1;
    if (symlink(ground->target[path], link)) return complain("symlink", link);
    return rename(link, ground->paths[path]) ? complain("rename", link) : 0;
}

/* nftw() has no argument for its callback. */
static size_t count_bytes, count_blocks, count_others;

static int count_entry(const char *path, const struct stat *info, int kind, struct FTW *walk) {
    const char *name = path + walk->base;
    /* Level 1 is the root's own: the marker and other dot files. */
    if (kind != FTW_F || walk->level < 2) return 0;
    int is_block = strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32 &&
                   info->st_size >= 0 && (size_t)info->st_size == count_bytes;
    *(is_block ? &count_blocks : &count_others) += 1;
    return 0;
}

int ground_count(struct ground *ground, size_t block_bytes, size_t *blocks, size_t *others) {
    count_bytes = block_bytes;
    count_blocks = count_others = 0;
    if (nftw(ground->storage, count_entry, 16, FTW_PHYS)) return complain("list", ground->storage);
    *blocks = count_blocks;
    *others = count_others;
    return 0;
}

unsigned long long ground_free_bytes(const struct ground *ground) {
    struct statvfs info;
    if (statvfs(ground->storage, &info)) return 0;
    return (unsigned long long)info.f_bavail * info.f_frsize;
}
