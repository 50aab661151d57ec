"""The C ABI of kvpath.h in the words of ctypes: structs, the function table, and nothing else.

Nothing here is called or loaded. Sizes and offsets are those of ctest/layout.def; a test compares.
Structs that begin with `size` may grow at their end only.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_char,
    c_char_p,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)

ABI_VERSION = 1
"""KVPATH_ABI_VERSION of the header that this file repeats."""

BLOCK_ID_BYTES = 16
MAX_BACKENDS = 64


class BlockId(Structure):
    """kvpath_block_id_t."""

    _fields_ = [("bytes", c_uint8 * BLOCK_ID_BYTES)]


class Shard(Structure):
    """kvpath_shard_t; `addrs` is an address of an array of addresses."""

    _fields_ = [
        ("block", BlockId),
        ("index", c_uint32),
        ("addr_count", c_uint32),
        ("addrs", c_void_p),
    ]


class BackendHealth(Structure):
    """kvpath_backend_health_t."""

    _fields_ = [
        ("size", c_uint32),
        ("state", c_int32),
        ("path", c_char * 256),
        ("since_ms", c_uint64),
        ("samples", c_uint32),
        ("failures", c_uint32),
        ("in_flight", c_uint64),
        ("abandoned", c_uint64),
        ("direct", c_uint32),
        ("probe_threads", c_uint32),
        ("probes", c_uint64),
        ("probe_failures", c_uint64),
        ("transitions", c_uint64),
        ("last_errno", c_int32),
        ("reserved", c_int32),
        ("last_error", c_char * 256),
    ]


class Stats(Structure):
    """kvpath_stats_t."""

    _fields_ = [
        ("size", c_uint32),
        ("threads", c_uint32),
        ("tasks", c_uint64),
        ("tasks_finished", c_uint64),
        ("loaded_shards", c_uint64),
        ("loaded_bytes", c_uint64),
        ("dumped_shards", c_uint64),
        ("dumped_bytes", c_uint64),
        ("committed_blocks", c_uint64),
        ("lookups", c_uint64),
        ("lookup_hits", c_uint64),
        ("load_misses", c_uint64),
        ("retries", c_uint64),
        ("failovers", c_uint64),
        ("timeouts", c_uint64),
        ("late_results", c_uint64),
        ("corrupt", c_uint64),
        ("removed_blocks", c_uint64),
        ("swept_temporaries", c_uint64),
        ("expired_blocks", c_uint64),
        ("closed_generations", c_uint64),
        ("dropped_results", c_uint64),
        ("queued_shards", c_uint64),
        ("in_flight", c_uint64),
        ("abandoned", c_uint64),
        ("unfinished_blocks", c_uint64),
        ("hotness_refreshed", c_uint64),
        ("hotness_left_out", c_uint64),
        ("lookup_misses", c_uint64),
        ("collected_blocks", c_uint64),
        ("collector_passes", c_uint64),
        ("sweep_passes", c_uint64),
        ("failed_passes", c_uint64),
        ("quarantined_files", c_uint64),
        ("expired_quarantine", c_uint64),
        ("estimated_blocks", c_uint64),
        ("foreign_names", c_uint64),
    ]


LogFunction = CFUNCTYPE(None, c_int32, c_char_p, c_char_p, c_void_p)
"""kvpath_log_fn."""

_status = c_int32
_store = c_uint64
_task = c_uint64
_ids = POINTER(BlockId)
_shards = POINTER(Shard)
_length = POINTER(c_size_t)
_text = (_status, _store, c_char_p, c_size_t, _length)

# Name, what it returns, what it takes: in the order of kvpath_api_t. CFUNCTYPE lets the GIL go
# during each call.
FUNCTIONS = (
    ("open", _status, c_char_p, POINTER(_store)),
    ("close", _status, _store),
    ("set_log_callback", _status, LogFunction, c_int32, c_void_p),
    ("alloc", c_void_p, c_size_t),
    ("free", None, c_void_p),
    ("version", c_char_p),
    ("abi_version", c_uint32),
    ("status_name", c_char_p, _status),
    ("status_text", c_char_p, _status),
    ("last_error", c_char_p),
    ("last_detail", _status),
    ("load", _status, _store, _shards, c_size_t, POINTER(_task)),
    ("dump", _status, _store, _shards, c_size_t, POINTER(_task)),
    ("check", _status, _store, _task, POINTER(c_uint8)),
    ("wait", _status, _store, _task, c_uint64),
    ("wait_results", _status, _store, _task, c_uint64, POINTER(_status), c_size_t),
    ("cancel", _status, _store, _task),
    ("forget", _status, _store, _task),
    ("finished", _status, _store, POINTER(_task), c_size_t, _length),
    ("event_fd", _status, _store, POINTER(c_int32)),
    ("lookup", _status, _store, _ids, c_size_t, POINTER(c_uint8)),
    ("lookup_prefix", _status, _store, _ids, c_size_t, POINTER(c_int64)),
    ("lookup_last", _status, _store, _ids, c_size_t, POINTER(c_int64)),
    ("commit", _status, _store, _ids, c_uint8),
    ("remove", _status, _store, _ids, c_size_t),
    ("check_health", _status, _store),
    ("health", _status, _store, POINTER(BackendHealth), c_size_t, _length),
    ("health_json", *_text),
    ("backend_set", _status, _store, c_char_p, c_int32),
    ("stats", _status, _store, POINTER(Stats)),
    ("stats_json", *_text),
    ("metrics", *_text),
)


class Table(Structure):
    """kvpath_api_t."""

    _fields_ = [
        ("size", c_uint32),
        ("table_version", c_uint32),
        *((name, CFUNCTYPE(*signature)) for name, *signature in FUNCTIONS),
    ]


ApiFunction = ctypes.CFUNCTYPE(POINTER(Table), c_uint32)
"""kvpath_api()."""
