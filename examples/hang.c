/* See hang.h. */
#define _GNU_SOURCE
#include "hang.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Only libkvpath_fault.so has them; ctest/kvpath_fault.h says what they do. */
__attribute__((weak)) kvpath_status_t kvpath_fault_add(kvpath_store_t, size_t, const char *);
__attribute__((weak)) kvpath_status_t kvpath_fault_clear(kvpath_store_t, size_t);
__attribute__((weak)) kvpath_status_t kvpath_fault_release(kvpath_store_t, size_t, size_t *);

enum { MOUNT_LIMIT_MS = 10000, LOOK_MS = 10 };

static int complain(const char *what, const char *path) {
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    return -1;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* The server process. It does not outlive the demo, however that ends. */
static pid_t start(const char *storage, const char *mount) {
    pid_t parent = getpid(), child = fork();
    if (child != 0) return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    /* Its own group: an interrupt from the terminal is for the demo, which unmounts first. */
    setpgid(0, 0);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0) dup2(null, STDERR_FILENO);
    if (getppid() == parent)
        execlp("bindfs", "bindfs", "-f", "--multithreaded", "--no-allow-other", storage, mount,
               (char *)NULL);
    _exit(127);
}

static int reap(pid_t child) {
    while (waitpid(child, NULL, 0) < 0)
        if (errno != EINTR) return complain("wait for", "bindfs");
    return 0;
}

/* Whether bindfs shows the storage at `mount` now; -1: its process has ended. */
static int is_mounted(const struct hang *hang, dev_t before) {
    struct stat info;
    if (waitpid(hang->server, NULL, WNOHANG) != 0) return -1;
    return stat(hang->mount, &info) == 0 && info.st_dev != before;
}

static int mount_bindfs(struct hang *hang, const char *storage, const char *mount) {
    struct stat before;
    if (strlen(mount) >= sizeof hang->mount) return -1;
    if (mkdir(mount, 0755) || stat(mount, &before)) return complain("mkdir", mount);
    memcpy(hang->mount, mount, strlen(mount) + 1);
    hang->server = start(storage, mount);
    int mounted = hang->server < 0 ? -1 : 0;
    for (int waited = 0; mounted == 0 && waited < MOUNT_LIMIT_MS; waited += LOOK_MS) {
        mounted = is_mounted(hang, before.st_dev);
        if (mounted == 0) sleep_ms(LOOK_MS);
    }
    if (mounted == 1) return 0;
    if (mounted == 0 && kill(hang->server, SIGKILL) == 0) reap(hang->server);
    hang->server = 0;
    hang->mount[0] = '\0';
    return rmdir(mount) ? complain("rmdir", mount) : -1;
}

int hang_make(struct hang *hang, const char *storage, const char *mount) {
    memset(hang, 0, sizeof *hang);
    if (mount_bindfs(hang, storage, mount) == 0) return 0;
    hang->in_library = kvpath_fault_add && kvpath_fault_clear && kvpath_fault_release;
    if (hang->in_library) return 0;
    fprintf(stderr, "--fault hang: needs the program bindfs and the right to mount (root, or "
                    "fusermount3), or `replay_fault`\n");
    return -1;
}

const char *hang_means(const struct hang *hang) {
    return hang->in_library ? "held back inside the library" : "its bindfs server is stopped";
}

int hang_stop(struct hang *hang, kvpath_store_t store, size_t path) {
    if (hang->in_library)
        return kvpath_fault_add(store, path, "hang any") == KVPATH_OK ? 0 : -1;
    return kill(hang->server, SIGSTOP) ? complain("stop", "bindfs") : 0;
}

int hang_go(struct hang *hang, kvpath_store_t store, size_t path) {
    if (hang->in_library) {
        size_t count;
        return kvpath_fault_clear(store, path) == KVPATH_OK &&
                       kvpath_fault_release(store, path, &count) == KVPATH_OK
                   ? 0
                   : -1;
    }
    return kill(hang->server, SIGCONT) ? complain("continue", "bindfs") : 0;
}

int hang_remove(struct hang *hang) {
    if (!hang->mount[0]) return 0;
    /* Bindfs unmounts itself when it is asked to end; a stopped one hears nothing. */
    kill(hang->server, SIGCONT);
    kill(hang->server, SIGTERM);
    int result = reap(hang->server);
    if (rmdir(hang->mount)) {
        /* Still mounted, of a server that is gone. */
        if (umount2(hang->mount, MNT_DETACH) || rmdir(hang->mount))
            result = complain("unmount", hang->mount);
    }
    hang->mount[0] = '\0';
    return result;
}
