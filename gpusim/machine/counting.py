"""Counting a whole grid: boxes of blocks at once where their values are separable, block by block elsewhere.

The grid is one box to begin with.  A box whose blocks disagree is cut where they do, along one block axis; a box with a
decision that depends on data is executed block by block, computing only the program's slice.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from gpusim.errors import GpusimError, UsageError
from gpusim.machine import parallel
from gpusim.machine.box import BoxEngine, BoxWriter
from gpusim.machine.box_memory import Restart, World
from gpusim.machine.compiled import Compiled, compile_program
from gpusim.machine.engine import Engine, Tally
from gpusim.machine.events import Access, Branch
from gpusim.machine.memory import DeviceMemory
from gpusim.machine.outer import least_and_most
from gpusim.machine.symbolic import Split, Undecided
from gpusim.sass.program import Program
from gpusim.sass.slices import Slice, aside_of, slice_of

Array = np.ndarray[Any, Any]
Axes = tuple[Array, Array, Array]
MOST_PASSES = 400  # boxes tried before the rest of the grid is executed block by block
MOST_RESTARTS = 6
WRITTEN = "memory that the kernel writes decides what it does"
MOST_COUNTED = 1 << 58  # thread instructions; sectors and wavefronts are at most 32 times as many
LONGEST_AXIS = 1 << 22  # blocks of a box along an axis at first: what is kept of each takes some 100 bytes


@dataclass
class Counting:
    """A program prepared to be counted: its slice, for boxes and for blocks; ``part`` None: nothing is left out.

    ``aside``: the same for blocks where what is stored to global memory is not read, None if that leaves out no more.
    """

    program: Program
    part: Slice | None
    boxes: Compiled | None
    blocks: Compiled
    aside: Compiled | None = None

    @classmethod
    def of(cls, program: Program) -> Counting:
        """Find the slice and write both."""
        part = slice_of(program)
        boxes = None if part is None else compile_program(program, part, BoxWriter)
        less = aside_of(program, part)
        aside = None if less is None else compile_program(program, less)
        return cls(program, part, boxes, compile_program(program, part), aside)


@dataclass
class Path:
    """How a count was made: ``boxes`` passes stand for ``together`` blocks, ``executed`` blocks were run one by one."""

    boxes: int = 0
    together: int = 0
    executed: int = 0
    reason: str = ""  # why blocks were executed
    needed: int = 0  # instructions of the slice
    instructions: int = 0

    def sentence(self) -> str:
        """The path in words."""
        parts = []
        if self.together:
            times = "one pass" if self.boxes == 1 else f"{self.boxes} passes"
            parts.append(f"{_blocks_of(self.together)} together in {times}")
        if self.executed:
            parts.append(f"{_blocks_of(self.executed)} one by one")
        reason = f" [{self.reason}]" if self.reason and self.executed else ""
        share = f"only the {self.needed} of {self.instructions} instructions that decide the counters were computed"
        return f"{', '.join(parts)}; {share}{reason}"


def _zero(program: Program) -> Tally:
    count = len(program.instructions)
    return Tally(*(np.zeros(count, np.int64) for _ in range(3)))


def _blocks_of(number: int) -> str:
    return "1 block" if number == 1 else f"{number:,} blocks"


def _blocks(axes: Axes) -> int:
    return len(axes[0]) * len(axes[1]) * len(axes[2])


class GridCounter:
    """Counts one launch.  ``engine(type, compiled)`` makes an engine for it; ``collector`` and ``sampler`` are told."""

    def __init__(
        self, counting: Counting, grid: tuple[int, int, int], device: DeviceMemory, engine: Callable[..., Any]
    ) -> None:
        self.counting, self.grid, self.device, self.make_engine = counting, grid, device, engine
        self.path = Path(instructions=len(counting.program.instructions))
        self.path.needed = len(counting.part.needed) if counting.part else self.path.instructions
        self.caveats: set[str] = set()
        self.total = grid[0] * grid[1] * grid[2]

    def run(self, collector: Any, sampler: Any, progress: Callable[[int, int], None] | None = None) -> Tally:
        """Count the grid; returns what was executed."""
        found = self._boxes() if self.counting.boxes is not None else None
        try:
            return self._finish(found, collector, sampler, progress)
        except Restart:
            # blocks that were executed share memory with those that were counted: all must be executed
            self._begin_anew(collector, sampler)
            self.path.reason = WRITTEN
            return self._finish(None, collector, sampler, progress)

    def _finish(
        self, found: _Pass | None, collector: Any, sampler: Any, progress: Callable[[int, int], None] | None
    ) -> Tally:
        """Tell the listeners what boxes found, and execute the other blocks (None: all of them)."""
        if found is None:
            self.path.boxes, self.path.together, self.path.executed = 0, 0, self.total
            return self._without_stores(collector, sampler, progress) or self._execute(self.counting.blocks, progress)
        for event, times, first in found.accesses:
            collector.access(event, times)
            if first:
                sampler.access(event)
        for branch in found.branches:
            collector.branch(branch)
        self.caveats |= found.caveats
        left = len(found.left)
        self.path.boxes, self.path.together, self.path.executed = found.boxes, self.total - left, left
        if not left:
            if progress is not None:
                progress(self.total, self.total)
            return found.tally
        assert self.counting.part is not None
        watch = _Watch(self.world, self.counting.part)
        tally = self._execute(self.counting.blocks, progress, watch, left=found.left)
        for name in ("executed", "thread_executed", "predicated_on"):
            setattr(tally, name, getattr(tally, name) + getattr(found.tally, name))
        return tally

    def _execute(
        self, compiled: Compiled, progress: Callable[[int, int], None] | None, *more: Any, left: Array | None = None
    ) -> Tally:
        """Execute all blocks, or those that are ``left``, with ``more`` listeners."""
        engine: Engine = self.make_engine(Engine, compiled)
        engine.listeners = (*engine.listeners, *more)
        tally = engine.run(progress, left)
        self.caveats |= engine.flow.caveats
        return tally

    def _without_stores(
        self, collector: Any, sampler: Any, progress: Callable[[int, int], None] | None
    ) -> Tally | None:
        """Execute all blocks without what is stored to global memory; None if it turns out to be read."""
        aside, device = self.counting.aside, self.device
        if aside is None or aside.slice is None:
            return None
        watch = _Apart(device, aside.slice)
        try:
            tally = self._execute(aside, progress, watch)
            watch.settle()
        except GpusimError:  # one that is right comes again
            self.path.reason = self.path.reason or WRITTEN
            self._begin_anew(collector, sampler)
            return None
        self.path.needed = len(aside.slice.needed)
        return tally

    def _begin_anew(self, collector: Any, sampler: Any) -> None:
        for listener in (collector, sampler):
            listener.begin_part()
        self.device.reset()
        self.caveats.clear()

    # -- boxes -----------------------------------------------------------------------------------------------------
    def _boxes(self) -> _Pass | None:
        """Count what can be counted in boxes; None where all blocks must be executed."""
        engine: BoxEngine = self.make_engine(BoxEngine, self.counting.boxes)
        world = self.world = World(engine.device)
        for _ in range(MOST_RESTARTS):
            try:
                found = self._pass(engine, world)
            except Restart:
                self.path.reason = WRITTEN
                continue
            # what the counted blocks would have written may be read by those that are left
            return None if not found.boxes or (len(found.left) and world.assumed) else found
        return None

    def _pass(self, engine: BoxEngine, world: World) -> _Pass:
        found = _Pass(_zero(self.counting.program))
        fresh = self._first_boxes()
        waiting: list[Axes] = []
        most = MOST_PASSES + self.total // LONGEST_AXIS
        undone: list[Axes] = []
        tries = 0
        while (axes := waiting.pop() if waiting else next(fresh, None)) is not None:
            tries += 1
            if tries > most:
                self.path.reason = "its blocks differ too much to be counted together"
                undone += [axes, *waiting, *(fresh if found.boxes else ())]
                break
            world.stored.clear()
            try:
                engine.run_box(axes, world)
            except Split as split:
                pieces = []
                for group in split.groups:
                    piece = list(axes)
                    piece[split.axis] = axes[split.axis][group]
                    pieces.append((piece[0], piece[1], piece[2]))
                # the one with the first block goes first, so that boxes come in the order of their blocks
                waiting += sorted(pieces, key=lambda a: tuple(-int(a[k][0]) for k in (2, 1, 0)))
                continue
            except (Undecided, GpusimError) as error:
                self.path.reason = str(error) if isinstance(error, Undecided) else "to say where it fails"
                undone.append(axes)
                if self.total > LONGEST_AXIS and not found.boxes:
                    break  # a list of what is left may be larger than memory
                continue
            found.add(engine, _blocks(axes))
            world.counted |= world.stored
        if undone and found.boxes:
            found.left = np.sort(np.concatenate([self._numbers(axes) for axes in undone]))
        return found

    def _first_boxes(self) -> Iterator[Axes]:
        """The grid in order of its blocks, cut where it is long."""
        steps = [range(0, n, LONGEST_AXIS) for n in self.grid]
        for z, y, x in product(*reversed(steps)):
            pieces = [np.arange(a, min(a + LONGEST_AXIS, n)) for a, n in zip((x, y, z), self.grid, strict=True)]
            yield pieces[0], pieces[1], pieces[2]

    def _numbers(self, axes: Axes) -> Array:
        x, y, z = axes
        gx, gy, _ = self.grid
        return (x[None, None] + gx * (y[None, :, None] + gy * z[:, None, None])).reshape(-1)


class _Watch:
    """Listens to blocks that are executed beside counted ones: raises Restart where one may see what others stored."""

    def __init__(self, world: World, part: Slice) -> None:
        self.world, self.slice = world, part

    def access(self, event: Access) -> None:
        places = event.used() if event.space == "global" else None
        if places is None:
            return
        buffers = set(self.world.device.between(*least_and_most(places)))
        stores = event.op.operation not in ("load", "async_copy")
        loads = event.op.operation != "store" and event.index in self.slice.needed
        if (stores and buffers & self.world.read) or (loads and buffers & self.world.counted):
            raise Restart

    def branch(self, event: Branch) -> None:
        pass


class ReadBack(parallel.Final):
    """What the kernel stores to global memory decides its counters."""


class _Apart:
    """Listens to a launch whose stores to global memory are left out: raises ReadBack where one may be read.

    Buffers tell stores and loads apart, whichever comes first.  Processes that share the launch see what the others do
    at once: one may wait for what another one would have stored.
    """

    repeats = True

    def __init__(self, device: DeviceMemory, part: Slice) -> None:
        self.device, self.slice = device, part
        self.read, self.stored = (mmap.mmap(-1, max(1, len(device.buffers))) for _ in range(2))  # a byte a buffer

    def access(self, event: Access, again: int = 1) -> None:
        needed = event.index in self.slice.needed
        if event.op.operation == "store" if needed else event.op.operation in ("load", "async_copy"):
            return  # what is stored is there, what is loaded is of no use
        places = event.used() if event.space == "global" else None
        if places is None:
            return
        mine, others = (self.read, self.stored) if needed else (self.stored, self.read)
        for buffer in self.device.between(*least_and_most(places)):
            mine[buffer] = 1
            if others[buffer]:
                self.settle()

    def settle(self) -> None:
        """Raise ReadBack if a buffer is on both sides; two processes may have looked too early."""
        if any(read and stored for read, stored in zip(self.read[:], self.stored[:], strict=True)):
            raise ReadBack("memory that the kernel writes is read again")

    def branch(self, event: Branch) -> None:
        """Branches access nothing."""

    def begin_part(self) -> None:
        """What other processes read and store is known to all."""

    def part(self) -> None:
        """Nothing is left to be merged."""

    def merge(self, part: None) -> None:
        """Nothing is left to be merged."""


@dataclass
class _Pass:
    """One attempt at all boxes: what the listeners are to be told; ``left``: blocks that were not counted."""

    tally: Tally
    accesses: list[tuple[Access, int, bool]] = field(default_factory=list)
    branches: list[Branch] = field(default_factory=list)
    caveats: set[str] = field(default_factory=set)
    boxes: int = 0
    left: Array = field(default_factory=lambda: np.zeros(0, np.int64))

    def add(self, engine: BoxEngine, weight: int) -> None:
        """Take over a box's counters, for ``weight`` blocks."""
        tally = engine.tally()
        if int(tally.thread_executed.sum()) * weight + int(self.tally.thread_executed.sum()) > MOST_COUNTED:
            raise UsageError("the launch executes more instructions than counters of 64 bits hold")
        self.tally.executed += tally.executed * weight
        self.tally.thread_executed += tally.thread_executed * weight
        self.tally.predicated_on += tally.predicated_on * weight
        self.accesses += engine.memory.accesses(weight)
        for b in engine.branches:
            self.branches.append(
                Branch(b.index, b.kind, b.warps * weight, b.taken * weight, b.fallen * weight, b.divergent * weight)
            )
        self.caveats |= engine.flow.caveats
        self.boxes += 1
