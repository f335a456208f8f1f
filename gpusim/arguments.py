"""Kernel arguments: from NumPy arrays and scalars to device buffers and parameter bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.errors import UsageError
from gpusim.machine.memory import Buffer, DeviceMemory
from gpusim.toolchain import FunctionInfo


@dataclass
class Bound:
    """Arguments placed in device memory: parameter bytes by offset, and which buffer holds which array."""

    parameters: bytes
    buffers: list[tuple[np.ndarray[Any, Any], Buffer]] = field(default_factory=list)

    def write_back(self, memory: DeviceMemory) -> None:
        """Copy changed buffers into the arrays they came from.

        Raises UsageError, before anything is changed, when the kernel wrote to a buffer of a read-only array.
        """
        fresh: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = []
        for array, buffer in self.buffers:
            if not memory.was_written(buffer):
                continue
            new = memory.read(buffer).view(array.dtype).reshape(array.shape)
            if array.flags.writeable:
                fresh.append((array, new))
            elif new.tobytes() != np.ascontiguousarray(array).tobytes():
                raise UsageError(f"the kernel wrote to {buffer.name}, but that array is read-only: pass a copy")
        for array, new in fresh:
            array[...] = new


def signature(function: FunctionInfo) -> str:
    """The kernel's parameters as text: C++ types where the name tells them, else sizes."""
    if "(" in function.signature:
        return function.signature
    sizes = ", ".join(f"{p.size} bytes" for p in function.params)
    return f"{function.demangled}({sizes})"


def place(function: FunctionInfo, args: Sequence[Any], memory: DeviceMemory) -> Bound:
    """Reserve device buffers for the arrays among ``args`` and pack the parameters.

    Raises UsageError for a wrong number, kind or size of argument, naming the kernel's signature.
    """
    if len(args) != len(function.params):
        problem = "missing" if len(args) < len(function.params) else "surplus"
        raise UsageError(
            f"{problem} arguments: {len(args)} given, {len(function.params)} needed by {signature(function)}"
        )
    packed = bytearray(function.param_bytes)
    bound = Bound(b"")
    seen: dict[int, Buffer] = {}
    for number, (argument, param) in enumerate(zip(args, function.params, strict=True)):
        what = f"argument {number + 1}"
        if isinstance(argument, np.ndarray):
            raw = _pointer(argument, param.size, what, function, memory, seen, bound)
        else:
            raw = _scalar(argument, param.size, what, function)
        packed[param.offset : param.offset + param.size] = raw
    bound.parameters = bytes(packed)
    return bound


def _pointer(
    array: np.ndarray[Any, Any],
    size: int,
    what: str,
    function: FunctionInfo,
    memory: DeviceMemory,
    seen: dict[int, Buffer],
    bound: Bound,
) -> bytes:
    if array.dtype.hasobject:
        raise UsageError(f"{what} is an array of Python objects: a device buffer needs a numeric NumPy dtype")
    if size != 8:
        raise UsageError(
            f"{what} is an array, but the parameter has {size} bytes and is no pointer, in {signature(function)}"
        )
    buffer = seen.get(id(array))
    if buffer is None:
        buffer = seen[id(array)] = memory.add(what, array)
        bound.buffers.append((array, buffer))
    return buffer.start.to_bytes(8, "little")


def _scalar(value: Any, size: int, what: str, function: FunctionInfo) -> bytes:
    if value is None:
        if size != 8:
            raise UsageError(
                f"{what} is None, a null pointer, but the parameter has {size} bytes, in {signature(function)}"
            )
        return bytes(8)
    if isinstance(value, np.generic):
        raw = value.tobytes()
        if len(raw) != size:
            raise UsageError(
                f"{what} is a {value.dtype} of {len(raw)} bytes, but the parameter has {size}, in {signature(function)}"
            )
        return raw
    if isinstance(value, bool | int | float | complex):
        example = "np.float32(...)" if isinstance(value, float) else "np.int32(...)"
        raise UsageError(
            f"{what} is a Python {type(value).__name__}, which has no size: write {example} or the type that "
            f"{signature(function)} takes"
        )
    raise UsageError(
        f"{what} is a {type(value).__name__}: arguments are NumPy arrays (device buffers), NumPy scalars, or None (a "
        "null pointer)"
    )
