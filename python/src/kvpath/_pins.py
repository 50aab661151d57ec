"""Memory that belongs to a task: exported buffers with their addresses.

While a buffer is exported its owner can neither resize nor free it. `Pins` are released by nobody
but who knows that the task has ended; pins that are dropped unreleased leave their memory alive
and exported for ever. So whatever goes wrong, the library never writes to freed memory.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, PYFUNCTYPE, byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import TYPE_CHECKING, Any, Protocol, Union

from .errors import Status, error_of

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Tensor(Protocol):
    """What kvpath asks of a CPU tensor that has no buffer protocol: torch.Tensor fits."""

    def data_ptr(self) -> int: ...

    def numel(self) -> int: ...

    def element_size(self) -> int: ...

    def is_contiguous(self) -> bool: ...


class Array(Protocol):
    """A NumPy array for type checkers: its stubs say that it is a buffer from Python 3.12 on only."""

    @property
    def __array_interface__(self) -> dict[str, Any]: ...


if TYPE_CHECKING:
    Memory = Union[Buffer, Array, Tensor]
else:
    Memory = Any


class _PyBuffer(ctypes.Structure):
    """Py_buffer of CPython; the layout is the same in all versions of Python 3."""

    _fields_ = [
        ("buf", c_void_p),
        ("obj", c_void_p),
        ("len", c_ssize_t),
        ("itemsize", c_ssize_t),
        ("readonly", c_int),
        ("ndim", c_int),
        ("format", c_char_p),
        ("shape", POINTER(c_ssize_t)),
        ("strides", POINTER(c_ssize_t)),
        ("suboffsets", POINTER(c_ssize_t)),
        ("internal", c_void_p),
    ]


_SIMPLE = 0
_WRITABLE = 1
_python = ctypes.pythonapi
# Prototypes of our own: those of ctypes.pythonapi are shared by everybody in the process.
_export = PYFUNCTYPE(c_int, py_object, POINTER(_PyBuffer), c_int)(("PyObject_GetBuffer", _python))
_release = PYFUNCTYPE(None, POINTER(_PyBuffer))(("PyBuffer_Release", _python))
_hold = PYFUNCTYPE(None, py_object)(("Py_IncRef", _python))
_drop = PYFUNCTYPE(None, py_object)(("Py_DecRef", _python))


class Pins:
    """The exported memory of one task. Not shared between threads until its task is started."""

    __slots__ = ("_held", "_views")

    def __init__(self) -> None:
        self._views: list[_PyBuffer] = []
        self._held: list[object] = []

    def pin(self, memory: object, size: int, writable: bool, what: str) -> int:
        """Exports `memory`, which must be contiguous and of `size` bytes, and gives its address.

        Raises TypeError where it is no memory, BufferError where it is not contiguous or not
        writable, InvalidParamError where it has another size.
        """
        try:
            address, have = self._pin_buffer(memory, writable)
        except TypeError:
            if not hasattr(memory, "data_ptr"):
                raise
            address, have = self._pin_tensor(memory, writable)
        if have != size:
            raise error_of(Status.INVALID_PARAM, f"{what} has {have} bytes, {size} are needed")
        return address

    def _pin_buffer(self, memory: object, writable: bool) -> tuple[int, int]:
        view = _PyBuffer()
        _export(memory, byref(view), _WRITABLE if writable else _SIMPLE)
        self._views.append(view)
        return view.buf or 0, view.len

    def _pin_tensor(self, tensor: Any, writable: bool) -> tuple[int, int]:
        device = getattr(getattr(tensor, "device", None), "type", "cpu")
        if device != "cpu":
            raise TypeError(f"the tensor is on {device}; kvpath takes CPU memory only")
        if not tensor.is_contiguous():
            raise BufferError("the tensor is not contiguous")
        if any(getattr(tensor, lazy, bool)() for lazy in ("is_conj", "is_neg")):
            raise BufferError("the tensor is a lazy view (conj or neg): resolve it first")
        address = int(tensor.data_ptr())
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(tensor, torch.Tensor):
            try:
                # A NumPy array of its memory makes a tensor's storage one that cannot be resized.
                flat = tensor.detach().reshape(-1).view(torch.uint8).numpy()
            except RuntimeError:
                pass  # no NumPy here: the tensor is held, and its user must not resize it
            else:
                if flat.ctypes.data != address:
                    raise BufferError("the tensor's memory cannot be exported")
                return self._pin_buffer(flat, writable)
        _hold(tensor)
        self._held.append(tensor)
        return address, int(tensor.numel()) * int(tensor.element_size())

    def release(self) -> None:
        """Gives the memory back to its owners: the task has ended, or was never started."""
        while self._views:
            _release(byref(self._views.pop()))
        while self._held:
            _drop(self._held.pop())
