"""Asynchronous barriers in shared memory (mbarrier): one 64-bit word each.

Where the compiler puts the counts in the word that it stores to set a barrier up, and what it takes from the words that
arriving returns, gives the fields: a count of what is still to come, kept as a negative number so that the last arrival
carries into the phase, and the count that the next phase starts with.  On sm_90 and later the word in memory need not
be up to date on a GPU while the barrier is in use (recorded); here it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.machine.atomics import runs
from gpusim.sass.form import MemoryOp

Array = np.ndarray[Any, Any]
u32, u64, i64 = np.uint32, np.uint64, np.int64
PHASE = u64(63)
PHASE_BIT = u32(1 << 31)  # in the upper word, and in what a check compares it with
CAVEAT = (
    "counts are not certain here: how often threads look at an asynchronous barrier (mbarrier) before its phase is "
    "complete depends on timing; a look that would fail is put off, not counted"
)

COST_CAVEAT = (
    "what arriving at asynchronous barriers (mbarrier) costs in shared memory is not counted on sm_80 to sm_89 "
    "(ATOMS.ARRIVE): no recording shows it"
)


@dataclass(frozen=True)
class Layout:
    """Fields of the word: (first bit, bits) of the arrivals to come and of those that the next phase starts with."""

    pending: tuple[int, int]
    expected: tuple[int, int]

    def read(self, word: Array, field: tuple[int, int]) -> Array:
        """A count, from 1 to 2**bits."""
        first, bits = field
        return i64(1 << bits) - (word >> u64(first) & u64((1 << bits) - 1)).view(i64)

    def write(self, word: Array, field: tuple[int, int], count: Array) -> Array:
        first, bits = field
        mask = u64((1 << bits) - 1)
        value = (i64(1 << bits) - count).view(u64) & mask
        return word & ~(mask << u64(first)) | value << u64(first)


RECENT = Layout((43, 20), (1, 20))  # sm_90 and later
FIRST = Layout((32, 31), (0, 30))  # sm_80 to sm_89


def is_first(op: MemoryOp) -> bool:
    """Whether it is an operation of sm_80 to sm_89; later ones are instructions alone (recording h200_mbarrier)."""
    return op.operation == "mbarrier" and op.element != "u64"


def after(layout: Layout, word: Array, arrivals: Array) -> Array:
    """The word once so many have arrived, over as many phases as they complete."""
    pending, expected = layout.read(word, layout.pending), np.maximum(layout.read(word, layout.expected), 1)
    beyond = arrivals - pending
    phases = np.where(beyond < 0, 0, beyond // expected + 1)
    left = np.where(beyond < 0, -beyond, expected - beyond % expected)
    flipped = word ^ (phases & 1).view(u64) << PHASE
    return layout.write(flipped, layout.pending, left)


def arrive(memory: Array, place: Array, layout: Layout, count: Array, drop: bool) -> Array:
    """Lanes arrive one after the other at words ``place`` of 64-bit memory; returns the words that each one found.

    ``count``: arrivals of each lane; ``drop``: later phases expect so many fewer.
    """
    order, start, rank = runs(place)
    found = np.empty(place.shape, u64)
    if not drop:
        ordered = count[order]
        total = np.cumsum(ordered)
        before = total - ordered
        earlier = before - before[start]
        where = place[order]
        found[order] = after(layout, memory[where], earlier)
        last = np.append(where[1:] != where[:-1], True)
        memory[where[last]] = after(layout, memory[where[last]], (earlier + ordered)[last])
        return found
    for turn in range(int(rank.max()) + 1):
        lanes = order[rank == turn]
        word = memory[place[lanes]]
        found[lanes] = word
        fewer = layout.write(word, layout.expected, layout.read(word, layout.expected) - count[lanes])
        memory[place[lanes]] = after(layout, fewer, count[lanes])
    return found


def complete(memory: Array, place: Array, phase: Array) -> Array:
    """Whether the phase that bit 31 of a word names is over."""
    return ((memory[place] >> PHASE).astype(bool)) != ((phase & PHASE_BIT) != 0)


def carry_out(op: MemoryOp, memory: Array, place: Array, chosen: Array, values: list[Array]) -> tuple[Array, ...]:
    """One operation: ``place`` and ``chosen`` are (blocks, threads), ``values`` hold the chosen lanes' words.

    Returns the words (or truth) of the result for the chosen lanes.
    """
    layout = RECENT if op.element == "u64" else FIRST
    where = place[chosen]
    if op.atomic == "check":
        return (complete(memory, where, values[0]),)
    if op.atomic == "exch":
        old = memory[where]
        memory[where] = values[0].astype(u64) | values[1].astype(u64) << u64(32)
        return old.astype(u32), (old >> u64(32)).astype(u32)
    count = values[0].astype(i64) if values else np.ones(where.shape, i64)
    old = arrive(memory, where, layout, count, op.atomic in ("drop", "drop_mask"))
    low, high = old.astype(u32), (old >> u64(32)).astype(u32)
    if layout is FIRST:
        return low, high
    companions, first = _companions(place, chosen)
    full = np.zeros(chosen.shape, u32)
    full[chosen] = high
    high = np.take_along_axis(full.reshape(-1, 32), first, axis=1).reshape(chosen.shape)[chosen]
    return (companions, high) if op.atomic in ("arrive_mask", "drop_mask") else (high,)


def _companions(place: Array, chosen: Array) -> tuple[Array, Array]:
    """(mask of the lanes of its warp that come to the same barrier, by chosen lane; the first of these, (n, 32))."""
    places, lanes = place.reshape(-1, 32), chosen.reshape(-1, 32)
    equal = (places[:, :, None] == places[:, None, :]) & lanes[:, None, :]
    word = (equal * (u32(1) << np.arange(32, dtype=u32))).sum(axis=2, dtype=u32)
    return word.reshape(chosen.shape)[chosen], equal.argmax(axis=2)
