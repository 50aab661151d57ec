"""Finds and loads libkvpath, and turns its statuses into exceptions.

Which library, the first of: the file in the environment variable KVPATH_LIBRARY, read when the
package is imported (a file that does not load is an error, not a reason to look further); the one
inside the package; the system's libkvpath.so.0.1. Without any of them the import fails.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from . import _abi
from .errors import KvpathError, error_of

SONAME = "libkvpath.so.0.1"
VARIABLE = "KVPATH_LIBRARY"


class Api:
    """The functions of the loaded library by name without the prefix; each lets the GIL go."""

    def __init__(self, table: _abi.Table) -> None:
        for name, *_ in _abi.FUNCTIONS:
            setattr(self, name, getattr(table, name))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Any]: ...


def _load() -> tuple[ctypes.CDLL, str]:
    wanted = os.environ.get(VARIABLE)
    if wanted:
        try:
            return ctypes.CDLL(wanted), wanted
        except OSError as error:
            raise ImportError(f"{VARIABLE}: {error}") from error
    bundled = Path(__file__).with_name(SONAME)
    if bundled.exists():
        return ctypes.CDLL(str(bundled)), str(bundled)
    try:
        return ctypes.CDLL(SONAME), SONAME
    except OSError as error:
        raise ImportError(
            f"no kvpath library: {bundled} is not there, the system gives no {SONAME} ({error}),"
            f" and {VARIABLE} is not set"
        ) from error


def _table(found: ctypes.CDLL, name: str) -> _abi.Table:
    try:
        kvpath_api = _abi.ApiFunction(("kvpath_api", found))
    except AttributeError as error:
        raise ImportError(f"{name} is no kvpath library: {error}") from error
    pointer = kvpath_api(_abi.ABI_VERSION)
    need = ctypes.sizeof(_abi.Table)
    if not pointer or pointer.contents.size < need:
        have = pointer.contents.size if pointer else 0
        raise ImportError(
            f"{name} is older than this package: it has {have} bytes of the table of ABI"
            f" {_abi.ABI_VERSION}, {need} are needed"
        )
    table: _abi.Table = pointer.contents
    return table


library, library_path = _load()
api = Api(_table(library, library_path))


def text_of(given: Optional[bytes]) -> str:
    return (given or b"").decode("utf-8", "replace")


def failure(status: int, partial: Union[list[bool], int, None] = None) -> KvpathError:
    """The exception of the call that has just failed in this thread: take it before any other."""
    text = text_of(api.last_error())
    detail = int(api.last_detail())
    name = text_of(api.status_name(status))
    return error_of(status, text, status_name=name, detail=detail, partial=partial)


def ensure(status: int) -> None:
    """Raises where a call of this thread has just failed."""
    if status != 0:
        raise failure(status)
