"""The library's log: to a function, or to Python's `logging`.

There is one callback in the process, for all stores. Without one, lines go to stderr by the
environment variable KVPATH_LOG = error | warn | info | debug (default warn).
"""

from __future__ import annotations

import atexit
import logging
import os
from typing import Any, Callable, Optional, Union

from . import _abi
from ._library import api, ensure, text_of

ERROR, WARN, INFO, DEBUG = 1, 2, 3, 4

LogCallback = Callable[[int, str, str], None]
"""Gets a level (1 error, 2 warn, 3 info, 4 debug), a stable message id ("KV1001") and a text."""

_LOGGING_LEVELS = {
    ERROR: logging.ERROR,
    WARN: logging.WARNING,
    INFO: logging.INFO,
    DEBUG: logging.DEBUG,
}

_nothing = _abi.LogFunction()
_current: Any = _nothing
_process = os.getpid()


def set_log_callback(callback: Optional[LogCallback], level: int = INFO) -> None:
    """Sets the one log callback of the process, or unsets it with None. After the return the
    earlier one does not run any more.

    level: ERROR (1), WARN (2), INFO (3), DEBUG (4); less important messages are not made.
    Threads: any, but not the callback itself. The callback runs on a thread of the library, one
    call at a time, and may not call kvpath; what it raises goes to sys.unraisablehook.
    Blocking: until a running callback has returned, without the GIL: hold no lock that it takes.
    Errors: InvalidParamError (level, or called from the callback), OperatingSystemError.
    """
    global _current
    wanted = _nothing if callback is None else _abi.LogFunction(_bridge(callback))
    ensure(api.set_log_callback(wanted, level, None))
    _current = wanted  # keeps it alive; the earlier one may go now


def _bridge(callback: LogCallback) -> Callable[[int, bytes, bytes, object], None]:
    return lambda level, name, text, _: callback(level, text_of(name), text_of(text))


def log_to(logger: Union[logging.Logger, str] = "kvpath", level: Optional[int] = None) -> None:
    """Sends the library's log to a logger of `logging`, as "KV1001: text"; the record has the
    message id as `kvpath_id`.

    level: of `logging`, the least that is wanted; None: the logger's effective level now. The
    library decides by it what it makes, so a later change of the logger's level only hides more.
    Threads, blocking, errors: as `set_log_callback`, which it uses. Handlers run on a thread of the
    library and may not call kvpath.
    """
    target = logging.getLogger(logger) if isinstance(logger, str) else logger
    least = target.getEffectiveLevel() if level is None else level
    wanted = [ours for ours, theirs in _LOGGING_LEVELS.items() if theirs >= least]

    def emit(level: int, name: str, text: str) -> None:
        importance = _LOGGING_LEVELS.get(level, logging.INFO)
        target.log(importance, "%s: %s", name, text, extra={"kvpath_id": name})

    set_log_callback(emit, max(wanted, default=ERROR))


def _unset_at_exit() -> None:
    """The library's thread must not call into an interpreter that is gone."""
    if _current is not _nothing and os.getpid() == _process:
        set_log_callback(None)


atexit.register(_unset_at_exit)
