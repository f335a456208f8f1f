"""The instruction streams of warps: what each warp of some blocks issues, in order, and what its accesses cost.

A pipeline model needs more than sums: it needs the order.  :class:`StreamRecorder` rides on an engine that executes the
blocks in question, computing only what decides counters, and keeps for every basic block that was issued the warps that
issued it, and for every access of every warp its cost in shared memory or its lines and sectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.counters import rules
from gpusim.counters.collect import FAR, _shared, global_atomic_name
from gpusim.machine.engine import Engine
from gpusim.machine.events import Access, Branch
from gpusim.sass.operands import Constant
from gpusim.sass.program import Program

Array = np.ndarray[Any, Any]
SPACES = {"shared": 0, "global": 1, "local": 2}
LOCAL_LINES = 1 << 48  # line numbers of local memory begin here, apart from those of device memory
NO_RECORD = -1
SECTOR = 32


class Enough(Exception):
    """The recorder has heard as much as it was asked for."""


@dataclass
class Records:
    """What single accesses cost.  A record is one warp's access; records without lines are shared by all like them.

    ``wavefronts``: of shared memory, or distinct words of a constant load; ``first``, ``count``: its run in ``lines``
    and ``sectors`` (four bits a line); ``space``: 0 shared, 1 global, 2 local; ``serial``: sectors that an
    atomic sends on, one after the other where lanes share a word (see rules.global_atomic_passes); ``passes``: those of
    each line, and of a store the sectors of each line that it does not fill.
    """

    wavefronts: Array
    space: Array
    first: Array
    count: Array
    serial: Array
    lines: Array
    sectors: Array
    passes: Array


@dataclass
class Streams:
    """Streams of ``warps``: warp k issues instructions ``ops[start[k]:start[k + 1]]``, with records ``accesses``.

    ``block`` is each warp's block, numbered from 0 in the order of ``numbers``, the blocks' linear numbers in the grid.
    """

    numbers: Array
    block: Array
    start: Array
    ops: Array
    accesses: Array
    records: Records
    complete: bool = True  # False: they were followed only so far

    @property
    def issued(self) -> int:
        """Warp instructions in all."""
        return len(self.ops)


class StreamRecorder:
    """Listens to an engine (see :func:`attach`).  ``most``: warp instructions after which it raises Enough."""

    def __init__(self, program: Program, most: int | None = None) -> None:
        self.program, self.most = program, most
        self.issued = 0
        self.steps: list[int] = []
        self.masks: list[Any] = []  # by step: (blocks, warps) bool, None for all
        self.events: list[tuple[int, int, Array]] = []  # (step, instruction, record of every warp)
        self.engine: Engine | None = None
        self._last_mask: Any = None
        self._last_warps: Any = None
        self._tables: list[list[Array]] = [[] for _ in range(5)]
        self._pieces: list[tuple[Array, Array, Array]] = []
        self._records = 0
        self._lines = 0
        self._plain: dict[tuple[int, int], int] = {}
        self._patterns: dict[Any, Array] = {}
        self._constants: list[Array] = []
        self._indexed = [self._loads(block.first, block.last) for block in program.blocks]
        self._truncated = False

    def _loads(self, first: int, last: int) -> list[tuple[int, int]]:
        """(instruction, words) that read constants at run-time addresses."""
        found = []
        for index in range(first, last + 1):
            meaning = self.program.meanings[index]
            sources = getattr(meaning, "sources", ())
            words = sum(isinstance(s.operand, Constant) and s.operand.base is not None for s in sources)
            if words:
                found.append((index, words))
        return found

    def attach(self, engine: Engine) -> None:
        """Hear what ``engine`` issues, and its constant loads."""
        self.engine = engine
        engine.log = self.step
        inner = engine.chunk.constant_load

        def load(bank: int, offset: int, base: Array) -> Array:
            self._constants.append(base)
            return inner(bank, offset, base)

        engine.chunk.constant_load = load

    # -- listening ---------------------------------------------------------------------------------------------------
    def step(self, number: int) -> None:
        """A basic block is about to be issued by the chunk's executing warps."""
        engine = self.engine
        assert engine is not None
        self._take_constants()
        chunk = engine.chunk
        if chunk.m is None:
            warps = None
        elif chunk.m is self._last_mask:
            warps = self._last_warps
        else:
            wide = np.broadcast_to(chunk.m, (chunk.m.shape[0], chunk.threads))
            warps = wide.reshape(-1, chunk.warps, 32).any(axis=2)
            self._last_mask, self._last_warps = chunk.m, warps
        self.steps.append(number)
        self.masks.append(warps)
        self.issued += chunk.warp_count * len(self.program.blocks[number])
        if self.most is not None and self.issued > self.most:
            self._truncated = True
            raise Enough

    def access(self, event: Access) -> None:
        """Keep what each warp's access costs."""
        self.events.append((len(self.steps) - 1, event.index, self._record(event)))

    def branch(self, event: Branch) -> None:
        """Branches are in the streams already."""

    def _take_constants(self) -> None:
        """Make records of the constant loads heard since the last step."""
        if not self._constants:
            return
        engine = self.engine
        assert engine is not None
        chunk = engine.chunk
        heard, self._constants = self._constants, []
        for index, words in self._indexed[self.steps[-1]]:
            if not heard:
                break
            base, heard = heard[0], heard[words:]
            rows = base.shape[0]
            wide = np.broadcast_to(base, (rows, chunk.threads)).reshape(-1, 32).astype(np.int64) >> 2
            ordered = np.sort(wide, axis=1)
            distinct = 1 + (ordered[:, 1:] != ordered[:, :-1]).sum(axis=1)
            found = self._plain_records(distinct, 3)
            self.events.append((len(self.steps) - 1, index, self._spread(found, rows)))

    def _spread(self, found: Array, rows: int) -> Array:
        """Records by row of warps as (blocks, warps)."""
        assert self.engine is not None
        chunk = self.engine.chunk
        by_block = found.reshape(rows, chunk.warps)
        return np.broadcast_to(by_block, (chunk.blocks, chunk.warps))

    def _plain_records(self, wavefronts: Array, space: int) -> Array:
        """Records that only have wavefronts, one for each kind."""
        found = np.full(len(wavefronts), NO_RECORD, np.int32)
        for value in np.unique(wavefronts):
            if value <= 0:
                continue
            key = (space, int(value))
            if key not in self._plain:
                self._plain[key] = self._add(np.array([value]), space, np.zeros(1, np.int64), np.zeros(1, np.int64))
            found[wavefronts == value] = self._plain[key]
        return found

    def _add(self, wavefronts: Array, space: int, first: Array, count: Array, serial: Array | None = None) -> int:
        """Append records; returns the first one's number."""
        size = len(wavefronts)
        serial = np.ones(size, np.int32) if serial is None else serial
        for table, column in zip(self._tables, (wavefronts, np.full(size, space), first, count, serial), strict=True):
            table.append(column.astype(np.int64))
        self._records += size
        return self._records - size

    def _record(self, event: Access) -> Array:
        if event.space == "shared":
            return self._shared_record(event)
        mask = np.ones((1, 1), bool) if event.mask is None else event.mask
        rows = max(event.addresses.shape[0], mask.shape[0])
        addresses = np.broadcast_to(event.addresses, (rows, event.threads)).reshape(-1, 32)
        lanes = np.broadcast_to(mask, (rows, event.threads)).reshape(-1, 32)
        if event.space == "local":
            # every warp of the chunk has an area of its own (local memory interleaves the lanes' words)
            addresses = np.broadcast_to(event.addresses, (event.blocks, event.threads)).reshape(-1, 32)
            lanes = np.broadcast_to(mask, (event.blocks, event.threads)).reshape(-1, 32)
            rows = event.blocks
            warp = np.arange(len(addresses), dtype=np.int64)[:, None] + event.first_block * (event.threads // 32)
            lane = np.arange(32, dtype=np.int64)
            words = max(1, event.op.width // 4)
            places = [(((warp << 20) + (addresses >> 2) + w) << 7) + lane * 4 for w in range(words)]
            keys = np.concatenate([p >> 5 for p in places], axis=1) + (LOCAL_LINES << 2)
            wide = np.concatenate([lanes] * words, axis=1)
            return self._lined(event, keys, wide, rows)
        return self._lined(event, addresses >> 5, lanes, rows)

    def _lined(self, event: Access, sectors: Array, lanes: Array, rows: int) -> Array:
        """Records with the lines and sectors (numbers ``sectors``, of the rows' active ``lanes``) of each warp."""
        last = np.iinfo(np.int64).max
        ordered = np.sort(np.where(lanes, sectors, last), axis=1)
        fresh = np.ones(ordered.shape, bool)
        np.not_equal(ordered[:, 1:], ordered[:, :-1], out=fresh[:, 1:])
        fresh &= ordered != last
        line = ordered >> 2
        new_line = np.ones(ordered.shape, bool)
        np.not_equal(line[:, 1:], line[:, :-1], out=new_line[:, 1:])
        new_line &= ordered != last
        counts = new_line.sum(axis=1)
        picked = ordered[fresh]
        starts = np.flatnonzero(new_line[fresh])
        bits = np.left_shift(1, picked & 3).astype(np.int64)
        masks = np.add.reduceat(bits, starts) if len(starts) else np.zeros(0, np.int64)
        begins: Array = self._lines + np.concatenate([[0], np.cumsum(counts)[:-1]])
        self._lines += int(counts.sum())
        serial = None
        passes = np.bitwise_count(masks.astype(np.uint8))
        if event.op.operation in ("atomic", "reduce") and event.space == "global":
            addresses = np.broadcast_to(event.addresses, (rows, event.threads)).reshape(-1, 32)
            row, _, times = rules.global_atomic_pass_sectors(
                addresses, lanes, event.op.width, global_atomic_name(event.op)
            )
            serial = np.bincount(row, weights=times, minlength=len(addresses)).astype(np.int64)
            passes = np.add.reduceat(times, starts) if len(starts) else passes
        elif event.op.operation == "store" and event.space == "global" and len(starts):
            stored = np.add.reduceat((ordered != last).reshape(-1).astype(np.int64), np.flatnonzero(fresh))
            passes = np.add.reduceat((stored * event.op.width < SECTOR).astype(np.int64), starts)
        self._pieces.append((line[new_line], masks.astype(np.int8), passes.astype(np.int8)))
        base = self._add(counts, SPACES[event.space], begins, counts, serial)
        found = np.where(counts > 0, base + np.arange(len(counts)), NO_RECORD).astype(np.int32)
        return self._spread(found, rows)

    def _shared_record(self, event: Access) -> Array:
        addresses, mask, _ = event.rows()
        small = len(addresses) <= 256 and event.origin is None
        key = (event.index, addresses.tobytes(), mask.tobytes()) if small else None
        found = self._patterns.get(key) if key is not None else None
        if found is None:
            if event.origin is not None:
                target, writing, origin, reads, _ = event.copy_rows()
                addresses = target
                wavefronts = rules.async_copy_wavefronts(
                    target, writing, (origin + FAR) % 128, reads, event.op.width, event.op.bypass, event.op.zero_fill
                )
            else:
                generic = getattr(self.program.meanings[event.index], "space", None) == "generic"
                wavefronts = _shared(event.op, addresses, mask, generic)[0]
            found = self._plain_records(wavefronts, 0)
            if key is not None:
                if len(self._patterns) > 4096:
                    self._patterns.clear()
                self._patterns[key] = found
        return self._spread(found, len(addresses) // (event.threads // 32))

    # -- results -----------------------------------------------------------------------------------------------------
    def records(self) -> Records:
        """All records as arrays."""
        columns = [np.concatenate(t) if t else np.zeros(0, np.int64) for t in self._tables]
        lines = np.concatenate([p[0] for p in self._pieces]) if self._pieces else np.zeros(0, np.int64)
        sectors = np.concatenate([p[1] for p in self._pieces]) if self._pieces else np.zeros(0, np.int8)
        passes = np.concatenate([p[2] for p in self._pieces]) if self._pieces else np.zeros(0, np.int8)
        wavefronts, space, first, count, serial = columns
        return Records(
            wavefronts.astype(np.int32),
            space.astype(np.int8),
            first,
            count.astype(np.int32),
            serial.astype(np.int32),
            lines,
            sectors,
            passes,
        )

    def streams(self, numbers: Array) -> Streams:
        """The streams of the blocks that the engine executed as one chunk."""
        assert self.engine is not None
        self._take_constants()
        chunk, program = self.engine.chunk, self.program
        blocks, warps = len(numbers), chunk.warps
        total = blocks * warps
        steps = np.array(self.steps, np.int64)
        lengths = np.array([len(b) for b in program.blocks], np.int64)
        firsts = np.array([b.first for b in program.blocks], np.int64)
        issued = np.empty((len(steps), total), bool)
        for k, mask in enumerate(self.masks):
            issued[k] = True if mask is None else np.broadcast_to(mask, (blocks, warps)).reshape(-1)
        # records of accesses, by (event, warp), found again by step and instruction
        step_start = np.concatenate([[0], np.cumsum(lengths[steps])]) if len(steps) else np.zeros(1, np.int64)
        slots: dict[int, int] = {}
        table = np.full((max(1, len(self.events)), total), NO_RECORD, np.int32)
        slot_of = np.full(int(step_start[-1]), -1, np.int32)
        for step, index, found in self.events:
            place = int(step_start[step]) + index - int(firsts[steps[step]])
            row = slots.setdefault(place, len(slots))
            slot_of[place] = row
            flat = found.reshape(-1)
            table[row] = np.where(flat == NO_RECORD, table[row], flat)
        starts = np.zeros(total + 1, np.int64)
        ops: list[Array] = []
        accesses: list[Array] = []
        known: dict[bytes, tuple[Array, Array]] = {}
        for w in range(total):
            column = issued[:, w]
            key = column.tobytes()
            if key not in known:
                mine = np.flatnonzero(column)
                sizes = lengths[steps[mine]]
                ends = np.cumsum(sizes)
                offset = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - sizes, sizes)
                op = (np.repeat(firsts[steps[mine]], sizes) + offset).astype(np.int32)
                where: Array = np.repeat(step_start[mine], sizes) + offset
                known = {key: (op, slot_of[where])} if len(known) > 64 else known | {key: (op, slot_of[where])}
            op, slot = known[key]
            ops.append(op)
            accesses.append(np.where(slot >= 0, table[slot, w], NO_RECORD).astype(np.int32))
            starts[w + 1] = starts[w] + len(op)
        return Streams(
            np.asarray(numbers),
            np.repeat(np.arange(blocks), warps),
            starts,
            np.concatenate(ops) if ops else np.zeros(0, np.int32),
            np.concatenate(accesses) if accesses else np.zeros(0, np.int32),
            self.records(),
            not self._truncated,
        )
