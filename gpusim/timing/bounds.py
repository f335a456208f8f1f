"""The fast model of a launch's time: what each unit alone would need, and what latency alone would, put together.

It needs no compiled code.  The whole grid's work comes from exact counters; what L1 and L2 hold back, and how long a
block takes that has an SM to itself, come from the streams of one SM's blocks (see :mod:`gpusim.timing.tracing`).  The
latency bound is that time, as often as blocks follow one another in an SM's places (Little's law: as many loads are in
flight as the resident warps issue before they wait).  The time is the p-norm of all bounds, near the largest where it
is far above the others and above it where several are alike, plus the overhead of a launch.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.result import InstructionCounts, Result
from gpusim.timing import codes, pipeline
from gpusim.timing.model import Model
from gpusim.timing.predict import STALLS, UNITS, Prediction, confidence_of, limiter_of
from gpusim.timing.streams import Streams
from gpusim.timing.tracing import follow, sharing

Array = np.ndarray[Any, Any]
# fitted on the recorded times of an H200, all kernels of the catalogue together; neighbouring values do about as well
POWER = 4.0  # of the norm
TOGETHER = 0.75  # of the time that a block keeps its SM's busiest unit busy, what adds to its latency
FILL = 0.7  # of a block's latency (of LONGEST_FILL at most), what passes at the begin and end while units are idle
LONGEST_FILL = 1000.0  # cycles
SETTLING = 3  # times that DRAM's load and the time that it gives are computed from each other
SLOWEST = 0.4  # by how much the slowest of twice as many warps is later, as a share of what latency varies by
# cycles that DRAM's latency varies by on average, without load, with some, and in proportion to it, more where a share
# of it is writes (tests/data/h200_latency.json.gz, less the 75 cycles before the load)
VARYING, SOON, SOME_LOAD, LOADED, MIXED = 140.0, 65.0, 0.02, 400.0, 1.2
FIRST = {"cold": 0.8e-3, "hot": 0.25e-3}  # milliseconds that a launch takes beside the profile's empty one
MOST_FOLLOWED = 400_000  # warp instructions of one SM's blocks that are followed
MOST_STEPS = 30_000  # of one warp that are timed; what comes after is taken to go on alike
MOST_TOUCHES = 1 << 18  # accesses to lines that L1's reuse is computed from, about
LATENCY = "latency of a block"
# what warps wait for, in Nsight Compute's words, where a unit holds them back
HELD = {
    "instruction issue": "not selected",
    "L1 and shared memory": "LSU queue throttle",
    "barriers": "barrier",
    "L2 reads": "long scoreboard",
    "L2 writes": "LSU queue throttle",
    "DRAM": "long scoreboard",
    "atomics in L2": "long scoreboard",
    "constant cache": "short scoreboard",
}


HINT = "pip install 'gpusim[timing]'"
MATH = "math pipe throttle"
# units of an SM: a block's warps begin together and wait at barriers together, so alone it waits for these as well
INSIDE = tuple(title for title, _ in UNITS.values() if title not in ("L2 reads", "L2 writes", "DRAM", "barriers"))


def have_numba() -> bool:
    """Whether the pipeline model can be compiled."""
    return importlib.util.find_spec("numba") is not None


def bounded(
    kernel: Any,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    shared_bytes: int,
    profile: Model,
    cache: str,
    notes: tuple[str, ...] = (),
    result: Result | None = None,
) -> Prediction:
    """Predict a launch.  ``result``: its counters, if it has been counted already.

    Raises UsageError, UnsupportedError or ExecutionError as :meth:`gpusim.api.Kernel.count` does.
    """
    if result is None:
        result = kernel.count(grid, block, args, shared_bytes)
    seen = followed(kernel.prepare(grid, block, args, shared_bytes), int(profile["sms"]))
    return from_counts(seen, result, profile, cache, notes)


def followed(ready: Any, sms: int) -> pipeline.Followed:
    """One wave of one SM's blocks, as far as a fraction of a second goes."""
    total = ready.grid[0] * ready.grid[1] * ready.grid[2]
    threads = ready.block[0] * ready.block[1] * ready.block[2]
    occupied = pipeline.occupancy_of(ready)
    resident = min(occupied.blocks, max(1, math.ceil(total / sms)))
    shared = sharing(ready, resident, sms)
    streams = follow(ready, pipeline.blocks_of(total, sms, resident), MOST_FOLLOWED)
    program = ready.kernel.program
    return pipeline.Followed(streams, shared, occupied, program, total, (threads + 31) // 32, threads, resident, 1)


def from_counts(
    seen: pipeline.Followed, result: Result, profile: Model, cache: str, notes: tuple[str, ...] = ()
) -> Prediction:
    """Predict a launch that was followed and counted."""
    sms, clock = int(profile["sms"]), profile["sm_clock"] * 1e3  # cycles a millisecond
    share = seen.blocks / sms
    most = max(1, math.ceil(share))
    even = share > 4 * seen.resident  # so many that SMs which are done early get more of them
    part = (share if even else most) / seen.blocks
    waves = share / seen.resident if even else math.ceil(most / seen.resident)
    work = Work(seen, result.instructions, profile)
    memory = pipeline.memory_of(seen, profile, share, min(sms, seen.blocks), cache)
    read, written, dram = work.dram(memory, pipeline.hit_share(profile, memory.loaded + memory.stored), cache)
    cycles = work.units(part) | {UNITS["dram"][0]: dram}
    interval = profile["block_interval"] * (1.0 if seen.threads <= 512 else profile["block_interval_large"])
    cycles["block launches"] = seen.blocks * interval
    cycles["atomics in L2"] = work.atomics()
    inside = max((title for title in cycles if title in INSIDE), key=lambda title: cycles[title])
    held = TOGETHER * cycles[inside] / (waves * seen.resident)
    load = 0.0  # of DRAM, which its latency depends on
    for _ in range(SETTLING):
        alone = alone_of(seen, work, memory.fresh, profile, late_of(load, written / max(1e-9, read + written)))
        fill = FILL * min(alone.cycles, LONGEST_FILL) / clock
        alone.add(HELD.get(inside, MATH), held)
        latency = waves * alone.cycles + (waves - 1) * profile["block_gap"]
        spent = sum(amount**POWER for amount in (*cycles.values(), latency)) ** (1 / POWER) / clock + fill
        load = min(1.0, dram / clock / max(1e-9, spent))
    breakdown = {title: amount / clock for title, amount in cycles.items() if amount > 0}
    overhead = profile[f"overhead_{cache}"] * 1e-3 + FIRST[cache]
    largest = max(breakdown, key=lambda title: breakdown[title])
    stalls = stall_shares(alone, latency / clock, spent, largest)
    if overhead > spent:
        limiter = "launch overhead"
    elif breakdown[largest] >= latency / clock:
        limiter = largest
    else:
        limiter = limiter_of(dict.fromkeys(breakdown, 0.0), stalls, spent, 0.0)
    sure = confidence_of(seen, profile, breakdown, spent + overhead)
    if sure.startswith(("good", "fair")):
        sure = "fair: throughput and latency bounds, off by 8 % on average on recorded launches"
    return Prediction(
        spent + overhead, limiter, breakdown | {LATENCY: latency / clock}, stalls, sure, "bounds", profile.name, cache,
        spent * clock, work.hit_rate(), work.l2_bytes(), read, written,
        min(share, seen.resident * waves) / waves * seen.warps / seen.occupancy.warps_possible, notes,
    )  # fmt: skip


class Work:
    """What the instructions of the whole grid ask of each unit: exact counters, and shares from the streams."""

    def __init__(self, seen: pipeline.Followed, counted: Sequence[InstructionCounts], profile: Model) -> None:
        self.seen, self.profile = seen, profile
        self.code = codes.codes_of(seen.codes_program, profile.values)
        self.active = min(int(profile["sms"]), seen.blocks)
        columns = ("executed", "requests", "wavefronts", "sectors", "tags")
        rows = np.array([[float(getattr(row, name)) for name in columns] for row in counted]).reshape(-1, len(columns))
        self.executed, self.requests, self.wavefronts, self.sectors, self.tags = rows.T
        kind, self.reads = self.code.kind, self.code.kind == codes.LOAD
        self.reads = self.reads | (kind == codes.COPY) | ((kind == codes.LOCAL) & (self.code.extra == 0))
        self.atomic = kind == codes.ATOMIC
        self.writes = (kind == codes.STORE) | ((kind == codes.LOCAL) & (self.code.extra == 1))
        # what is known of the followed part only is extended by how often it was executed
        self.traced = np.bincount(seen.streams.ops, minlength=len(kind)).astype(float)
        self.scale = self.executed / np.maximum(1.0, self.traced)
        # what asynchronous copies read is not among an instruction's sectors
        r, copies = seen.streams.records, kind == codes.COPY
        if copies.any():
            bits = sum((r.sectors.astype(np.int64) >> k & 1) for k in range(4))
            running = np.concatenate([[0], np.cumsum(bits)])
            size = running[r.first + r.count] - running[r.first]
            self.sectors = np.where(copies & (self.sectors == 0), self._records(size, copies), self.sectors)
            self.tags = np.where(copies & (self.tags == 0), self._records(r.count, copies), self.tags)
        self.misses = misses_of(seen, self.reads, self.writes, profile)

    def _records(self, what: Array, chosen: Array) -> Array:
        """By instruction: the sum of a column of records, over all executions."""
        streams = self.seen.streams
        used = (streams.accesses >= 0) & chosen[streams.ops]
        values = what[streams.accesses[used]].astype(float)
        return np.bincount(streams.ops[used], values, minlength=len(chosen)) * self.scale

    def units(self, part: float) -> dict[str, float]:
        """Cycles of each unit but DRAM, by title, on the SM that has ``part`` of the grid's work."""
        c, code, seen = self.profile, self.code, self.seen
        schedulers = min(c["schedulers"], seen.resident * seen.warps)
        plain = code.kind == codes.VARIABLE
        busy = {"issue": float((self.executed * code.slots).sum())}
        for unit, pipe, cost in (
            ("fma", codes.FMA, 1.0), ("fma", codes.HEAVY, 0.5), ("alu", codes.ALU, 1.0), ("xu", codes.XU, 1.0),
            ("fp64", codes.FP64, 1.0), ("uniform", codes.UNIFORM, 1.0), ("tensor", codes.TENSOR, 1.0),
        ):  # fmt: skip
            chosen = plain & (code.pipe == pipe)
            busy[unit] = busy.get(unit, 0.0) + cost * float((self.executed * code.cost)[chosen].sum())
        heavy = float((self.executed * code.cost)[plain & (code.pipe == codes.HEAVY)].sum())
        busy["fma"] = max(busy["fma"], heavy)  # which one of the two halves does alone
        busy["lsu"] = float(self._lsu().sum())
        barriers = code.kind == codes.BARRIER
        busy["barrier"] = c["cost_barrier"] * float(self.executed[barriers].sum())
        constants = code.kind == codes.CONSTANT
        words = self._records(seen.streams.records.wavefronts, constants)
        once = np.minimum(words, self.executed)  # a load of one word costs its issue, further words their passes
        busy["constant"] = float((c["issue_constant"] * once + c["cost_constant_word"] * (words - once)).sum())
        second = c["sm_clock"] * 1e6
        chip = 32.0 * self.active * second
        lines = self.active / c["sms"]
        sector = max(c["cost_l2_sector_port"], chip / c["l2_read_bandwidth"])
        missed = np.maximum(self._missed_sectors() * sector, self._missed_lines() * c["cost_l2_line"] * lines)
        busy["l2_read"] = float(missed.sum())
        sector = max(c["cost_l2_write_sector_port"], chip / c["l2_write_bandwidth"])
        stored = np.maximum(self.sectors * sector, self.tags * c["cost_l2_write_line"] * lines) * self.writes
        serial = self._records(seen.streams.records.serial, self.atomic)
        busy["l2_write"] = float(stored.sum()) + c["cost_atomic_sector"] * float(serial.sum())
        widths = {unit: schedulers if width == 4 else width for unit, (_, width) in UNITS.items()}
        return {UNITS[unit][0]: amount / widths[unit] * part for unit, amount in busy.items()}

    def _lsu(self) -> Array:
        """Cycles of the load/store unit by instruction."""
        c, code = self.profile, self.code
        kind, requests = code.kind, self.requests
        cost = np.zeros(len(kind))
        memory = np.isin(kind, (codes.SHARED, codes.LOAD, codes.STORE, codes.ATOMIC, codes.LOCAL, codes.COPY))
        cost += memory * (self.executed - requests).clip(0) * c["cost_predicated_off"]
        shared = kind == codes.SHARED
        cost += shared * np.maximum(self.wavefronts, requests * code.data)
        lines = self.tags * c["cost_tag"]
        cost += (kind == codes.LOAD) * np.maximum(lines, requests * code.data)
        cost += (kind == codes.LOCAL) * np.maximum(self.sectors / 4 * c["cost_tag"], requests * code.data)
        cost += (kind == codes.STORE) * np.maximum(lines, requests * (code.data + c["cost_store_extra"]))
        cost += (kind == codes.COPY) * np.maximum(lines + self.wavefronts, requests * code.data)
        serial = self._records(self.seen.streams.records.serial, self.atomic)
        cost += self.atomic * np.maximum(lines, c["cost_red_lane"] * serial)
        return cost + (kind == codes.SHUFFLE) * self.executed * c["issue_shuffle"]

    def _missed_sectors(self) -> Array:
        return self.sectors * self.reads * self.misses.sectors

    def _missed_lines(self) -> Array:
        touched = np.where(self.tags > 0, self.tags, self.sectors / 4)
        return touched * self.reads * self.misses.lines

    def hit_rate(self) -> float:
        """Share of loaded sectors that are in L1."""
        loaded = float((self.sectors * self.reads).sum())
        return 1.0 - float(self._missed_sectors().sum()) / loaded if loaded else 0.0

    def l2_bytes(self) -> float:
        """Bytes between the SMs and L2."""
        return 32.0 * float((self._missed_sectors() + self.sectors * (self.writes | self.atomic)).sum())

    def dram(self, memory: pipeline.Memory, hit: float, cache: str) -> tuple[float, float, float]:
        """(bytes read, bytes written, cycles that DRAM needs for both)."""
        c = self.profile
        # no more than the SMs ask L2 for
        loaded = min(memory.loaded, 32.0 * float(self._missed_sectors().sum())) * (1.0 - (hit if cache == "hot" else 0))
        stored = min(memory.stored, 32.0 * float((self.sectors * self.writes).sum())) * memory.write_back
        seconds = loaded * self.misses.cost / c["dram_read_bandwidth"] + stored / c["dram_write_bandwidth"]
        seconds /= c["dram_best"]
        used = min(1.0, loaded / max(1.0, loaded + stored))
        seconds += used * memory.dirty / c["dram_read_bandwidth"]
        return loaded * self.misses.granules, stored, c.cycles(seconds)

    def atomics(self) -> float:
        """Cycles that contended atomics need in L2."""
        serial = self._records(self.seen.streams.records.serial, self.atomic)
        cycles, share = pipeline.atomic_cycles(self.seen, self.profile)
        return cycles * share * float(serial.sum())


# -- L1 ------------------------------------------------------------------------------------------------------------


@dataclass
class Misses:
    """What L1 does not hold of what is loaded.

    By instruction: ``sectors``: share of its sectors; ``lines``: share of its requests to lines, those with a missing
    sector; ``again``: share of the sectors that were there once.  ``granules``: bytes that DRAM moves for one that is
    wanted, since it moves 64 at least; ``cost``: the same, with what a piece of 64 bytes costs that comes alone.
    """

    sectors: Array
    lines: Array
    again: Array
    granules: float = 1.0
    cost: float = 1.0


def misses_of(seen: pipeline.Followed, reads: Array, writes: Array, profile: Model) -> Misses:
    """Estimate L1's misses from the order of accesses: warps take turns, instruction by instruction.

    Of a sample of lines, each access's reuse time gives its expected stack distance (Eklov and Hagersten, StatStack,
    ISPASS 2010); it is a miss if that exceeds L1's lines.
    """
    count = len(reads)
    found = Misses(np.ones(count), np.ones(count), np.zeros(count))
    streams = seen.streams
    r = streams.records
    places = np.flatnonzero((streams.accesses >= 0) & (reads | writes)[streams.ops])
    places = places[r.space[streams.accesses[places]] > 0]
    if not len(places):
        return found
    warp = np.searchsorted(streams.start, places, side="right") - 1
    turn = np.lexsort((warp, places - streams.start[warp]))
    record, op = streams.accesses[places[turn]], streams.ops[places[turn]]
    line, bits, op = _expanded(streams, record, op)
    rate = max(1, 2 ** math.ceil(math.log2(max(1.0, len(line) / MOST_TOUCHES))))
    if rate > 1:
        taken = (line * np.int64(-7046029254386353131) >> 40) & (rate - 1) == 0
        if not taken.any():
            return found
        line, bits, op = line[taken], bits[taken], op[taken]
    l1 = max(8 * 1024, int(profile["l1_bytes"]) - seen.occupancy.carveout)
    distance_of = _stack_distances(_reuse(line))
    missing = np.zeros(len(line), np.int64)
    total, missed, stale = (np.zeros(count) for _ in range(3))
    for sector in range(4):
        there = np.flatnonzero(bits >> sector & 1)
        last = _previous(line[there])
        time = np.where(last >= 0, there - there[last], 0)
        far = distance_of[time] * rate > l1 / pipeline.LINE
        gone = (last < 0) | far
        missing[there] |= gone.astype(np.int64) << sector
        total += np.bincount(op[there], minlength=count)
        missed += np.bincount(op[there], gone, minlength=count)
        stale += np.bincount(op[there], far & (last >= 0), minlength=count)
    known = total > 0
    found.sectors[known] = missed[known] / total[known]
    found.again[known] = stale[known] / total[known]
    found.lines[known] = np.bincount(op, missing > 0, minlength=count)[known] / np.bincount(op, minlength=count)[known]
    loads = reads[op]
    if loads.any():
        _, which = np.unique(line[loads], return_inverse=True)
        parts = [np.bincount(which, bits[loads] >> s & 1) > 0 for s in range(4)]
        wanted = 32.0 * sum(float(p.sum()) for p in parts)
        low, high = parts[0] | parts[1], parts[2] | parts[3]
        found.granules = 64.0 * float(low.sum() + high.sum()) / wanted
        alone = float((low ^ high).sum())
        found.cost = 64.0 * (float(low.sum() + high.sum()) + alone * (profile["cost_dram_isolated"] - 1.0)) / wanted
    return found


def _expanded(streams: Streams, record: Array, op: Array) -> tuple[Array, Array, Array]:
    """(line, bits of sectors, instruction) of every line that these records touch, in their order."""
    r = streams.records
    size = r.count[record]
    ends = np.cumsum(size)
    take = np.repeat(r.first[record], size) + np.arange(int(ends[-1])) - np.repeat(ends - size, size)
    return r.lines[take], r.sectors[take].astype(np.int64), np.repeat(op, size)


def _previous(keys: Array) -> Array:
    """For each element the place of the one before it that is equal, -1 where it is the first."""
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    found = np.full(len(keys), -1, np.int64)
    found[order[1:][same]] = order[:-1][same]
    return found


def _reuse(line: Array) -> Array:
    """Accesses since the last one to the same line, -1 where there is none."""
    last = _previous(line)
    return np.where(last >= 0, np.arange(len(line)) - last, -1)


def _stack_distances(reuse: Array) -> Array:
    """Expected number of distinct lines by reuse time, from all reuse times (-1: never)."""
    size = len(reuse) + 2
    times = np.bincount(np.where(reuse < 0, size - 1, reuse), minlength=size)
    longer = 1.0 - np.cumsum(times) / max(1, len(reuse))  # share of accesses whose line is not touched again so soon
    return np.concatenate([[0.0], np.cumsum(longer)[:-1]])


# -- latency -------------------------------------------------------------------------------------------------------


@dataclass
class Alone:
    """A block by itself: ``cycles``, and its slowest warp's cycles by the names of STALLS."""

    cycles: float
    waits: dict[str, float]

    def add(self, name: str, cycles: float) -> None:
        """What it takes longer, as a wait of this name."""
        self.cycles += cycles
        self.waits[name] += cycles


def late_of(load: float, writing: float) -> float:
    """Cycles by which DRAM's latency exceeds its least, on average, at a utilisation of which a share is writes."""
    return VARYING + SOON * load / (load + SOME_LOAD) + LOADED * (1.0 + MIXED * writing) * load


def alone_of(seen: pipeline.Followed, work: Work, fresh: Array, profile: Model, late: float) -> Alone:
    """Time the longest warp of those followed as if no other were there, by stall counts and scoreboards.

    ``late``: what DRAM's latency exceeds its least by, on average; a block waits for its slowest warp.
    """
    streams = seen.streams
    lengths = np.diff(streams.start)
    warp = int(lengths.argmax()) if len(lengths) else 0
    begin, end = (int(streams.start[warp]), int(streams.start[warp + 1])) if len(lengths) else (0, 0)
    steps = min(end - begin, MOST_STEPS)
    length = float(end - begin)
    if streams.issued > MOST_FOLLOWED:  # cut off: as long as a warp is on average
        length = max(length, float(work.executed.sum()) / (seen.blocks * seen.warps))
    ops, accesses = streams.ops[begin : begin + steps], streams.accesses[begin : begin + steps]
    cycles, waits, stores = _walk(
        ops, _delays(ops, accesses, seen, work, fresh, profile, late), seen.warps, work, profile
    )
    longer = length / max(1, steps)
    cycles = cycles * longer + profile["block_start"] + profile["warp_start"] * (seen.warps - 1)
    if stores:
        cycles += profile["store_drain"]
    return Alone(cycles, {name: amount * longer for name, amount in waits.items()})


def _delays(
    ops: Array, accesses: Array, seen: pipeline.Followed, work: Work, fresh: Array, profile: Model, late: float
) -> list[float]:
    """Cycles from issue to result of each step that is an access; the sign says whether it leaves the SM (negative)."""
    code, r = work.code, seen.streams.records
    there = accesses >= 0
    record = np.where(there, accesses, 0)
    delay = code.latency[ops]
    if not len(r.count):
        return [float(d) for d in delay]
    shared = there & (code.kind[ops] == codes.SHARED)
    passes = np.where(there, np.maximum(r.wavefronts[record], 1), 1)
    delay = delay + np.where(shared, np.maximum(passes, code.data[ops]) - 1, 0)
    constant = there & (code.kind[ops] == codes.CONSTANT)
    delay = delay + np.where(constant, profile["cost_constant_word"] * passes, 0)
    loads = np.flatnonzero(there & work.reads[ops] & (r.space[record] > 0))
    leaves = np.zeros(len(ops), bool)
    if len(loads):
        line, bits, index = _expanded(seen.streams, accesses[loads], np.arange(len(loads)))
        first = np.zeros(len(line), bool)
        for sector in range(4):
            touched = np.flatnonzero(bits >> sector & 1)
            first[touched] |= _previous(line[touched]) < 0
        new = np.bincount(index, first, minlength=len(loads)) > 0
        op = ops[loads]
        far = fresh[op] * (r.space[accesses[loads]] == 1)
        meetings = 1 + np.count_nonzero(code.kind[ops] == codes.BARRIER)  # of all warps, the end included
        waits = max(1.0, float((far * new).sum()) / meetings)
        slowest = 1.0 + SLOWEST * math.log2(max(1, seen.warps)) / math.sqrt(waits)
        dram = profile["latency_dram_all"] - VARYING + late * slowest
        beyond = (1 - far) * profile["latency_l2"] + far * dram
        missed = np.where(new, 1.0, work.misses.again[op])
        near = np.where(code.kind[op] == codes.COPY, profile["latency_l1"], code.latency[op])
        delay[loads] = near + missed * (beyond - near) + (r.count[accesses[loads]] - 1) * profile["cost_tag"]
        leaves[loads] = missed > 0.5
    leaves |= there & work.atomic[ops]
    return [-float(d) if away else float(d) for d, away in zip(delay, leaves, strict=True)]


def _walk(
    ops: Array, delays: list[float], warps: int, work: Work, profile: Model
) -> tuple[float, dict[str, float], int]:
    """(cycles, waits by the names of STALLS, stores) of a warp that nothing holds up but its own results."""
    code = work.code
    stall, write, read, wait = (column.tolist() for column in (code.stall, code.write, code.read, code.wait))
    kind, extra = code.kind.tolist(), code.extra.tolist()
    together = profile["latency_barrier"] + profile["cost_barrier"] * warps
    branch, fence = profile["cost_branch"], profile["latency_fence"]
    boards, away = [0.0] * 6, [False] * 6
    copying, groups = 0.0, [0.0]
    waits = dict.fromkeys(STALLS, 0.0)
    now, stores = 0.0, 0
    reason, fixed = "wait", 0.0  # what holds the next instruction up, and until when
    for op, delay in zip(ops.tolist(), delays, strict=True):
        at, why, mask = fixed, reason, wait[op]
        board = 0
        while mask:
            if mask & 1 and boards[board] > at:
                at, why = boards[board], "long scoreboard" if away[board] else "short scoreboard"
            mask >>= 1
            board += 1
        waits[why] += max(0.0, at - now)
        waits["selected"] += 1.0
        what, leaves, delay = kind[op], delay < 0, abs(delay)
        finish, fixed, reason = at + delay, at + stall[op], "wait"
        if what == codes.BARRIER:
            fixed, reason = at + together, "barrier"
        elif what == codes.BRANCH:
            fixed, reason = fixed + branch, "branch resolving"
        elif what == codes.FENCE:
            fixed, reason = at + fence, "long scoreboard"
        elif what == codes.COPY:
            copying = max(copying, finish)
        elif what == codes.GROUP:
            groups.append(copying)
            finish, leaves = copying, True
        elif what == codes.GROUP_WAIT and len(groups) > extra[op]:
            fixed, reason = max(fixed, groups[len(groups) - 1 - extra[op]]), "long scoreboard"
        elif what in (codes.STORE, codes.ATOMIC):
            stores += 1
        if write[op] >= 0:
            boards[write[op]], away[write[op]] = max(boards[write[op]], finish), leaves
        if read[op] >= 0:
            boards[read[op]] = max(boards[read[op]], at + 8.0)
        now = at + 1.0
    return now, waits, stores


def stall_shares(alone: Alone, latency: float, spent: float, largest: str) -> dict[str, float]:
    """Shares of warps' time: a block's own waits, and for what it takes longer than alone, the busiest unit's."""
    own = sum(alone.waits.values())
    shares = {name: (amount / own if own else 0.0) for name, amount in alone.waits.items()}
    mine = min(1.0, latency / spent) if spent else 1.0
    shares = {name: share * mine for name, share in shares.items()}
    shares[HELD.get(largest, MATH)] += 1.0 - mine
    return shares
