/*
 * See faultfs.h: talking to a server. Each command has a connection of its own, so that commands
 * that wait hold up no others and no lock is needed.
 */
#define _GNU_SOURCE
#include "faultfs.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { REPLY_LIMIT_S = 120, COMMAND_BYTES = 4096 };

static int fail(struct faultfs *fs, const char *what)
{
    snprintf(fs->error, sizeof fs->error, "%s: %s", what, strerror(errno));
    return -1;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = ""};
    struct timeval limit = {.tv_sec = REPLY_LIMIT_S, .tv_usec = 0};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0) {
        return -1;
    }
    snprintf(address.sun_path, sizeof address.sun_path, "%.100s", path);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Sends one line and reads one, without its end. */
static int talk(const char *path, const char *line, char *answer, size_t answer_bytes)
{
    size_t have = 0;
    ssize_t count = 1;
    int fd = connect_to(path);

    if (fd < 0) {
        return -1;
    }
    if (send(fd, line, strlen(line), MSG_NOSIGNAL) != (ssize_t)strlen(line)) {
        count = 0;
    }
    answer[0] = '\0';
    while (count > 0 && have + 1 < answer_bytes && strchr(answer, '\n') == NULL) {
        do {
            count = recv(fd, answer + have, answer_bytes - 1 - have, 0);
        } while (count < 0 && errno == EINTR);
        have += count > 0 ? (size_t)count : 0;
        answer[have] = '\0';
    }
    close(fd);
    if (count <= 0 || strchr(answer, '\n') == NULL) {
        errno = EPROTO;
        return -1;
    }
    *strchr(answer, '\n') = '\0';
    return 0;
}

static int command(struct faultfs *fs, char *reply, size_t bytes, const char *format, va_list args)
{
    char line[COMMAND_BYTES];
    char answer[FAULTFS_TEXT_BYTES];
    int length = vsnprintf(line, sizeof line - 1, format, args);

    if (length < 0 || length >= (int)sizeof line - 1) {
        errno = EMSGSIZE;
        return fail(fs, "command");
    }
    line[length] = '\n';
    line[length + 1] = '\0';
    if (talk(fs->socket, line, answer, sizeof answer) != 0) {
        return fail(fs, fs->socket);
    }
    if (strncmp(answer, "ok", 2) != 0) {
        memcpy(fs->error, answer, sizeof fs->error);
        return -1;
    }
    if (reply != NULL) {
        snprintf(reply, bytes, "%s", answer[2] == ' ' ? answer + 3 : "");
    }
    return 0;
}

int faultfs_command(struct faultfs *fs, char *reply, size_t reply_bytes, const char *format, ...)
{
    va_list args;
    int result;

    va_start(args, format);
    result = command(fs, reply, reply_bytes, format, args);
    va_end(args);
    return result;
}

long long faultfs_number(struct faultfs *fs, const char *format, ...)
{
    char reply[FAULTFS_TEXT_BYTES];
    va_list args;
    int result;

    va_start(args, format);
    result = command(fs, reply, sizeof reply, format, args);
    va_end(args);
    return result == 0 ? strtoll(reply, NULL, 10) : -1;
}

long long faultfs_count(struct faultfs *fs, const char *op, const char *pattern)
{
    char reply[FAULTFS_TEXT_BYTES];
    size_t length = strlen(op);

    if (pattern == NULL) {
        pattern = "";
    }
    if (faultfs_command(fs, reply, sizeof reply, "counts %s", pattern) != 0) {
        return -1;
    }
    for (const char *at = reply; at != NULL; at = strchr(at, ' ')) {
        at += *at == ' ';
        if (strncmp(at, op, length) == 0 && at[length] == '=') {
            return strtoll(at + length + 1, NULL, 10);
        }
    }
    snprintf(fs->error, sizeof fs->error, "no operation %s", op);
    return -1;
}
