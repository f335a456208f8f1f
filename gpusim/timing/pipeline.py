"""The pipeline model: follow one SM's blocks, run them through the core, extrapolate to the whole grid."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np

from gpusim.errors import ExecutionError
from gpusim.machine.limits import Occupancy, occupancy
from gpusim.timing import core
from gpusim.timing.codes import codes_of
from gpusim.timing.model import SLOT_SIZES, Model
from gpusim.timing.streams import Records, Streams
from gpusim.timing.tracing import Sharing, follow, sharing, work_of

Array = np.ndarray[Any, Any]
LINE = 128
SLICE_BYTES = 256  # that lie in one slice of L2
SAMPLED = 8  # accesses of a place from which on it is told apart from others
L1_WAYS = 16
MOST_ISSUED = 3_000_000  # warp instructions of several waves that are simulated
MOST_SIMULATED = 9_000_000  # of a single wave of long blocks
MOST_FOLLOWED = 12_000_000  # of a wave's blocks
SAMPLED_SMS = 12  # whose blocks' work is looked at where blocks differ
WAVES = 7  # of blocks that are followed
LASTING = 24  # waves that are simulated, the followed ones over and over
SEEN_BITS = 18
DIRTY_FIRST = 1 << 20  # bytes of dirty lines to be written, from which on the first loads wait


@dataclass
class Followed:
    """What is known of a launch before any time is: the blocks of one SM, and what they share with the others."""

    streams: Streams
    sharing: Sharing
    occupancy: Occupancy
    codes_program: Any
    blocks: int  # of the whole grid
    warps: int  # a block
    threads: int
    resident: int
    waves: int
    longer: float = 1.0  # how many times as many instructions the SM with most to do executes as were followed
    load: float = 1.0  # what that is over the mean of the SMs that have work


@dataclass
class Simulation:
    """What the core found, in cycles; ``blocks`` were simulated of ``share`` that one SM executes."""

    cycles: float
    begin: Array
    end: Array
    busy: dict[str, float]
    counts: dict[str, float]
    waits: dict[str, float]
    issued: int
    blocks: int
    share: float
    footprint: float
    loaded: float
    stored: float


def occupancy_of(ready: Any) -> Occupancy:
    """Theoretical occupancy of a prepared launch."""
    function = ready.kernel.function
    x, y, z = ready.block
    return occupancy(
        ready.kernel.module.cubin.arch, x * y * z, function.registers, function.shared_static + ready.shared_bytes,
        max(1, function.barriers or 1),
    )  # fmt: skip


def parameters(profile: Model, sms: int, threads: int, memory: Memory, atomic: float) -> Array:
    """The core's parameters; rates of the whole chip are shared by the ``sms`` SMs that have work."""
    c = profile.values
    per_second = profile["sm_clock"] * 1e6
    values = {name: c.get(name, 0.0) for name in core.PARAMETERS}
    sector = 32.0 * sms * per_second
    values["cost_l2_sector"] = max(c["cost_l2_sector_port"], sector / c["l2_read_bandwidth"])
    values["cost_l2_write_sector"] = max(c["cost_l2_write_sector_port"], sector / c["l2_write_bandwidth"])
    values["cost_l2_line"] = c["cost_l2_line"] * sms / c["sms"]
    values["cost_l2_write_line"] = c["cost_l2_write_line"] * sms / c["sms"]
    values["cost_dram_read"] = 2 * sector / (c["dram_read_bandwidth"] * c["dram_best"])
    values["cost_dram_write"] = 2 * sector / (c["dram_write_bandwidth"] * c["dram_best"])
    values["latency_l2"] = c["latency_l2"] - c["lsu_delay"]
    values["latency_dram"] = c["latency_dram"] - c["lsu_delay"]
    values["cost_atomic_sector"] = max(c["cost_atomic_sector"], atomic * sms)
    values["cost_crowd"] = profile.cycles(c["store_one_line"] * 1e-9)
    values["write_back"] = memory.write_back
    values["block_interval"] = c["block_interval"] * sms * (1.0 if threads <= 512 else c["block_interval_large"])
    values["block_gap"] = c["block_gap"] + np.interp(threads, SLOT_SIZES, [c[f"slot_gap_{n}"] for n in SLOT_SIZES])
    values["l2_window"] = c["l2_bytes"] * c["l2_usable"] / sms
    return np.array([values[name] for name in core.PARAMETERS])


def blocks_of(total: int, sms: int, resident: int, waves: int = 1, sm: int | None = None) -> Array:
    """Linear numbers of blocks of one SM, by default of one in the middle: blocks go to the SMs in turn.

    ``waves`` times ``resident`` of them, taken evenly from all over the grid, since what blocks do may depend on where
    they are.
    """
    first = min(total - 1, sms - 1) // 2 if sm is None else sm
    mine = np.arange(first, total, sms, dtype=np.int64)
    there = len(mine) // resident
    if waves >= there:
        return mine[: waves * resident]
    begins = np.unique(np.linspace(0, there - 1, waves).astype(np.int64)) * resident
    return np.concatenate([mine[k : k + resident] for k in begins])


def heaviest(ready: Any, total: int, sms: int) -> tuple[int, float, float] | None:
    """Which of some SMs has most to do, of a grid whose blocks are all resident, but differ.

    The launch takes as long as the SM that has most of all.  Returns the number of the one that was found, how many
    times as much the one with most of all is likely to have (as if SMs' work were normally distributed, but no more
    than if all of its blocks were like the largest), and how many times the mean.  None if that takes too long.
    """
    active = min(sms, total)
    some = np.unique(np.linspace(0, active - 1, SAMPLED_SMS).astype(np.int64))
    numbers = np.arange(total, dtype=np.int64)
    numbers = numbers[np.isin(numbers % sms, some)]
    work = work_of(ready, numbers, MOST_FOLLOWED)
    if work is None:
        return None
    by_sm = np.bincount(numbers % sms, weights=work, minlength=active)[some]
    most, mean = float(by_sm.max()), float(by_sm.mean())
    likely = most
    if len(some) < active:
        likely = mean + float(by_sm.std(ddof=1)) * NormalDist().inv_cdf((active - 0.375) / (active + 0.25))
        likely = max(most, min(likely, float(work.max()) * math.ceil(total / sms)))
    return int(some[by_sm.argmax()]), likely / most, likely / mean


def follow_launch(ready: Any, sms: int) -> Followed:
    """Follow the blocks of one SM of a prepared launch."""
    total = ready.grid[0] * ready.grid[1] * ready.grid[2]
    threads = ready.block[0] * ready.block[1] * ready.block[2]
    occ = occupancy_of(ready)
    most = max(1, math.ceil(total / sms))
    resident = min(occ.blocks, most)
    shared = sharing(ready, resident, sms)
    sm, longer, load = None, 1.0, 1.0
    if shared.uneven and most <= resident and (found := heaviest(ready, total, sms)) is not None:
        sm, longer, load = found
    streams = follow(ready, blocks_of(total, sms, resident, sm=sm), MOST_FOLLOWED)
    waves = 1
    if not streams.complete:
        counted = ready.kernel.count(ready.grid, ready.block, ready.args, ready.shared_bytes)
        executed = sum(instruction.executed for instruction in counted.instructions)
        longer *= max(1.0, executed / total / (streams.issued / resident))
    elif most > resident and streams.issued * 2 <= MOST_ISSUED:
        waves = max(1, min(WAVES, math.ceil(most / resident), MOST_ISSUED // max(1, streams.issued)))
        if waves > 1:
            streams = follow(ready, blocks_of(total, sms, resident, waves))
    return Followed(
        streams, shared, occ, ready.kernel.program, total, (threads + 31) // 32, threads, resident, waves, longer, load
    )  # fmt: skip


def _lines_of(records: Records, some: Array) -> Array:
    """Where the lines of some records lie in ``records.lines``, one record's after the other's."""
    count = records.count[some]
    return np.repeat(records.first[some] - np.cumsum(count) + count, count) + np.arange(int(count.sum()))


def adds_of(seen: Followed) -> tuple[Array, Array, Array]:
    """(line, sectors of it, passes) of global atomics' requests.

    Those of all SMs, as far as these were followed; of atomics that come later those of the one SM that was followed.
    """
    known = seen.sharing.adds
    streams, records = seen.streams, seen.streams.records
    atomics = [
        index
        for index, meaning in enumerate(seen.codes_program.meanings)
        if getattr(meaning, "operation", "") in ("atomic", "reduce") and index not in seen.sharing.added
    ]
    used = np.isin(streams.ops, atomics) & (streams.accesses >= 0)
    mine = streams.accesses[used]
    mine = mine[records.space[mine] == 1]
    if not len(mine):
        return known
    place = _lines_of(records, mine)
    sectors = np.bitwise_count(records.sectors[place].astype(np.uint8)).astype(np.int64)
    more = records.lines[place].astype(np.int64), sectors, records.passes[place].astype(np.int64)
    joined = [np.concatenate(pair) for pair in zip(known, more, strict=True)]
    return joined[0], joined[1], joined[2]


def simulate(seen: Followed, profile: Model, cache: str) -> Simulation:
    """Simulate a launch that was followed, with L2 "cold" or "hot"."""
    sms = int(profile["sms"])
    share = seen.blocks / sms
    most = max(1, math.ceil(share))
    streams, resident = seen.streams, seen.resident
    active = min(sms, seen.blocks)
    traced = len(streams.numbers)
    a_wave = max(1, streams.issued // seen.waves)
    waves = max(1, min(LASTING, max(MOST_ISSUED // a_wave, min(3, MOST_SIMULATED // a_wave))))
    blocks = min(most, max(traced, resident * waves))
    memory = memory_of(seen, profile, share, active, cache)
    # of few blocks an SM, the one that is simulated has more than others: what all of them wait for is less
    atomic = atomic_cycles(seen, profile)[0] * (share / most if share <= 4 * resident else 1.0)
    values = parameters(profile, active, seen.threads, memory, atomic)
    codes = codes_of(seen.codes_program, profile.values)
    l1 = max(8 * 1024, int((profile["l1_bytes"] - seen.occupancy.carveout) * profile["l1_usable"]))
    sets = max(1, l1 // LINE // L1_WAYS)
    begin, end = np.zeros(blocks), np.zeros(blocks)
    busy, counts = np.zeros(len(core.UNITS)), np.zeros(len(core.COUNTS))
    waits = np.zeros(len(core.WAITS))
    r = streams.records
    issued = core.simulate(
        codes.stall, codes.write, codes.read, codes.wait, codes.kind, codes.pipe, codes.cost, codes.latency,
        codes.data, codes.extra, codes.slots, streams.start, streams.ops, streams.accesses, seen.warps, traced,
        r.wavefronts, r.space, r.first, r.count, r.serial, r.lines, r.sectors, r.passes,
        memory.fresh,
        memory.lone, seen.sharing.crowd, blocks, resident,
        MOST_SIMULATED, values, sets, L1_WAYS, SEEN_BITS, begin, end, busy, counts, waits,
    )  # fmt: skip
    if issued < 0:
        raise ExecutionError("the warps of a block wait for one another for ever in the pipeline model")
    if issued >= MOST_SIMULATED and not end.all():
        done = issued / max(1.0, streams.issued / traced)  # blocks' worth of instructions
        cycles = counts[5] * most / done
        end[end == 0] = counts[5]
        busy *= blocks / done
        counts *= blocks / done
    else:
        cycles = _extrapolate(end, resident, blocks, share, most)
    if seen.longer > 1.0:  # what was not followed goes on like what was
        for column in (begin, end, busy, counts, waits):
            column *= seen.longer
        cycles *= seen.longer
    busiest = busy[core.U_DRAM] / max(1.0, float(end.max()))
    cycles += min(1.0, busiest) * profile.cycles(memory.dirty / profile["dram_read_bandwidth"])
    cycles += min(1.0, memory.dirty / DIRTY_FIRST) * profile.cycles(profile["dirty_first"] * 1e-6)
    return Simulation(
        cycles, begin, end, dict(zip(core.UNITS, busy, strict=True)), dict(zip(core.COUNTS, counts, strict=True)),
        dict(zip(core.WAITS, waits, strict=True)), issued, blocks, share, memory.loaded + memory.stored, memory.loaded,
        memory.stored,
    )  # fmt: skip


def _extrapolate(end: Array, resident: int, blocks: int, share: float, most: int) -> float:
    """Cycles to the end of all blocks, by the steady rate of those that were simulated."""
    last = float(end.max())
    if blocks >= most:
        return last
    ends = np.sort(end)
    groups = [ends[k : k + resident] for k in range(0, blocks - resident + 1, resident)]
    if len(groups) > 4:  # the first begin all at once, the last ones run with fewer beside them
        groups = groups[len(groups) // 3 : -1]
    if len(groups) > 1:
        steps = [(float(pick(groups[-1])) - float(pick(groups[0]))) / (len(groups) - 1) for pick in (np.min, np.max)]
        steady = (max(steps) if len(groups) <= 3 else sum(steps) / 2) / resident
    else:
        steady = last / blocks
    whole = share if share > 4 * resident else float(most)
    return last + max(0.0, whole - blocks) * float(steady)


@dataclass
class Memory:
    """What a launch moves: distinct bytes ``loaded`` and ``stored`` by the whole grid.

    By instruction: ``fresh``, the share of first fetches that miss L2, and ``lone``, the share of lines whose block
    does not touch the other line of 256 bytes.  ``write_back``: the share of stored bytes that are written to DRAM in
    time;
    ``dirty``: bytes that L2 must write to make room, beyond these.
    """

    loaded: float
    stored: float
    fresh: Array
    lone: Array
    write_back: float
    dirty: float


def memory_of(seen: Followed, profile: Model, share: float, active: int, cache: str) -> Memory:
    """Estimate it from one SM's lines and what SMs share."""
    streams, shared = seen.streams, seen.sharing
    r = streams.records
    used = streams.accesses >= 0
    record, op = streams.accesses[used], streams.ops[used]
    there = r.space[record] == 1
    record, op = record[there], op[there]
    meanings = seen.codes_program.meanings
    kinds = np.array([getattr(m, "operation", "") in ("store",) for m in meanings])
    loaded = stored = 0.0
    waves = max(1.0, share / seen.resident)
    scale = active * seen.resident / max(1, len(streams.numbers))
    capacity = profile["l2_bytes"] * profile["l2_usable"]
    fetched: list[tuple[int, float]] = []
    known = np.zeros(0, np.int64)
    lone = np.zeros(len(meanings))
    block = np.repeat(streams.block, np.diff(streams.start))[used][there]
    for index in np.unique(op):
        mine = record[op == index]
        place = _lines_of(r, mine)
        lone[index] = _lone(r.lines[place], np.repeat(block[op == index], r.count[mine]))
        lines = r.lines[place] * 16 + r.sectors[place]
        distinct = np.unique(lines)
        distinct = distinct[~np.isin(distinct, known)]
        known = np.union1d(known, distinct)
        amount = _bytes_of(distinct, kinds[index]) * scale * shared.alone[index]
        fetched.append((int(index), amount))
    a_wave = sum(amount for _, amount in fetched)
    for index, amount in fetched:
        whole = amount * (1 + (waves - 1) * (1 - shared.again[index]))
        if kinds[index]:
            stored += whole
        else:
            loaded += whole
    # L2 keeps what came with the last wave, a part of it, or with the last few
    retained = min(max(waves - 1.0, 0.0), capacity / max(1.0, a_wave))
    fresh = shared.alone * (1.0 - np.clip(shared.again * retained, 0.0, 1.0))
    footprint = loaded + stored
    if cache == "hot":
        fresh = fresh * (1.0 - hit_share(profile, footprint))
    write_back, dirty = 1.0, profile["l2_bytes"] * profile["l2_dirty"]
    dirty = min(profile["dirty_read"] * loaded, dirty * loaded / max(1.0, footprint))
    if cache == "hot":
        dirty = 0.0
        write_back = 1.0 - hit_share(profile, footprint)
    return Memory(loaded, stored, fresh, lone, write_back, dirty)


def _bytes_of(accesses: Array, stored: bool) -> float:
    """Bytes of distinct accesses (sorted: line number, four bits of sectors): 32 a sector; what is read comes by 64."""
    if not len(accesses):
        return 0.0
    lines = accesses >> 4
    begins = np.flatnonzero(np.concatenate([[True], lines[1:] != lines[:-1]]))
    sectors = np.bitwise_or.reduceat(accesses & 15, begins)
    if stored:
        return 32.0 * float(np.bitwise_count(sectors.astype(np.uint8)).sum())
    return 64.0 * float(np.count_nonzero(sectors & 3) + np.count_nonzero(sectors & 12))


def _lone(lines: Array, blocks: Array) -> float:
    """Share of lines whose neighbour in the same 256 bytes is not touched by the same block."""
    keys = np.unique(blocks.astype(np.int64) << 44 ^ lines)
    return float(1.0 - np.isin(keys ^ 1, keys, assume_unique=True).mean())


def atomic_cycles(seen: Followed, profile: Model) -> tuple[float, float]:
    """Cycles that a pass of the launch's global atomics takes in L2, when it does nothing else, over all its slices.

    The slice with the most passes decides; it does one in ``atomic_pass`` ns.  Also returned is how many passes L2
    makes of one that L1 sends.
    """
    lines, sectors, passes = adds_of(seen)
    if not len(lines):
        return 0.0, 1.0
    work = passes - profile["atomic_whole_line"] * (sectors == 4)  # its sectors' first passes are done faster
    pieces, piece = np.unique(lines * LINE // SLICE_BYTES, return_inverse=True)
    pieces -= pieces.min()  # where they lie within the whole of memory is not known
    load = np.bincount(piece, weights=work)
    if len(load) * SAMPLED > len(work):  # too few accesses were followed to tell one place from another
        load[:] = load.mean()
    by_slice = np.bincount(slices_of(pieces), weights=load)
    places = min(float(by_slice.sum() / by_slice.max()), profile["atomic_places"])
    serial = profile["atomic_pass"]
    meanings = [m for m in seen.codes_program.meanings if getattr(m, "operation", "") in ("atomic", "reduce")]
    if len(np.unique(lines)) == 1 and {m.element for m in meanings if m.space != "shared"} & {"f32", "f64"}:
        serial = profile["atomic_pass_float"]
    return serial * 1e-9 / places * profile["sm_clock"] * 1e6, float(work.sum() / passes.sum())


@cache
def _slices() -> Array:
    content = json.loads((Path(__file__).parent / "slices.json").read_text())
    return np.array(content["slices"], np.int64)


def slices_of(pieces: Array) -> Array:
    """Slices of L2 that pieces of 256 bytes lie in: as measured in 64 KiB, and like a permutation of that beyond."""
    table = _slices()
    beyond = pieces // len(table)
    mixed = (beyond ^ beyond >> 8 ^ beyond >> 16) * 0x9E3779B1 >> 7
    return table[(pieces ^ mixed) % len(table)]


def hit_share(profile: Model, footprint: float) -> float:
    """Share of the bytes of a launch that the launch before it left in L2."""
    low, high = profile["l2_bytes"] * profile["hot_whole"], profile["l2_bytes"] * profile["hot_none"]
    return float(np.clip((high - footprint) / (high - low), 0.0, 1.0))
