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
MOST_WHOLE = 1 << 21  # threads of a grid whose waves are all followed, if they are no more than MOST_WAVES
MOST_WAVES = 8
MOST_WAVE_ISSUES = 1_500_000  # warp instructions of a wave that are followed
MOST_WAVE_STEPS = 400  # basic blocks that it goes through


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
    ``followed``: warp instructions.
    """

    alone: Array
    again: Array
    followed: int


class _WaveListener:
    """Keeps the sampled sectors of every instruction's global accesses, by SM."""

    def __init__(self, sms: int, first: int) -> None:
        self.sms, self.first = sms, first
        self.sectors: dict[int, list[Array]] = {}
        self.owners: dict[int, list[Array]] = {}

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
    """Follow two waves of the grid for a while, or all of a small grid."""
    count = len(ready.kernel.program.instructions)
    total = ready.grid[0] * ready.grid[1] * ready.grid[2]
    threads = ready.block[0] * ready.block[1] * ready.block[2]
    size = max(1, min(total, sms * resident, MOST_THREADS // threads))
    begin = min(sms * resident, total)
    rounds = -(-total // begin)
    whole = size == begin and total * threads <= MOST_WHOLE and rounds <= MOST_WAVES
    alone, again = np.ones(count), np.zeros(count)
    followed = 0
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
        heard, issued = _wave(ready, numbers, sms)
        followed += issued
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
    return Sharing(alone, again, followed)


__all__ = ["Sharing", "code_for", "follow", "sharing"]
