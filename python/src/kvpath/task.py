"""A load or a dump that was started."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Generator
from ctypes import c_int32
from typing import Any, NamedTuple, Optional, Union

from ._core import Core
from ._library import api, ensure, failure, text_of
from ._plan import Plan
from .errors import KvpathError, NotFoundError, Status, error_of

# The library writes statuses only when it consumes a handle, and no status is positive.
_UNTOUCHED = 1

# A wait in C cannot see Ctrl-C, so the main thread (only there do signals arrive) looks this often.
_SIGNAL_MS = 250


class _Outcome(NamedTuple):
    status: int
    detail: int
    text: str

    def raise_error(self) -> None:
        if self.status != 0:
            raise error_of(self.status, self.text, detail=self.detail)


class Task:
    """One call of `Store.load` or `Store.dump`. Made by the store only.

    Ownership: the memory of its shards is exported and kept alive until the task has ended, also
    when this object is dropped, forgotten, or an `await` on it is cancelled; a bytearray, say,
    cannot be resized before. It is given back when `wait`, `check`, `Store.finished` or an `await`
    sees the end; that of tasks which nobody asks for any more by the store's next load, dump or
    wait after their end, or by `Store.close`. Do not change the memory of a dump before its end.

    Threads: any, several at a time too: all of them get the result.
    Awaiting: `await task` is `wait()` for asyncio; it blocks no thread. Cancelling the waiting
    (asyncio.wait_for, for example) leaves the task running: `cancel` ends what has not started.
    """

    __slots__ = (
        "__weakref__", "_core", "_forgotten", "_lock", "_outcome", "_statuses", "_store", "handle"
    )  # fmt: skip

    def __init__(self, core: Core, store: object, start: Any, plan: Plan) -> None:
        self._outcome: Optional[_Outcome] = None
        self._forgotten = True  # until there is something to forget
        self._core = core
        self._store = store  # a store stays open while its tasks are in use
        self._lock = threading.Lock()
        self._statuses = (c_int32 * plan.count)(*[_UNTOUCHED] * plan.count)
        self.handle: int = core.submit(start, plan)
        """kvpath_task_t: a number that is never used again in this store."""
        self._forgotten = False

    def __repr__(self) -> str:
        state = "pending" if self._outcome is None else f"ended with {self._outcome.status}"
        return f"<kvpath.Task {self.handle}, {len(self._statuses)} shards, {state}>"

    def __del__(self) -> None:
        if not self._forgotten and self._outcome is None:
            self._core.orphan(self.handle)

    def wait(self, limit_ms: Optional[float] = None) -> None:
        """Waits for the end, at most `limit_ms` milliseconds (None: no limit of its own, the task
        ends by the configuration's timeout_ms; 0: only looks). It may be called again, and says the
        same.

        Ownership: the memory is the caller's again, also where an error is raised, RetryError
        excepted. Threads: any. Blocking: yes, without the GIL; Ctrl-C ends the waiting.
        Errors: RetryError: not finished within the limit, the task goes on. Otherwise the error of
        the first shard, in the order of the call, that did not succeed: NotFoundError (CorruptError
        where a file is there that is not a whole block), StoreTimeoutError, OperatingSystemError,
        NoSpaceError, StoreUnhealthyError, TaskCancelledError, ClosedError. ClosedError too where
        the store was closed before the result was taken, NotFoundError where the result was dropped
        because 65,536 newer ones waited to be asked for. After any of them the memory of a load
        holds nothing of worth.
        """
        self._end(limit_ms).raise_error()

    def wait_results(self, limit_ms: Optional[float] = None) -> list[Union[Status, int]]:
        """As `wait`, but gives one status per shard, in the order of the call, instead of raising
        the first one. Raises RetryError, ClosedError and NotFoundError where there is no result.
        """
        outcome = self._end(limit_ms)
        statuses = list(self._statuses)
        if _UNTOUCHED in statuses:
            outcome.raise_error()
        return [Status(it) if it in _KNOWN else it for it in statuses]

    def check(self) -> bool:
        """Whether the task has finished, well or not.

        Ownership: where it has, the memory is the caller's again. Threads: any. Blocking: never.
        Errors: ClosedError, NotFoundError (forgotten).
        """
        self._ready()
        return self._outcome is not None or self._core.has_finished(self.handle)

    def cancel(self) -> None:
        """Ends what has not started: those shards get CANCELLED, running ones go on. Wait for the
        task as ever. One that has ended is left alone.

        Ownership: unchanged. Threads: any. Blocking: never. Errors: ClosedError, NotFoundError.
        """
        self._ready()
        if self._outcome is None:
            ensure(api.cancel(self._core.number, self.handle))

    def forget(self) -> None:
        """Says that nobody will ask for the result; the task goes on. Dropping the object does the
        same. Unlike kvpath_forget() this is safe at any time: the memory stays exported until the
        task has ended.

        Threads: any. Blocking: never. Errors: ForkedError.
        """
        self._core.not_forked()
        if self._outcome is None and not self._forgotten:
            self._forgotten = True
            self._core.orphan(self.handle)
            self._core.events.wake([self.handle])
            self._core.reap()

    def __await__(self) -> Generator[Any, None, None]:
        return self._wait_in_loop().__await__()

    async def _wait_in_loop(self) -> None:
        self._ready()
        if self._outcome is None:
            try:
                await self._core.events.finished(self.handle)
            except NotFoundError:
                pass  # another thread has just taken the result, so it is here now
        self.wait()

    def _ready(self) -> None:
        self._core.not_forked()
        if self._forgotten:
            raise error_of(Status.NOT_FOUND, f"task {self.handle} was forgotten")

    def _end(self, limit_ms: Optional[float]) -> _Outcome:
        if limit_ms is not None and not limit_ms >= 0:
            raise error_of(Status.INVALID_PARAM, f"limit_ms is {limit_ms}, must be at least 0")
        self._ready()
        if self._outcome is not None:
            return self._outcome
        deadline = math.inf if limit_ms is None else time.monotonic() + limit_ms / 1000
        # One thread waits in the library; others wait for that one.
        patience = -1 if limit_ms is None else min(limit_ms / 1000, threading.TIMEOUT_MAX)
        if not self._lock.acquire(timeout=patience):
            raise self._not_yet(limit_ms)
        try:
            if self._outcome is None and not self._consume(deadline):
                raise self._not_yet(limit_ms)
        finally:
            self._lock.release()
        assert self._outcome is not None
        self._core.reap()
        return self._outcome

    def _not_yet(self, limit_ms: Optional[float]) -> KvpathError:
        text = f"task {self.handle} has not finished in {limit_ms} ms"
        return error_of(Status.RETRY, text)

    def _consume(self, deadline: float) -> bool:
        """Takes the result from the library; False where the deadline passes first."""
        is_main = threading.current_thread() is threading.main_thread()
        while True:
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms < 1 and not self._is_over():
                return False
            slice_ms = min(left_ms, _SIGNAL_MS) if is_main else left_ms
            # In C 0 is no limit.
            limit_ms = 0 if slice_ms == math.inf else max(1, math.ceil(slice_ms))
            if self._take(limit_ms):
                return True

    def _is_over(self) -> bool:
        try:
            return self._core.has_finished(self.handle)
        except KvpathError:
            return True  # waiting says why

    def _take(self, limit_ms: int) -> bool:
        core, statuses = self._core, self._statuses
        count = len(statuses)
        status = api.wait_results(core.number, self.handle, limit_ms, statuses, count)
        consumed = count == 0 or statuses[0] != _UNTOUCHED
        if status == Status.RETRY and not (count and consumed):
            return False
        error = failure(status) if status != 0 else None
        if status == Status.NOT_FOUND and consumed:
            status, error = self._interrupted(status, error)
        if status != Status.CLOSED:
            core.release(self.handle)  # with CLOSED it may still run: close() gives back
        text, detail = (error.text, error.detail) if error else ("", 0)
        self._outcome = _Outcome(status, detail, text)
        core.events.wake([self.handle])
        return True

    def _interrupted(
        self, status: int, error: Optional[KvpathError]
    ) -> tuple[int, Optional[KvpathError]]:
        """Ctrl-C may come between the library's answer and its being kept; then the handle is
        unknown afterwards, but the statuses are here."""
        first = next((it for it in self._statuses if it != 0), 0)
        if first == status:
            return status, error
        text = text_of(api.status_text(first))
        return first, error_of(first, text) if first else None


_KNOWN = frozenset(int(status) for status in Status)
