/* matrix.h: reading TABLE.md. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "matrix.h"

enum { COLUMNS_MAX = 20, COLUMN_BYTES = 400 };

typedef struct {
    int count;
    char text[COLUMNS_MAX][COLUMN_BYTES];
} columns_t;

const char *place_name(int place)
{
    static const char *const names[] = {"first", "middle", "all"};
    return names[place];
}

/* The columns of a line, without spaces around them; none where it is no line of a table. */
static void split(const char *line, columns_t *columns)
{
    columns->count = 0;
    if (*line++ != '|') return;
    for (const char *end; (end = strchr(line, '|')) != NULL; line = end + 1) {
        const char *from = line, *to = end;
        while (from < to && isspace((unsigned char)*from)) from++;
        while (from < to && isspace((unsigned char)to[-1])) to--;
        CHECK(columns->count < COLUMNS_MAX);
        snprintf(columns->text[columns->count++], COLUMN_BYTES, "%.*s", (int)(to - from), from);
    }
}

/* Reads on until a line whose first column is `first`. */
static bool find(FILE *table, const char *first, columns_t *columns)
{
    char line[4096];
    while (fgets(line, sizeof line, table) != NULL) {
        split(line, columns);
        if (columns->count > 1 && strcmp(columns->text[0], first) == 0) return true;
    }
    return false;
}

static FILE *open_at(const char *header, columns_t *columns)
{
    FILE *table = fopen(KVPATH_MATRIX_TABLE, "r");
    if (table == NULL) FAIL("no %s", KVPATH_MATRIX_TABLE);
    if (!find(table, header, columns)) FAIL("no table with \"%s\"", header);
    return table;
}

static want_t parse_want(const char *text)
{
    want_t want = {.makes_sense = strcmp(text, "-") != 0};
    char retries[8];
    if (!want.makes_sense) return want;
    if (sscanf(text, "%31s %7s %3[x.?]", want.status, retries, want.counted) != 3 ||
        strlen(want.counted) != PATHS)
        FAIL("\"%s\" says no status, retries and counts", text);
    want.retries = strcmp(retries, "?") == 0 ? ANY : atoi(retries);
    return want;
}

static void fill_in(entry_t *entry)
{
    columns_t columns;
    FILE *table = open_at("word", &columns);
    if (!find(table, entry->word, &columns)) FAIL("the word \"%s\" is not explained", entry->word);
    CHECK(columns.count == 6);
    for (int place = 0; place < PLACES; place++)
        entry->places[place] = parse_want(columns.text[1 + place]);
    fclose(table);
}

int table_row(const char *operation, entry_t entries[FAULTS_MAX])
{
    columns_t faults, words;
    FILE *table = open_at("operation", &faults);
    if (!find(table, operation, &words)) FAIL("no row \"%s\"", operation);
    CHECK_EQ(words.count, faults.count);
    for (int at = 1; at < faults.count; at++) {
        entry_t *entry = &entries[at - 1];
        snprintf(entry->fault, sizeof entry->fault, "%.*s", WORD_BYTES - 1, faults.text[at]);
        snprintf(entry->word, sizeof entry->word, "%.*s", WORD_BYTES - 1, words.text[at]);
        fill_in(entry);
    }
    fclose(table);
    return faults.count - 1;
}
