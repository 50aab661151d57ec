"""Status codes, and the exception of each.

Every exception of the library is a `KvpathError`. Some are a builtin exception too, so that code
that knows nothing of kvpath reacts well: `StoreTimeoutError` is a `TimeoutError`, for example.
"""

from __future__ import annotations

import enum
from typing import Optional, Union


class Status(enum.IntEnum):
    """A status of the library by its name in kvpath.h (without KVPATH_). Numbers never change."""

    OK = 0
    ERROR = -1
    INVALID_PARAM = -50000
    OUT_OF_MEMORY = -50001
    OS_ERROR = -50002
    DUPLICATE_KEY = -50003
    RETRY = -50004
    NOT_FOUND = -50005
    UNSUPPORTED = -50008
    NO_SPACE = -50009
    TIMEOUT = -50010
    STORE_UNHEALTHY = -50011
    CORRUPT = -51000
    FORKED = -51001
    CLOSED = -51002
    CANCELLED = -51003


class KvpathError(Exception):
    """A call failed. `KVPATH_ERROR` and unknown statuses are this class itself.

    status: the number that the call returned.
    status_name: its name, for example "KVPATH_NOT_FOUND".
    detail: a finer number, mostly the same (see `CorruptError`).
    text: the library's whole story: operation, path, errno with its text, or what differed.
    partial: what a lookup found all the same: the list of `Store.lookup`, the index of
        `lookup_prefix` and `lookup_last`; what could not be asked counts as absent. Otherwise None.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        status_name: Optional[str] = None,
        detail: Optional[int] = None,
        partial: Union[list[bool], int, None] = None,
    ) -> None:
        self.status = status
        self.status_name = status_name or name_of(status)
        self.text = text
        self.detail = status if detail is None else detail
        self.partial = partial
        super().__init__(f"{self.status_name} ({status}): {text}")

    def __reduce__(self) -> tuple[object, ...]:
        values = (self.status, self.text, self.status_name, self.detail, self.partial)
        return (_again, (type(self), *values))


def _again(
    kind: type[KvpathError],
    status: int,
    text: str,
    status_name: str,
    detail: int,
    partial: Union[list[bool], int, None],
) -> KvpathError:
    """Unpickles an error."""
    return kind(status, text, status_name=status_name, detail=detail, partial=partial)


class InvalidParamError(KvpathError, ValueError):
    """An argument or the configuration is wrong; nothing was started."""


class OutOfMemoryError(KvpathError, MemoryError):
    """Memory could not be had."""


class OperatingSystemError(KvpathError):
    """The operating system refused; the text names the operation and errno."""


class DuplicateKeyError(KvpathError):
    """The key exists already. Never given by kvpath itself."""


class RetryError(KvpathError):
    """Not now: not finished yet, or a table is full. Try again."""


class NotFoundError(KvpathError, LookupError):
    """No such block, or no such task (it was forgotten, or its result dropped)."""


class CorruptError(NotFoundError):
    """A file is there, but it is not a whole block: as good as not found, and worth a look."""


class UnsupportedError(KvpathError):
    """Not possible in this role, on this system, or in this version."""


class NoSpaceError(KvpathError):
    """The storage is full."""


class StoreTimeoutError(KvpathError, TimeoutError):
    """A time limit of the configuration passed."""


class StoreUnhealthyError(KvpathError):
    """No backend is available."""


class ForkedError(KvpathError):
    """This process is a fork of the one that opened stores; it may only exit or exec."""


class ClosedError(KvpathError):
    """The store is closed or closing."""


class TaskCancelledError(KvpathError):
    """`Task.cancel` ended the shard before it was started. Not asyncio's CancelledError."""


_KINDS: dict[int, type[KvpathError]] = {
    Status.INVALID_PARAM: InvalidParamError,
    Status.OUT_OF_MEMORY: OutOfMemoryError,
    Status.OS_ERROR: OperatingSystemError,
    Status.DUPLICATE_KEY: DuplicateKeyError,
    Status.RETRY: RetryError,
    Status.NOT_FOUND: NotFoundError,
    Status.UNSUPPORTED: UnsupportedError,
    Status.NO_SPACE: NoSpaceError,
    Status.TIMEOUT: StoreTimeoutError,
    Status.STORE_UNHEALTHY: StoreUnhealthyError,
    Status.CORRUPT: CorruptError,
    Status.FORKED: ForkedError,
    Status.CLOSED: ClosedError,
    Status.CANCELLED: TaskCancelledError,
}


def name_of(status: int) -> str:
    """ "KVPATH_NOT_FOUND" for its number; "KVPATH_UNKNOWN" for one that this package lacks."""
    try:
        return f"KVPATH_{Status(status).name}"
    except ValueError:
        return "KVPATH_UNKNOWN"


def error_of(
    status: int,
    text: str,
    *,
    status_name: Optional[str] = None,
    detail: Optional[int] = None,
    partial: Union[list[bool], int, None] = None,
) -> KvpathError:
    """The exception of a status that is not OK."""
    kind = _KINDS.get(status, KvpathError)
    if status == Status.NOT_FOUND and detail == Status.CORRUPT:
        kind = CorruptError
    return kind(status, text, status_name=status_name, detail=detail, partial=partial)
