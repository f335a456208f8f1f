"""Warp-level matrix products, and the transposition of a matrix held by a warp.

Fragments lie as the PTX ISA says (mma.sync): lane l has row l / 4 and, in that row, the l % 4-th group of neighbouring
elements; further registers hold the rows 8 below, then the columns further right.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.sass.doubles import fma64
from gpusim.sass.form import Dest, Form, Semantics, Source
from gpusim.sass.numeric import (
    Array,
    canonical64,
    f32,
    f64,
    i64,
    u32,
    u64,
    widen_bf16,
    widen_f16,
)
from gpusim.sass.operands import Register
from gpusim.sass.registry import opcode
from gpusim.sass.tensor import fused_product, half_bits, single_bits

_SHAPE = re.compile(r"(8|16)x?8x?(4|8|16|32|64|128|256)$")
_ROW, _GROUP = np.arange(32) // 4, np.arange(32) % 4


def _shape(form: Form) -> tuple[int, int]:
    """(m, k); n is always 8."""
    for name in form.instruction.modifiers:
        match = _SHAPE.match(name)
        if match:
            form.flag(name)
            return int(match[1]), int(match[2])
    raise form.refuse("no matrix shape")


def _places_a(m: int, k: int, each: int) -> Array:
    """(m, k) indices into fragments flattened as (lane, register, element), ``each`` elements a register."""
    tall = m // 8
    registers = tall * k // (4 * each)
    places = np.zeros((m, k), np.int64)
    for register in range(registers):
        for element in range(each):
            row = _ROW + 8 * (register % tall)
            column = each * _GROUP + element + 4 * each * (register // tall)
            places[row, column] = (np.arange(32) * registers + register) * each + element
    return places


def _places_b(k: int, each: int) -> Array:
    """(k, 8) indices: a lane's row becomes a column."""
    return _places_a(8, k, each).T


def _places_c(m: int, each: int) -> Array:
    """(m, 8) indices of the accumulator: two neighbours a lane, in two registers or (each = 2) in one."""
    registers = m // 4 // each
    places = np.zeros((m, 8), np.int64)
    for register in range(registers):
        for element in range(each):
            number = register * each + element
            places[_ROW + 8 * (number // 2), 2 * _GROUP + number % 2] = (
                np.arange(32) * registers + register
            ) * each + element
    return places


def _run(form: Form, words: int, kind: str = "u32", order: str = "") -> int:
    """Take a register standing for consecutive ones, as sources; returns how many sources that made."""
    operand = form.take()
    allowed = ((), (order,)) if order else ((),)
    if not isinstance(operand, Register) or operand.suffixes not in allowed:
        raise form.refuse("expected the registers of a fragment")
    if operand.negated or operand.inverted or operand.absolute:
        raise form.refuse("a marked fragment")
    plain = Register(operand.file, operand.index)
    step = 2 if kind == "f64" else 1
    for word in range(0, words, step):
        form.sources.append(Source(plain, "f64" if kind == "f64" else "u32", word=word))
    return words // step


def _results(form: Form, count: int, words: int = 1) -> None:
    dest = form.dest().operand
    assert isinstance(dest, Register)
    form.dests.clear()
    for k in range(count):
        form.dests.append(Dest(dest if dest.is_zero else Register(dest.file, dest.index + k * words), words))


def _fragment(lanes: Any, values: tuple[Array, ...], split: Callable[[Array], Array], places: Array) -> Array:
    """The matrix (blocks, warps, rows, columns) from each lane's registers; ``split`` adds an axis of elements."""
    stacked = np.stack(lanes.by_warp(*values), axis=3)  # blocks, warps, lane, register
    elements = split(stacked)
    flat = elements.reshape(*elements.shape[:2], -1)
    return flat[:, :, places]


def _spread(matrix: Array, places: Array, count: int, each: int) -> list[Array]:
    """Each lane's elements of the accumulator, as ``count`` * ``each`` arrays (blocks, threads)."""
    flat = np.empty((*matrix.shape[:2], places.size), matrix.dtype)
    flat[:, :, places.reshape(-1)] = matrix.reshape(*matrix.shape[:2], -1)
    shaped = flat.reshape(matrix.shape[0], -1, count * each)
    return [shaped[:, :, k] for k in range(count * each)]


def _halves(words: Array) -> Array:
    return np.stack([words & u32(0xFFFF), words >> u32(16)], axis=-1)


_FLOATS: dict[str, tuple[int, Callable[[Array], Array]]] = {
    "F16": (2, lambda w: widen_f16(_halves(w))),
    "BF16": (2, lambda w: widen_bf16(_halves(w))),
    "TF32": (1, lambda w: (w & u32(0xFFFFE000)).view(f32).astype(f64)[..., None]),
}


@opcode("HMMA")
def half_matrix_multiply(form: Form) -> Semantics:
    """d = a * b + c for matrices of half precision, bfloat16 or TF32, summed in single or half precision.

    tensor.py has the rules of the sum. A NaN is 0x7fffffff or 0x7fff. (A TF32 operand's 13 low bits are ignored.)
    """
    m, k = _shape(form)
    single = form.choice("F32", "F16") == "F32"
    kind = form.choice("BF16", "TF32", default="F16")
    each, split = _FLOATS[kind]
    if m != 16 or k % (4 * each) or k > 8 * each:
        raise form.refuse("this matrix shape")
    words_c, each_c = (m // 4, 1) if single else (m // 8, 2)
    _results(form, words_c)
    a_words, b_words = _run(form, m * k // (32 * each)), _run(form, k // (4 * each))
    _run(form, words_c)
    places_a, places_b, places_c = _places_a(m, k, each), _places_b(k, each), _places_c(m, each_c)

    def accumulator(words: Array) -> Array:
        return words.view(f32).astype(f64)[..., None] if single else widen_f16(_halves(words))

    def compute(lanes: Any, *values: Array) -> Any:
        a = _fragment(lanes, values[:a_words], split, places_a)
        b = _fragment(lanes, values[a_words : a_words + b_words], split, places_b)
        c = _fragment(lanes, values[a_words + b_words :], accumulator, places_c)
        total = fused_product(a, b, c, kind, "F32" if single else "F16")
        parts = _spread(total, places_c, words_c, each_c)
        if single:
            return tuple(single_bits(part) for part in parts)
        bits = [half_bits(part) for part in parts]
        return tuple(bits[n] | bits[n + 1] << u32(16) for n in range(0, len(bits), 2))

    return form.warp(compute)


def _integers(name: str) -> tuple[int, Callable[[Array], Array]]:
    """(elements a register, what splits words into float64 elements) of an integer type."""
    bits = int(name[1:])
    each = 32 // bits
    shifts = np.arange(each, dtype=u32) * u32(bits)

    def split(words: Array) -> Array:
        parts = (words[..., None] >> shifts & u32((1 << bits) - 1)).astype(f64)
        return np.where(parts >= 1 << (bits - 1), parts - (1 << bits), parts) if name[0] == "S" else parts

    return each, split


@opcode("IMMA")
def integer_matrix_multiply(form: Form) -> Semantics:
    """d = a * b + c for matrices of 8- or 4-bit integers, summed in 32 bits (.SAT: clamped)."""
    m, k = _shape(form)
    types = [t for t in form.instruction.modifiers if t in ("S8", "U8", "S4", "U4")]
    for name in types:
        form.flag(name)
    if len(types) != 2 or types[0][1] != types[1][1]:
        raise form.refuse("these operand types")
    clamp = form.flag("SAT")
    each, split_a = _integers(types[0])
    split_b = _integers(types[1])[1]
    if k % (4 * each) or k > 8 * each:
        raise form.refuse("this matrix shape")

    def combine(a: Array, b: Array, c: Array) -> Array:
        total = np.matmul(a, b).astype(i64) + c.astype(i64)
        return (np.clip(total, -(2**31), 2**31 - 1) if clamp else total).astype(u32)

    return _integer_product(form, m, k, each, (split_a, split_b), combine)


@opcode("BMMA")
def bit_matrix_multiply(form: Form) -> Semantics:
    """d = number of common (.AND) or different (.XOR) bits of rows of a and columns of b, plus c."""
    m, k = _shape(form)
    common = form.choice("AND", "XOR") == "AND"
    form.choice("POPC")
    each, split = _integers("U1")

    def combine(a: Array, b: Array, c: Array) -> Array:
        total = np.matmul(a, b)
        if not common:
            total = a.sum(axis=3)[..., None] + b.sum(axis=2)[:, :, None, :] - 2 * total
        return (total.astype(i64) + c.astype(i64)).astype(u32)

    if k % (4 * each) or k > 8 * each:
        raise form.refuse("this matrix shape")
    return _integer_product(form, m, k, each, (split, split), combine)


def _integer_product(
    form: Form,
    m: int,
    k: int,
    each: int,
    splits: tuple[Callable[[Array], Array], Callable[[Array], Array]],
    combine: Callable[[Array, Array, Array], Array],
) -> Semantics:
    words_c = m // 4
    _results(form, words_c)
    a_words, b_words = _run(form, m * k // (32 * each), order="ROW"), _run(form, k // (4 * each), order="COL")
    _run(form, words_c)
    places_a, places_b, places_c = _places_a(m, k, each), _places_b(k, each), _places_c(m, 1)

    def compute(lanes: Any, *values: Array) -> Any:
        a = _fragment(lanes, values[:a_words], splits[0], places_a)
        b = _fragment(lanes, values[a_words : a_words + b_words], splits[1], places_b)
        c = _fragment(lanes, values[a_words + b_words :], lambda w: w.view(np.int32)[..., None], places_c)
        return tuple(_spread(combine(a, b, c), places_c, words_c, 1))

    return form.warp(compute)


@opcode("DMMA")
def double_matrix_multiply(form: Form) -> Semantics:
    """d = a * b + c for matrices of doubles: a chain of fused multiply-adds along k.

    Equal to an H200's results, NaNs included (tests/data/h200_edges.npz.xz).
    """
    m, k = _shape(form)
    count_c = m // 4
    _results(form, count_c, 2)
    a_count, b_count = _run(form, m * k // 16, "f64"), _run(form, k // 2, "f64")
    _run(form, 2 * count_c, "f64")
    places_a, places_b, places_c = _places_a(m, k, 1), _places_b(k, 1), _places_c(m, 1)

    def elements(values: Array) -> Array:
        return values[..., None]

    def compute(lanes: Any, *values: Array) -> Any:
        a = _fragment(lanes, values[:a_count], elements, places_a)
        b = _fragment(lanes, values[a_count : a_count + b_count], elements, places_b)
        total = _fragment(lanes, values[a_count + b_count :], elements, places_c)
        for step in range(k):
            x, y = a[..., step : step + 1], b[:, :, step : step + 1, :]
            total = canonical64(fma64(x, y, total), y, total, x).view(f64)
        return tuple(_spread(total.view(u64), places_c, count_c, 1))

    return form.warp(compute)


@opcode("MOVM")
def transpose_matrix(form: Form) -> Semantics:
    """d = the 8x8 matrix of 16-bit elements that the warp holds in a, transposed."""
    form.choice("16")
    form.choice("MT88")
    form.dest()
    form.source("u32", bare=True)
    places = _places_a(8, 8, 2)

    def compute(lanes: Any, a: Array) -> Array:
        matrix = _fragment(lanes, (a,), _halves, places)
        low, high = _spread(np.swapaxes(matrix, 2, 3), places, 1, 2)
        return low | high << u32(16)

    return form.warp(compute)
