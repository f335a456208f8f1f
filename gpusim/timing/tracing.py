"""Which blocks to follow, and what they say about the rest of the grid.

One SM's blocks are followed warp by warp.  What the other SMs do to L2 and DRAM is estimated from all blocks of a wave,
followed only so far: of the sectors that the SMs of a wave fetch, how many are fetched by one alone, and how many were
fetched by the wave before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.machine.engine import Engine
from gpusim.machine.events import Access, Branch
from gpusim.sass.operands import Constant
from gpusim.timing.streams import Enough, StreamRecorder, Streams

Array = np.ndarray[Any, Any]
SAMPLED = 3  # of the sectors of a wave, one in 2**SAMPLED is looked at
MOST_THREADS = 1 << 19  # of a wave that is executed together
MOST_WAVE_ISSUES = 1_500_000  # warp instructions of a wave that are followed
MOST_WAVE_STEPS = 400  # basic blocks that it goes through
SECTOR = 32


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

    ``alone``: distinct sectors of the wave over the sum of each SM's distinct sectors (1: nothing is shared);
    ``again``: share of a wave's distinct sectors that the wave before it touched too;
    ``stored``: distinct bytes stored by the wave; ``loaded``: distinct bytes loaded, both as far as it was followed.
    """

    alone: Array
    again: Array
    loaded: float
    stored: float
    followed: int


class _WaveListener:
    """Keeps the sampled sectors of every instruction's global accesses, by SM."""

    def __init__(self, sms: int, first: int) -> None:
        self.sms, self.first = sms, first
        self.sectors: dict[int, list[Array]] = {}
        self.owners: dict[int, list[Array]] = {}
        self.stores: set[int] = set()

    def access(self, event: Access) -> None:
        if event.space != "global":
            return
        mask = np.ones((1, 1), bool) if event.mask is None else event.mask
        shape = (event.blocks, event.threads)
        keys = event.addresses >> 5
        mixed = keys * np.int64(-7046029254386353131)  # Fibonacci hashing: which sectors are sampled is no pattern
        taken = ((mixed >> 40) & ((1 << SAMPLED) - 1) == 0) & mask
        where = np.nonzero(np.broadcast_to(taken, shape))
        owner = (where[0] + self.first) % self.sms
        self.sectors.setdefault(event.index, []).append(np.broadcast_to(keys, shape)[where])
        self.owners.setdefault(event.index, []).append(owner)
        if event.op.operation == "store":
            self.stores.add(event.index)

    def branch(self, event: Branch) -> None:
        """Branches do not matter here."""


def _wave(ready: Any, numbers: Array, sms: int) -> tuple[_WaveListener, int]:
    kernel = ready.kernel
    listener = _WaveListener(sms, int(numbers[0]))
    engine = ready.engine(Engine, code_for(kernel), (listener,), chunk_threads=1 << 30)
    issued = steps = 0

    def log(number: int) -> None:
        nonlocal issued, steps
        issued += engine.chunk.warp_count * len(kernel.program.blocks[number])
        steps += 1
        if issued > MOST_WAVE_ISSUES or steps > MOST_WAVE_STEPS:
            raise Enough

    engine.log = log
    try:
        with np.errstate(all="ignore"):
            engine.run_chunk(numbers)
    except Enough:
        pass
    return listener, issued


def sharing(ready: Any, resident: int, sms: int) -> Sharing:
    """Follow two waves of the grid for a while."""
    count = len(ready.kernel.program.instructions)
    total = ready.grid[0] * ready.grid[1] * ready.grid[2]
    threads = ready.block[0] * ready.block[1] * ready.block[2]
    size = max(1, min(total, sms * resident, MOST_THREADS // threads))
    first, issued = _wave(ready, np.arange(size, dtype=np.int64), sms)
    second: _WaveListener | None = None
    begin = min(sms * resident, total)
    if total > begin:
        second, _ = _wave(ready, np.arange(begin, min(total, begin + size), dtype=np.int64), sms)
    alone, again = np.ones(count), np.zeros(count)
    loaded = stored = 0.0
    for index, pieces in first.sectors.items():
        sectors = np.concatenate(pieces)
        if not len(sectors):
            continue
        owners = np.concatenate(first.owners[index])
        distinct = np.unique(sectors)
        apart = np.unique(sectors * sms + owners)
        alone[index] = len(distinct) / len(apart)
        amount = len(distinct) * float(SECTOR << SAMPLED)
        if index in first.stores:
            stored += amount
        else:
            loaded += amount
        if second is not None and index in second.sectors:
            other = np.unique(np.concatenate(second.sectors[index]))
            if len(other):
                again[index] = np.isin(other, distinct, assume_unique=True).mean()
    return Sharing(alone, again, loaded, stored, issued)


__all__ = ["Sharing", "code_for", "follow", "sharing"]
