"""An open store: its number, the memory of its running tasks, and how both end.

Owns which tasks are running and their pins. Free of the user's objects, so it outlives them: what
a user drops is finished here. Dictionaries and deques are used by single operations that are
atomic in Python; each pin is released by whoever pops it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import threading
import time
from collections import deque
from contextlib import suppress
from ctypes import byref, c_int32, c_size_t, c_uint8, c_uint64
from typing import Any, Callable, Optional

from . import _abi
from ._events import Events
from ._library import api, ensure, failure
from ._pins import Pins
from ._plan import Plan, Shape
from .errors import ClosedError, KvpathError, Status, error_of

EXIT_LIMIT_MS = 5000
"""How long the end of the interpreter waits for running tasks of stores that are open."""

_REAPED_AT_ONCE = 8
_LISTED_AT_ONCE = 256
_TEXT_ATTEMPTS = 8
_TEXT_ROOM_BYTES = 1024

_open: set[Core] = set()
"""Stores of this process that were not closed."""


class Core:
    """One open store. Threads: any."""

    def __init__(self, config: bytes) -> None:
        number = c_uint64()
        ensure(api.open(config, byref(number)))
        self.number: int = number.value
        self.pid = os.getpid()
        self.closed = False
        self.left = False
        self.memory_safe = True
        self.backends = _abi.MAX_BACKENDS
        self._closing = threading.Lock()
        self._running: dict[int, Pins] = {}
        self._orphans: deque[int] = deque()
        self.events = Events(self.event_fd, self.has_finished, self._drain_for_loop)
        _open.add(self)
        settings = json.loads(self.text(api.stats_json))["config"]
        self.isolated = settings["buffer_mode"]["value"] == "isolated"
        self.shape = _shape(settings)

    def not_forked(self) -> None:
        """Raises ForkedError in a fork, before any lock is taken that its parent may hold."""
        if os.getpid() != self.pid:
            ensure(api.check_health(self.number))
            raise error_of(Status.FORKED, "this process was forked from the one with the store")

    # Tasks.

    def submit(self, start: Callable[..., int], plan: Plan) -> int:
        """Starts a load or a dump and gives its handle; from now on the pins are the task's."""
        self.reap()
        handle = c_uint64()
        status = start(self.number, plan.shards, plan.count, byref(handle))
        if status != 0:
            error = failure(status)
            plan.pins.release()
            raise error
        self._running[handle.value] = plan.pins
        if self.closed:
            self._release_all()
        return handle.value

    def refuse(self, start: Callable[..., int]) -> None:
        """Raises what the library says to a transfer where the configuration has no sizes."""
        handle = c_uint64()
        ensure(start(self.number, None, 0, byref(handle)))
        raise error_of(Status.UNSUPPORTED, "the configuration has no sizes for transfers")

    def has_finished(self, handle: int) -> bool:
        """kvpath_check(); gives the memory back where the task has finished."""
        flag = c_uint8()
        ensure(api.check(self.number, handle, byref(flag)))
        if flag.value:
            self.release(handle)
        return bool(flag.value)

    def release(self, handle: int) -> None:
        """Gives a finished task's memory back to its owners. The second time it does nothing."""
        pins = self._running.pop(handle, None)
        if pins is not None:
            pins.release()

    def orphan(self, handle: int) -> None:
        """Nobody will ask for this task any more. Calls nothing: a finalizer may be here."""
        self._orphans.append(handle)

    def reap(self) -> None:
        """Forgets some of the orphans that have finished, and gives back their memory."""
        flag = c_uint8()
        for _ in range(min(len(self._orphans), _REAPED_AT_ONCE)):
            try:
                handle = self._orphans.popleft()
            except IndexError:
                return  # another thread was here
            status = api.check(self.number, handle, byref(flag))
            if status == Status.CLOSED:
                return  # close() gives back everything
            if status == 0 and not flag.value:
                self._orphans.append(handle)
                continue
            # Finished; or unknown, because its result was dropped, which is after its end.
            api.forget(self.number, handle)
            self.release(handle)

    def drain(self, limit: int) -> list[int]:
        """kvpath_finished(); gives the memory back and wakes the coroutines that wait."""
        handles = (c_uint64 * limit)()
        count = c_size_t()
        ensure(api.finished(self.number, handles, limit, byref(count)))
        listed = list(handles[: count.value])
        for handle in listed:
            self.release(handle)
        self.events.wake(listed)
        self.reap()
        return listed

    def _drain_for_loop(self) -> bool:
        try:
            self.drain(_LISTED_AT_ONCE)
        except ClosedError:
            return False
        return True

    def event_fd(self) -> int:
        fd = c_int32()
        ensure(api.event_fd(self.number, byref(fd)))
        return fd.value

    # Reports.

    def text(self, function: Callable[..., int]) -> str:
        """A text of the library that grows between asking for its length and for itself."""
        length = c_size_t()
        status = int(function(self.number, None, 0, byref(length)))
        for _ in range(_TEXT_ATTEMPTS):
            ensure(status)
            buffer = ctypes.create_string_buffer(length.value + _TEXT_ROOM_BYTES)
            status = int(function(self.number, buffer, len(buffer), byref(length)))
            if status == 0:
                return buffer.raw[: length.value].decode("utf-8", "replace")
            if length.value >= len(buffer):
                status = 0  # it grew meanwhile
        raise error_of(Status.RETRY, "the text grows faster than it can be copied")

    # The end.

    def close(self) -> None:
        """kvpath_close(). A second call waits for the first and does nothing."""
        self.not_forked()
        with self._closing:
            if self.closed:
                return
            status = api.close(self.number)
            error = failure(status) if status != 0 else None
            known = status == 0 or (status == Status.TIMEOUT and self.isolated)
            self.memory_safe = known
            self.closed = True
            _open.discard(self)
            self._release_all()
            self.events.wake_all()
            if error is not None:
                raise error

    def close_unseen(self) -> None:
        """close() of a store that its user dropped: nobody is there to take an error."""
        with suppress(KvpathError):
            self.close()

    def _release_all(self) -> None:
        """After close(). Where the kernel may still use memory it stays exported for ever."""
        for handle in list(self._running):
            if self.memory_safe:
                self.release(handle)

    def leave(self, deadline: float) -> None:
        """The interpreter ends: as close(), but never waits longer than the deadline. A store on
        which something hangs stays open; the end of the process is its end."""
        if os.getpid() != self.pid:
            return
        self.left = True
        handles = list(self._running)
        for handle in handles:
            api.cancel(self.number, handle)
        for handle in handles:
            left_ms = int((deadline - time.monotonic()) * 1000)
            api.wait(self.number, handle, max(1, left_ms))
        if not self._hangs() and self._closing.acquire(timeout=max(0, deadline - time.monotonic())):
            self._closing.release()
            self.close_unseen()

    def _hangs(self) -> bool:
        try:
            backends = self.health()
        except ClosedError:
            return True  # another thread closes it, and may hang there
        return any(it.in_flight or it.abandoned or it.probe_threads for it in backends)

    def health(self) -> list[_abi.BackendHealth]:
        """kvpath_health()."""
        array = (_abi.BackendHealth * self.backends)()
        array[0].size = ctypes.sizeof(_abi.BackendHealth)
        count = c_size_t()
        ensure(api.health(self.number, array, self.backends, byref(count)))
        self.backends = count.value  # it never changes
        return list(array[: count.value])


def _shape(settings: dict[str, Any]) -> Optional[Shape]:
    """None in the role that only looks up and was given no sizes."""
    sizes = [settings.get(key, {}).get("value") or 0 for key in Shape._fields]
    return Shape(*sizes) if all(sizes) else None


def _leave_all() -> None:
    deadline = time.monotonic() + EXIT_LIMIT_MS / 1000
    for core in list(_open):
        core.leave(deadline)


atexit.register(_leave_all)
