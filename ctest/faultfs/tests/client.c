/*
 * The C client on real mounts. With the argument "leave" it exits without stopping its server,
 * which hangs and is frozen: the run without arguments looks whether anything stayed.
 */
#define _GNU_SOURCE
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno);      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static char path[2 * FAULTFS_PATH_BYTES];

static const char *below(const char *directory, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static void put(const char *directory, const char *name, const char *text)
{
    int fd = open(below(directory, name), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);

    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK(close(fd) == 0);
}

static int holds(const char *file, const char *text)
{
    char data[64];
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    ssize_t count = fd >= 0 ? read(fd, data, sizeof data) : -1;

    if (fd >= 0) {
        close(fd);
    }
    return count == (ssize_t)strlen(text) && memcmp(data, text, (size_t)count) == 0;
}

static void *read_in_thread(void *file)
{
    return holds(file, "text") ? file : NULL;
}

static void hang_and_release(void)
{
    struct faultfs first, second;
    char file[2 * FAULTFS_PATH_BYTES];
    pthread_t thread;
    void *result;
    long long rule;

    CHECK(faultfs_start(&first, NULL, 60) == 0);
    CHECK(faultfs_start(&second, first.root, 60) == 0);
    put(first.mount, "a", "text");
    CHECK(faultfs_command(&first, NULL, 0, "counts reset") == 0);
    rule = faultfs_number(&first, "rule add %s * count=1 hang", "read");
    CHECK(rule > 0);
    snprintf(file, sizeof file, "%s", below(first.mount, "a"));
    CHECK(pthread_create(&thread, NULL, read_in_thread, file) == 0);
    CHECK(faultfs_command(&first, NULL, 0, "wait-hung 1 30000 read") == 0);
    CHECK(holds(below(second.mount, "a"), "text"));
    CHECK(holds(below(first.mount, "a"), "text"));
    CHECK(faultfs_number(&first, "release %lld", rule) == 1);
    CHECK(pthread_join(thread, &result) == 0 && result != NULL);
    CHECK(faultfs_count(&first, "open", NULL) == 2);
    CHECK(faultfs_count(&second, "open", "a") == 1);
    CHECK(faultfs_count(&second, "write", "*") == 0);
    CHECK(faultfs_count(&second, "nothing", "*") == -1);
    CHECK(faultfs_number(&first, "rule add open * hang") == -1);
    CHECK(strncmp(first.error, "error ", 6) == 0);
    CHECK(faultfs_stop(&second) == 0);
    CHECK(faultfs_stop(&first) == 0);
    CHECK(faultfs_stop(&first) == 0);
    CHECK(access(first.mount, F_OK) != 0 && access(first.root, F_OK) != 0);
}

static void crash(void)
{
    struct faultfs fs;
    struct stat status;

    CHECK(faultfs_start(&fs, NULL, 60) == 0);
    put(fs.mount, "a", "text");
    faultfs_kill(&fs);
    CHECK(stat(below(fs.mount, "a"), &status) != 0 && errno == ENOTCONN);
    CHECK(holds(below(fs.root, "a"), "text"));
    CHECK(faultfs_command(&fs, NULL, 0, "hung") == -1);
    CHECK(faultfs_stop(&fs) == -1);
    CHECK(access(fs.mount, F_OK) != 0 && errno == ENOENT);
}

static int leave(void)
{
    static struct faultfs fs;
    static char file[2 * FAULTFS_PATH_BYTES];
    pthread_t thread;

    CHECK(faultfs_start(&fs, NULL, 60) == 0);
    put(fs.mount, "a", "text");
    CHECK(faultfs_command(&fs, NULL, 0, "freeze") == 0);
    snprintf(file, sizeof file, "%s", below(fs.mount, "a"));
    CHECK(pthread_create(&thread, NULL, read_in_thread, file) == 0);
    CHECK(faultfs_command(&fs, NULL, 0, "wait-hung 1 30000") == 0);
    printf("%s\n", fs.mount);
    return 0;
}

static void exit_cleans_up(const char *self)
{
    char command[2 * FAULTFS_PATH_BYTES];
    char mount[FAULTFS_PATH_BYTES];
    FILE *output;

    snprintf(command, sizeof command, "'%s' leave", self);
    output = popen(command, "r");
    CHECK(output != NULL);
    CHECK(fgets(mount, sizeof mount, output) != NULL);
    CHECK(pclose(output) == 0);
    mount[strcspn(mount, "\n")] = '\0';
    CHECK(access(mount, F_OK) != 0 && errno == ENOENT);
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "leave") == 0) {
        return leave();
    }
    if (faultfs_cannot() != NULL) {
        printf("skipped: %s\n", faultfs_cannot());
        return FAULTFS_SKIP;
    }
    hang_and_release();
    crash();
    exit_cleans_up(argv[0]);
    puts("ok");
    return 0;
}
