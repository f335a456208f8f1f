"""Edge operands by type: zeros, ends of ranges, subnormals, infinities, NaNs with different payloads, rounding halves.

Everything is raw bits (unsigned arrays), and the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

WORDS = [
    0, 1, 2, 3, 7, 8, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x10000, 0x7FFFFF,
    0x800000, 0xFFFFFF, 0x1000001, 0x1000003, 0x55555555, 0x7F80017F, 0x7FFFFFBF, 0x7FFFFFC0, 0x7FFFFFFF, 0x80000000,
    0x80000001, 0x80808080, 0xAAAAAAAA, 0xDEADBEEF, 0xFEFF8000, 0xFFFF7FFF, 0xFFFF8000, 0xFFFFFF7F, 0xFFFFFF80,
    0xFFFFFFFE, 0xFFFFFFFF,
]  # fmt: skip
COUNTS = [0, 1, 2, 5, 8, 15, 16, 30, 31, 32, 33, 47, 63, 64, 65, 127, 128, 255, 256, 1 << 16, 1 << 31, 0xFFFFFFFF]
LONGS = [
    0, 1, 2, 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x100000000, 0x100000001, 0x1FFFFFFFF, 0x7FFFFFFFFFFFFFFF,
    0x8000000000000000, 0x8000000000000001, 0xFFFFFFFF00000000, 0xFFFFFFFF7FFFFFFF, 0xFFFFFFFF80000000,
    0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF, 0x20000000000001, 0x40000000000001, 0x40000000000003, 0x8000008000000001,
    0x8000008000000000, 0x8000000000000400, 0x8000000000000401, 0xFFFFFFFFFFFFFC00, 0x0123456789ABCDEF,
    0xDEADBEEFCAFEF00D, 0x0000000080000080, 0x7FFFFFBFFFFFFFFF, 0x7FFFFFC000000000,
]  # fmt: skip
SINGLES = [
    0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001, 0x00FFFFFF, 0x01000000,
    0x1F800000, 0x20000000, 0x33000000, 0x33800001, 0x3EFFFFFF, 0x3F000000, 0x3F000001, 0x3F7FFFFF, 0x3F800000,
    0x3F800001, 0x3FC00000, 0x40000000, 0x40200000, 0x40490FDB, 0x4B000001, 0x4F000000, 0x5F000000, 0x7E800000,
    0x7F000000, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FA00000, 0x7FC00000, 0x7FC12345, 0x7FFFFFFF,
]  # fmt: skip
MORE_SINGLES = [
    0x00000003, 0x007FFFFE, 0x2F800000, 0x33000001, 0x337FFFFF, 0x33800000, 0x387FC000, 0x387FDFFF, 0x387FE000,
    0x387FE001, 0x387FF000, 0x38800000, 0x3E800000, 0x3EC00000, 0x3F004000, 0x3F008000, 0x3F018000, 0x3F800800,
    0x3F801000, 0x3F801001, 0x3F802FFF, 0x3F803000, 0x3F807FFF, 0x3F808000, 0x3F808001, 0x3F818000, 0x3F820000,
    0x3FBFFFFF, 0x3FC00001, 0x400FFFFF, 0x40100000, 0x40600000, 0x40E00000, 0x41F80000, 0x42000000, 0x42FE0000,
    0x42FEFFFF, 0x42FF0000, 0x43000000, 0x437F0000, 0x437F8000, 0x43800000, 0x43160000, 0x43150001, 0x46FFFE00,
    0x46FFFF00, 0x47000000, 0x477FE000, 0x477FEFFF, 0x477FF000, 0x477FFF00, 0x477FFF80, 0x47800000, 0x4AFFFFFF,
    0x4B000000, 0x4B7FFFFF, 0x4B800000, 0x4B800001, 0x4EFFFFFF, 0x4F000001, 0x4F7FFFFF, 0x4F800000, 0x5EFFFFFF,
    0x5F7FFFFF, 0x5F800000, 0x7E7FFFFF, 0x7EFFFFFF, 0x7F7F7FFF, 0x7F7F8000, 0x7FBFFFFF, 0x7FD55555, 0x7F812345,
]  # fmt: skip
DOUBLES = [
    0x0000000000000000, 0x0000000000000001, 0x000FFFFFFFFFFFFF, 0x0010000000000000, 0x0010000000000001,
    0x001FFFFFFFFFFFFF, 0x1FF0000000000000, 0x3690000000000000, 0x3CA0000000000001, 0x3FDFFFFFFFFFFFFF,
    0x3FE0000000000000, 0x3FEFFFFFFFFFFFFF, 0x3FF0000000000000, 0x3FF0000000000001, 0x3FF8000000000000,
    0x400921FB54442D18, 0x4330000000000001, 0x41E0000000000000, 0x43E0000000000000, 0x7FE0000000000000,
    0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF0000000000001, 0x7FF4000000000000, 0x7FF8000000000000,
    0x7FF8123456789ABC, 0x7FFFFFFFFFFFFFFF,
]  # fmt: skip
MORE_DOUBLES = [
    0x0000000000000002, 0x0008000000000000, 0x3680000000000000, 0x3690000000000001, 0x36A0000000000000,
    0x380FFFFFE0000000, 0x380FFFFFF0000000, 0x3810000000000000, 0x3E60000000000000, 0x3E70000000000001,
    0x3F0FFC0000000000, 0x3F10000000000000, 0x3FD0000000000000, 0x3FE0000000000001, 0x3FF0000010000000,
    0x3FF0000010000001, 0x3FF0000030000000, 0x3FF0010000000000, 0x3FF0020000000000, 0x3FF0020000000001,
    0x3FF0060000000000, 0x3FF00FFFFFFFFFFF, 0x3FF7FFFFFFFFFFFF, 0x4004000000000000, 0x400C000000000000,
    0x4060000000000000, 0x405FDFFFFFFFFFFF, 0x405FE00000000000, 0x4070000000000000, 0x406FF00000000000,
    0x40DFFFE000000000, 0x40E0000000000000, 0x40EFFC0000000000, 0x40EFFE0000000000, 0x40EFFDFFFFFFFFFF,
    0x41DFFFFFFFC00000, 0x41DFFFFFFFE00000, 0x41EFFFFFFFE00000, 0x41EFFFFFFFF00000, 0x41F0000000000000,
    0x432FFFFFFFFFFFFF, 0x4330000000000000, 0x4340000000000001, 0x43DFFFFFFFFFFFFF, 0x43EFFFFFFFFFFFFF,
    0x43F0000000000000, 0x47EFFFFFE0000000, 0x47EFFFFFEFFFFFFF, 0x47EFFFFFF0000000, 0x47F0000000000000,
    0x7FD0000000000000, 0x7FF7FFFFFFFFFFFF, 0x7FF0000020000000, 0x7FF8000020000000, 0x7FF5555555555555,
]  # fmt: skip
HALVES = [
    0x0000, 0x0001, 0x0002, 0x0200, 0x03FF, 0x0400, 0x0401, 0x07FF, 0x1000, 0x1400, 0x1401, 0x37FF, 0x3800, 0x3801,
    0x3BFF, 0x3C00, 0x3C01, 0x3E00, 0x4000, 0x4100, 0x4248, 0x6400, 0x6401, 0x7800, 0x7BFF, 0x7C00, 0x7C01, 0x7D00,
    0x7E00, 0x7E55, 0x7FFF,
]  # fmt: skip
BRAINS = [
    0x0000, 0x0001, 0x0002, 0x0040, 0x007F, 0x0080, 0x0081, 0x00FF, 0x1F80, 0x2000, 0x3B80, 0x3B81, 0x3EFF, 0x3F00,
    0x3F01, 0x3F7F, 0x3F80, 0x3F81, 0x3FC0, 0x4000, 0x4020, 0x4049, 0x4300, 0x4301, 0x4F00, 0x7F00, 0x7F7F, 0x7F80,
    0x7F81, 0x7FA0, 0x7FC0, 0x7FD5, 0x7FFF,
]  # fmt: skip


def _array(values: list[int], bits: int) -> Array:
    return np.array(values, np.uint64 if bits == 64 else np.uint32 if bits == 32 else np.uint16)


def both_signs(values: Array) -> Array:
    """The patterns and the same with the sign bit flipped."""
    sign = values.dtype.type(1 << (8 * values.dtype.itemsize - 1))
    return np.concatenate([values, values ^ sign])


FLOATS: dict[str, tuple[list[int], list[int], int]] = {
    "f32": (SINGLES, MORE_SINGLES, 32),
    "f64": (DOUBLES, MORE_DOUBLES, 64),
    "f16": (HALVES, [], 16),
    "bf16": (BRAINS, [], 16),
}
INTEGERS: dict[str, tuple[list[int], int]] = {
    "u32": (WORDS, 32),
    "u64": (LONGS, 64),
    "count": (COUNTS, 32),
    "u16": (sorted({w & 0xFFFF for w in WORDS}), 16),
    "bit": ([0, 1], 32),
}


def edge_values(kind: str) -> Array:
    """The edges of a type, for pairs."""
    if kind in FLOATS:
        values, _, bits = FLOATS[kind]
        return both_signs(_array(values, bits))
    values, bits = INTEGERS[kind]
    return _array(values, bits)


def _bits_of(kind: str) -> int:
    return FLOATS[kind][2] if kind in FLOATS else INTEGERS[kind][1]


def _random(kind: str, count: int, seed: int) -> Array:
    bits = _bits_of(kind)
    values = np.random.default_rng(seed).integers(0, 2**64, count, np.uint64, endpoint=False)
    if kind == "count":
        return (values % np.uint64(72)).astype(np.uint32)
    return (values >> np.uint64(64 - bits)).astype(np.uint64 if bits == 64 else np.uint32 if bits == 32 else np.uint16)


def single_values(kind: str) -> Array:
    """The edges, more of them, and random patterns, for one operand."""
    parts = [edge_values(kind)]
    if kind in FLOATS and FLOATS[kind][1]:
        parts.append(both_signs(_array(FLOATS[kind][1], FLOATS[kind][2])))
    if kind == "f32":  # near every power of two that conversions care about
        exponents = np.arange(100, 200, dtype=np.uint32) << np.uint32(23)
        parts.append(both_signs(exponents | np.uint32(0x5A5A5A)))
    if kind == "f64":
        wide = np.arange(1023 - 160, 1023 + 140, dtype=np.uint64) << np.uint64(52)
        parts.append(both_signs(wide | np.uint64(0x5A5A5B5A5A5A5)))
    parts.append(_random(kind, 200, 1))
    return np.concatenate(parts)


def pairs(first: str, second: str) -> tuple[Array, Array]:
    """All pairs of edges, and random ones."""
    a, b = edge_values(first), edge_values(second)
    left = np.concatenate([np.repeat(a, len(b)), _random(first, 100, 2)])
    right = np.concatenate([np.tile(b, len(a)), _random(second, 100, 3)])
    return left, right


_KEYS: dict[str, list[int]] = {
    "u32": [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678],
    "u64": [0, 1, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF, 0x8000000000000000, 0xFFFFFFFFFFFFFFFF],
    "count": [0, 1, 31, 32, 33, 255],
    "bit": [0, 1],
    "f32": [0, 0x80000000, 0x00000001, 0x3F800000, 0xFF7FFFFF, 0x7F800000, 0xFF800000, 0x7FC12345],
    "f64": [
        0, 0x8000000000000000, 1, 0x3FF0000000000000, 0xFFEFFFFFFFFFFFFF, 0x7FF0000000000000, 0xFFF0000000000000,
        0x7FF8123456789ABC,
    ],
    "f16": [0, 0x8000, 1, 0x3C00, 0xFBFF, 0x7C00, 0xFC00, 0x7E55],
    "bf16": [0, 0x8000, 1, 0x3F80, 0xFF7F, 0x7F80, 0xFF80, 0x7FD5],
    "u16": [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234],
}  # fmt: skip


def triples(kinds: tuple[str, str, str]) -> tuple[Array, ...]:
    """Every combination of some key values, and random choices from the edges; for floats also near cancellation."""
    generator = np.random.default_rng(4)
    keys = [_array(_KEYS[kind], _bits_of(kind)) for kind in kinds]
    cube = [part.reshape(-1) for part in np.meshgrid(*keys, indexing="ij")]
    chosen = [generator.choice(edge_values(kind), 500) for kind in kinds]
    parts = [[x, y] for x, y in zip(cube, chosen, strict=True)]
    numpy_type: Any = {"f32": np.float32, "f64": np.float64, "f16": np.float16}.get(kinds[0])
    if numpy_type is not None and kinds == (kinds[0],) * 3:
        with np.errstate(all="ignore"):
            a, b = (generator.normal(size=200).astype(numpy_type) for _ in range(2))
            c = -(a * b)
            c[100:] *= numpy_type(2) ** generator.integers(-24, 24, 100).astype(numpy_type)
        raw = edge_values(kinds[0]).dtype
        for part, values in zip(parts, (a, b, c), strict=True):
            part.append(values.astype(numpy_type).view(raw))
    return tuple(np.concatenate(part) for part in parts)


def _packed(values: Array, step: int) -> Array:
    """Words of two 16-bit values: each in the low half, another one, rotated by ``step``, in the high half."""
    return values.astype(np.uint32) | np.roll(values, step).astype(np.uint32) << np.uint32(16)


@cache
def inputs(signature: tuple[str, ...]) -> tuple[Array, ...]:
    """The operand arrays of a signature such as ("f32", "f32"); "f16x2" is two halves a word."""
    if signature[0] in SPECIAL:
        return SPECIAL[signature[0]]()
    if signature[0].endswith("all"):
        return (np.arange(1 << 16).astype(np.uint16),)
    kinds = tuple(kind.removesuffix("x2") for kind in signature)
    if len(kinds) == 1:
        arrays: tuple[Array, ...] = (single_values(kinds[0]),)
        if kinds[0] in ("f16", "bf16"):
            arrays = (np.concatenate([edge_values(kinds[0]), np.arange(0, 1 << 16, 67).astype(np.uint16)]),)
    elif len(kinds) == 2:
        arrays = pairs(*kinds)
    else:
        arrays = triples((kinds[0], kinds[1], kinds[2]))
    return tuple(
        _packed(array, 3 + 5 * place) if kind.endswith("x2") else array
        for place, (kind, array) in enumerate(zip(signature, arrays, strict=True))
    )


def _near_least(bits: int) -> tuple[Array, ...]:
    """a * b + c close to the smallest normal number of single or half precision, from both sides."""
    generator = np.random.default_rng(6)
    mantissa, bias, unsigned = (23, 127, np.uint32) if bits == 32 else (10, 15, np.uint16)
    exponent = generator.integers(-bias // 2, bias // 2, 600)
    one = bias << mantissa
    a = (one + generator.integers(-4, 5, 600)) + (exponent << mantissa)
    b = (one + generator.integers(-4, 5, 600)) + ((1 - bias - exponent) << mantissa)
    b = np.clip(b, 1, None)
    c = np.array([0, 1, 2, 1 << mantissa, (1 << mantissa) + 1, (1 << mantissa) - 1, 2 << mantissa])[
        generator.integers(0, 7, 600)
    ]
    c[:200] = 0
    signs = generator.integers(0, 2, (3, 600)) << (bits - 1)
    return tuple((x | sign).astype(unsigned) for x, sign in zip((a, b, c), signs, strict=True))


SPECIAL: dict[str, Callable[[], tuple[Array, ...]]] = {
    "least_f32": lambda: _near_least(32),
    "least_f16": lambda: tuple(_packed(x, 7) for x in _near_least(16)),
}
