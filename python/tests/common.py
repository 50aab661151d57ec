"""What the tests share: a storage of their own, and stores on it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
import unittest
from typing import Any

import kvpath
from kvpath import _library

TENSOR, SHARD, BLOCK = 4096, 8192, 32768
LIMIT_MS = 60_000
"""How long a test waits for what must happen; nothing is measured by it."""


def block_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


def content(number: int, size: int = BLOCK) -> bytes:
    """Bytes that differ for each number and each position."""
    return b"".join((number * 1_000_003 + at).to_bytes(8, "little") for at in range(0, size, 8))


class StoreCase(unittest.TestCase):
    """Gives each test an empty storage, and closes what it opened."""

    def setUp(self) -> None:
        base = os.environ.get("KVPATH_TEST_DIR")
        self.root = tempfile.mkdtemp(prefix="python-", dir=base)
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)

    def config(self, **more: Any) -> dict[str, Any]:
        return {
            "storage_backends": [self.root],
            "io_direct_fallback": True,
            "data_dir_shard_bytes": 0,
            "tensor_size": TENSOR,
            "shard_size": SHARD,
            "block_size": BLOCK,
            **more,
        }

    def open(self, **more: Any) -> kvpath.Store:
        store = kvpath.open(self.config(**more))
        self.addCleanup(close_quietly, store)
        return store

    def stored(self, store: kvpath.Store, number: int) -> bytes:
        """Stores a block and gives its content."""
        data = content(number)
        store.dump_block(block_id(number), data).wait()
        return data

    def resizable(self, memory: bytearray) -> bool:
        """Whether nobody has exported it."""
        try:
            memory.append(0)
        except BufferError:
            return False
        memory.pop()
        return True


def close_quietly(store: Any) -> None:
    with contextlib.suppress(kvpath.KvpathError):
        store.close()


class Faults:
    """Operations of backend 0 that hang until they are let go (ctest/kvpath_fault.h)."""

    def __init__(self, store: kvpath.Store) -> None:
        self.number = ctypes.c_uint64(store._core.number)
        self.library = _library.library

    def hang(self, operation: str, count: int = 1) -> None:
        rule = f"hang {operation} count={count}".encode()
        self._ensure(self.library.kvpath_fault_add(self.number, ctypes.c_size_t(0), rule))

    def wait_held(self, count: int = 1) -> None:
        wait = self.library.kvpath_fault_wait_held
        backend, limit = ctypes.c_size_t(0), ctypes.c_uint64(LIMIT_MS)
        self._ensure(wait(self.number, backend, ctypes.c_size_t(count), limit))

    def let_go(self) -> None:
        count = ctypes.c_size_t()
        release = self.library.kvpath_fault_release
        self._ensure(release(self.number, ctypes.c_size_t(0), ctypes.byref(count)))

    def _ensure(self, status: int) -> None:
        if status != 0:
            raise AssertionError(f"the fault library says {status}")
