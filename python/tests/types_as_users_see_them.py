"""Not run: what a type checker must accept of a user, and what it must refuse."""

from __future__ import annotations

import array
import mmap
from pathlib import Path
from typing import Any

import kvpath
import numpy as np


class Tensor:
    """As far as kvpath knows torch.Tensor."""

    def data_ptr(self) -> int:
        return 0

    def numel(self) -> int:
        return 0

    def element_size(self) -> int:
        return 0

    def is_contiguous(self) -> bool:
        return True


def accepted(store: kvpath.Store, mapped: mmap.mmap, tensor: Tensor) -> None:
    numbers: np.ndarray[Any, np.dtype[np.float32]] = np.zeros(4, np.float32)
    for memory in (b"", bytearray(), memoryview(b""), array.array("f"), mapped, numbers, tensor):
        store.dump_block(b"", memory)
        store.load([kvpath.Shard(bytearray(), 0, memory), kvpath.Shard(b"", 1, [memory, memory])])
    found: list[bool] = store.lookup(it for it in (b"", memoryview(b"")))
    index: int = store.lookup_prefix([]) + store.lookup_last([])
    state: kvpath.BackendState = store.health()[0].state
    store.backend_set(Path("/"), kvpath.BackendSetting.OUT)
    print(found, index, state, store.stats().loaded_bytes + 1)


async def awaited(store: kvpath.Store) -> None:
    await store.load([])
    async with store as again:
        await again.aclose()


def refused(store: kvpath.Store) -> None:
    store.lookup([1])  # type: ignore[list-item]
    store.dump_block(b"", "text")  # type: ignore[arg-type]
    store.load([(b"", 0, b"")])  # type: ignore[list-item]
    store.backend_set("/", "out")  # type: ignore[arg-type]
    kvpath.open(7)  # type: ignore[arg-type]
