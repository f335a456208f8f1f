"""Which blocks to follow, and what they say about the rest of the grid.

One SM's blocks are followed warp by warp.  What the other SMs do to L2 and DRAM is estimated from all blocks of a wave,
followed only so far: of the sectors that the SMs of a wave fetch, how many are fetched by one alone, and how many were
fetched by the wave before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.counters import rules
from gpusim.counters.collect import global_atomic_name
from gpusim.machine.engine import Engine
from gpusim.machine.events import Access, Branch
from gpusim.sass.operands import Constant
from gpusim.timing.streams import Enough, StreamRecorder, Streams

Array = np.ndarray[Any, Any]
SAMPLED = 3  # of the sectors of a wave, one in 2**SAMPLED is looked at
MOST_THREADS = 1 << 19  # of a wave that is executed together
MOST_WHOLE = 1 << 21  # threads of a grid whose waves are all followed, if they are no more than MOST_WAVES
MOST_WAVES = 8
MOST_WAVE_ISSUES = 6_000_000  # warp instructions of a wave that are followed
ENOUGH_WAVE_ISSUES = 1_500_000  # the same, if what comes next was there twice
MOST_WAVE_STEPS = 400  # basic blocks that it goes through
FEW_LINES = 4096  # lines among which a store's are looked at one by one
MOST_CROWDS = 4  # times that a store's are
AGAIN = 4  # stores of an SM to the same line in a wave from which on they wait for those of other SMs
UNEVEN = 0.1  # standard deviation of what blocks issue, of its mean, from which on they are told apart
MOST_ADDS = 16  # times that an atomic's lines are looked at


def code_for(kernel: Any) -> Any:
    """The kernel's code that computes what decides its streams: its slice, or all of it if it indexes constants."""
    counting = kernel._counting
    if counting.part is None:
        return kernel._compiled
    for meaning in kernel.program.meanings:
        for source in getattr(meaning, "sources", ()):
            if isinstance(source.operand, Constant) and source.operand.base is not None:
                return kernel._compiled
    return counting.blocks


def follow(ready: Any, numbers: Array, most: int | None = None) -> Streams:
    """Streams of the blocks with these linear numbers; ``most``: warp instructions to follow at most in all."""
    kernel = ready.kernel
    recorder = StreamRecorder(kernel.program, most)
    engine = ready.engine(Engine, code_for(kernel), (recorder,), chunk_threads=1 << 30)
    recorder.attach(engine)
    try:
        with np.errstate(all="ignore"):
            engine.run_chunk(np.asarray(numbers, np.int64))
    except Enough:
        pass
    return recorder.streams(np.asarray(numbers, np.int64))


@dataclass
class Sharing:
    """Of the sectors that one instruction's accesses touch.  Arrays by instruction.

    ``alone``: distinct sectors of the wave that no instruction before it touches, over the sum of each SM's distinct
    sectors (1: nothing is shared);
    ``again``: share of a wave's distinct sectors that the wave before it touched too;
    ``crowd``: of a store, by how many SMs a line is stored to over and over, on average, else 1;
    ``adds``: (line, sectors of it, passes) of global atomics' requests, of all SMs, as far as they were followed, and
    ``added``: of which instructions;
    ``followed``: warp instructions.
    """

    alone: Array
    again: Array
    crowd: Array
    adds: tuple[Array, Array, Array]
    followed: int
    added: frozenset[int] = frozenset()
    uneven: bool = False  # whether blocks of a wave go different ways, or not all equally often


class _WaveListener:
    """Keeps the sampled sectors of every instruction's global accesses, by SM."""

    def __init__(self, sms: int, first: int) -> None:
        self.sms, self.first = sms, first
        self.sectors: dict[int, list[Array]] = {}
        self.owners: dict[int, list[Array]] = {}
        self.crowds: dict[int, list[float]] = {}
        self.adds: dict[int, list[tuple[Array, Array, Array]]] = {}

    def access(self, event: Access) -> None:
        if event.space != "global":
            return
        mask = np.ones((1, 1), bool) if event.mask is None else event.mask
        shape = (event.blocks, event.threads)
        if event.op.operation == "store" and len(self.crowds.setdefault(event.index, [])) < MOST_CROWDS:
            self._crowd(event, mask, shape)
        if event.op.operation in ("atomic", "reduce") and len(self.adds.setdefault(event.index, [])) < MOST_ADDS:
            self._add(event, mask, shape)
        keys = event.addresses >> 5
        mixed = keys * np.int64(-7046029254386353131)  # Fibonacci hashing: which sectors are sampled is no pattern
        taken = ((mixed >> 40) & ((1 << SAMPLED) - 1) == 0) & mask
        where = np.nonzero(np.broadcast_to(taken, shape))
        owner = (where[0] + self.first) % self.sms
        self.sectors.setdefault(event.index, []).append(np.broadcast_to(keys, shape)[where])
        self.owners.setdefault(event.index, []).append(owner)

    def _crowd(self, event: Access, mask: Array, shape: tuple[int, int]) -> None:
        """How many SMs store to a line over and over, where there are few lines."""
        where = np.nonzero(np.broadcast_to(mask, shape))
        line = np.broadcast_to(event.addresses >> 7, shape)[where]
        if not len(line) or int(line.max()) - int(line.min()) >= FEW_LINES:
            return
        line = line - line.min()
        met = np.zeros((FEW_LINES, self.sms), bool)
        met[line, (where[0] + self.first) % self.sms] = True
        warps = event.blocks * event.threads // 32
        stores = len(np.unique(line * warps + (where[0] * event.threads + where[1]) // 32))
        if stores >= AGAIN * met.sum():
            self.crowds[event.index].append(float(met.sum() / met.any(axis=1).sum()))

    def _add(self, event: Access, mask: Array, shape: tuple[int, int]) -> None:
        """The lines that atomics want, and how much of them."""
        addresses = np.broadcast_to(event.addresses, shape).reshape(-1, 32)
        lanes = np.broadcast_to(mask, shape).reshape(-1, 32)
        rows, sectors, times = rules.global_atomic_pass_sectors(
            addresses, lanes, event.op.width, global_atomic_name(event.op)
        )
        lines = sectors >> 2
        starts = np.flatnonzero(np.concatenate([[True], (lines[1:] != lines[:-1]) | (rows[1:] != rows[:-1])]))
        if len(lines):
            found = lines[starts], np.add.reduceat(np.ones_like(times), starts), np.add.reduceat(times, starts)
            self.adds[event.index].append(found)

    def branch(self, event: Branch) -> None:
        """Branches do not matter here."""


class Work:
    """Warp instructions that each block of a chunk issues: ``step`` is an engine's log."""

    def __init__(self, engine: Engine, blocks: int) -> None:
        self.engine = engine
        self.by_block = np.zeros(blocks, np.int64)

    def step(self, number: int) -> None:
        """A basic block is about to be issued by the chunk's executing warps."""
        chunk, length = self.engine.chunk, len(self.engine.program.blocks[number])
        if chunk.m is None or chunk.m.shape[0] == 1:
            self.by_block += chunk.warp_count // chunk.blocks * length
        else:
            warps = chunk.wide(chunk.m).reshape(chunk.blocks, -1, 32).any(axis=2)
            self.by_block += np.count_nonzero(warps, axis=1) * length


def work_of(ready: Any, numbers: Array, most: int) -> Array | None:
    """Warp instructions that each of these blocks issues; None if they are more than ``most`` in all."""
    engine = ready.engine(Engine, code_for(ready.kernel), (), chunk_threads=1 << 30)
    work = Work(engine, len(numbers))

    def log(number: int) -> None:
        work.step(number)
        if work.by_block.sum() > most:
            raise Enough

    engine.log = log
    try:
        with np.errstate(all="ignore"):
            engine.run_chunk(numbers)
    except Enough:
        return None
    return work.by_block


def _wave(ready: Any, numbers: Array, sms: int) -> tuple[_WaveListener, Array]:
    """What the accesses of these blocks touch, and what each of them issues, as far as they are followed."""
    kernel = ready.kernel
    listener = _WaveListener(sms, int(numbers[0]))
    engine = ready.engine(Engine, code_for(kernel), (listener,), chunk_threads=1 << 30)
    work = Work(engine, len(numbers))
    visits = [0] * len(kernel.program.blocks)

    def log(number: int) -> None:
        work.step(number)
        issued = int(work.by_block.sum())
        if sum(visits) >= MOST_WAVE_STEPS or issued > MOST_WAVE_ISSUES:
            raise Enough
        if issued > ENOUGH_WAVE_ISSUES and visits[number] >= 2:
            raise Enough
        visits[number] += 1

    engine.log = log
    try:
        with np.errstate(all="ignore"):
            engine.run_chunk(numbers)
    except Enough:
        pass
    return listener, work.by_block


def sharing(ready: Any, resident: int, sms: int) -> Sharing:
    """Follow two waves of the grid for a while, or all of a small grid."""
    count = len(ready.kernel.program.instructions)
    total = ready.grid[0] * ready.grid[1] * ready.grid[2]
    threads = ready.block[0] * ready.block[1] * ready.block[2]
    size = max(1, min(total, sms * resident, MOST_THREADS // threads))
    begin = min(sms * resident, total)
    rounds = -(-total // begin)
    whole = size == begin and total * threads <= MOST_WHOLE and rounds <= MOST_WAVES
    alone, again, crowd = np.ones(count), np.zeros(count), np.ones(count)
    adds: list[tuple[Array, Array, Array]] = []
    added: set[int] = set()
    followed, uneven = 0, False
    first = ready.memory.base >> 5
    # sectors that the grid has touched so far, in the order in which instructions and waves begin
    fetched = np.zeros((ready.memory.total >> 5) + 2, bool)
    before: dict[int, Array] = {}
    fresh: dict[int, int] = {}
    touched: dict[int, int] = {}
    for wave in range(rounds if whole else 2):
        if wave * begin >= total:
            break
        numbers = np.arange(wave * begin, min(total, wave * begin + size), dtype=np.int64)
        heard, work = _wave(ready, numbers, sms)
        followed += int(work.sum())
        uneven = uneven or float(work.std()) > UNEVEN * float(work.mean())
        adds += [piece for pieces in heard.adds.values() for piece in pieces]
        added.update(heard.adds)
        for index, sizes in heard.crowds.items():
            crowd[index] = max([crowd[index], *sizes])
        for index, pieces in heard.sectors.items():
            sectors = np.concatenate(pieces)
            if not len(sectors):
                continue
            distinct = np.unique(sectors)
            if wave and not whole:  # more waves follow: only what comes again is of interest
                again[index] = np.isin(distinct, before.get(index, sectors[:0]), assume_unique=True).mean()
                continue
            before[index] = distinct
            new = distinct[~fetched[distinct - first]]
            fetched[new - first] = True
            apart = np.unique(sectors * sms + np.concatenate(heard.owners[index]))
            fresh[index] = fresh.get(index, 0) + len(new)
            touched[index] = touched.get(index, 0) + len(apart)
    for index, number in touched.items():
        alone[index] = fresh[index] / number
    joined = [np.concatenate([piece[k] for piece in adds]) if adds else np.zeros(0, np.int64) for k in range(3)]
    return Sharing(alone, again, crowd, (joined[0], joined[1], joined[2]), followed, frozenset(added), uneven)


__all__ = ["Sharing", "code_for", "follow", "sharing", "work_of"]
