"""Which memory a load and a dump take, and that it is given back."""

from __future__ import annotations

import array
import ctypes
import gc
import importlib.util
import mmap
import sys
import unittest
from typing import Any

import numpy as np
from common import BLOCK, SHARD, TENSOR, StoreCase, block_id, content

import kvpath
from kvpath import Shard

torch: Any = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


class Plain:
    """A tensor that has an address and nothing else (kvpath.Tensor), as torch's without NumPy."""

    def __init__(self, size: int, contiguous: bool = True) -> None:
        self.memory = (ctypes.c_uint16 * (size // 2))()
        self.contiguous = contiguous

    def data_ptr(self) -> int:
        return ctypes.addressof(self.memory)

    def numel(self) -> int:
        return len(self.memory)

    def element_size(self) -> int:
        return 2

    def is_contiguous(self) -> bool:
        return self.contiguous


class Buffers(StoreCase):
    def round_trip(self, source: Any, target: Any) -> None:
        store = self.open()
        store.dump_block(block_id(1), source).wait()
        store.load_block(block_id(1), target).wait()
        store.close()

    def test_dump_takes_what_is_read_only(self) -> None:
        data = content(1)
        for source in (data, bytearray(data), memoryview(data), array.array("Q", data)):
            target = bytearray(BLOCK)
            self.round_trip(source, target)
            self.assertEqual(target, data, type(source))

    def test_load_takes_what_is_writable(self) -> None:
        data = content(2)
        mapped = mmap.mmap(-1, BLOCK)
        for target in (
            bytearray(BLOCK),
            memoryview(bytearray(BLOCK)),
            array.array("d", bytes(BLOCK)),
            kvpath.alloc(BLOCK),
            mapped,
        ):
            self.round_trip(data, target)
            self.assertEqual(bytes(target), data, type(target))
        mapped.close()  # it was given back

    def test_parts_of_a_larger_memory(self) -> None:
        store, data = self.open(), content(3)
        self.stored(store, 3)
        whole = bytearray(3 * SHARD)
        part = memoryview(whole)[SHARD : 2 * SHARD]
        store.load([Shard(block_id(3), 3, part)]).wait()
        self.assertEqual(whole, bytes(SHARD) + data[3 * SHARD :] + bytes(SHARD))

    def test_what_is_refused_stays_free(self) -> None:
        store = self.open()
        good = bytearray(SHARD)
        stepped = memoryview(bytearray(2 * SHARD))[::2]
        cases: tuple[tuple[Any, type[Exception]], ...] = (
            (bytes(SHARD), BufferError),
            (stepped, BufferError),
            ("text", TypeError),
            (None, TypeError),
            (bytearray(1), kvpath.InvalidParamError),
        )
        for bad, kind in cases:
            with self.assertRaises(kind):
                store.load([Shard(block_id(1), at, it) for at, it in enumerate((good, bad))])
            self.assertTrue(self.resizable(good), bad)
        with self.assertRaises(kvpath.InvalidParamError):  # the library refuses it
            store.dump([Shard(block_id(1), 0, good)] * 2)
        self.assertTrue(self.resizable(good))

    def test_memory_is_given_back_by_each_way_to_see_the_end(self) -> None:
        store = self.open()
        self.stored(store, 1)
        for see in ("wait", "wait_results", "check", "finished"):
            target = bytearray(BLOCK)
            task = store.load_block(block_id(1), target)
            if see == "check":
                while not task.check():
                    self.assertFalse(self.resizable(target))
            elif see == "finished":
                while task.handle not in store.finished():
                    pass
            else:
                getattr(task, see)()
            self.assertTrue(self.resizable(target), see)
            self.assertEqual(target, content(1))
            task.wait()

    def test_references_are_not_lost(self) -> None:
        store, target = self.open(), bytearray(BLOCK)
        self.stored(store, 1)
        before = sys.getrefcount(target)
        for _ in range(3):
            store.load_block(block_id(1), target).wait()
            store.load_block(block_id(9), target).wait_results()
        gc.collect()
        self.assertEqual(sys.getrefcount(target), before)

    def test_tensors_without_the_buffer_protocol(self) -> None:
        store = self.open()
        data = self.stored(store, 1)
        target = Plain(BLOCK)
        before = sys.getrefcount(target)
        task = store.load_block(block_id(1), target)
        self.assertGreater(sys.getrefcount(target), before)
        task.wait()
        self.assertEqual(sys.getrefcount(target), before)
        self.assertEqual(bytes(target.memory), data)
        with self.assertRaises(BufferError):
            store.load_block(block_id(1), Plain(BLOCK, contiguous=False))
        with self.assertRaises(kvpath.InvalidParamError):
            store.load_block(block_id(1), Plain(BLOCK - 2))

    def test_alloc(self) -> None:
        with self.assertRaises(ValueError):
            kvpath.alloc(0)
        with self.assertRaises(MemoryError):
            kvpath.alloc(1 << 60)
        memory = kvpath.alloc(4 << 20)
        memory[-1] = 7
        self.assertEqual((len(memory), memory.format, memory.readonly), (4 << 20, "B", False))
        part = memory[TENSOR:]
        del memory
        gc.collect()
        self.assertEqual(part[-1], 7)  # the last view keeps it


class NumPy(StoreCase):
    def test_arrays_of_any_type(self) -> None:
        store = self.open()
        for number, kind in enumerate(("u1", "<f2", ">f4", "c16", "M8[s]", "i4,f4")):
            source = np.frombuffer(content(number), dtype=kind)
            self.assertFalse(source.flags.writeable)
            store.dump_block(block_id(number), source).wait()
            target = np.zeros_like(source)
            store.load_block(block_id(number), target.reshape(4, -1)).wait()
            self.assertEqual(target.tobytes(), content(number), kind)

    def test_what_is_not_contiguous_or_not_writable_is_refused(self) -> None:
        store = self.open()
        frozen = np.zeros(BLOCK, np.uint8)
        frozen.flags.writeable = False
        for target in (np.zeros((BLOCK, 2), np.uint8)[:, 0], frozen):
            with self.assertRaises((BufferError, ValueError)):
                store.load_block(block_id(1), target)

    def test_allocated_memory_as_an_array(self) -> None:
        store = self.open()
        data = self.stored(store, 1)
        target = np.frombuffer(kvpath.alloc(BLOCK), np.uint16)
        store.load_block(block_id(1), target).wait()
        self.assertEqual(target.tobytes(), data)


@unittest.skipIf(torch is None, "torch is not installed")
class Torch(StoreCase):
    def test_cpu_tensors_of_any_type(self) -> None:
        store = self.open()
        kinds = (torch.uint8, torch.bfloat16, torch.float32, torch.complex64, torch.bool)
        for number, kind in enumerate(kinds):
            raw = torch.frombuffer(bytearray(b"\1" * BLOCK), dtype=torch.uint8)
            source = raw.view(kind).reshape(2, -1)
            store.dump_block(block_id(number), source).wait()
            target = torch.zeros_like(source)
            store.load_block(block_id(number), target).wait()
            self.assertTrue(torch.equal(target, source), kind)

    def test_a_tensor_that_learns_and_a_scalar(self) -> None:
        store = self.open(tensor_size=4, shard_size=4, block_size=4)
        store.dump_block(block_id(1), torch.tensor(2.5)).wait()
        target = torch.zeros(1, requires_grad=True)
        store.load_block(block_id(1), target).wait()
        self.assertEqual(target.item(), 2.5)

    def test_what_has_no_plain_memory_is_refused(self) -> None:
        store = self.open()
        elements = BLOCK // 8
        for bad in (
            torch.zeros(BLOCK, 2, dtype=torch.uint8)[:, 0],
            torch.zeros(elements, dtype=torch.complex64).conj(),
        ):
            with self.assertRaises(BufferError):
                store.load_block(block_id(1), bad)
        with self.assertRaises(TypeError):
            store.load_block(block_id(1), torch.zeros(BLOCK, dtype=torch.uint8, device="meta"))

    def test_it_cannot_be_resized(self) -> None:
        store = self.open()
        self.stored(store, 1)
        target = torch.zeros(BLOCK, dtype=torch.uint8)
        task = store.load_block(block_id(1), target)
        with self.assertRaises(RuntimeError):
            target.resize_(1 << 26)
        task.wait()


if __name__ == "__main__":
    unittest.main()
