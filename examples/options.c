/* What the demo (replay.c) is told, and what it makes of that: the store's configuration, when a
 * path breaks, whether there is room. */
#define _XOPEN_SOURCE 700
#include "replay.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef DEFAULT_TRACE
#define DEFAULT_TRACE "examples/data/excerpt.jsonl"
#endif

enum { HANG_TIMEOUT_MS = 3000, COMMAND_TIMEOUT_MS = 6000 };

static const char *const HELP =
    "Replays a trace of inference requests against a kvpath store: per request a prefix lookup, a\n"
    "load of what is stored with every byte checked, and a dump of the rest, one task per layer.\n"
    "Part-way one path to the storage breaks and later comes back. Ends with 0 only if no byte\n"
    "was wrong, no load failed, no block was lost, and the path was taken out and came back.\n"
    "\n"
    "  --dir DIR         where to work (default: the current directory). All that is made is in\n"
    "                    DIR/kvpath-demo-XXXXXX and is removed at the end\n"
    "  --trace FILE      the trace: JSON lines with \"hash_ids\" (default: " DEFAULT_TRACE ")\n"
    "  --requests N      only the first N requests (default: all)\n"
    "  --backends A:B:C  directories that are paths (mounts) to one storage; the demo uses a\n"
    "                    directory of its own inside it, through links in DIR\n"
    "                    (default: three links to DIR/kvpath-demo-XXXXXX/storage)\n"
    "  --block-size N    bytes of a block, K and M allowed (default: 512K)\n"
    "  --shards N        layers of a block, each one shard (default: 8)\n"
    "  --engine NAME     posix_io_engine: auto, psync, aio, io_uring (default: auto)\n"
    "  --direct WHAT     on: O_DIRECT; off: buffered; auto: O_DIRECT where the file system takes\n"
    "                    it (default: auto)\n"
    "  --fault WHAT      enotdir: one path turns into a file for a while; hang: it stops answering\n"
    "                    (a bindfs mount whose server is stopped; `replay_fault` does without);\n"
    "                    none (default: enotdir where there are two paths and enough requests)\n"
    "  --break COMMAND   the fault is this shell command (it might kill the client of the second\n"
    "  --mend COMMAND    mount), and this one ends it; both are needed, and no --fault\n"
    "  --keep            leave everything where it is and say where\n"
    "  --help            this text\n"
    "\n"
    "Ends with 0: all is well; 1: something is wrong; 2: the options are wrong.\n";

static int wrong_value(const char *option, const char *value, const char *rule) {
    fprintf(stderr, "--%s %s: %s (--help explains)\n", option, value, rule);
    return EXIT_USAGE;
}

/* A positive number with K or M behind it; 0: it is none. */
static size_t parse_size(const char *text) {
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    unsigned shift = *end == 'K' ? 10 : *end == 'M' ? 20 : 0;
    if (shift) end++;
    if (*text < '0' || *text > '9' || *end || errno || number > (SIZE_MAX >> (shift + 1))) return 0;
    return (size_t)number << shift;
}

static int one_of(const char *value, const char *const *words) {
    for (int at = 0; words[at]; at++)
        if (strcmp(value, words[at]) == 0) return at;
    return -1;
}

static int take_option(struct options *o, const char *name, const char *value) {
    static const char *const engines[] = {"auto", "psync", "aio", "io_uring", NULL};
    static const char *const directs[] = {"auto", "on", "off", NULL};
    static const char *const faults[] = {"none", "enotdir", "hang", NULL};
    if (strcmp(name, "dir") == 0) o->dir = value;
    if (strcmp(name, "trace") == 0) o->trace = value;
    if (strcmp(name, "backends") == 0) o->backends = value;
    if (strcmp(name, "keep") == 0) o->keep = 1;
    if (strcmp(name, "break") == 0) o->break_command = value;
    if (strcmp(name, "mend") == 0) o->mend_command = value;
    if (strcmp(name, "block-size") == 0 && !(o->block_bytes = parse_size(value)))
        return wrong_value(name, value, "not a size like 512K or 1M");
    if (strcmp(name, "shards") == 0 && !(o->shards = parse_size(value)))
        return wrong_value(name, value, "not a number above 0");
    if (strcmp(name, "requests") == 0 && !(o->requests = parse_size(value)))
        return wrong_value(name, value, "not a number above 0");
    if (strcmp(name, "engine") == 0) o->engine = value;
    if (strcmp(name, "engine") == 0 && one_of(value, engines) < 0)
        return wrong_value(name, value, "not auto, psync, aio or io_uring");
    if (strcmp(name, "direct") == 0) o->direct = value;
    if (strcmp(name, "direct") == 0 && one_of(value, directs) < 0)
        return wrong_value(name, value, "not auto, on or off");
    if (strcmp(name, "fault") == 0) {
        int fault = one_of(value, faults);
        if (fault < 0) return wrong_value(name, value, "not none, enotdir or hang");
        o->fault = (enum fault)fault;
        o->fault_given = 1;
    }
    return -1;
}

int read_options(int argc, char **argv, struct replay *r) {
    static const struct option known[] = {
        {"dir", required_argument, NULL, 'o'},      {"trace", required_argument, NULL, 'o'},
        {"requests", required_argument, NULL, 'o'}, {"backends", required_argument, NULL, 'o'},
        {"shards", required_argument, NULL, 'o'},   {"block-size", required_argument, NULL, 'o'},
        {"engine", required_argument, NULL, 'o'},   {"direct", required_argument, NULL, 'o'},
        {"fault", required_argument, NULL, 'o'},    {"keep", no_argument, NULL, 'o'},
        {"break", required_argument, NULL, 'o'},    {"mend", required_argument, NULL, 'o'},
        {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0},
    };
    struct options *o = &r->options;
    *o = (struct options){.dir = ".", .trace = DEFAULT_TRACE, .engine = "auto", .direct = "auto",
                          .block_bytes = 512 << 10, .shards = 8, .fault = FAULT_ENOTDIR};
    int which = 0;
    for (int got; (got = getopt_long(argc, argv, "h", known, &which)) != -1;) {
        if (got == 'h') return fputs(HELP, stdout) < 0 ? EXIT_WRONG : EXIT_FINE;
        int result = got == 'o' ? take_option(o, known[which].name, optarg) : EXIT_USAGE;
        if (result >= 0) return result;
    }
    if (optind < argc) {
        fprintf(stderr, "%s: not an option (--help explains)\n", argv[optind]);
        return EXIT_USAGE;
    }
    if (!o->break_command != !o->mend_command || (o->break_command && o->fault_given)) {
        fputs("--break and --mend need each other, and no --fault (--help explains)\n", stderr);
        return EXIT_USAGE;
    }
    if (o->break_command) o->fault = FAULT_COMMAND;
    o->fault_given |= o->break_command != NULL;
    r->terminal = isatty(STDOUT_FILENO);
    r->block_bytes = o->block_bytes;
    r->shards = o->shards;
    r->shard_bytes = o->block_bytes / o->shards;
    if (o->block_bytes % o->shards || r->shard_bytes == 0 || r->shard_bytes % 8) {
        fprintf(stderr, "--block-size %zu --shards %zu: a shard must be a multiple of 8 bytes\n",
                o->block_bytes, o->shards);
        return EXIT_USAGE;
    }
    return -1;
}

/* Appends a JSON string. */
static void put_string(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') fputc('\\', out);
        if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

char *config_json(const struct replay *r) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return NULL;
    fprintf(out, "{\"storage_backends\": [");
    for (size_t at = 0; at < r->ground.count; at++) {
        if (at > 0) fprintf(out, ", ");
        put_string(out, r->ground.paths[at]);
    }
    fprintf(out, "], \"tensor_size\": %zu, \"shard_size\": %zu, \"block_size\": %zu",
            r->shard_bytes, r->shard_bytes, r->block_bytes);
    fprintf(out, ", \"posix_io_engine\": \"%s\", \"io_direct\": %s", r->options.engine,
            strcmp(r->options.direct, "off") == 0 ? "false" : "true");
    if (strcmp(r->options.direct, "auto") == 0) fprintf(out, ", \"io_direct_fallback\": true");
    /* A third of this for each of three paths: what a call costs that finds one hanging. */
    if (r->options.fault == FAULT_HANG || r->options.fault == FAULT_COMMAND)
        fprintf(out, ", \"timeout_ms\": %d",
                r->options.fault == FAULT_HANG ? HANG_TIMEOUT_MS : COMMAND_TIMEOUT_MS);
    /* 256 directories are enough for some thousand blocks. Probes follow each other quickly, so
     * that the path is seen to come back within seconds; the defaults are 10 s, 3 s and 8. */
    fprintf(out, ", \"data_dir_shard_bytes\": 2, \"store_health\": {"
                 "\"health_check_interval_s\": 0.25, \"health_check_timeout_s\": 0.2, "
                 "\"health_window_size\": 4, \"failure_threshold\": 2}}");
    if (fclose(out)) {
        free(text);
        return NULL;
    }
    return text;
}

/* The path becomes a mount of its own, which can stop answering. */
static int prepare_hang(struct replay *r) {
    char mount[PATH_MAX], *target = r->ground.target[r->fault_path];
    int length = snprintf(mount, sizeof mount, "%s/mount", r->ground.dir);
    if (length < 0 || (size_t)length >= sizeof mount) return -1;
    if (hang_make(&r->hang, target, mount)) return -1;
    if (r->hang.in_library) return 0;
    memcpy(target, mount, (size_t)length + 1);
    return ground_mend(&r->ground, r->fault_path);
}

int plan_fault(struct replay *r) {
    const struct request *requests = r->workload.requests;
    size_t uses = r->workload.use_count, last = r->workload.request_count - 1, at = 0;
    /* By blocks, not by requests: they decide how long something takes. */
    while (at < last && requests[at].start < uses * 3 / 10) at++;
    r->break_at = at;
    while (at < last && requests[at].start < uses * 6 / 10) at++;
    r->mend_at = at;
    r->fault_path = 1;
    size_t between = requests[r->mend_at].start - requests[r->break_at].start;
    const char *obstacle = r->ground.count < 2                  ? "there is one path only"
                           : between < 16 * r->ground.count ? "there are too few requests"
                                                            : NULL;
    if (r->options.fault == FAULT_HANG && !obstacle) return prepare_hang(r);
    if (r->options.fault == FAULT_NONE || !obstacle) return 0;
    fprintf(stderr, "--fault: no path can break, for %s\n", obstacle);
    if (r->options.fault_given) return -1;
    r->options.fault = FAULT_NONE;
    return 0;
}

int enough_space(const struct replay *r) {
    unsigned long long need = (unsigned long long)r->workload.block_count * r->block_bytes;
    unsigned long long available = ground_free_bytes(&r->ground);
    if (available == 0 || available / 105 * 100 > need) return 0;
    fprintf(stderr, "%s: %.2f GiB are free, the run needs %.2f; a smaller --block-size or fewer "
                    "--requests need less, --dir goes elsewhere\n",
            r->ground.storage, GIB(available), GIB(need));
    return -1;
}
