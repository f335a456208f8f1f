"""Counting a whole box of blocks in one pass: registers hold separable values, and one block stands for all.

:class:`BoxEngine` runs the slice of a program that its counters depend on over the blocks of a box at once.  Masks,
control flow and barriers are those of a single block, shared by all of them; a value on which they would differ makes
the pass end with :class:`~gpusim.machine.symbolic.Split` or :class:`~gpusim.machine.symbolic.Undecided`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gpusim.machine.box_memory import BoxMemory, World
from gpusim.machine.chunk import Chunk
from gpusim.machine.codegen import BlockWriter
from gpusim.machine.engine import Engine
from gpusim.machine.events import Branch
from gpusim.machine.lanes import Lanes
from gpusim.machine.separable import alike, choose
from gpusim.machine.symbolic import (
    NO_PARTS,
    SYMBOLIC,
    Floats,
    Part,
    Sep,
    Split,
    Truth,
    Undecided,
    along,
    bounds_of,
    known_to_be,
    make,
)
from gpusim.sass.form import Alu, ControlOp, Dest, WarpOp
from gpusim.sass.numeric import high_word, low_word, pair, select
from gpusim.sass.operands import Predicate
from gpusim.sass.program import BasicBlock
from gpusim.sass.slices import PREDICATE, element

Array = np.ndarray[Any, Any]
f32 = np.float32
NEARLY = f32(2.0**-20)  # more than the error of any float32 MUFU function in its range (CUDA programming guide)


LONG = 1 << 12  # branches after which a box is looked at for loops that wait; a power of 2

# what NumPy raises where a symbolic value stands in a place that takes arrays alone (an index, a method)
FOREIGN = (Undecided, AttributeError, IndexError, TypeError, ValueError)


class Guarded:
    """An instruction's ``compute`` for arguments that may be symbolic."""

    def __init__(self, compute: Callable[..., Any], dests: tuple[Dest, ...], monotone: str) -> None:
        self.compute, self.dests, self.monotone = compute, dests, monotone

    def __call__(self, *args: Any) -> Any:
        if not any(isinstance(a, SYMBOLIC) for a in args):
            return self.compute(*args)
        try:
            found = self._along_one_axis(args)
            if found is None:
                found = self._at_corners(args) if self.monotone else None
            if found is None:
                found = self.compute(*args)
        except FOREIGN:
            return self._unknown()
        if len(self.dests) == 1:
            return self._stored(found, self.dests[0])
        return tuple(self._stored(value, dest) for value, dest in zip(found, self.dests, strict=False))

    def _unknown(self) -> Any:
        values = [self._nothing(dest) for dest in self.dests]
        return values[0] if len(values) == 1 else tuple(values)

    @staticmethod
    def _nothing(dest: Dest) -> Any:
        if isinstance(dest.operand, Predicate):
            return Truth()
        return known_to_be(np.uint32 if dest.words == 1 else np.uint64)

    def _stored(self, value: Any, dest: Dest) -> Any:
        """A result as registers hold it."""
        if isinstance(value, Truth) or not isinstance(value, SYMBOLIC):
            return value
        if isinstance(dest.operand, Predicate):
            return Truth()
        if value.dtype.itemsize != 4 * dest.words:
            return self._nothing(dest)
        return value.view(np.uint32 if dest.words == 1 else np.uint64)

    def _along_one_axis(self, args: tuple[Any, ...]) -> Any:
        """Operands that depend on one block axis alone are computed with all of its values; None if they do not."""
        axis: int | None = None
        for value in args:
            if isinstance(value, Sep):
                if value.only_axis is None or axis not in (None, value.only_axis):
                    return None
                axis = value.only_axis
            elif not isinstance(value, np.ndarray) or value.size != 1:
                return None
        assert axis is not None
        found = self.compute(*(_typed(value, axis) if isinstance(value, Sep) else value for value in args))
        results = found if isinstance(found, tuple) else (found,)
        for result, dest in zip(results, self.dests, strict=False):
            if result.dtype == bool and not dest.is_sink and result.any() and not result.all():
                raise Split(axis - 1, [np.flatnonzero(result[0]), np.flatnonzero(~result[0])])
        together = tuple(_apart(r, axis) for r in results)
        return together if isinstance(found, tuple) else together[0]

    def _at_corners(self, args: tuple[Any, ...]) -> Any:
        """Bounds of a monotone function's result, from all combinations of its operands' bounds."""
        choices: list[tuple[Any, ...]] = []
        for value in args:
            if not isinstance(value, SYMBOLIC):
                choices.append((value,))
                continue
            if isinstance(value, Truth) or value.dtype != f32:
                return None
            bounds = bounds_of(value)
            if bounds is None or not np.isfinite(bounds).all():
                return None
            if "signed" in self.monotone and bounds[0] <= 0 <= bounds[1]:
                return None
            choices.append(tuple(b.reshape(1, 1) for b in bounds))
        results = [self.compute(*corner) for corner in _products(choices)]
        if isinstance(results[0], tuple):
            return tuple(self._between([r[k] for r in results]) for k in range(len(results[0])))
        return self._between(results)

    def _between(self, values: list[Array]) -> Any:
        if values[0].dtype == bool:
            if "false" in self.monotone and any(v.any() for v in values):
                return Truth()
            return values[0] if all(np.array_equal(v, values[0]) for v in values) else Truth()
        numbers = [v.view(f32) for v in values]
        low, high = min(n.min() for n in numbers), max(n.max() for n in numbers)
        if any(bool((n != n).any()) for n in numbers):
            return Floats(None)
        if "nearly" in self.monotone:
            low, high = low - np.abs(low) * NEARLY, high + np.abs(high) * NEARLY
        if "roughly" in self.monotone:
            low, high = low - NEARLY, high + NEARLY
        return Floats((f32(low), f32(high)))


def _products(choices: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = [()]
    for several in choices:
        found = [(*first, last) for first in found for last in several]
    return found


def _typed(value: Sep, axis: int) -> Array:
    """All values along an axis, as an array (1, n) of the value's type."""
    part = value.parts[axis]
    assert part is not None
    unsigned = np.uint64 if value.dtype.itemsize == 8 else np.uint32
    return (part.values + value.c).astype(unsigned).view(value.dtype)[None]


def _apart(result: Array, axis: int) -> Any:
    """The reverse of :func:`_typed`."""
    if result.dtype == bool:
        return result[:, :1].copy()
    if result.shape[1] == 1:
        return result
    if result.dtype.kind not in "iu":
        result = result.view(np.uint32 if result.dtype.itemsize == 4 else np.uint64)
    numbers = result[0].astype(np.int64)
    if result.dtype == np.uint32 and int(numbers.max()) - int(numbers.min()) >= 1 << 31:
        numbers = result[0].view(np.int32).astype(np.int64)
    return along(result.dtype, axis, numbers)


def _unchanged(a: Any, b: Any) -> bool:
    """Whether two values of a register are certainly the same."""
    if a is b:
        return True
    if isinstance(a, Sep) and isinstance(b, Sep):
        same = (a.dtype, a.c, a.slack) == (b.dtype, b.c, b.slack)
        return same and all(alike(p, q) for p, q in zip(a.parts, b.parts, strict=True))
    if isinstance(a, SYMBOLIC) or isinstance(b, SYMBOLIC):
        return False
    return a.shape == b.shape and bool((a == b).all())


def _safely(function: Callable[..., Any], dtype: Any) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except Undecided:
            return known_to_be(dtype)

    return call


class BoxLanes(Lanes):
    """What lanes see of each other where values may be symbolic."""

    def gather(self, value: Any, source: Array) -> Any:
        self._present(source)
        if not isinstance(value, Sep):
            return value if isinstance(value, SYMBOLIC) else super().gather(value, source)
        return self._moved(value, lambda numbers: super(BoxLanes, self).gather(numbers, source))

    def clock(self, name: str, bits: int) -> Array:
        raise Undecided("a clock")

    def _residence(self, name: str) -> Array:
        raise Undecided("where a warp runs")

    def _present(self, source: Array) -> None:
        """Raise Undecided where an active lane asks one that is not: what that one holds may not have been kept."""
        active = self.chunk.active_mask() if self.mask is None else self.chunk.wide(self.mask)
        if active.all():
            return
        asked = np.take_along_axis(active, np.broadcast_to(source + self.chunk.warp_starts, active.shape), axis=1)
        if (active & ~asked).any():
            raise Undecided("a value of a lane that does not take part")

    def _moved(self, value: Sep, move: Callable[[Array], Array]) -> Any:
        thread = value.parts[0]
        if thread is None:
            return value
        numbers = np.broadcast_to(move(thread.values[None]), (1, self.chunk.threads))[0]
        return make(value.dtype, value.c, (Part(numbers), *value.parts[1:]), value.slack)

    def first_active(self, value: Any) -> Any:
        if not isinstance(value, Sep):
            return value if isinstance(value, SYMBOLIC) else super().first_active(value)
        return self._moved(value, super().first_active)

    def match(self, value: Any) -> tuple[Array, Array]:
        if isinstance(value, Sep) and value.exact:  # the other parts are the same in all lanes of a warp
            thread = value.parts[0]
            if thread is None:
                return super().match(np.zeros((1, 1), np.int64))
            return super().match(thread.values.astype(np.uint64 if value.dtype.itemsize == 8 else np.uint32)[None])
        return super().match(value)


class BoxChunk(Chunk):
    """The state of a box: one block's masks, symbolic registers."""

    describe: Callable[[int], str]

    def begin(self, axes: tuple[Array, Array, Array]) -> None:
        """Start with the blocks at all combinations of these indices."""
        x, y, z = (int(a[0]) for a in axes)
        self.start(np.array([x + self.grid[0] * (y + self.grid[1] * z)]))
        for k, (axis, numbers) in enumerate(zip("XYZ", axes, strict=True)):
            self.special[f"SR_CTAID.{axis}"] = along(np.uint32, 1 + k, numbers)

    def lanes(self, mask: Array | None) -> Lanes:
        return BoxLanes(self, mask)

    def guarded(self, index: int, mask: Any) -> int:
        if isinstance(mask, SYMBOLIC):
            raise Undecided(f"a guard that depends on data: {self.describe(index)}")
        return super().guarded(index, mask)

    def merge(self, mask: Any, new: Any, old: Any, number: int, keep: bool) -> Any:
        """``new`` under the mask, ``old`` in the other lanes if one of them may read it yet."""
        if not keep and number not in self.elsewhere():
            return new
        if not any(isinstance(value, SYMBOLIC) for value in (mask, new, old)):
            return select(mask, new, old)
        try:
            return choose(mask, new, old)
        except Undecided:
            return Truth() if number >= PREDICATE else known_to_be(np.uint32)


class BoxWriter(BlockWriter):
    """Block functions whose results go to registers only as far as lanes need them."""

    batching = False

    def _assign(self, dest: Dest, value: str, guard: Predicate | None, masked: bool) -> list[str]:
        if dest.is_sink:
            return []
        if guard is None and not masked:
            return super()._assign(dest, value, guard, masked)
        assert self.part is not None
        values = [value] if dest.words == 1 else [f"lo({value})", f"hi({value})"]
        uniform = dest.operand.file in ("UR", "UP")
        mask = ("w" if masked else "m") if guard is None else "g"
        if uniform:
            mask = "s.warp_write_mask()" if guard is None else "s.warp_any(g)"
        lines = []
        for k, (target, text) in enumerate(zip(self.targets(dest), values, strict=True)):
            self.forget(target)
            number = element(dest.operand, k)
            keep = guard is not None and number in self.part.kept[self.index]
            lines.append(f"{target} = s.merge({mask}, {text}, {target}, {number}, {keep})")
        return lines


class BoxEngine(Engine):
    """Counts boxes.  ``compiled`` must be a slice's, written by :class:`BoxWriter`; all boxes share a ``world``."""

    packing = False
    world: World
    steps: int  # branches executed in this pass
    seen: tuple[int | None, tuple[Any, ...]]  # where one of them led, and the state then

    def _new_chunk(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], shared_bytes: int, local_bytes: int
    ) -> BoxChunk:
        chunk = BoxChunk(grid, block, shared_bytes, local_bytes)
        chunk.describe = self._describe
        return chunk

    def _new_memory(self) -> BoxMemory:
        return BoxMemory(self.chunk, self.device, self.shared_start, self._describe)

    def _names(self) -> dict[str, Any]:
        names = super()._names()
        for index, meaning in enumerate(self.program.meanings):
            if isinstance(meaning, Alu) and f"fn{index}" in names:
                names[f"fn{index}"] = Guarded(meaning.compute, meaning.dests, meaning.monotone)
            elif isinstance(meaning, WarpOp) and f"fn{index}" in names:
                names[f"fn{index}"] = GuardedWarp(meaning.compute, meaning.dests, "")
        names |= {
            "pair": _safely(pair, np.uint64), "lo": _safely(low_word, np.uint32), "hi": _safely(high_word, np.uint32),
            "select": _safely(select, np.uint32),
        }  # fmt: skip
        return names

    def run_box(self, axes: tuple[Array, Array, Array], world: World) -> None:
        """One pass over a box, from clean counters.  Raises Split, Undecided, or what execution raises."""
        count = len(self.program.blocks)
        self.block_warps, self.block_lanes = [0] * count, [0] * count
        self.chunk.predicated_on.clear()
        self.steps, self.seen = 0, (None, ())
        self.branches: list[Branch] = []
        part = self.compiled.slice
        assert part is not None and isinstance(self.chunk, BoxChunk)
        self.chunk.begin(axes)
        self.memory.begin(world)
        with np.errstate(all="ignore"):
            self._run_blocks()

    def _control(self, block: BasicBlock, op: ControlOp) -> int | None:
        try:
            address = super()._control(block, op)
        except Undecided as why:
            if "instruction" in str(why):
                raise
            raise Undecided(f"a branch that depends on data: {self._describe(block.last)}") from None
        self.steps += 1
        if self.steps >= LONG:
            self._look_for_waiting(address, block)
        return address

    def _look_for_waiting(self, address: int | None, block: BasicBlock) -> None:
        """Raise Undecided where a loop changes nothing: it waits for what another block does."""
        chunk = self.chunk
        state = (*chunk.R, *chunk.UR, *chunk.P, *chunk.UP, chunk.active_mask())
        if self.steps & (self.steps - 1) == 0:
            self.seen = (address, state)
        elif self.seen[0] == address and all(_unchanged(a, b) for a, b in zip(state, self.seen[1], strict=True)):
            raise Undecided(f"a loop that waits: {self._describe(block.last)}")

    def _branched(self, event: Branch) -> None:
        self.branches.append(event)

    def _constant_load(self, bank: int, offset: int, base: Any) -> Any:
        if not isinstance(base, SYMBOLIC):
            return super()._constant_load(bank, offset, base)
        if isinstance(base, Sep) and (axis := base.only_axis) is not None:
            return _apart(super()._constant_load(bank, offset, _typed(base, axis)), axis)
        return known_to_be(np.uint32)


class GuardedWarp(Guarded):
    """The same for operations that get the warp's lanes first."""

    def __call__(self, lanes: Any, *args: Any) -> Any:
        try:
            found = self.compute(lanes, *args)
        except FOREIGN:
            return self._unknown()
        if len(self.dests) == 1:
            return self._stored(found, self.dests[0])
        return tuple(self._stored(value, dest) for value, dest in zip(found, self.dests, strict=False))


__all__ = ["NO_PARTS", "BoxChunk", "BoxEngine", "BoxWriter"]
