"""Memory that is fastest for kvpath: aligned, and on huge pages where that is possible."""

from __future__ import annotations

import ctypes
import weakref

from ._library import api, failure
from .errors import Status


def alloc(size: int) -> memoryview:
    """Memory of `size` bytes for tensors, writable, as a memoryview of format "B": aligned to 2 MiB
    on huge pages where that is possible and `size` is large, otherwise to 4096. Any memory works
    with kvpath; this is the fastest. `numpy.frombuffer` and `torch.frombuffer` take it.

    Ownership: it is given back when the last view of it is gone. Threads: any. Blocking: never on
    I/O. Errors: OutOfMemoryError; ValueError where `size` is not above 0; ForkedError.
    """
    if size <= 0:
        raise ValueError(f"size is {size}, must be above 0")
    address = api.alloc(size)
    if address is None:
        error = failure(Status.OUT_OF_MEMORY)
        raise failure(error.detail) if error.detail not in (0, Status.OUT_OF_MEMORY) else error
    array = (ctypes.c_ubyte * size).from_address(address)
    weakref.finalize(array, api.free, address).atexit = False
    return memoryview(array).cast("B")
