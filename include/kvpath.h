/* kvpath: KV-cache blocks as files, over several mount paths that may fail or hang. MIT licence.
 *
 * Made from the Rust sources by cbindgen; do not edit.
 *
 * A block is block_size bytes under a 16-byte id, stored as one file. kvpath_open() takes a JSON
 * object and gives a store; kvpath_dump() and kvpath_load() start tasks that move shards (slices
 * of blocks) between the caller's memory and the storage; kvpath_wait() ends them;
 * kvpath_lookup() tells what is stored.
 *
 * Errors. Functions return a kvpath_status_t: 0 is success, everything else is negative. The text
 * of a thread's last failure is in kvpath_last_error(), a finer code in kvpath_last_detail().
 * Outputs are written on success only, unless a function says otherwise. Wrong arguments are
 * errors, never crashes, as far as a pointer can be checked: NULL, alignment, impossible lengths,
 * numbers that are no store or no task, and counts beyond what one call takes (max_queued_shards,
 * 1,048,576 ids). An error inside the library is KVPATH_ERROR with a text, never an abort; only
 * where the system refuses even small pieces of memory does the process end, as it does for most
 * of its other code.
 *
 * Ownership. Strings and arrays passed in are read during the call only. The memory of tensors
 * belongs to a task from kvpath_load() or kvpath_dump() until it has finished: must not be freed,
 * and for a dump not be changed. A task has finished when kvpath_wait() consumed its handle,
 * kvpath_check() said so, or kvpath_finished() listed it. Strings given back belong to the
 * library. Only memory of kvpath_alloc() goes to kvpath_free().
 *
 * Threads. Every function may be called from any thread at any time, with the same store too.
 * kvpath_close() during other calls ends those calls with KVPATH_CLOSED. The library's own
 * threads block all signals, are named ucm_..., and are gone when kvpath_close() returns with
 * KVPATH_OK.
 *
 * Blocking. Only kvpath_open(), kvpath_close(), kvpath_wait(), kvpath_wait_results(), the
 * lookups, kvpath_commit() and kvpath_remove() wait for storage, each within the limit that it
 * names; no calling thread ever enters the file system itself, so a dead mount cannot hang it
 * beyond that limit.
 *
 * Isolation. With buffer_mode "isolated" (the default) nothing reads or writes the caller's
 * memory once a task has finished, even where the kernel still works on an operation that was
 * given up. With "borrowed" a task does not finish before the kernel has let go.
 *
 * Struct sizes. Structs with a first field `size` may grow: set it to sizeof the struct before
 * the call; a newer library fills no more than that, an older one fills less and says how much.
 * The other structs never change.
 *
 * Fork. A child made by fork() gets KVPATH_FORKED from every call that returns a status, and NULL from kvpath_alloc(); it may
 * only exit or exec. Children made before the first kvpath_open() are free. */

#ifndef KVPATH_H
#define KVPATH_H

#include <stddef.h>
#include <stdint.h>
#if defined(__cplusplus)
#define KVPATH_NOEXCEPT noexcept
#else
#define KVPATH_NOEXCEPT
#endif
#if defined(__GNUC__) || defined(__clang__)
#define KVPATH_MUST_USE __attribute__((warn_unused_result))
#else
#define KVPATH_MUST_USE
#endif

/** Success. */
#define KVPATH_OK 0

/** An error that fits no other code. */
#define KVPATH_ERROR (-1)

/** An argument or the configuration is wrong. */
#define KVPATH_INVALID_PARAM (-50000)

/** Memory could not be had. */
#define KVPATH_OUT_OF_MEMORY (-50001)

/** The operating system refused; the text names the operation and errno. */
#define KVPATH_OS_ERROR (-50002)

/** The key exists already. Never given by kvpath itself; kept for the pipeline. */
#define KVPATH_DUPLICATE_KEY (-50003)

/** Not now: not finished yet, or a table is full. Try again. */
#define KVPATH_RETRY (-50004)

/** No such block, or no such task handle (it was consumed, forgotten, or never given). */
#define KVPATH_NOT_FOUND (-50005)

/** Not possible in this role, on this system, or in this version. */
#define KVPATH_UNSUPPORTED (-50008)

/** The storage is full. */
#define KVPATH_NO_SPACE (-50009)

/** A time limit passed. */
#define KVPATH_TIMEOUT (-50010)

/** No backend is available. */
#define KVPATH_STORE_UNHEALTHY (-50011)

/** Detail of KVPATH_NOT_FOUND: a file is there, but it is not a whole block. */
#define KVPATH_CORRUPT (-51000)

/** The calling process is a fork of the one that opened stores; it may only exit or exec. */
#define KVPATH_FORKED (-51001)

/** The store is closed or closing. */
#define KVPATH_CLOSED (-51002)

/** The caller cancelled the task before this shard was started. */
#define KVPATH_CANCELLED (-51003)

/** State of a backend: it takes part in routing. */
#define KVPATH_BACKEND_AVAILABLE 0

/** State of a backend: its window excluded it; probes will bring it back. */
#define KVPATH_BACKEND_EXCLUDED 1

/** State of a backend: an operator took it out with kvpath_backend_set(). */
#define KVPATH_BACKEND_OUT 2

/** For kvpath_backend_set(): take the backend out of routing. */
#define KVPATH_BACKEND_SET_OUT 0

/** For kvpath_backend_set(): force it in, whatever its window says. */
#define KVPATH_BACKEND_SET_IN 1

/** For kvpath_backend_set(): let its window decide again. */
#define KVPATH_BACKEND_SET_AUTO 2

/** Log levels: only errors. */
#define KVPATH_LOG_ERROR 1

/** Log levels: what an operator should look at. */
#define KVPATH_LOG_WARN 2

/** Log levels: changes of state. */
#define KVPATH_LOG_INFO 3

/** Log levels: for the developers of kvpath. */
#define KVPATH_LOG_DEBUG 4

/**
 * The version of the C ABI. It grows when something is added. When something breaks, the soname
 * changes: it has the minor version while the major one is 0.
 */
#define KVPATH_ABI_VERSION 1

/** A status code. 0 is success, everything else is negative. Numbers never change. */
typedef int32_t kvpath_status_t;

/**
 * An open store. A number, not a pointer: using it after kvpath_close() is an error, not a crash.
 * 0 is never a store.
 */
typedef uint64_t kvpath_store_t;

/**
 * Receives log messages: a level, a stable message id (for example "KV1001"), a text, and `user`
 * as it was given. Runs on a library thread of its own, never under a lock of kvpath; may not call
 * kvpath. The strings are valid during the call only.
 */
typedef void (*kvpath_log_fn)(int32_t level, const char *id, const char *text, void *user);

/** A block's name: 16 bytes, any value. */
typedef struct kvpath_block_id_t {
    /** The bytes; a block's file is named by them in lowercase hex. */
    uint8_t bytes[16];
} kvpath_block_id_t;

/** One shard of a task. This struct never grows. */
typedef struct kvpath_shard_t {
    /** The block it belongs to. */
    struct kvpath_block_id_t block;
    /** Which shard of the block: 0 … block_size / shard_size - 1. */
    uint32_t index;
    /** Entries of `addrs`: must be shard_size / tensor_size. */
    uint32_t addr_count;
    /**
     * One address a tensor, each of tensor_size bytes, any alignment. The array is read during the
     * call only; the memory it points to belongs to the task until the task has finished.
     */
    void *const *addrs;
} kvpath_shard_t;

/**
 * A task: one kvpath_load() or kvpath_dump() call. Handles of one store only grow, are never used
 * again, and are never 0.
 */
typedef uint64_t kvpath_task_t;

/** The health of one backend, as kvpath_health() gives it. */
typedef struct kvpath_backend_health_t {
    /**
     * Bytes of this struct that the library knows; set by the caller in the first element to
     * sizeof(kvpath_backend_health_t), which is also the stride of the array.
     */
    uint32_t size;
    /** KVPATH_BACKEND_AVAILABLE, _EXCLUDED or _OUT. */
    int32_t state;
    /** The path, normalised, cut to fit, always terminated. */
    char path[256];
    /** Milliseconds since the last change of state. */
    uint64_t since_ms;
    /** Outcomes in the window, and failures among them. */
    uint32_t samples;
    /** See `samples`. */
    uint32_t failures;
    /** Operations running now, those of the collector and its sweeps included. */
    uint64_t in_flight;
    /** Operations that were given up and are still in the kernel. */
    uint64_t abandoned;
    /**
     * 1: O_DIRECT, 0: buffered. Blocks whose shards are no multiples of the alignment are written
     * buffered and synced all the same.
     */
    uint32_t direct;
    /** Probe threads that have not returned. */
    uint32_t probe_threads;
    /** Probes run, and failures among them. */
    uint64_t probes;
    /** See `probes`. */
    uint64_t probe_failures;
    /** Changes of state so far. */
    uint64_t transitions;
    /** errno of the last failure, or 0. */
    int32_t last_errno;
    /** Always 0. */
    int32_t reserved;
    /** The last failure in words, cut to fit, always terminated. */
    char last_error[256];
} kvpath_backend_health_t;

/** Counters of a store since it was opened. */
typedef struct kvpath_stats_t {
    /** Set by the caller to sizeof(kvpath_stats_t); the library fills no more than that. */
    uint32_t size;
    /** Threads of the store alive now. */
    uint32_t threads;
    /** Tasks accepted and finished. */
    uint64_t tasks;
    /** See `tasks`. */
    uint64_t tasks_finished;
    /** Shards loaded whole, and their bytes. */
    uint64_t loaded_shards;
    /** See `loaded_shards`. */
    uint64_t loaded_bytes;
    /** Shards written, and their bytes. */
    uint64_t dumped_shards;
    /** See `dumped_shards`. */
    uint64_t dumped_bytes;
    /** Blocks that became visible through this store. */
    uint64_t committed_blocks;
    /** Ids asked and found by lookups. */
    uint64_t lookups;
    /** See `lookups`. */
    uint64_t lookup_hits;
    /** Transfers that ended with "not found". */
    uint64_t load_misses;
    /** Attempts after the first of their chain. */
    uint64_t retries;
    /** Chains that succeeded on another backend than their first. */
    uint64_t failovers;
    /** Attempts that passed their time limit. */
    uint64_t timeouts;
    /** Results that came after their attempt was given up. */
    uint64_t late_results;
    /** Files found that are not whole blocks. */
    uint64_t corrupt;
    /** Blocks removed through this store. */
    uint64_t removed_blocks;
    /** Temporaries of dead writers removed. */
    uint64_t swept_temporaries;
    /** Unfinished blocks dropped by age. */
    uint64_t expired_blocks;
    /** Generations closed because a create or write was still in the kernel. */
    uint64_t closed_generations;
    /** Finished results dropped because nobody asked for them. */
    uint64_t dropped_results;
    /** Shards accepted and not ended, those that run included: what max_queued_shards limits. */
    uint64_t queued_shards;
    /** Operations running now, those of the collector and its sweeps included. */
    uint64_t in_flight;
    /** Operations given up and still in the kernel. */
    uint64_t abandoned;
    /** Blocks begun and not committed now. */
    uint64_t unfinished_blocks;
    /**
     * Blocks whose mtime was refreshed because they were hit, and hits for which that was left
     * out: another owner's file, one that is gone, no path, or too many at a time.
     */
    uint64_t hotness_refreshed;
    /** See `hotness_refreshed`. */
    uint64_t hotness_left_out;
    /** Ids that lookups did not find. */
    uint64_t lookup_misses;
    /** Blocks removed because there were too many (posix_capacity_gb). */
    uint64_t collected_blocks;
    /**
     * Passes that looked whether there are too many, and passes that swept temporaries and
     * quarantine.
     */
    uint64_t collector_passes;
    /** See `collector_passes`. */
    uint64_t sweep_passes;
    /** Passes of either kind that ended with an error. */
    uint64_t failed_passes;
    /** Files moved to quarantine, and files removed from it by age. */
    uint64_t quarantined_files;
    /** See `quarantined_files`. */
    uint64_t expired_quarantine;
    /** Blocks of the whole storage, as the collector last counted or estimated them. */
    uint64_t estimated_blocks;
    /** Names in data directories that are no blocks, in the last whole listing. */
    uint64_t foreign_names;
} kvpath_stats_t;

/**
 * Every function of this header by name without the prefix. New functions are added at the end;
 * `size` tells how far the table of the loaded library goes.
 */
typedef struct kvpath_api_t {
    /** Bytes of the table that the loaded library has. */
    uint32_t size;
    /** kvpath_abi_version() of the loaded library. */
    uint32_t table_version;
    /** kvpath_open() */
    kvpath_status_t (*open)(const char *config_json, kvpath_store_t *store);
    /** kvpath_close() */
    kvpath_status_t (*close)(kvpath_store_t store);
    /** kvpath_set_log_callback() */
    kvpath_status_t (*set_log_callback)(kvpath_log_fn callback, int32_t level, void *user);
    /** kvpath_alloc() */
    void *(*alloc)(size_t bytes);
    /** kvpath_free() */
    void (*free)(void *memory);
    /** kvpath_version() */
    const char *(*version)(void);
    /** kvpath_abi_version() */
    uint32_t (*abi_version)(void);
    /** kvpath_status_name() */
    const char *(*status_name)(kvpath_status_t status);
    /** kvpath_status_text() */
    const char *(*status_text)(kvpath_status_t status);
    /** kvpath_last_error() */
    const char *(*last_error)(void);
    /** kvpath_last_detail() */
    kvpath_status_t (*last_detail)(void);
    /** kvpath_load() */
    kvpath_status_t (*load)(kvpath_store_t store,
                            const struct kvpath_shard_t *shards,
                            size_t count,
                            kvpath_task_t *task);
    /** kvpath_dump() */
    kvpath_status_t (*dump)(kvpath_store_t store,
                            const struct kvpath_shard_t *shards,
                            size_t count,
                            kvpath_task_t *task);
    /** kvpath_check() */
    kvpath_status_t (*check)(kvpath_store_t store, kvpath_task_t task, uint8_t *finished);
    /** kvpath_wait() */
    kvpath_status_t (*wait)(kvpath_store_t store, kvpath_task_t task, uint64_t limit_ms);
    /** kvpath_wait_results() */
    kvpath_status_t (*wait_results)(kvpath_store_t store,
                                    kvpath_task_t task,
                                    uint64_t limit_ms,
                                    kvpath_status_t *statuses,
                                    size_t count);
    /** kvpath_cancel() */
    kvpath_status_t (*cancel)(kvpath_store_t store, kvpath_task_t task);
    /** kvpath_forget() */
    kvpath_status_t (*forget)(kvpath_store_t store, kvpath_task_t task);
    /** kvpath_finished() */
    kvpath_status_t (*finished)(kvpath_store_t store, kvpath_task_t *tasks, size_t max, size_t *count);
    /** kvpath_event_fd() */
    kvpath_status_t (*event_fd)(kvpath_store_t store, int32_t *fd);
    /** kvpath_lookup() */
    kvpath_status_t (*lookup)(kvpath_store_t store,
                              const struct kvpath_block_id_t *ids,
                              size_t count,
                              uint8_t *found);
    /** kvpath_lookup_prefix() */
    kvpath_status_t (*lookup_prefix)(kvpath_store_t store,
                                     const struct kvpath_block_id_t *ids,
                                     size_t count,
                                     int64_t *index);
    /** kvpath_lookup_last() */
    kvpath_status_t (*lookup_last)(kvpath_store_t store,
                                   const struct kvpath_block_id_t *ids,
                                   size_t count,
                                   int64_t *index);
    /** kvpath_commit() */
    kvpath_status_t (*commit)(kvpath_store_t store, const struct kvpath_block_id_t *id, uint8_t success);
    /** kvpath_remove() */
    kvpath_status_t (*remove)(kvpath_store_t store, const struct kvpath_block_id_t *ids, size_t count);
    /** kvpath_check_health() */
    kvpath_status_t (*check_health)(kvpath_store_t store);
    /** kvpath_health() */
    kvpath_status_t (*health)(kvpath_store_t store,
                              struct kvpath_backend_health_t *backends,
                              size_t capacity,
                              size_t *count);
    /** kvpath_health_json() */
    kvpath_status_t (*health_json)(kvpath_store_t store, char *buffer, size_t capacity, size_t *length);
    /** kvpath_backend_set() */
    kvpath_status_t (*backend_set)(kvpath_store_t store, const char *path, int32_t setting);
    /** kvpath_stats() */
    kvpath_status_t (*stats)(kvpath_store_t store, struct kvpath_stats_t *stats);
    /** kvpath_stats_json() */
    kvpath_status_t (*stats_json)(kvpath_store_t store, char *buffer, size_t capacity, size_t *length);
    /** kvpath_metrics() */
    kvpath_status_t (*metrics)(kvpath_store_t store, char *buffer, size_t capacity, size_t *length);
} kvpath_api_t;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The name of a status, as in this header, for example "KVPATH_NOT_FOUND"; "KVPATH_UNKNOWN" for a
 * number that is none.
 *
 * Ownership: the string is static. Threads: any. Blocking: never. Errors: none; works after fork
 * too.
 */
const char *kvpath_status_name(kvpath_status_t status) KVPATH_NOEXCEPT;

/**
 * A short text for a status, for example "no such block or task". The whole story of the last
 * error of a thread is in kvpath_last_error().
 *
 * Ownership: the string is static. Threads: any. Blocking: never. Errors: none; works after fork
 * too.
 */
const char *kvpath_status_text(kvpath_status_t status) KVPATH_NOEXCEPT;

/**
 * Opens a store from a JSON object (README, "Configuration"). All backends are checked with real
 * I/O, in order; the first failure ends the call, and its text names the backend, the operation,
 * and errno or what differed.
 *
 * Ownership: the string is copied; the store is the caller's until kvpath_close(). On failure no
 * thread, descriptor or probe file stays behind; a storage that the call has made on the way (its
 * marker and data directories) stays.
 * Threads: any. Blocking: for the checks, at most open_timeout_ms (0, the default: as long as they
 * take).
 * Errors: KVPATH_INVALID_PARAM (the text names the key, its value and the rule),
 * KVPATH_UNSUPPORTED, KVPATH_STORE_UNHEALTHY (a check failed), KVPATH_TIMEOUT, KVPATH_OS_ERROR.
 *
 * Pointers: `config_json` is NULL or a terminated string; `store` is NULL or valid for one write.
 */
KVPATH_MUST_USE kvpath_status_t kvpath_open(const char *config_json, kvpath_store_t *store) KVPATH_NOEXCEPT;

/**
 * Closes a store: queued work ends with KVPATH_CLOSED, running attempts finish, temporaries of
 * this store are removed, and all its threads end. From the first moment every other call with
 * this store gets KVPATH_CLOSED. Calls that wait return: those for queued work at once, those for
 * a running attempt when it ends, at most when close_timeout_ms passes.
 *
 * Ownership: the store is gone, whatever is returned; the descriptor of kvpath_event_fd() is
 * closed.
 * Threads: any, but not the log callback; the first call closes, others get KVPATH_CLOSED.
 * Blocking: until the last thread has returned from the kernel, at most close_timeout_ms (0, the
 * default: no limit). The last store of the process also waits for a log callback that runs: hold
 * no lock that it takes.
 * Errors: KVPATH_CLOSED, KVPATH_INVALID_PARAM (never a store), KVPATH_TIMEOUT: threads hang in the
 * kernel; they are harmless, and end when the kernel lets them go. Task memory is safe in
 * `isolated` buffer mode only.
 */
kvpath_status_t kvpath_close(kvpath_store_t store) KVPATH_NOEXCEPT;

/**
 * Sets the one log callback of the process, or unsets it with NULL. After the call has returned,
 * the earlier callback does not run any more, so its `user` may be freed. Without one, lines go to
 * stderr by the environment variable KVPATH_LOG = error | warn | info | debug (default warn).
 *
 * Ownership: `user` stays the caller's. Threads: any, but not the callback itself.
 * Blocking: until a running callback has returned: hold no lock that it takes.
 * Errors: KVPATH_INVALID_PARAM (level not 1 … 4, or called from the callback), KVPATH_OS_ERROR (no
 * thread).
 *
 * Pointers: `callback` may be called from another thread with `user` until it is unset.
 */
kvpath_status_t kvpath_set_log_callback(kvpath_log_fn callback, int32_t level, void *user) KVPATH_NOEXCEPT;

/**
 * Memory for tensors: aligned to 2 MiB and on huge pages where that is possible and `bytes` is
 * large, otherwise aligned to 4096. NULL when there is none, or `bytes` is 0. Any memory works
 * with kvpath; this is the fastest.
 *
 * Ownership: the caller's, to be given back with kvpath_free() only.
 * Threads: any. Blocking: never on I/O. Errors: NULL, with kvpath_last_error().
 */
KVPATH_MUST_USE void *kvpath_alloc(size_t bytes) KVPATH_NOEXCEPT;

/**
 * Gives back memory of kvpath_alloc(). NULL is fine. Anything else that is not from
 * kvpath_alloc(), or was given back already, is ignored and noted in kvpath_last_error().
 *
 * Ownership: ends. The memory must not belong to an unfinished task.
 * Threads: any. Blocking: never on I/O. Errors: none returned.
 *
 * Pointers: Nobody uses the memory any more.
 */
void kvpath_free(void *memory) KVPATH_NOEXCEPT;

/**
 * The version of the library, for example "0.1.0".
 *
 * Ownership: static. Threads: any. Blocking: never. Errors: none; works after fork too.
 */
const char *kvpath_version(void) KVPATH_NOEXCEPT;

/**
 * The version of the C ABI that the library has; compare with KVPATH_ABI_VERSION of the header you
 * compiled with.
 *
 * Ownership: none. Threads: any. Blocking: never. Errors: none; works after fork too.
 */
uint32_t kvpath_abi_version(void) KVPATH_NOEXCEPT;

/**
 * The text of the last failing kvpath call of this thread: the operation, the path, errno with its
 * text, or what differed. Empty before the first failure; a call that succeeds leaves it alone.
 *
 * Ownership: the string belongs to the library and is valid until this thread's next kvpath call.
 * Threads: any; each sees its own. Blocking: never. Errors: none; works after fork too.
 */
const char *kvpath_last_error(void) KVPATH_NOEXCEPT;

/**
 * A finer status of the last failing kvpath call of this thread: KVPATH_CORRUPT where a load gave
 * KVPATH_NOT_FOUND because the file is not a whole block, otherwise the status itself. 0 before
 * the first failure.
 *
 * Ownership: none. Threads: any; each sees its own. Blocking: never. Errors: none; works after
 * fork too.
 */
kvpath_status_t kvpath_last_detail(void) KVPATH_NOEXCEPT;

/**
 * Starts to load shards into the caller's memory and gives a task handle at once. Zero shards are
 * a finished task.
 *
 * Ownership: the list is copied; the tensors' memory belongs to the task until the task has
 * finished, and is neither read nor written after that (in `isolated` buffer mode whatever the
 * kernel still does).
 * Threads: any. Blocking: never on I/O.
 * Errors: KVPATH_INVALID_PARAM (nothing is started), KVPATH_RETRY (max_queued_shards reached),
 * KVPATH_STORE_UNHEALTHY, KVPATH_UNSUPPORTED (device_id is -1), KVPATH_CLOSED. What happens to a
 * shard is told by kvpath_wait(): KVPATH_NOT_FOUND (no such block; detail KVPATH_CORRUPT: not a
 * whole one), KVPATH_TIMEOUT, KVPATH_OS_ERROR, KVPATH_STORE_UNHEALTHY, KVPATH_CLOSED,
 * KVPATH_CANCELLED. A shard that did not succeed may have overwritten a part of its memory.
 *
 * Pointers: The pointers are valid as described.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_load(kvpath_store_t store,
                            const struct kvpath_shard_t *shards,
                            size_t count,
                            kvpath_task_t *task)
KVPATH_NOEXCEPT;

/**
 * Starts to dump shards from the caller's memory and gives a task handle at once. A block becomes
 * visible, whole, when commit_policy says so (default: when all its shards were written through
 * this store, by any number of tasks); the task whose shard completes a block finishes after the
 * block is visible.
 *
 * Ownership: the list is copied; the tensors' memory belongs to the task and must not change until
 * it has finished.
 * Threads: any. Blocking: never on I/O.
 * Errors: as kvpath_load(); also KVPATH_RETRY (too many unfinished blocks), and
 * KVPATH_INVALID_PARAM for the same shard twice in one task. From kvpath_wait() also
 * KVPATH_NO_SPACE. A shard that failed leaves its block unfinished, unless nothing of it is
 * written: dump that shard again.
 *
 * Pointers: The pointers are valid as described.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_dump(kvpath_store_t store,
                            const struct kvpath_shard_t *shards,
                            size_t count,
                            kvpath_task_t *task)
KVPATH_NOEXCEPT;

/**
 * Asks whether a task has finished: *finished becomes 1 or 0. The handle stays.
 *
 * Ownership: none. Threads: any. Blocking: never.
 * Errors: KVPATH_NOT_FOUND (the handle was consumed, forgotten or never given), KVPATH_CLOSED.
 *
 * Pointers: `finished` is NULL or valid for one write.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_check(kvpath_store_t store,
                             kvpath_task_t task,
                             uint8_t *finished)
KVPATH_NOEXCEPT;

/**
 * Waits for a task at most limit_ms (0: no limit of its own; the task ends by timeout_ms) and
 * consumes its handle. The status is that of the first shard, in the order of the call, that did
 * not succeed.
 *
 * Ownership: the task's memory is the caller's again. Threads: any; of two waiting, one gets the
 * result.
 * Blocking: yes. Errors: KVPATH_RETRY: not finished in limit_ms, the handle stays and the task
 * goes on; KVPATH_NOT_FOUND: no such handle, or the shard's status (see kvpath_last_error()); the
 * shard statuses of kvpath_load() and kvpath_dump().
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_wait(kvpath_store_t store,
                            kvpath_task_t task,
                            uint64_t limit_ms)
KVPATH_NOEXCEPT;

/**
 * kvpath_wait(), which also gives one status per shard, in the order of the call. `statuses` is
 * filled whenever the handle is consumed, also when the returned status is an error.
 *
 * Ownership: as kvpath_wait(). Threads: as kvpath_wait(). Blocking: as kvpath_wait().
 * Errors: as kvpath_wait(), and KVPATH_INVALID_PARAM where `count` is less than the task's shards
 * (the handle stays).
 *
 * Pointers: `statuses` is valid for `count` writes.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_wait_results(kvpath_store_t store,
                                    kvpath_task_t task,
                                    uint64_t limit_ms,
                                    kvpath_status_t *statuses,
                                    size_t count)
KVPATH_NOEXCEPT;

/**
 * Ends what has not started of a task: those shards get KVPATH_CANCELLED, running ones go on. The
 * handle stays and is waited for as ever.
 *
 * Ownership: unchanged; the memory is the task's until it has finished. Threads: any. Blocking:
 * never.
 * Errors: KVPATH_NOT_FOUND (no such handle), KVPATH_CLOSED.
 */
kvpath_status_t kvpath_cancel(kvpath_store_t store, kvpath_task_t task) KVPATH_NOEXCEPT;

/**
 * Drops a handle whose result nobody will ask for. The task itself goes on to its end, and its
 * memory must live until then: forget a running task only if its memory outlives the store.
 *
 * Ownership: as above. Threads: any. Blocking: never.
 * Errors: KVPATH_NOT_FOUND (no such handle), KVPATH_CLOSED.
 */
kvpath_status_t kvpath_forget(kvpath_store_t store, kvpath_task_t task) KVPATH_NOEXCEPT;

/**
 * Lists tasks that have finished since they were last listed, each once, oldest first, at most
 * `max`; *count becomes their number. The handles stay until kvpath_wait() consumes them (it
 * returns at once) or kvpath_forget() drops them.
 * Tasks that failed are listed; those that were waited for or forgotten before are not.
 *
 * Ownership: none. Threads: any. Blocking: never. Errors: KVPATH_INVALID_PARAM, KVPATH_CLOSED.
 *
 * Pointers: `tasks` is valid for `max` writes, `count` for one.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_finished(kvpath_store_t store,
                                kvpath_task_t *tasks,
                                size_t max,
                                size_t *count)
KVPATH_NOEXCEPT;

/**
 * A descriptor that poll(2) shows readable while kvpath_finished() has something to list. Do not
 * read, write or close it.
 *
 * Ownership: the library's, closed by kvpath_close(). Threads: any. Blocking: never.
 * Errors: KVPATH_OS_ERROR (no descriptor left), KVPATH_CLOSED.
 *
 * Pointers: `fd` is NULL or valid for one write.
 */
KVPATH_MUST_USE kvpath_status_t kvpath_event_fd(kvpath_store_t store, int32_t *fd) KVPATH_NOEXCEPT;

/**
 * Asks for each block whether it is stored: found[i] becomes 1 or 0. count = 0 is fine. When the
 * status is KVPATH_STORE_UNHEALTHY, KVPATH_TIMEOUT or KVPATH_OS_ERROR, `found` is filled too: the
 * ids that could not be asked are marked absent, so that "store down" and "absent" can be told
 * apart. At most 1,048,576 ids in one call.
 *
 * Ownership: none. Threads: any; the calling thread itself never enters the file system.
 * Blocking: yes, at most lookup_timeout_ms (0: no limit).
 * Errors: as above, KVPATH_INVALID_PARAM, KVPATH_CLOSED.
 *
 * Pointers: `ids` is valid for `count` reads, `found` for `count` writes.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_lookup(kvpath_store_t store,
                              const struct kvpath_block_id_t *ids,
                              size_t count,
                              uint8_t *found)
KVPATH_NOEXCEPT;

/**
 * The index of the last block before the first absent one: how much of a prefix is stored. -1 if
 * none. On KVPATH_STORE_UNHEALTHY, KVPATH_TIMEOUT and KVPATH_OS_ERROR, *index is set too: an id
 * that could not be asked counts as absent.
 *
 * Ownership: none. Threads: any; the calling thread itself never enters the file system.
 * Blocking: as kvpath_lookup(). Errors: as kvpath_lookup().
 *
 * Pointers: `ids` is valid for `count` reads, `index` for one write.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_lookup_prefix(kvpath_store_t store,
                                     const struct kvpath_block_id_t *ids,
                                     size_t count,
                                     int64_t *index)
KVPATH_NOEXCEPT;

/**
 * The highest index whose block is stored, whatever is before it; -1 if none. On errors as
 * kvpath_lookup_prefix().
 *
 * Ownership: none. Threads: any; the calling thread itself never enters the file system.
 * Blocking: as kvpath_lookup(). Errors: as kvpath_lookup().
 *
 * Pointers: `ids` is valid for `count` reads, `index` for one write.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_lookup_last(kvpath_store_t store,
                                   const struct kvpath_block_id_t *ids,
                                   size_t count,
                                   int64_t *index)
KVPATH_NOEXCEPT;

/**
 * Ends a block that was dumped: `success` = 1 makes it visible (needed under commit_policy
 * "explicit", harmless otherwise), 0 drops what was written of it.
 *
 * Ownership: none. Threads: any. Blocking: yes, at most timeout_ms (0: no limit).
 * Errors: KVPATH_INVALID_PARAM: shards are missing (the text names them); KVPATH_NOT_FOUND: this
 * store has no such unfinished block (one of which nothing was written is none), and it is not
 * visible either; KVPATH_TIMEOUT,
 * KVPATH_OS_ERROR, KVPATH_NO_SPACE, KVPATH_STORE_UNHEALTHY, KVPATH_UNSUPPORTED (device_id is -1),
 * KVPATH_CLOSED.
 *
 * Pointers: `id` is NULL or valid for one read.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_commit(kvpath_store_t store,
                              const struct kvpath_block_id_t *id,
                              uint8_t success)
KVPATH_NOEXCEPT;

/**
 * Removes blocks. Missing ones are not an error. A block that is being dumped through this store
 * is not touched, and that is no error either: kvpath_commit() with 0 drops it.
 *
 * Ownership: none. Threads: any. Blocking: yes, at most timeout_ms (0: no limit).
 * Errors: the first block's error in the order of the call; the others were tried. KVPATH_TIMEOUT,
 * KVPATH_OS_ERROR, KVPATH_STORE_UNHEALTHY, KVPATH_INVALID_PARAM, KVPATH_CLOSED.
 *
 * Pointers: `ids` is valid for `count` reads.
 */
kvpath_status_t kvpath_remove(kvpath_store_t store,
                              const struct kvpath_block_id_t *ids,
                              size_t count)
KVPATH_NOEXCEPT;

/**
 * Reads the list of available backends: KVPATH_OK, or KVPATH_STORE_UNHEALTHY where it is empty.
 * It tells of the paths alone: the outer breaker (store_health.enabled) refuses calls for some
 * time after a path is back, and "breaker" in kvpath_health_json() says "open" until then.
 *
 * Ownership: none. Threads: any. Blocking: never; no I/O. Errors: as above, KVPATH_CLOSED.
 */
KVPATH_MUST_USE kvpath_status_t kvpath_check_health(kvpath_store_t store) KVPATH_NOEXCEPT;

/**
 * The health of each backend, in the order of the configuration. *count becomes the number of
 * backends; at most `capacity` elements are filled. Set backends[0].size to
 * sizeof(kvpath_backend_health_t) first.
 *
 * Ownership: none. Threads: any. Blocking: never; no I/O. Errors: KVPATH_INVALID_PARAM,
 * KVPATH_CLOSED.
 *
 * Pointers: `backends` is valid for `capacity` elements of the stated size, `count` for one write.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_health(kvpath_store_t store,
                              struct kvpath_backend_health_t *backends,
                              size_t capacity,
                              size_t *count)
KVPATH_NOEXCEPT;

/**
 * The health report as JSON (docs/health.schema.json): backends, same_storage, breaker, engine,
 * the effective configuration with the origin of each value, and the last 64 transitions with
 * their causes. *length becomes the length without the NUL, also when the buffer is too small;
 * NULL with capacity 0 asks for it.
 *
 * Ownership: the buffer is the caller's. Threads: any. Blocking: never; no I/O.
 * Errors: KVPATH_INVALID_PARAM (the buffer is too small), KVPATH_CLOSED.
 *
 * Pointers: `buffer` is NULL with capacity 0, or valid for `capacity` writes; `length` is valid for one
 * write.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_health_json(kvpath_store_t store,
                                   char *buffer,
                                   size_t capacity,
                                   size_t *length)
KVPATH_NOEXCEPT;

/**
 * Lets an operator take a backend out of routing (KVPATH_BACKEND_SET_OUT), force it in
 * (KVPATH_BACKEND_SET_IN), or give it back to its window (KVPATH_BACKEND_SET_AUTO). `path` is as
 * configured. Calls that hang there already are not held against a backend that is forced in.
 *
 * Ownership: none. Threads: any. Blocking: never.
 * Errors: KVPATH_INVALID_PARAM (no such backend or setting), KVPATH_CLOSED.
 *
 * Pointers: `path` is NULL or a terminated string.
 */
kvpath_status_t kvpath_backend_set(kvpath_store_t store, const char *path, int32_t setting) KVPATH_NOEXCEPT;

/**
 * The counters of a store. Set stats->size to sizeof(kvpath_stats_t) first; no more than that is
 * filled.
 *
 * Ownership: none. Threads: any. Blocking: never; no I/O. Errors: KVPATH_INVALID_PARAM,
 * KVPATH_CLOSED.
 *
 * Pointers: `stats` is NULL or valid for stats->size bytes.
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_stats(kvpath_store_t store,
                             struct kvpath_stats_t *stats)
KVPATH_NOEXCEPT;

/**
 * Counters, the effective configuration with the origin of each value, the engine with the reason
 * of its choice, and the last 64 transitions, as JSON (docs/stats.schema.json). Lengths as
 * kvpath_health_json().
 *
 * Ownership: the buffer is the caller's. Threads: any. Blocking: never; no I/O.
 * Errors: KVPATH_INVALID_PARAM (the buffer is too small), KVPATH_CLOSED.
 *
 * Pointers: As kvpath_health_json().
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_stats_json(kvpath_store_t store,
                                  char *buffer,
                                  size_t capacity,
                                  size_t *length)
KVPATH_NOEXCEPT;

/**
 * The same counters as Prometheus text (exposition format 0.0.4), and by path: counters, errors,
 * durations, state, and the room that was learned last. docs/metrics.md lists them. The length
 * differs from call to call, so give room to spare. Lengths as kvpath_health_json().
 *
 * Ownership: the buffer is the caller's. Threads: any. Blocking: never; no I/O.
 * Errors: KVPATH_INVALID_PARAM (the buffer is too small), KVPATH_CLOSED.
 *
 * Pointers: As kvpath_health_json().
 */
KVPATH_MUST_USE
kvpath_status_t kvpath_metrics(kvpath_store_t store,
                               char *buffer,
                               size_t capacity,
                               size_t *length)
KVPATH_NOEXCEPT;

/**
 * The function table, for users who dlopen() the library: look up "kvpath_api" and call it with
 * the KVPATH_ABI_VERSION of the header you compiled with. NULL where the library is older than
 * that.
 *
 * Ownership: the table is static. Threads: any. Blocking: never. Errors: NULL; works after fork
 * too.
 */
KVPATH_MUST_USE const struct kvpath_api_t *kvpath_api(uint32_t version) KVPATH_NOEXCEPT;

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KVPATH_H */
