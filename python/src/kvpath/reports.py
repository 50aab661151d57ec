"""What a store tells about itself: counters and the health of its backends."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass, fields

from . import _abi


class BackendState(enum.IntEnum):
    """Whether a backend takes part in routing."""

    AVAILABLE = 0
    EXCLUDED = 1
    """Its window excluded it; probes will bring it back."""
    OUT = 2
    """An operator took it out."""


class BackendSetting(enum.IntEnum):
    """What `Store.backend_set` can do."""

    OUT = 0
    """Take it out of routing."""
    IN = 1
    """Force it in, whatever its window says."""
    AUTO = 2
    """Let its window decide again."""


@dataclass(frozen=True)
class BackendHealth:
    """The health of one backend at one moment.

    path: as configured, normalised; cut to 255 bytes.
    since_ms: milliseconds since the last change of state.
    samples, failures: outcomes in the window, and failures among them.
    in_flight: operations running now. abandoned: given up, and still in the kernel.
    direct: O_DIRECT. probe_threads: those that have not returned.
    probes, probe_failures, transitions: so far.
    last_errno, last_error: of the last failure; 0 and "" where there was none.
    """

    state: BackendState
    path: str
    since_ms: int
    samples: int
    failures: int
    in_flight: int
    abandoned: int
    direct: bool
    probe_threads: int
    probes: int
    probe_failures: int
    transitions: int
    last_errno: int
    last_error: str


@dataclass(frozen=True)
class Stats:
    """Counters of a store since it was opened; threads, queued_shards, in_flight, abandoned,
    unfinished_blocks, estimated_blocks and foreign_names are what is now. Bytes are bytes. kvpath.h describes each."""

    threads: int
    tasks: int
    tasks_finished: int
    loaded_shards: int
    loaded_bytes: int
    dumped_shards: int
    dumped_bytes: int
    committed_blocks: int
    lookups: int
    lookup_hits: int
    load_misses: int
    retries: int
    failovers: int
    timeouts: int
    late_results: int
    corrupt: int
    removed_blocks: int
    swept_temporaries: int
    expired_blocks: int
    closed_generations: int
    dropped_results: int
    queued_shards: int
    in_flight: int
    abandoned: int
    unfinished_blocks: int
    hotness_refreshed: int
    hotness_left_out: int
    lookup_misses: int
    collected_blocks: int
    collector_passes: int
    sweep_passes: int
    failed_passes: int
    quarantined_files: int
    expired_quarantine: int
    estimated_blocks: int
    foreign_names: int


def backend_of(raw: _abi.BackendHealth) -> BackendHealth:
    """A C struct as Python has it."""
    values = {field.name: getattr(raw, field.name) for field in fields(BackendHealth)}
    values["state"] = BackendState(raw.state)
    values["path"] = os.fsdecode(raw.path)
    values["direct"] = bool(raw.direct)
    values["last_error"] = raw.last_error.decode("utf-8", "replace")
    return BackendHealth(**values)


def stats_of(raw: _abi.Stats) -> Stats:
    """A C struct as Python has it; what an older library does not know is 0."""
    return Stats(**{field.name: getattr(raw, field.name) for field in fields(Stats)})
