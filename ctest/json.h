/* Tells whether a text is JSON (RFC 8259). json_error() gives "none", or where it is not. */
#ifndef KVPATH_TEST_JSON_H
#define KVPATH_TEST_JSON_H

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static const char *json_value(const char *at);

static const char *json_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/* Each of these gives the end of what it read, or NULL. */
static const char *json_string(const char *at)
{
    if (*at++ != '"') return NULL;
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20) return NULL; /* the end of the text, too */
        if (*at != '\\') continue;
        at++;
        if (*at == 'u') {
            for (int digit = 0; digit < 4; digit++)
                if (!isxdigit((unsigned char)*++at)) return NULL;
        } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
            return NULL;
        }
    }
    return at + 1;
}

static const char *json_list(const char *at, char close, bool keys)
{
    at = json_space(at + 1);
    if (*at == close) return at + 1;
    for (;;) {
        if (keys) {
            at = json_string(json_space(at));
            if (at == NULL) return NULL;
            at = json_space(at);
            if (*at++ != ':') return NULL;
        }
        at = json_value(json_space(at));
        if (at == NULL) return NULL;
        at = json_space(at);
        if (*at == close) return at + 1;
        if (*at++ != ',') return NULL;
    }
}

static const char *json_number(const char *at)
{
    const char *start = at;
    at += *at == '-';
    at += *at == '0' ? 1 : (int)strspn(at, "0123456789");
    if (at == start || at[-1] == '-') return NULL;
    char *end = NULL;
    (void)strtod(start, &end);
    return end >= at ? end : NULL;
}

static const char *json_value(const char *at)
{
    if (*at == '{') return json_list(at, '}', true);
    if (*at == '[') return json_list(at, ']', false);
    if (*at == '"') return json_string(at);
    if (strncmp(at, "true", 4) == 0 || strncmp(at, "null", 4) == 0) return at + 4;
    if (strncmp(at, "false", 5) == 0) return at + 5;
    return json_number(at);
}

static inline const char *json_error(const char *whole)
{
    const char *end = json_value(json_space(whole));
    if (end == NULL) return text("not JSON: %.200s", whole);
    if (*json_space(end) != '\0') return text("something follows: %.200s", end);
    return "none";
}

#endif
