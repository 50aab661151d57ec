"""kvpath: KV-cache blocks as files, over several mount paths that may fail or hang.

`open` gives a `Store`; its `dump` and `load` start a `Task`, for which you `wait` or `await`:

    with kvpath.open({"storage_backends": ["/mnt/a/kv", "/mnt/b/kv"], "tensor_size": 1 << 20,
                      "shard_size": 1 << 20, "block_size": 1 << 20}) as store:
        store.dump_block(b"block number one", memory).wait()
        store.lookup([b"block number one"])

Everything that fails raises a `KvpathError`. The README of the project describes the
configuration, and what each call does when paths fail. `library_path` is the library in use.
"""

from ._library import api as _api
from ._library import library_path
from ._library import text_of as _text_of
from ._pins import Memory, Tensor
from ._plan import BlockId, Shape, Shard
from .errors import (
    ClosedError,
    CorruptError,
    DuplicateKeyError,
    ForkedError,
    InvalidParamError,
    KvpathError,
    NoSpaceError,
    NotFoundError,
    OperatingSystemError,
    OutOfMemoryError,
    RetryError,
    Status,
    StoreTimeoutError,
    StoreUnhealthyError,
    TaskCancelledError,
    UnsupportedError,
)
from .logs import DEBUG, ERROR, INFO, WARN, log_to, set_log_callback
from .memory import alloc
from .reports import BackendHealth, BackendSetting, BackendState, Stats
from .store import Store, open
from .task import Task

__version__ = _text_of(_api.version())
"""The version of the library that is loaded."""

__all__ = [
    "BackendHealth",
    "BackendSetting",
    "BackendState",
    "BlockId",
    "ClosedError",
    "CorruptError",
    "DEBUG",
    "DuplicateKeyError",
    "ERROR",
    "ForkedError",
    "INFO",
    "InvalidParamError",
    "KvpathError",
    "Memory",
    "NoSpaceError",
    "NotFoundError",
    "OperatingSystemError",
    "OutOfMemoryError",
    "RetryError",
    "Shape",
    "Shard",
    "Stats",
    "Status",
    "Store",
    "StoreTimeoutError",
    "StoreUnhealthyError",
    "Task",
    "TaskCancelledError",
    "Tensor",
    "UnsupportedError",
    "WARN",
    "alloc",
    "library_path",
    "log_to",
    "open",
    "set_log_callback",
]
