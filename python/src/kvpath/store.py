"""A store: blocks as files, over several paths."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import warnings
from _thread import start_new_thread
from collections.abc import Iterable, Mapping
from ctypes import byref, c_int64, c_uint8
from types import TracebackType
from typing import Any, Callable, Optional, Union

from . import _abi, _plan
from ._core import Core
from ._library import api, ensure, failure
from ._pins import Memory
from ._plan import BlockId, Plan, Shape, Shard
from .errors import Status
from .reports import BackendHealth, BackendSetting, Stats, backend_of, stats_of
from .task import Task

Config = Union[Mapping[str, Any], str]

# Lookups that could not ask everybody tell what they found all the same.
_PARTIAL = (Status.STORE_UNHEALTHY, Status.TIMEOUT, Status.OS_ERROR)


class Store:
    """An open store. `kvpath.open` makes one; `with` and `async with` close it.

    Threads: every method from any thread at any time. `close` ends calls that wait in others.
    Blocking: only the constructor, `close`, the lookups, `commit` and `remove` wait for storage,
    each within the limit that it names and without the GIL; in asyncio use
    `await asyncio.to_thread(store.lookup, ids)`. No calling thread enters the file system. Ctrl-C
    ends `Task.wait` early, and takes effect after the others have returned.
    Errors: every method raises ClosedError after `close`, and ForkedError in a process that was
    forked after the store was opened; such a process may only exit or exec.
    Dropping it unclosed is a ResourceWarning; it is then closed in the background. At the end of
    the interpreter open stores are closed; tasks that hang are waited for 5 seconds at most.
    """

    def __init__(self, config: Config) -> None:
        """Opens a store. All backends are checked with real I/O, in order.

        config: the keys of the README's "Configuration", as a mapping (paths may be os.PathLike) or
        as JSON text; it is read during the call only.
        Blocking: for the checks, at most open_timeout_ms (0, the default: as long as they take).
        Errors: InvalidParamError (the text names the key, its value and the rule),
        UnsupportedError, StoreUnhealthyError (a check failed; the text names the backend, the
        operation and errno), StoreTimeoutError, OperatingSystemError.
        """
        if not isinstance(config, str):
            config = json.dumps(dict(config), default=os.fspath)
        self._core = Core(config.encode())

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    async def __aenter__(self) -> Store:
        return self

    async def __aexit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        core: Optional[Core] = getattr(self, "_core", None)
        if core is None or core.closed or core.left or core.pid != os.getpid():
            return
        # Not here: closing may wait, and a finalizer runs in the middle of anything.
        start_new_thread(core.close_unseen, ())
        warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self)

    def __repr__(self) -> str:
        return f"<kvpath.Store {self._core.number}{', closed' if self.closed else ''}>"

    def close(self) -> None:
        """Closes the store: queued work ends with CLOSED, running attempts finish, its threads end.
        Other calls get ClosedError from the first moment. The second time it does nothing.

        Ownership: all memory is the caller's again, also where StoreTimeoutError is raised;
        with buffer_mode "borrowed" what hangs then stays exported for ever.
        Blocking: until the last thread has returned from the kernel, at most close_timeout_ms (0,
        the default: no limit). Errors: StoreTimeoutError: threads hang in the kernel, harmless;
        the store is closed all the same. Threads: any, but not the log callback.
        """
        self._core.close()

    async def aclose(self) -> None:
        """`close` on a thread of asyncio's, so that the loop goes on."""
        await asyncio.get_running_loop().run_in_executor(None, self._core.close)

    @property
    def closed(self) -> bool:
        """Whether `close` has returned."""
        return self._core.closed

    @property
    def shape(self) -> Optional[Shape]:
        """tensor_size, shard_size and block_size in bytes; None where they are not configured."""
        return self._core.shape

    # Moving blocks.

    def load(self, shards: Iterable[Shard]) -> Task:
        """Starts to load shards into their memory, which must be writable. No shards: a task that
        has finished.

        Ownership: the memory belongs to the task until it has ended, see `Task`; until then its
        content is undefined, and after an error it may be changed in part.
        Threads: any. Blocking: never on I/O.
        Errors, with nothing started: InvalidParamError (sizes, indexes), TypeError (no memory),
        BufferError (read-only, or not contiguous), RetryError (max_queued_shards),
        StoreUnhealthyError, UnsupportedError (device_id is -1).
        """
        return self._start(api.load, lambda shape: _plan.of_shards(shape, list(shards), True))

    def dump(self, shards: Iterable[Shard]) -> Task:
        """Starts to dump shards from their memory. With the default commit_policy a block becomes
        visible, whole, when all its shards were written through this store, by any number of tasks;
        the task whose shard completes it ends after that.

        Ownership: the memory belongs to the task and must not change until that has ended, see
        `Task`. Threads: any. Blocking: never on I/O.
        Errors: as `load`; also RetryError (too many unfinished blocks), InvalidParamError (a shard
        twice).
        """
        return self._start(api.dump, lambda shape: _plan.of_shards(shape, list(shards), False))

    def load_block(self, block: BlockId, memory: Memory) -> Task:
        """`load` of all shards of one block into one contiguous memory of block_size bytes."""
        return self._start(api.load, lambda shape: _plan.of_block(shape, block, memory, True))

    def dump_block(self, block: BlockId, memory: Memory) -> Task:
        """`dump` of all shards of one block from one contiguous memory of block_size bytes."""
        return self._start(api.dump, lambda shape: _plan.of_block(shape, block, memory, False))

    def _start(self, start: Callable[..., int], plan: Callable[[Shape], Plan]) -> Task:
        core = self._core
        core.not_forked()
        if core.shape is None:
            core.refuse(start)
        assert core.shape is not None
        return Task(core, self, start, plan(core.shape))

    def finished(self, limit: int = 256) -> list[int]:
        """Handles (`Task.handle`) of tasks that have finished since they were last listed, each
        once, oldest first, at most `limit`: for event loops that poll `event_fd`. Then `Task.wait`
        returns at once. Tasks that were waited for or dropped before may be missing. While
        coroutines await tasks of this store, their loop lists for all: do not mix the two.

        Ownership: the memory of what is listed is the caller's again. Threads: any. Blocking:
        never. Errors: InvalidParamError, ClosedError.
        """
        self._core.not_forked()
        return self._core.drain(max(0, limit))

    def event_fd(self) -> int:
        """A descriptor that polls readable while `finished` has something to list. Do not read,
        write or close it; `close` does that. `await task` uses it by itself.

        Threads: any. Blocking: never. Errors: OperatingSystemError (no descriptor left).
        """
        return self._core.event_fd()

    # What is stored.

    def lookup(self, ids: Iterable[BlockId]) -> list[bool]:
        """Whether each block is stored.

        Threads: any. Blocking: at most lookup_timeout_ms (0: no limit), without the GIL.
        Errors: StoreUnhealthyError, StoreTimeoutError, OperatingSystemError: not all could be
        asked; `partial` of the exception is the list with those as False. InvalidParamError.
        """
        array, count = _plan.id_array(ids)
        found = (c_uint8 * count)()
        self._look(api.lookup, array, count, found, lambda: [it != 0 for it in found])
        return [it != 0 for it in found]

    def lookup_prefix(self, ids: Iterable[BlockId]) -> int:
        """The index of the last block before the first absent one; -1 if none. Blocking and errors
        as `lookup`; `partial` is the index, what could not be asked counts as absent."""
        return self._index(api.lookup_prefix, ids)

    def lookup_last(self, ids: Iterable[BlockId]) -> int:
        """The highest index whose block is stored, whatever is before it; -1 if none. Blocking and
        errors as `lookup_prefix`."""
        return self._index(api.lookup_last, ids)

    def _index(self, function: Callable[..., int], ids: Iterable[BlockId]) -> int:
        array, count = _plan.id_array(ids)
        index = c_int64(-1)
        self._look(function, array, count, byref(index), lambda: index.value)
        return index.value

    def _look(
        self,
        function: Callable[..., int],
        array: ctypes.Array[_abi.BlockId],
        count: int,
        out: object,
        partial: Callable[[], Union[list[bool], int]],
    ) -> None:
        status = function(self._core.number, array, count, out)
        if status != 0:
            raise failure(status, partial() if status in _PARTIAL else None)

    def commit(self, block: BlockId, success: bool = True) -> None:
        """Ends a block that was dumped: True makes it visible (needed with commit_policy
        "explicit", harmless otherwise), False drops what was written of it.

        Threads: any. Blocking: at most timeout_ms (0: no limit), without the GIL.
        Errors: InvalidParamError (shards are missing; the text names them), NotFoundError (this
        store has no such unfinished block and it is not visible), StoreTimeoutError,
        OperatingSystemError, NoSpaceError, StoreUnhealthyError, UnsupportedError.
        """
        array, _ = _plan.id_array([block])
        ensure(api.commit(self._core.number, array, bool(success)))

    def remove(self, ids: Iterable[BlockId]) -> None:
        """Removes blocks. Missing ones are no error; those being dumped through this store stay.

        Threads: any. Blocking: at most timeout_ms (0: no limit), without the GIL.
        Errors: the first block's in the order of the call, the others were tried:
        StoreTimeoutError, OperatingSystemError, StoreUnhealthyError, InvalidParamError.
        """
        array, count = _plan.id_array(ids)
        ensure(api.remove(self._core.number, array, count))

    # What an operator sees. Never I/O, never blocking, from any thread.

    def check_health(self) -> None:
        """Raises StoreUnhealthyError where no backend is available. No I/O, never blocks."""
        ensure(api.check_health(self._core.number))

    def health(self) -> list[BackendHealth]:
        """The health of each backend, in the order of the configuration. No I/O, never blocks."""
        return [backend_of(raw) for raw in self._core.health()]

    def health_report(self) -> dict[str, Any]:
        """kvpath_health_json(): also same_storage and the last 64 transitions with their causes.
        No I/O, never blocks."""
        return _object(self._core.text(api.health_json))

    def stats(self) -> Stats:
        """The counters. No I/O, never blocks."""
        raw = _abi.Stats(size=ctypes.sizeof(_abi.Stats))
        ensure(api.stats(self._core.number, byref(raw)))
        return stats_of(raw)

    def stats_report(self) -> dict[str, Any]:
        """kvpath_stats_json(): also the configuration in effect with the origin of each value, and
        the engine with the reason of its choice. No I/O, never blocks."""
        return _object(self._core.text(api.stats_json))

    def metrics(self) -> str:
        """The counters as Prometheus text (exposition format 0.0.4). No I/O, never blocks."""
        return self._core.text(api.metrics)

    def backend_set(self, path: Union[str, os.PathLike[str]], setting: BackendSetting) -> None:
        """Takes a backend out of routing, forces it in, or gives it back to its window. `path` is
        as configured. Never blocks. Errors: InvalidParamError (no such backend)."""
        ensure(api.backend_set(self._core.number, os.fsencode(path), int(setting)))


def _object(text: str) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(text)
    return value


def open(config: Config) -> Store:
    """Opens a store: `Store(config)`."""
    return Store(config)
