/* See keeper.h: orders go through a pair of sockets, one after the other, each with its answer. */
#define _GNU_SOURCE
#include "keeper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

typedef enum { KILL, AGAIN, END } what_t;

typedef struct {
    what_t what;
    int at;
} order_t;

typedef struct {
    int result;
    struct faultfs fs;
} answer_t;

static int orders = -1;
static pid_t keeper;

/* Whole, or the other side is gone. */
static bool put(int to, const void *bytes, size_t count)
{
    return send(to, bytes, count, MSG_NOSIGNAL) == (ssize_t)count;
}

static bool take(int from, void *bytes, size_t count)
{
    ssize_t got;
    do got = recv(from, bytes, count, MSG_WAITALL);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)count;
}

static int stop_all(struct faultfs *mounts, int count)
{
    int result = 0;
    for (int at = 0; at < count; at++) result |= faultfs_stop(&mounts[at]);
    return result;
}

/* The other process, until it is told to end or nobody is there any more. It must not run what this
 * one does at its exit. */
static _Noreturn void keep(int from, int count, const char *storage, unsigned max_seconds)
{
    static struct faultfs mounts[FAULTFS_MOUNTS_MAX];
    static answer_t answer;
    order_t order;
    for (int at = 0; at < count; at++) {
        answer.result = faultfs_start(&mounts[at], storage, max_seconds);
        answer.fs = mounts[at];
        if (!put(from, &answer, sizeof answer)) break;
    }
    while (take(from, &order, sizeof order)) {
        if (order.what == KILL) {
            faultfs_kill(&mounts[order.at]);
            answer.result = 0;
        } else if (order.what == AGAIN) {
            answer.result = faultfs_again(&mounts[order.at], max_seconds);
        } else {
            answer.result = stop_all(mounts, count);
        }
        answer.fs = mounts[order.at];
        if (!put(from, &answer, sizeof answer)) break;
    }
    stop_all(mounts, count);
    _exit(0);
}

static void receive(struct faultfs *fs)
{
    static answer_t answer; /* one caller at a time */
    if (!take(orders, &answer, sizeof answer)) FAIL("the keeper of the mounts is gone");
    if (answer.result != 0) FAIL("faultfs: %s", answer.fs.error);
    if (fs != NULL) *fs = answer.fs;
}

static void order(what_t what, int at, struct faultfs *fs)
{
    const order_t order = {what, at};
    if (!put(orders, &order, sizeof order)) FAIL("the keeper of the mounts is gone");
    receive(fs);
}

void keeper_start(struct faultfs *mounts, int count, const char *storage, unsigned max_seconds)
{
    int ends[2];
    CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
    keeper = fork();
    CHECK(keeper >= 0);
    if (keeper == 0) {
        close(ends[0]);
        keep(ends[1], count, storage, max_seconds);
    }
    close(ends[1]);
    orders = ends[0];
    for (int at = 0; at < count; at++) receive(&mounts[at]);
}

void keeper_kill(struct faultfs *mounts, int at) { order(KILL, at, &mounts[at]); }

void keeper_again(struct faultfs *mounts, int at) { order(AGAIN, at, &mounts[at]); }

void keeper_end(void)
{
    order(END, 0, NULL);
    close(orders);
    CHECK(waitpid(keeper, NULL, 0) == keeper);
}
