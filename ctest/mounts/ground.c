/* ground.h. What must be undone stands in memory that the watchdog shares. */
#define _GNU_SOURCE
#include "ground.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WATCH_MS = 240000, MOUNTED_MAX = 16, PATH_BYTES = 256, SKIPPED = 77 };

static struct undo {
    pid_t servers[SERVERS_MAX];
    int mounted;
    char mounts[MOUNTED_MAX][PATH_BYTES];
    char frozen[PATH_BYTES];
} * undo;
static pid_t owner, watchdog;
static int alive = -1; /* closed with this process, and by nothing else */

static int ask_ext4(const char *where, unsigned long what)
{
    int root = open(where, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) return -1;
    int result = ioctl(root, what, 0);
    close(root);
    return result;
}

static void undo_all(void)
{
    if (undo->frozen[0] != '\0') ask_ext4(undo->frozen, FITHAW);
    for (int at = 0; at < SERVERS_MAX; at++)
        if (undo->servers[at] > 0) kill(undo->servers[at], SIGKILL); /* a stopped one, too */
    for (int at = undo->mounted; at-- > 0;) umount2(undo->mounts[at], MNT_DETACH);
}

static void at_exit(void)
{
    if (getpid() != owner) return;
    undo_all();
    for (int at = 0; at < SERVERS_MAX; at++)
        if (undo->servers[at] > 0) waitpid(undo->servers[at], NULL, 0);
    close(alive);
    waitpid(watchdog, NULL, 0);
}

/* Waits for the end of the test, whatever ends it, or for its time. */
static _Noreturn void watch(int other_end)
{
    struct pollfd end = {.fd = other_end, .events = POLLIN};
    setsid();
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    while (poll(&end, 1, WATCH_MS) < 0 && errno == EINTR) {
    }
    undo_all();
    _exit(0);
}

static void start_watchdog(void)
{
    int ends[2];
    CHECK(pipe2(ends, O_CLOEXEC) == 0);
    watchdog = fork();
    CHECK(watchdog >= 0);
    if (watchdog == 0) {
        close(ends[1]);
        for (int fd = 0; fd < 3; fd++) close(fd); /* CTest waits for these */
        watch(ends[0]);
    }
    close(ends[0]);
    alive = ends[1];
}

void ground_begin(void)
{
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
        SKIP("no mount namespace: not root?");
    undo = mmap(NULL, sizeof *undo, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(undo != MAP_FAILED);
    owner = getpid();
    start_watchdog();
    atexit(at_exit);
}

static void remember(const char *where)
{
    CHECK(undo->mounted < MOUNTED_MAX);
    snprintf(undo->mounts[undo->mounted], PATH_BYTES, "%s", where);
    undo->mounted++;
}

static int run(const char *command)
{
    int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void shell(const char *format, ...)
{
    char command[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    if (run(command) != 0) FAIL("failed: %s", command);
}

void need_program(const char *name)
{
    if (run(text("PATH=\"$PATH:/usr/sbin:/sbin\" command -v %s >/dev/null", name)) != 0)
        SKIP("no %s", name);
}

void bind_at(const char *what, const char *where)
{
    CHECK(mount(what, where, NULL, MS_BIND, NULL) == 0);
    remember(where);
}

void detach(const char *where) { CHECK(umount2(where, MNT_DETACH) == 0); }

const char *ext4_new(unsigned mib, const char *options)
{
    need_program("mkfs.ext4");
    need_program("losetup");
    const char *image = text("%s/image", temp_dir()), *where = temp_dir();
    shell("truncate -s %uM '%s'", mib, image);
    shell("PATH=\"$PATH:/usr/sbin:/sbin\" mkfs.ext4 -q -F %s '%s'", options, image);
    if (run(text("mount -o loop '%s' '%s' 2>/dev/null", image, where)) != 0)
        SKIP("no loop device to mount an ext4 on");
    remember(where);
    return where;
}

void freeze(const char *where)
{
    snprintf(undo->frozen, sizeof undo->frozen, "%s", where); /* before, so that it is undone */
    if (ask_ext4(where, FIFREEZE) != 0) SKIP("cannot freeze: %s", strerror(errno));
}

void thaw(const char *where)
{
    CHECK(ask_ext4(where, FITHAW) == 0);
    undo->frozen[0] = '\0';
}

/* ---- bindfs ---- */

static _Noreturn void become_bindfs(const char *what, const char *where)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    execlp("bindfs", "bindfs", "-f", what, where, (char *)NULL);
    _exit(SKIPPED);
}

static bool is_mounted(void *where)
{
    struct stat here, above;
    if (stat(where, &here) != 0) return false;
    return stat(text("%s/..", (char *)where), &above) == 0 && here.st_dev != above.st_dev;
}

int bindfs_at(const char *what, const char *where)
{
    int server = 0;
    need_program("bindfs");
    if (access("/dev/fuse", R_OK | W_OK) != 0) SKIP("no /dev/fuse");
    while (server < SERVERS_MAX && undo->servers[server] != 0) server++;
    CHECK(server < SERVERS_MAX);
    pid_t made = fork();
    CHECK(made >= 0);
    if (made == 0) become_bindfs(what, where);
    undo->servers[server] = made;
    remember(where);
    wait_for("the mount", is_mounted, (void *)(uintptr_t)where);
    return server;
}

void bindfs_signal(int server, int signal_number)
{
    CHECK(kill(undo->servers[server], signal_number) == 0);
}

void bindfs_kill(int server)
{
    bindfs_signal(server, SIGKILL);
    CHECK(waitpid(undo->servers[server], NULL, 0) == undo->servers[server]);
    undo->servers[server] = 0;
}
