"""Kernel arguments as text: ``i32=1024``, ``f32[1024x1024]=random``, ``u8[4096]=@pixels.npy``, ``bytes[8]=0x01...``."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpusim.errors import UsageError

Array = np.ndarray[Any, Any]

SEED = 20_240_229
"""Random arrays come from this seed and the argument's place, so that a run can be repeated."""

LARGEST_BYTES = 1 << 36

TYPES: dict[str, type[np.generic]] = {
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "bool": np.bool_,
}
FILLS = "random, arange, zeros, ones, const:1.5, permutation or @file.npy"
GRAMMAR = f"""\
Arguments are given in the order of the kernel's parameters, one --arg for each.

\b
  i32=1024            a number: {", ".join(TYPES)}
  f32[1024x1024]=...  a device buffer with these contents:
    random            floats in [-1, 1), integers of the whole range; the same in every run
    arange            0, 1, 2, ... (integers wrap around)
    zeros, ones, const:1.5
    permutation       0 .. n-1 in random order
    @file.npy         an array of that type and as many elements
  bytes[8]=0x0102...  a structure by value, as bytes in the order of memory
"""

_SPEC = re.compile(r"(?P<type>[A-Za-z]\w*)(?:\[(?P<shape>[^\]]*)\])?=(?P<value>.*)", re.S)


def parse_all(specs: Sequence[str]) -> list[Array | np.generic]:
    """The arguments of all ``--arg`` options, in order.  Raises UsageError that names the first one that is wrong."""
    return [parse(spec, number) for number, spec in enumerate(specs, 1)]


def parse(spec: str, number: int = 1) -> Array | np.generic:
    """The argument that ``--arg`` number ``number`` (from 1) describes.

    Raises UsageError in one sentence: which argument, what is wrong with it, and how to write it.
    """

    def wrong(what: str, example: str) -> UsageError:
        return UsageError(f"--arg {number} ({spec}): {what}; write for example {example}")

    match = _SPEC.fullmatch(spec.strip())
    if match is None:
        raise wrong("an argument is TYPE=VALUE or TYPE[SHAPE]=CONTENTS", "i32=1024 or f32[1024x1024]=random")
    kind, shape_text, value = match["type"], match["shape"], match["value"].strip()
    if kind == "bytes":
        return _structure(shape_text, value, wrong)
    if kind not in TYPES:
        raise wrong(f"there is no type {kind!r}, only {', '.join(TYPES)} and bytes", "i32=1024")
    dtype = np.dtype(TYPES[kind])
    if shape_text is None:
        return _number(kind, dtype, value, wrong)
    return _array(kind, dtype, _shape(kind, dtype, shape_text, wrong), value, number, wrong)


_Wrong = Callable[[str, str], UsageError]


def _number(kind: str, dtype: np.dtype[Any], text: str, wrong: _Wrong) -> np.generic:
    """A scalar of that type, if it can hold the value."""
    example = f"{kind}=0.5" if dtype.kind == "f" else f"{kind}=1"
    if dtype.kind == "f":
        try:
            value = float(text)
        except ValueError:
            raise wrong(f"{text!r} is not a number", example) from None
        with np.errstate(over="ignore"):
            scalar = dtype.type(value)
        if math.isinf(float(scalar)) and not math.isinf(value):
            raise wrong(f"{text} is too large for {kind}", example)
        return scalar
    if dtype.kind == "b":
        if text.lower() not in ("0", "1", "false", "true"):
            raise wrong(f"{text!r} is neither true nor false", "bool=true")
        return np.bool_(text.lower() in ("1", "true"))
    try:
        integer = int(text, 0)
    except ValueError:
        raise wrong(f"{text!r} is not a whole number", example) from None
    info = np.iinfo(dtype)
    if not info.min <= integer <= info.max:
        raise wrong(f"{integer} does not fit {kind} ({info.min} to {info.max})", example)
    return dtype.type(integer)


def _shape(kind: str, dtype: np.dtype[Any], text: str, wrong: _Wrong) -> tuple[int, ...]:
    parts = [part.strip() for part in re.split(r"[x,]", text)]
    if not all(re.fullmatch(r"[0-9]+", part) for part in parts):
        raise wrong(f"the shape [{text}] must be whole numbers with x between", f"{kind}[1024x1024]=random")
    shape = tuple(int(part) for part in parts)
    if 0 in shape:
        raise wrong("an array needs at least one element", f"{kind}[1024]=zeros")
    size = math.prod(shape) * dtype.itemsize
    if size > LARGEST_BYTES:
        raise wrong(f"{size:,} bytes are too much for one array", f"{kind}[1024x1024]=zeros")
    return shape


def _array(kind: str, dtype: np.dtype[Any], shape: tuple[int, ...], fill: str, number: int, wrong: _Wrong) -> Array:
    size = math.prod(shape)
    example = f"{kind}[{'x'.join(map(str, shape))}]=random"
    try:
        if fill.startswith("@"):
            return _from_file(fill[1:], kind, dtype, shape, wrong)
        if fill.startswith("const:"):
            return np.full(shape, _number(kind, dtype, fill.removeprefix("const:"), wrong), dtype)
        if fill in ("zeros", "ones"):
            return np.full(shape, 0 if fill == "zeros" else 1, dtype)
        generator = np.random.default_rng([SEED, number])
        if fill == "random":
            return _random(dtype, shape, generator)
        if fill == "arange":
            return _counting(dtype, size).reshape(shape)
        if fill == "permutation":
            if dtype.kind not in "iu" or size - 1 > np.iinfo(dtype).max:
                raise wrong(f"{kind} cannot hold the indices 0 to {size - 1}", f"i32[{size}]=permutation")
            return generator.permutation(size).astype(dtype).reshape(shape)
    except MemoryError:
        raise wrong(f"there is not enough memory for {size * dtype.itemsize:,} bytes", f"{kind}[1024]=zeros") from None
    raise wrong(f"{fill!r} is no contents, which are {FILLS}", example)


def _random(dtype: np.dtype[Any], shape: tuple[int, ...], generator: np.random.Generator) -> Array:
    if dtype.kind == "f":
        wide = np.float64 if dtype.itemsize == 8 else np.float32
        values = generator.random(shape, dtype=wide) * wide(2) - wide(1)
        return values.astype(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(dtype)
    info = np.iinfo(dtype)
    return generator.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def _counting(dtype: np.dtype[Any], size: int) -> Array:
    """0, 1, 2, ...; integers wrap around, as do floats where they could not tell neighbours apart."""
    counting = np.arange(size, dtype=np.int64)
    if dtype.kind == "f":
        counting %= 1 << (np.finfo(dtype).nmant + 1)
    elif dtype.kind == "b":
        counting %= 2
    return counting.astype(dtype)


def _from_file(path: str, kind: str, dtype: np.dtype[Any], shape: tuple[int, ...], wrong: _Wrong) -> Array:
    example = f"{kind}[1024]=@data.npy"
    try:
        loaded = np.load(path, allow_pickle=False)
    except OSError as error:
        raise wrong(f"{path} cannot be read ({error.strerror or error})", example) from None
    except (ValueError, EOFError):
        raise wrong(f"{path} is not a .npy file of numbers", example) from None
    if not isinstance(loaded, np.ndarray):
        raise wrong(f"{path} holds several arrays: save one with numpy.save", example)
    if loaded.dtype != dtype:
        raise wrong(f"{path} holds {loaded.dtype}, not {dtype}", example)
    if loaded.size != math.prod(shape):
        raise wrong(f"{path} holds {loaded.size:,} elements {loaded.shape}, not {math.prod(shape):,}", example)
    return np.ascontiguousarray(loaded).reshape(shape)


def _structure(shape_text: str | None, value: str, wrong: _Wrong) -> np.generic:
    """A structure by value: its bytes, in the order of memory."""
    example = "bytes[4]=0x01020304"
    if shape_text is None or not re.fullmatch(r"[0-9]+", shape_text) or not 1 <= int(shape_text) <= 4096:
        raise wrong("a structure needs its size in bytes, 1 to 4096", example)
    size = int(shape_text)
    if value == "zeros":
        return np.void(bytes(size))
    digits = value.removeprefix("0x").replace("_", "")
    if not value.startswith("0x") or not re.fullmatch(r"(?:[0-9a-fA-F]{2})*", digits) or len(digits) != 2 * size:
        raise wrong(f"{size} bytes are 0x and {2 * size} hexadecimal digits, in the order of memory", example)
    return np.void(bytes.fromhex(digits))
