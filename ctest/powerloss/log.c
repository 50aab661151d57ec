/* log.h */
#define _GNU_SOURCE
#include "log.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { NUMBERS = 9, MARK_MAX_BYTES = 64 };

/* A copy that ends with NUL. */
static const char *name_of(const uint8_t *bytes, size_t count)
{
    char *name = calloc(1, count + 1);
    CHECK(name != NULL);
    memcpy(name, bytes, count);
    return name;
}

static size_t find_begin(const record_t *record, uint64_t id)
{
    for (size_t at = record->count; at > 0; at--) {
        const event_t *event = &record->events[at - 1];
        if (event->id == id && event->kind != EVENT_END) return at - 1;
    }
    FAIL("the record has an end without a beginning");
}

record_t record_read(const char *file)
{
    size_t bytes = 0;
    const uint8_t *content = read_file(file, &bytes);
    if (content == NULL) FAIL("no record %s", file);
    record_t record = {.events = calloc(bytes / (NUMBERS * 8) + 1, sizeof(event_t))};
    CHECK(record.events != NULL);
    for (size_t at = 0; at < bytes;) {
        uint64_t number[NUMBERS];
        CHECK(at + sizeof number <= bytes);
        memcpy(number, content + at, sizeof number);
        at += sizeof number;
        CHECK(at + number[6] + number[7] + number[8] <= bytes);
        event_t *event = &record.events[record.count];
        *event = (event_t){.kind = (event_kind_t)number[0],
                           .source = number[1],
                           .id = number[2],
                           .ino = number[3],
                           .offset = number[4],
                           .detail = (int64_t)number[5],
                           .path = name_of(content + at, number[6]),
                           .path_to = name_of(content + at + number[6], number[7]),
                           .data = content + at + number[6] + number[7],
                           .bytes = number[8]};
        if (event->kind == EVENT_END) event->begin = find_begin(&record, event->id);
        at += number[6] + number[7] + number[8];
        record.count++;
    }
    return record;
}

void record_mark(const char *file, const char *format, ...)
{
    uint8_t bytes[NUMBERS * 8 + MARK_MAX_BYTES] = {0};
    char words[MARK_MAX_BYTES];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    CHECK(length > 0 && length < MARK_MAX_BYTES);
    const uint64_t kind = EVENT_MARK, count = (uint64_t)length;
    memcpy(bytes, &kind, 8);
    memcpy(bytes + 6 * 8, &count, 8);
    memcpy(bytes + NUMBERS * 8, words, count);
    int log = open(file, O_WRONLY | O_APPEND | O_CLOEXEC);
    CHECK(log >= 0);
    const ssize_t all = (ssize_t)(NUMBERS * 8 + count);
    CHECK(write(log, bytes, (size_t)all) == all);
    close(log);
}
