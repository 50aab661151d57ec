"""What a load or a dump moves: shards in Python's words, and the same as the C ABI wants it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import addressof, c_void_p, memmove, sizeof
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Union

from . import _abi
from ._pins import Memory, Pins
from .errors import Status, error_of

if TYPE_CHECKING:
    from typing_extensions import Buffer

    BlockId = Buffer
else:
    BlockId = Any

_ADDRESS_BYTES = sizeof(c_void_p)


@dataclass(frozen=True)
class Shard:
    """One shard of a task.

    block: the block's id, 16 bytes of any value (bytes-like).
    index: which shard of the block: 0 … block_size / shard_size - 1.
    memory: one contiguous memory of shard_size bytes; or a list or tuple of shard_size /
        tensor_size memories of tensor_size bytes each, the shard's tensors in their order. A dump
        takes anything with the buffer protocol, a load what is writable; both take CPU tensors of
        torch.
    """

    block: BlockId
    index: int
    memory: Union[Memory, Sequence[Memory]]


class Shape(NamedTuple):
    """Sizes in bytes; each is a multiple of the one before."""

    tensor_size: int
    shard_size: int
    block_size: int


class Plan:
    """The arguments of one kvpath_load() or kvpath_dump(), and the memory that it was made of.

    The arrays are needed during the call only; `pins` belong to the task afterwards.
    """

    def __init__(self, shape: Shape, count: int) -> None:
        self.shape = shape
        self.count = count
        self.tensors = shape.shard_size // shape.tensor_size
        self.shards = (_abi.Shard * count)()
        self.pins = Pins()
        self._addresses = (c_void_p * (count * self.tensors))()

    def put(self, at: int, block: bytes, index: int, addresses: Iterable[int]) -> None:
        """Fills the entry `at`; `addresses` has one for each tensor."""
        first = at * self.tensors
        self._addresses[first : first + self.tensors] = list(addresses)
        entry = self.shards[at]
        memmove(addressof(entry), block, _abi.BLOCK_ID_BYTES)
        entry.index = index
        entry.addr_count = self.tensors
        entry.addrs = addressof(self._addresses) + first * _ADDRESS_BYTES

    def spread(self, address: int) -> range:
        """The addresses of a shard's tensors that follow each other from `address`."""
        shape = self.shape
        return range(address, address + shape.shard_size, shape.tensor_size)


def id_bytes(block: object) -> bytes:
    """A block id as bytes. Raises TypeError where it is not bytes-like, InvalidParamError where it
    has not 16 bytes."""
    if not isinstance(block, bytes):
        block = memoryview(block).tobytes()  # type: ignore[arg-type]
    if len(block) != _abi.BLOCK_ID_BYTES:
        text = f"a block id has {_abi.BLOCK_ID_BYTES} bytes, this has {len(block)}"
        raise error_of(Status.INVALID_PARAM, text)
    return block


def id_array(ids: Iterable[object]) -> tuple[ctypes.Array[_abi.BlockId], int]:
    """Ids as the C ABI takes them, and how many they are."""
    joined = [id_bytes(block) for block in ids]
    array = (_abi.BlockId * len(joined)).from_buffer_copy(b"".join(joined))
    return array, len(joined)


def of_shards(shape: Shape, shards: Sequence[Shard], writable: bool) -> Plan:
    """Exports the memory of each shard. Where one is refused nothing stays exported."""
    plan = Plan(shape, len(shards))
    try:
        for at, shard in enumerate(shards):
            _check_index(shape, shard.index, at)
            addresses = _tensors(plan, shard.memory, writable, at)
            plan.put(at, id_bytes(shard.block), shard.index, addresses)
    except BaseException:
        plan.pins.release()
        raise
    return plan


def of_block(shape: Shape, block: object, memory: Memory, writable: bool) -> Plan:
    """All shards of one block in one memory. Where that is refused nothing stays exported."""
    name = id_bytes(block)
    plan = Plan(shape, shape.block_size // shape.shard_size)
    try:
        base = plan.pins.pin(memory, shape.block_size, writable, "the block's memory")
        for index in range(plan.count):
            plan.put(index, name, index, plan.spread(base + index * shape.shard_size))
    except BaseException:
        plan.pins.release()
        raise
    return plan


def _check_index(shape: Shape, index: int, at: int) -> None:
    shards = shape.block_size // shape.shard_size
    if not 0 <= index < shards:
        text = f"shards[{at}].index is {index}, a block has shards 0 to {shards - 1}"
        raise error_of(Status.INVALID_PARAM, text)


def _tensors(plan: Plan, memory: object, writable: bool, at: int) -> Iterable[int]:
    shape, pin, what = plan.shape, plan.pins.pin, f"shards[{at}].memory"
    if not isinstance(memory, (list, tuple)):
        return plan.spread(pin(memory, shape.shard_size, writable, what))
    if len(memory) != plan.tensors:
        text = f"{what} has {len(memory)} tensors, a shard has {plan.tensors}"
        raise error_of(Status.INVALID_PARAM, text)
    return [
        pin(tensor, shape.tensor_size, writable, f"{what}[{number}]")
        for number, tensor in enumerate(memory)
    ]
