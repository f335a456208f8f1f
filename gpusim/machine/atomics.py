"""Atomic operations on flat arrays of lanes, in lane order (blocks, then threads, ascending)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.sass.numeric import round_f64_to_bf16, sum_to_odd, widen_bf16

Array = np.ndarray[Any, Any]

_UFUNC: dict[str, Any] = {
    "add": np.add, "min": np.minimum, "max": np.maximum, "and": np.bitwise_and, "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}  # fmt: skip
_TYPES: dict[str, Any] = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32, "u64": np.uint64, "i64": np.int64, "f64": np.float64,
    "f16": np.float16, "bf16": np.uint16,
}  # fmt: skip
TINY32 = np.float32(2.0**-126)
_SAFE32 = np.float32(2.0**-100)
_NAN32, _NAN64 = np.uint32(0x7FFFFFFF).view(np.float32), np.uint64(0xFFF8000000000000).view(np.float64)
_NAN16 = np.uint16(0x7FFF).view(np.float16)


def _combine(name: str, old: Array, value: Array, other: Array | None) -> Array:
    """What is stored, from the old contents and the operand(s)."""
    if name == "add" and old.dtype.kind == "f":
        return _add_floats(old, value)
    if name in _UFUNC:
        return _UFUNC[name](old, value)
    if name == "add bf16":
        return _add_bfloat16(old, value)
    if name == "exch":
        return value
    if name in ("cas", "cast"):
        assert other is not None
        return np.where(old == value, other, old)
    if name == "inc":
        return np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1))
    if name == "dec":
        return np.where((old == 0) | (old > value), value, old - old.dtype.type(1))
    raise ValueError(f"atomic operation {name}")


def _flush(values: Array) -> Array:
    return np.where(np.abs(values) < TINY32, np.copysign(np.float32(0), values), values)


def _add_floats(old: Array, value: Array) -> Array:
    """Sums as an H200's memory makes them (tests/data/h200_edges.npz.xz).

    Single precision flushes subnormal operands and results; NaN is 0x7fffffff, in half precision 0x7fff. In double
    precision it is the added one, else the one in memory, as it is (not made quiet), or 0xfff8000000000000.
    """
    if old.dtype == np.float32:
        total = _flush(_flush(old) + _flush(value))
        return np.where(total != total, _NAN32, total)
    total = old + value
    if old.dtype == np.float16:
        return np.where(total != total, _NAN16, total)
    invalid = total != total
    if not invalid.any():
        return total
    made = np.where(value != value, value, np.where(old != old, old, _NAN64)).view(np.uint64)
    return np.where(invalid, made, total.view(np.uint64)).view(np.float64)


def _add_at(memory: Array, index: Array, value: Array) -> None:
    """Float additions without results. NumPy's are faster; where its rules could differ, lane after lane."""
    before = memory[index]
    np.add.at(memory, index, value)
    doubtful = bool((memory[index] != memory[index]).any())
    if memory.dtype == np.float32 and not doubtful:
        # sums of numbers that are 0 or at least this are never subnormal
        doubtful = any(bool(((x != 0) & (np.abs(x) < _SAFE32)).any()) for x in (before, value))
    if doubtful:
        memory[index] = before
        _in_rounds(memory, index, "add", value, None)


def apply_atomic(
    words: Array, index: Array, name: str, element: str, operands: tuple[Array, ...], want_old: bool
) -> Array | None:
    """Apply one lane after the other to ``words`` (uint32 or uint64 memory), ``index`` in elements of it.

    ``operands`` are lanes' values as raw bits of the memory's type; a compare-and-swap passes (compare, new).
    Returns the old contents each lane saw (raw bits), or None when not wanted.
    """
    kind = _TYPES[element]
    memory = words.view(kind)
    if name == "popc_inc" and not want_old:
        np.add.at(memory, index, kind(1))
        return None
    value = operands[0].view(kind) if operands else np.ones(index.shape, kind)
    other = operands[1].view(kind) if len(operands) > 1 else None
    if name == "popc_inc":
        name = "add"
    if element == "bf16":
        old = _in_rounds(memory, index, "add bf16", value, other)
        return old if want_old else None
    if not want_old and name in _UFUNC:
        if name == "add" and memory.dtype.kind == "f":
            _add_at(memory, index, value)
        else:
            _UFUNC[name].at(memory, index, value)
        return None
    if name == "add" and element not in ("f16", "f32", "f64"):
        return _returning_add(memory, index, value).view(words.dtype)
    old = _in_rounds(memory, index, name, value, other)
    return old.view(words.dtype) if want_old else None


def add_vectors(
    memory: Array, offsets: Array, element: str, vector: int, words: list[Array], want_old: bool = False
) -> list[Array] | None:
    """Add ``vector`` neighbouring elements a lane to byte memory, from byte ``offsets`` on; ``words`` are 32-bit.

    Returns the old contents as 32-bit words, or None when not wanted.
    """
    raw = np.uint16 if element in ("f16", "bf16") else np.uint32
    size = raw().itemsize
    elements = [word >> np.uint32(8 * shift) for word in words for shift in range(0, 4, size)]
    before = []
    for place in range(vector):
        value = np.ascontiguousarray(elements[place].astype(raw))
        old = apply_atomic(memory.view(raw), offsets // size + place, "add", element, (value,), want_old)
        if old is not None:
            before.append(old.astype(np.uint32) << np.uint32(8 * (size * place % 4)))
    if not want_old:
        return None
    return before if size == 4 else [low | high for low, high in zip(before[::2], before[1::2], strict=True)]


def _add_bfloat16(old: Array, value: Array) -> Array:
    """Sums of bfloat16 bits."""
    return round_f64_to_bf16(sum_to_odd(widen_bf16(old), widen_bf16(value)))


def runs(index: Array) -> tuple[Array, Array, Array]:
    """(stable order by address, start of each element's run in that order, rank within its run)."""
    order = np.argsort(index, kind="stable")
    ordered = index[order]
    first = np.ones(len(ordered), bool)
    first[1:] = ordered[1:] != ordered[:-1]
    position = np.arange(len(ordered))
    start = np.maximum.accumulate(np.where(first, position, 0))
    return order, start, position - start


def _returning_add(memory: Array, index: Array, value: Array) -> Array:
    """Integer additions with their old values: a running sum within each address (wraps like the hardware)."""
    order, start, _ = runs(index)
    ordered = value[order]
    running = np.cumsum(ordered, dtype=memory.dtype)
    before = running - ordered
    old = np.empty_like(value)
    old[order] = memory[index[order]] + (before - before[start])
    np.add.at(memory, index, value)
    return old


def _in_rounds(memory: Array, index: Array, name: str, value: Array, other: Array | None) -> Array:
    """The k-th lane of every address together, for k = 0, 1, ...: addresses are distinct within a round."""
    order, _, rank = runs(index)
    by_rank = order[np.argsort(rank, kind="stable")]
    sizes = np.bincount(rank)
    old = np.empty_like(value)
    position = 0
    for size in sizes.tolist():
        lanes = by_rank[position : position + size]
        position += size
        where = index[lanes]
        seen = memory[where]
        old[lanes] = seen
        memory[where] = _combine(name, seen, value[lanes], None if other is None else other[lanes])
    return old


WARP_LANES = 32
BANKS = 32


def cast_spin_winners(addresses: Array, active: Array, width: int) -> Array:
    """Lanes whose compare-and-swap an ATOMS.CAST.SPIN really attempts, (n, 32) bool.

    ``addresses`` (n, 32) in bytes of shared memory, ``active`` (n, 32), ``width`` 4 or 8.  A warp is served in parts
    (one for 4 bytes, two half warps for 8); in each part the lowest lane of each bank attempts the exchange, all other
    lanes fail without looking at memory and go round the loop again.  Source: H200 recording,
    tests/data/h200_access.jsonl.gz (kernels atoms_fadd and atoms_add64).
    """
    parts = width // 4
    banks = BANKS // parts
    addresses, active = np.asarray(addresses).astype(np.int64), np.asarray(active, bool)
    bank = (addresses // width % banks).reshape(-1, WARP_LANES // parts)
    taking = active.reshape(bank.shape)
    lane = np.broadcast_to(np.arange(bank.shape[1]), bank.shape)
    row = np.broadcast_to(np.arange(len(bank))[:, None], bank.shape)
    lowest = np.full((len(bank), banks), WARP_LANES, np.int64)
    np.minimum.at(lowest, (row[taking], bank[taking]), lane[taking])
    return (taking & (lowest[row, bank] == lane)).reshape(active.shape)
