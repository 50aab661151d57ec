"""Waiting for tasks in asyncio loops, over the descriptor that kvpath_event_fd() gives.

Owns who waits for which handle, and one reader a loop while somebody waits there. Each reader has
a duplicate of the descriptor, which lives until the reader is gone, whenever the store is closed.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Callable


class _Reader:
    """What one loop watches."""

    def __init__(self, loop: asyncio.AbstractEventLoop, event_fd: int) -> None:
        self.loop = loop
        self.waiting = 0
        self.fd = os.dup(event_fd)

    def watch(self, callback: Callable[[], None]) -> None:
        self.loop.add_reader(self.fd, callback)

    def ignore(self) -> None:
        # A loop that is closed already watches nothing.
        with suppress(RuntimeError):
            self.loop.remove_reader(self.fd)

    def end(self) -> None:
        self.ignore()
        os.close(self.fd)


class Events:
    """Wakes the coroutines that wait for tasks of one store.

    event_fd: gives the descriptor. has_finished: whether a handle's task has. drain: lists what
    has finished (and calls `wake`); False where the store is closed.
    """

    def __init__(
        self,
        event_fd: Callable[[], int],
        has_finished: Callable[[int], bool],
        drain: Callable[[], bool],
    ) -> None:
        self._event_fd = event_fd
        self._has_finished = has_finished
        self._drain = drain
        # Reentrant: a coroutine that the collector ends may leave in the middle of anything.
        self._lock = threading.RLock()
        self._waiting: dict[int, list[asyncio.Future[None]]] = {}
        self._readers: dict[asyncio.AbstractEventLoop, _Reader] = {}

    async def finished(self, handle: int) -> None:
        """Returns when the task has finished or its store was closed. Cancelling it ends the
        waiting only."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._enter(loop, handle, future)
        try:
            # Entered first, asked second: whoever lists the handle from now on wakes the future.
            if not self._has_finished(handle):
                await future
        finally:
            self._leave(loop, handle, future)

    def _enter(
        self, loop: asyncio.AbstractEventLoop, handle: int, future: asyncio.Future[None]
    ) -> None:
        with self._lock:
            reader = self._readers.get(loop)
            if reader is None:
                reader = _Reader(loop, self._event_fd())
                reader.watch(lambda: None if self._drain() else reader.ignore())
                self._readers[loop] = reader
            reader.waiting += 1
            self._waiting.setdefault(handle, []).append(future)

    def _leave(
        self, loop: asyncio.AbstractEventLoop, handle: int, future: asyncio.Future[None]
    ) -> None:
        with self._lock:
            others = self._waiting.get(handle, [])
            if future in others:
                others.remove(future)
                if not others:
                    del self._waiting[handle]
            reader = self._readers[loop]
            reader.waiting -= 1
            if reader.waiting == 0:
                del self._readers[loop]
                reader.end()

    def wake(self, handles: Iterable[int]) -> None:
        """Wakes who waits for these handles, in whatever loop."""
        if not self._waiting:
            return
        with self._lock:
            woken = [self._waiting.pop(handle, []) for handle in handles]
        for futures in woken:
            for future in futures:
                # A loop that is closed waits for nothing any more.
                with suppress(RuntimeError):
                    future.get_loop().call_soon_threadsafe(_end, future)

    def wake_all(self) -> None:
        """Wakes everybody: the store was closed."""
        with self._lock:
            handles = list(self._waiting)
        self.wake(handles)


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
