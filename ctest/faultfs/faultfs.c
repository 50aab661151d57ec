/*
 * See faultfs.h: starting and stopping servers. A mount lives in a temporary directory of its own:
 * mount point, control socket, and the root where the caller has none. The slots know what must be
 * cleaned up at exit.
 */
#define _GNU_SOURCE
#include "faultfs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef FAULTFS_BIN
#define FAULTFS_BIN "faultfs"
#endif

enum {
    START_LIMIT_MS = 30000,
    STOP_LIMIT_MS = 30000,
    DELETE_DESCRIPTORS = 16,
    EXIT_CANNOT_MOUNT = 4,
};

/* What is to be cleaned up for one server. */
struct slot {
    pid_t pid;
    int alive; /* read end of a pipe that the server holds open: hung up when it is gone */
    int used;
    char base[FAULTFS_PATH_BYTES];
    char mount[FAULTFS_PATH_BYTES];
};

static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[FAULTFS_MOUNTS_MAX];
static pid_t slots_owner;
static pthread_once_t cannot_once = PTHREAD_ONCE_INIT;
static char cannot_text[FAULTFS_TEXT_BYTES];

static int fail(struct faultfs *fs, const char *what)
{
    snprintf(fs->error, sizeof fs->error, "%s: %s", what, strerror(errno));
    return -1;
}

static const char *binary(void)
{
    const char *name = getenv("FAULTFS_BIN");
    return name != NULL && name[0] != '\0' ? name : FAULTFS_BIN;
}

static int delete_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    (void)status, (void)kind, (void)where;
    remove(path);
    return 0;
}

/* Deletes a tree, but nothing that is mounted in it. */
static void delete_tree(const char *base)
{
    if (base[0] != '\0') {
        nftw(base, delete_one, DELETE_DESCRIPTORS, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    }
}

static void detach(const char *mount)
{
    char command[FAULTFS_PATH_BYTES + 64];

    if (umount2(mount, MNT_DETACH | UMOUNT_NOFOLLOW) == 0 || errno != EPERM) {
        return;
    }
    snprintf(command, sizeof command, "fusermount3 -q -u -z -- '%s'", mount);
    if (system(command) != 0) {
        fprintf(stderr, "faultfs: %s is still mounted\n", mount);
    }
}

/* Ends a server, by force where it has not gone after `limit_ms`, and removes what it leaves. */
static int clean_up(struct slot *slot, int limit_ms)
{
    struct pollfd alive = {.fd = slot->alive, .events = 0, .revents = 0};
    int status = 0;
    int ready;

    do {
        ready = limit_ms > 0 ? poll(&alive, 1, limit_ms) : 0;
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        kill(slot->pid, SIGKILL);
    }
    while (waitpid(slot->pid, &status, 0) < 0 && errno == EINTR) {
    }
    close(slot->alive);
    detach(slot->mount);
    delete_tree(slot->base);
    slot->used = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void at_exit(void)
{
    if (getpid() != slots_owner) {
        return; /* a fork of the test must not end the test's servers */
    }
    for (int i = 0; i < FAULTFS_MOUNTS_MAX; i++) {
        if (slots[i].used) {
            clean_up(&slots[i], 0);
        }
    }
}

/* A free slot, or NULL. */
static struct slot *take_slot(void)
{
    struct slot *found = NULL;

    pthread_mutex_lock(&slots_lock);
    if (slots_owner != getpid()) {
        if (slots_owner == 0) {
            atexit(at_exit);
        }
        memset(slots, 0, sizeof slots);
        slots_owner = getpid();
    }
    for (int i = 0; i < FAULTFS_MOUNTS_MAX && found == NULL; i++) {
        if (!slots[i].used) {
            found = &slots[i];
            memset(found, 0, sizeof *found);
        }
    }
    if (found != NULL) {
        found->used = 1;
    }
    pthread_mutex_unlock(&slots_lock);
    return found;
}

static int make_places(struct faultfs *fs, struct slot *slot, const char *root)
{
    const char *tmp = getenv("TMPDIR");
    int length;

    length = snprintf(slot->base, sizeof slot->base, "%s/faultfs-XXXXXX",
                      tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    /* A socket's path has less than 108 bytes; "/control" must still fit. */
    if (length < 0 || length > 90 || mkdtemp(slot->base) == NULL) {
        return fail(fs, "temporary directory");
    }
    snprintf(fs->mount, sizeof fs->mount, "%.90s/mount", slot->base);
    snprintf(fs->socket, sizeof fs->socket, "%.90s/control", slot->base);
    snprintf(slot->mount, sizeof slot->mount, "%s", fs->mount);
    if (root != NULL) {
        length = snprintf(fs->root, sizeof fs->root, "%s", root);
        errno = ENAMETOOLONG;
        return length < (int)sizeof fs->root ? 0 : fail(fs, root);
    }
    snprintf(fs->root, sizeof fs->root, "%.90s/root", slot->base);
    return mkdir(fs->root, 0755) == 0 ? 0 : fail(fs, fs->root);
}

/* Between fork and exec: async-signal-safe calls only. */
static _Noreturn void become_server(char **argv, pid_t parent, int ready)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    fcntl(ready, F_SETFD, 0);
    if (getppid() == parent) {
        execvp(argv[0], argv);
    }
    _exit(127);
}

static int spawn(struct faultfs *fs, struct slot *slot, unsigned max_seconds)
{
    char ready_text[16];
    char seconds_text[16];
    char name[PATH_MAX];
    char *argv[] = {name,           "--root",      fs->root,        "--mount",    fs->mount,
                    "--control",    fs->socket,    "--ready-fd",    ready_text,   "--max-seconds",
                    seconds_text,   NULL};
    pid_t parent = getpid();
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return fail(fs, "pipe");
    }
    snprintf(name, sizeof name, "%s", binary());
    snprintf(ready_text, sizeof ready_text, "%d", ends[1]);
    snprintf(seconds_text, sizeof seconds_text, "%u", max_seconds > 0 ? max_seconds : 300);
    slot->pid = fork();
    if (slot->pid == 0) {
        become_server(argv, parent, ends[1]);
    }
    close(ends[1]);
    slot->alive = ends[0];
    if (slot->pid < 0) {
        close(ends[0]);
        return fail(fs, "fork");
    }
    return 0;
}

/* Reads the line "ready", or finds that the server has gone. */
static int wait_ready(struct slot *slot)
{
    struct pollfd alive = {.fd = slot->alive, .events = POLLIN, .revents = 0};
    char line[16];
    int ready;

    do {
        ready = poll(&alive, 1, START_LIMIT_MS);
    } while (ready < 0 && errno == EINTR);
    return ready > 0 && read(slot->alive, line, sizeof line) > 0 ? 0 : -1;
}

/* Gives 0, -1, or the exit status of a server that ended at once; then the slot is free. */
static int launch(struct faultfs *fs, struct slot *slot, unsigned max_seconds)
{
    int status;

    fs->pid = 0;
    if (spawn(fs, slot, max_seconds) != 0) {
        delete_tree(slot->base);
        slot->used = 0;
        return -1;
    }
    if (wait_ready(slot) != 0) {
        status = clean_up(slot, STOP_LIMIT_MS);
        snprintf(fs->error, sizeof fs->error, "%s did not start (status %d)", binary(), status);
        return status > 0 ? status : -1;
    }
    fs->pid = slot->pid;
    fs->slot = (int)(slot - slots);
    return 0;
}

/* As `launch`. */
static int start(struct faultfs *fs, const char *root, unsigned max_seconds)
{
    struct slot *slot = take_slot();

    memset(fs, 0, sizeof *fs);
    if (slot == NULL) {
        snprintf(fs->error, sizeof fs->error, "more than %d mounts", FAULTFS_MOUNTS_MAX);
        return -1;
    }
    if (make_places(fs, slot, root) != 0) {
        delete_tree(slot->base);
        slot->used = 0;
        return -1;
    }
    return launch(fs, slot, max_seconds);
}

int faultfs_start(struct faultfs *fs, const char *root, unsigned max_seconds)
{
    return start(fs, root, max_seconds) == 0 ? 0 : -1;
}

static void try_once(void)
{
    struct faultfs fs;
    int status;

    if (access("/dev/fuse", R_OK | W_OK) != 0) {
        snprintf(cannot_text, sizeof cannot_text, "/dev/fuse: %s", strerror(errno));
        return;
    }
    if (strchr(binary(), '/') != NULL && access(binary(), X_OK) != 0) {
        snprintf(cannot_text, sizeof cannot_text, "%.900s: %s", binary(), strerror(errno));
        return;
    }
    status = start(&fs, NULL, 60);
    if (status == EXIT_CANNOT_MOUNT) {
        snprintf(cannot_text, sizeof cannot_text, "this machine does not let faultfs mount");
    } else if (status == 127) {
        snprintf(cannot_text, sizeof cannot_text, "%.900s cannot be run", binary());
    } else if (status == 0) {
        faultfs_stop(&fs);
    } /* any other failure is one for the test to meet */
}

const char *faultfs_cannot(void)
{
    pthread_once(&cannot_once, try_once);
    return cannot_text[0] != '\0' ? cannot_text : NULL;
}

void faultfs_kill(struct faultfs *fs)
{
    siginfo_t info;

    if (fs->pid > 0 && kill(fs->pid, SIGKILL) == 0) {
        /* Wait, but leave the status for faultfs_stop. */
        while (waitid(P_PID, (id_t)fs->pid, &info, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
        }
    }
}

int faultfs_again(struct faultfs *fs, unsigned max_seconds)
{
    struct slot *slot = &slots[fs->slot];

    while (waitpid(slot->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    close(slot->alive);
    detach(slot->mount);
    unlink(fs->socket);
    return launch(fs, slot, max_seconds) == 0 ? 0 : -1;
}

int faultfs_stop(struct faultfs *fs)
{
    int quit, status;

    if (fs->pid <= 0) {
        return 0;
    }
    quit = faultfs_command(fs, NULL, 0, "quit");
    status = clean_up(&slots[fs->slot], quit == 0 ? STOP_LIMIT_MS : 0);
    fs->pid = 0;
    return quit == 0 && status == 0 ? 0 : -1;
}
