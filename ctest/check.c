/* check.h: cases, checks and files. Stores and blocks are in blocks.c. */
#define _GNU_SOURCE
#include "check.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_CASES = 128, MAX_DIRS = 256, EXIT_SKIP = 77 };

static struct {
    const char *name;
    case_fn run;
} cases[MAX_CASES];
static int case_count;
static case_fn at_end;

static char *dirs[MAX_DIRS];
static int dir_count;
static pid_t owner;

void case_register(const char *name, case_fn run)
{
    if (case_count == MAX_CASES) abort();
    cases[case_count].name = name;
    cases[case_count++].run = run;
}

void check_at_end(case_fn look) { at_end = look; }

static int remove_entry(const char *path, const struct stat *what, int type, struct FTW *where)
{
    (void)what, (void)type, (void)where;
    return remove(path);
}

static void clean(void)
{
    if (getpid() != owner) return;
    for (int at = 0; at < dir_count; at++) nftw(dirs[at], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    dir_count = 0;
}

static void clean_and_die(int signal_number)
{
    clean();
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void leave(int code)
{
    fflush(NULL);
    if (getpid() != owner) _exit(code);
    exit(code);
}

void check_failed(const char *file, int line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "%s:%d: ", file, line);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    leave(EXIT_FAILURE);
    abort();
}

void check_skip(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("skipped: ", stdout);
    vprintf(format, arguments);
    putchar('\n');
    va_end(arguments);
    leave(EXIT_SKIP);
    abort();
}

int main(int count, char **words)
{
    owner = getpid();
    atexit(clean);
    signal(SIGTERM, clean_and_die);
    signal(SIGINT, clean_and_die);
    signal(SIGABRT, clean_and_die);
    signal(SIGPIPE, SIG_IGN);
    for (int at = 0; at < case_count; at++) {
        if (count == 2 && strcmp(words[1], cases[at].name) == 0) {
            cases[at].run();
            if (at_end != NULL) at_end();
            return EXIT_SUCCESS;
        }
    }
    fprintf(stderr, "usage: %s CASE, one of:\n", words[0]);
    for (int at = 0; at < case_count; at++) fprintf(stderr, "  %s\n", cases[at].name);
    return EXIT_FAILURE;
}

void check_has(const char *file, int line, const char *whole, const char *part)
{
    if (strstr(whole, part) == NULL) check_failed(file, line, "no \"%s\" in: %.2000s", part, whole);
}

const char *temp_dir(void)
{
    const char *base = getenv("KVPATH_TEST_DIR");
    if (base == NULL) base = getenv("TMPDIR");
    if (base == NULL) base = "/tmp";
    if (mkdir(base, 0777) != 0 && errno != EEXIST) FAIL("mkdir %s: %s", base, strerror(errno));
    char *path = realpath(base, NULL);
    if (path == NULL) FAIL("realpath %s: %s", base, strerror(errno));
    char *name = (char *)text("%s/case-XXXXXX", path);
    free(path);
    if (mkdtemp(name) == NULL) FAIL("mkdtemp %s: %s", name, strerror(errno));
    CHECK(dir_count < MAX_DIRS);
    dirs[dir_count++] = name;
    return name;
}

const char *own_tmpfs(const char *options)
{
    const char *dir = temp_dir();
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        SKIP("this system gives no mount namespace");
    if (mount("tmpfs", dir, "tmpfs", 0, options) != 0) SKIP("this system does not let us mount");
    return dir;
}

/* Kept in a list, so that leak checkers see that it is not lost. */
static struct kept {
    struct kept *next;
    char *text;
} * kept;

const char *text(const char *format, ...)
{
    va_list arguments;
    struct kept *entry = malloc(sizeof *entry);
    CHECK(entry != NULL);
    va_start(arguments, format);
    CHECK(vasprintf(&entry->text, format, arguments) >= 0);
    va_end(arguments);
    entry->next = __atomic_load_n(&kept, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&kept, &entry->next, entry, true, __ATOMIC_RELEASE,
                                        __ATOMIC_RELAXED)) {
    }
    return entry->text;
}

bool exists(const char *path)
{
    struct stat what;
    return lstat(path, &what) == 0;
}

uint8_t *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    struct stat what;
    if (file == NULL) return NULL;
    CHECK(fstat(fileno(file), &what) == 0);
    uint8_t *content = malloc((size_t)what.st_size + 1);
    CHECK(content != NULL);
    *bytes = fread(content, 1, (size_t)what.st_size + 1, file);
    fclose(file);
    return content;
}

void write_file(const char *path, const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL) FAIL("open %s: %s", path, strerror(errno));
    CHECK(fwrite(bytes, 1, count, file) == count);
    CHECK(fclose(file) == 0);
}

static const char *counted_part;
static size_t counted;

static int count_entry(const char *path, const struct stat *what, int type, struct FTW *where)
{
    (void)what, (void)where;
    if (type != FTW_D && (counted_part == NULL || strstr(path, counted_part) != NULL)) counted++;
    return 0;
}

size_t count_files(const char *dir, const char *part)
{
    /* A directory that goes meanwhile, as the lease of collection does, ends the walk. */
    int walked;
    do {
        counted_part = part;
        counted = 0;
        walked = nftw(dir, count_entry, 16, FTW_PHYS);
    } while (walked != 0 && errno == ENOENT && access(dir, F_OK) == 0);
    CHECK(walked == 0);
    return counted;
}

void wait_gone(const char *dir, const char *part)
{
    enum { LIMIT_MS = 60000 };
    char events[4096];
    int watch = inotify_init1(IN_CLOEXEC);
    CHECK(watch >= 0);
    CHECK(inotify_add_watch(watch, dir, IN_DELETE | IN_MOVED_FROM) >= 0);
    while (count_files(dir, part) > 0) {
        struct pollfd poll_of = {.fd = watch, .events = POLLIN};
        if (poll(&poll_of, 1, LIMIT_MS) != 1) FAIL("%s is still in %s", part, dir);
        CHECK(read(watch, events, sizeof events) > 0);
    }
    close(watch);
}

/* How many names a directory has: all, or those that `counts` says yes to. */
static size_t entries(const char *path, bool (*counts)(const char *name))
{
    size_t count = 0;
    DIR *dir = opendir(path);
    CHECK(dir != NULL);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.' && (counts == NULL || counts(entry->d_name));
    closedir(dir);
    return count;
}

/* The kernel lists a thread for a moment after it was joined. */
static bool is_not_exiting(const char *name)
{
    enum { PF_EXITING = 4 };
    char path[64], line[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%.20s/stat", name);
    FILE *file = fopen(path, "r");
    CHECK(file != NULL || errno == ENOENT || errno == ESRCH);
    if (file == NULL) return false;
    const char *fields = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    unsigned flags = 0;
    if (fields == NULL) return false;
    CHECK(sscanf(fields, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1);
    return (flags & PF_EXITING) == 0;
}

size_t thread_count(void) { return entries("/proc/self/task", is_not_exiting); }

size_t descriptor_count(void) { return entries("/proc/self/fd", NULL) - 1; }

size_t resident_kib(void)
{
    size_t kib = 0;
    char line[256];
    FILE *file = fopen("/proc/self/status", "r");
    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "VmRSS: %zu kB", &kib) == 1) break;
    fclose(file);
    return kib;
}

bool direct_works(const char *dir)
{
    const char *path = text("%s/direct-XXXXXX", dir);
    int file = mkostemp((char *)path, O_DIRECT);
    if (file < 0) {
        unlink(path);
        return false;
    }
    void *page = NULL;
    CHECK(posix_memalign(&page, 4096, 4096) == 0);
    memset(page, 0, 4096);
    bool works = pwrite(file, page, 4096, 0) == 4096;
    free(page);
    close(file);
    unlink(path);
    return works;
}

const char *engine(void)
{
    const char *name = getenv("KVPATH_TEST_ENGINE");
    return name != NULL ? name : "psync";
}
