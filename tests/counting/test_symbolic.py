"""Arithmetic of separable values against the same arithmetic on each block by itself."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.machine.separable import choose
from gpusim.machine.symbolic import SYMBOLIC, Floats, Part, Sep, Split, Truth, Undecided, bounds_of, make
from gpusim.sass import numeric

THREADS = 32
U32, I32, U64 = np.uint32, np.int32, np.uint64
CONSTANTS = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    31,
    32,
    48,
    255,
    256,
    1000,
    4096,
    65535,
    1 << 20,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
)


class Both:
    """A value for a whole box, and the same as one array (blocks, threads)."""

    def __init__(self, symbolic: Any, concrete: np.ndarray) -> None:
        self.symbolic, self.concrete = symbolic, concrete


class Box:
    """Leaves of expressions: block indices along two axes, the thread's number, constants."""

    def __init__(self, xs: list[int], ys: list[int]) -> None:
        self.xs, self.ys = np.array(xs), np.array(ys)
        self.blocks = len(xs) * len(ys)

    def leaf(self, kind: str, value: int) -> Both:
        shape = (self.blocks, THREADS)
        if kind == "x":
            full = np.repeat(np.tile(self.xs, len(self.ys))[:, None], THREADS, axis=1)
            return Both(make(U32, 0, (None, Part(self.xs.astype(np.int64)), None, None)), full.astype(U32))
        if kind == "y":
            full = np.repeat(np.repeat(self.ys, len(self.xs))[:, None], THREADS, axis=1)
            return Both(make(U32, 0, (None, None, Part(self.ys.astype(np.int64)), None)), full.astype(U32))
        if kind == "t":
            thread = np.arange(THREADS, dtype=U32)[None] * U32(value % 9)
            return Both(thread, np.broadcast_to(thread, shape))
        constant = np.full((1, 1), value & 0xFFFFFFFF, U32)
        return Both(constant, np.broadcast_to(constant, shape))


def shift_by(f: Any, steps: int) -> Any:
    return lambda a: f(a, np.full((1, 1), steps, a.dtype))


BINARY = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "and": operator.and_, "or": operator.or_,
    "xor": operator.xor, "min": np.minimum, "max": np.maximum,
    "wide": lambda a, b: numeric.low_word(a.astype(U64) * b.astype(U64)),
    "high": lambda a, b: numeric.high_word(a.astype(U64) * b.astype(U64)),
    "signed": lambda a, b: numeric.low_word((a.view(I32).astype(np.int64) + b.view(I32).astype(np.int64)).view(U64)),
    "pair": lambda a, b: numeric.high_word(numeric.pair(a, b) + numeric.pair(b, a)),
    "smaller": lambda a, b: numeric.select(a.view(I32) < b.view(I32), a, b),
}  # fmt: skip
UNARY = {
    "not": operator.invert,
    "left": lambda a: a << U32(3), "left9": lambda a: a << U32(9), "right": lambda a: a >> U32(2),
    "signed_right": lambda a: (a.view(I32) >> np.int32(4)).view(U32), "low": lambda a: a & U32(31),
    "middle": lambda a: a & U32(0xFF0), "upper": lambda a: a & U32(0xFFFFFF80), "odd": lambda a: a & U32(0x55),
    "abs": lambda a: np.abs(a.view(I32)).view(U32),
}  # fmt: skip


def expressions() -> Any:
    leaves = st.tuples(st.sampled_from("xytcc"), st.sampled_from(CONSTANTS) | st.integers(0, 300))
    return st.recursive(
        leaves,
        lambda inner: (
            st.tuples(st.sampled_from(sorted(BINARY)), inner, inner) | st.tuples(st.sampled_from(sorted(UNARY)), inner)
        ),
        max_leaves=10,
    )


def evaluate(tree: Any, box: Box) -> Both:
    name = tree[0]
    if name in BINARY:
        a, b = evaluate(tree[1], box), evaluate(tree[2], box)
        return Both(BINARY[name](a.symbolic, b.symbolic), BINARY[name](a.concrete, b.concrete))
    if name in UNARY:
        a = evaluate(tree[1], box)
        return Both(UNARY[name](a.symbolic), UNARY[name](a.concrete))
    return box.leaf(*tree)


def check(symbolic: Any, concrete: np.ndarray, box: Box) -> None:
    """The symbolic value describes the concrete one."""
    if not isinstance(symbolic, SYMBOLIC):
        assert np.array_equal(np.broadcast_to(symbolic, concrete.shape), concrete)
        return
    assert isinstance(symbolic, Sep)
    bits = 8 * symbolic.dtype.itemsize
    thread, x, y, _ = symbolic.parts
    total = np.full((len(box.ys), len(box.xs), THREADS), symbolic.c, object)
    for part, index in ((thread, (None, None)), (x, (None, slice(None), None)), (y, (slice(None), None, None))):
        if part is not None:
            total = total + part.values.astype(object)[index]
    total = total.reshape(box.blocks, THREADS)
    low, high = symbolic.slack
    distance = (concrete.astype(object) - total - low) % (1 << bits)
    assert (distance <= high - low).all()
    assert total.min() + low >= symbolic.low and total.max() + high <= symbolic.high


def indices() -> Any:
    return st.lists(st.integers(0, 70), min_size=1, max_size=5, unique=True).map(sorted)


@settings(max_examples=600, deadline=None)
@given(expressions(), indices(), indices())
def test_arithmetic(tree, xs, ys):
    with np.errstate(all="ignore"):
        waiting = [Box(xs, ys)]
        while waiting:
            box = waiting.pop()
            try:
                both = evaluate(tree, box)
            except Split as split:
                names = ("xs", "ys")
                kept = [getattr(box, n) for n in names]
                groups = [kept[split.axis][g] for g in split.groups]
                assert len(groups) > 1 and np.array_equal(np.sort(np.concatenate(groups)), kept[split.axis])
                for group in groups:
                    axes = [group if k == split.axis else kept[k] for k in range(2)]
                    waiting.append(Box(list(axes[0]), list(axes[1])))
                continue
            except Undecided:
                continue
            check(both.symbolic, both.concrete, box)


@settings(max_examples=300, deadline=None)
@given(
    expressions(),
    expressions(),
    st.sampled_from(["less", "less_equal", "equal", "not_equal", "greater"]),
    indices(),
    indices(),
)
def test_comparisons(left, right, name, xs, ys):
    with np.errstate(all="ignore"):
        waiting = [Box(xs, ys)]
        while waiting:
            box = waiting.pop()
            try:
                a, b = evaluate(left, box), evaluate(right, box)
                found = getattr(np, name)(a.symbolic, b.symbolic)
            except Split as split:
                kept = [box.xs, box.ys]
                for group in split.groups:
                    axes = [kept[k][group] if k == split.axis else kept[k] for k in range(2)]
                    waiting.append(Box(list(axes[0]), list(axes[1])))
                continue
            except Undecided:
                continue
            if isinstance(found, Truth):
                continue
            truth = getattr(np, name)(a.concrete, b.concrete)
            assert np.array_equal(np.broadcast_to(found, truth.shape), truth)


FLOATS = st.floats(-1e6, 1e6, width=32)


@given(FLOATS, FLOATS, st.lists(FLOATS, min_size=1, max_size=5))
def test_bounds_of_floats_hold_through_their_bits(a, b, values):
    low, high = sorted((np.float32(a), np.float32(b)))
    inside = np.clip(np.array(values, np.float32), low, high)
    bounds = bounds_of(Floats((low, high)) ^ np.full((1, 1), numeric.SIGN32, U32))
    assert bounds is not None and (-inside >= bounds[0]).all() and (-inside <= bounds[1]).all()
    bits = Floats((low, high)).bits()
    words = inside.view(U32).astype(np.int64)
    assert bits.low <= words.min() and words.max() <= bits.high
    size = Floats((low, high)) & np.full((1, 1), 0x7FFFFFFF, U32)
    bounds = bounds_of(size)
    assert bounds is not None and (np.abs(inside) >= bounds[0]).all() and (np.abs(inside) <= bounds[1]).all()


def test_a_choice_keeps_the_blocks_part():
    base = make(U32, 100, (None, Part(np.arange(4) * 64), None, None))
    mask = (np.arange(32) < 5)[None]
    chosen = choose(mask, base + U32(3), base)
    assert isinstance(chosen, Sep) and chosen.exact
    assert np.array_equal(chosen.parts[0].values, np.where(mask[0], 103, 100)) or chosen.c != 100
    with pytest.raises(Undecided):
        bool(choose(Truth(), np.ones((1, 1), bool), np.zeros((1, 1), bool)))
