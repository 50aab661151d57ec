/* limits.h. */
#define _GNU_SOURCE
#include "limits.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CHILD_LIMIT_S = 240, LOG_LIMIT_S = 60, DESCRIPTORS_MAX = 1024 };

void in_child(void (*body)(const char *root), const char *root)
{
    int status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(CHILD_LIMIT_S);
        signal(SIGALRM, SIG_DFL);
        body(root);
        fflush(NULL);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) SKIP("the child did");
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) FAIL("the child hangs");
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) FAIL("the child ended with %#x", status);
}

void become_ordinary(void)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct kept[2] = {{0, 0, 0}, {0, 0, 0}};
    uid_t user = 200000 + (uid_t)getpid();
    if (geteuid() != 0) SKIP("needs root, to become another user");
    CHECK(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) == 0);
    if (setresuid(user, user, user) != 0) SKIP("setresuid: %s", strerror(errno));
    kept[0].effective = kept[0].permitted = 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER;
    CHECK(syscall(SYS_capset, &head, kept) == 0);
    /* A change of user makes a process unreadable in /proc, its own threads included. */
    CHECK(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) == 0);
}

void set_soft(int resource, rlim_t value)
{
    struct rlimit limit;
    CHECK(getrlimit((__rlimit_resource_t)resource, &limit) == 0);
    limit.rlim_cur = value;
    CHECK(setrlimit((__rlimit_resource_t)resource, &limit) == 0);
}

void set_hard(int resource, rlim_t value)
{
    struct rlimit limit = {value, value};
    CHECK(setrlimit((__rlimit_resource_t)resource, &limit) == 0);
}

static int taken[DESCRIPTORS_MAX];
static size_t taken_count;

size_t take_descriptors(rlim_t most)
{
    set_soft(RLIMIT_NOFILE, most);
    while (taken_count < DESCRIPTORS_MAX) {
        int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd < 0) {
            CHECK_EQ(errno, EMFILE);
            return taken_count;
        }
        taken[taken_count++] = fd;
    }
    FAIL("there are more than %d descriptors", DESCRIPTORS_MAX);
}

void give_back(size_t count)
{
    for (; count > 0 && taken_count > 0; count--) close(taken[--taken_count]);
}

void refuse_call(long number, int code)
{
    struct sock_filter lines[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)code),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof lines / sizeof *lines, lines};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        SKIP("seccomp: %s", strerror(errno));
}

static const char *sysctl_path(const char *name) { return text("/proc/sys/%s", name); }

long long sysctl_of(const char *name)
{
    size_t bytes = 0;
    char *content = (char *)read_file(sysctl_path(name), &bytes);
    long long value = -1;
    FILE *file = fopen(sysctl_path(name), "r");
    free(content);
    if (file == NULL) return -1;
    if (fscanf(file, "%lld", &value) != 1) value = -1;
    fclose(file);
    return value;
}

static bool sysctl_write(const char *path, long long value)
{
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%lld\n", value);
    int file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    bool written = write(file, digits, (size_t)length) == length;
    close(file);
    return written;
}

/* Waits until whoever made it is gone, however that came about, and puts the value back. */
static void guard_sysctl(const char *path, long long old)
{
    int life[2];
    char nothing;
    CHECK(pipe2(life, O_CLOEXEC) == 0);
    pid_t guardian = fork();
    CHECK(guardian >= 0);
    if (guardian == 0) {
        setsid();
        for (int number = 1; number < SIGRTMIN; number++) signal(number, SIG_IGN);
        close(life[1]);
        while (read(life[0], &nothing, 1) < 0 && errno == EINTR) {
        }
        _exit(sysctl_write(path, old) ? 0 : 1);
    }
    close(life[0]); /* the other end stays open as long as this process lives */
}

void sysctl_set(const char *name, long long value)
{
    static const char *guarded[8];
    static size_t guarded_count;
    const char *path = sysctl_path(name);
    long long old = sysctl_of(name);
    if (old < 0) SKIP("there is no %s", name);
    if (access(path, W_OK) != 0 || geteuid() != 0) SKIP("%s may not be written", name);
    bool known = false;
    for (size_t at = 0; at < guarded_count; at++) known |= strcmp(guarded[at], name) == 0;
    if (!known) {
        CHECK(guarded_count < 8);
        guarded[guarded_count++] = name;
        guard_sysctl(path, old);
    }
    if (!sysctl_write(path, value)) SKIP("%s cannot be written: %s", name, strerror(errno));
    CHECK_EQ(sysctl_of(name), value);
}

const char *direct_config(const char *root, shape_t shape, const char *extra)
{
    return text("{\"storage_backends\": [\"%s\"], \"device_id\": 0, \"tensor_size\": %zu, "
                "\"shard_size\": %zu, \"block_size\": %zu, \"posix_io_engine\": \"%s\", "
                "\"io_direct\": true, \"io_direct_fallback\": true, \"data_dir_shard_bytes\": 0%s}",
                root, shape.tensor, shape.shard, shape.block, engine(), extra);
}

const char *engine_used(kvpath_store_t store)
{
    static const char key[] = "\"engine\":{\"name\":\"";
    const char *stats = report(kvpath_stats_json, store);
    const char *name = strstr(stats, key);
    if (name == NULL) FAIL("no engine in: %.2000s", stats);
    name += sizeof key - 1;
    return text("%.*s", (int)strcspn(name, "\""), name);
}

kvpath_store_t open_shown(const char *json)
{
    kvpath_store_t store = open_store(json);
    printf("engine asked for %s, running %s\n", engine(), engine_used(store));
    return store;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t more;
    char text[65536];
    size_t length;
} kept = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, "", 0};

static void keep(int32_t level, const char *id, const char *line, void *user)
{
    (void)level, (void)user;
    pthread_mutex_lock(&kept.lock);
    size_t room = sizeof kept.text - kept.length;
    int length = snprintf(kept.text + kept.length, room, "%s %s\n", id, line);
    if (length > 0) kept.length += (size_t)length < room ? (size_t)length : room - 1;
    pthread_cond_broadcast(&kept.more);
    pthread_mutex_unlock(&kept.lock);
}

void log_keep(void) { CHECK_OK(kvpath_set_log_callback(keep, KVPATH_LOG_INFO, NULL)); }

const char *log_text(void)
{
    pthread_mutex_lock(&kept.lock);
    const char *copy = text("%s", kept.text);
    pthread_mutex_unlock(&kept.lock);
    return copy;
}

void log_wait(const char *part)
{
    struct timespec end;
    bool there, late = false;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += LOG_LIMIT_S;
    pthread_mutex_lock(&kept.lock);
    while (!(there = strstr(kept.text, part) != NULL) && !late)
        late = pthread_cond_timedwait(&kept.more, &kept.lock, &end) == ETIMEDOUT;
    pthread_mutex_unlock(&kept.lock);
    if (!there) FAIL("no \"%s\" in the log: %.4000s", part, log_text());
}

void check_nothing_counted(kvpath_store_t store)
{
    kvpath_backend_health_t backends[64];
    size_t count = 0;
    memset(backends, 0, sizeof backends);
    backends[0].size = sizeof backends[0];
    CHECK_OK(kvpath_health(store, backends, 64, &count));
    for (size_t at = 0; at < count; at++) {
        if (backends[at].failures != 0 || backends[at].transitions != 0)
            FAIL("%s has %u failures and %llu changes: %s", backends[at].path,
                 backends[at].failures, (unsigned long long)backends[at].transitions,
                 backends[at].last_error);
        CHECK_EQ(backends[at].state, KVPATH_BACKEND_AVAILABLE);
    }
}
