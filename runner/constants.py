"""From the rows of the sweeps to the constants of a device profile; needs no GPU.

:func:`profile_of` takes what :func:`gpusim.runner.calibrate.measure` returned.  Each constant is a function of the
rows, with a short description that becomes part of its source; docs/profiles.md explains them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Definition = tuple[str, str, str, Callable[[Rows], float]]
KIB, MIB = 1 << 10, 1 << 20
CYCLES, RATE, GBS = "cycles", "warp instructions/SM/cycle", "GB/s"


class Missing(Exception):
    """No row tells."""


def pick(rows: Iterable[Row], **wanted: Any) -> list[Row]:
    """The rows that have these values; a set means any of them."""
    found = [
        row
        for row in rows
        if all(row.get(k) in v if isinstance(v, set | frozenset) else row.get(k) == v for k, v in wanted.items())
    ]
    if not found:
        raise Missing(str(wanted))
    return found


def one(rows: Iterable[Row], key: str, **wanted: Any) -> float:
    """The value of the only row that has these values, or the median of several."""
    return float(statistics.median(row[key] for row in pick(rows, **wanted)))


def step(rows: Iterable[Row], **wanted: Any) -> float:
    """Cycles a step of a chain."""
    return float(statistics.median(row["cycles"] / row["steps"] for row in pick(rows, **wanted)))


def most(rows: Iterable[Row], key: str, **wanted: Any) -> float:
    """The greatest value."""
    return float(max(row[key] for row in pick(rows, **wanted)))


def least(rows: Iterable[Row], key: str, **wanted: Any) -> float:
    """The least value."""
    return float(min(row[key] for row in pick(rows, **wanted)))


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Intercept and slope of the straight line through points."""
    if len(points) < 2:
        raise Missing("points for a line")
    x, y = np.array(points, float).T
    slope, intercept = np.polyfit(x, y, 1)
    return float(intercept), float(slope)


def _issue(rows: Rows, op: str, kinds: int = 1) -> float:
    return most(rows["issue"], "rate", op=op, chains=8) * kinds


def _wavefront(rows: Rows, way: str) -> float:
    """Cycles a wavefront: the slope over the conflict degrees of 32-bit accesses."""
    points = [(row["degree"], row["each"]) for row in pick(rows["shared"], way=way, width=4, warps=32) if row["degree"]]
    return line(points)[1]


def _atomic_degree(rows: Rows, kind: str) -> float:
    """Cycles for each further lane in the same bank."""
    found = pick(rows["shared"], way=kind, warps=32)
    return line([(row["stride"] / 4, row["each"]) for row in found if row["stride"]])[1]


def _barrier(rows: Rows) -> tuple[float, float]:
    found = pick(rows["branches"], kind="barrier", blocks=1)
    return line([(row["warps"], row["cycles"] / row["barriers"]) for row in found])


def _l1_line(rows: Rows, kind: str = "CA") -> float:
    found = pick(rows["patterns"], kind=kind, width=4, warps=32, sectors=1, lines={4, 8, 16, 32})
    return line([(row["lines"], row["each"]) for row in found])[1]


def _l1_kept(rows: Rows) -> float:
    """The largest footprint of a pointer chase that takes no longer than in 16 KiB."""
    found = {row["footprint"]: row["cycles"] / row["steps"] for row in pick(rows["chases"], kind="CA64")}
    if 16 * KIB not in found:
        raise Missing("16 KiB")
    return max(size for size, cycles in found.items() if cycles <= 1.1 * found[16 * KIB])


def _constant_word(rows: Rows) -> float:
    """Cycles for each further distinct word."""
    found = pick(rows["constants"], kind="LDC", apart=1, warps=32)
    return line([(row["distinct"], row["each"]) for row in found if row["distinct"] > 1])[1]


def _sector(rows: Rows, kind: str, lines: int, alone: bool = False) -> float:
    """Cycles a sector: one of each of 32 lines, or four of each of eight; by one SM alone, or by all."""
    found = [r for r in pick(rows["patterns"], kind=kind, width=4, warps=32) if (r["grid"] == 1) == alone]
    return one(found, "each", lines=lines, sectors=32 // lines) / 32


def _near_far(rows: Rows) -> tuple[float, float]:
    """The two groups of L2 latencies, split at the middle between the 5th and 95th percentile: their medians."""
    cycles = np.array([row["cycles"] for row in rows["partitions"]], float).ravel()
    if not len(cycles):
        raise Missing("partitions")
    low, high = np.percentile(cycles, (5, 95))
    near, far = cycles[cycles <= (low + high) / 2], cycles[cycles > (low + high) / 2]
    return float(np.median(near)), float(np.median(far if len(far) else near))


def _mhz(rows: Rows) -> float:
    return float(statistics.median(row["mhz"] for row in pick(rows["clocks"], op={"FFMA", "IMAD"})))


def _per_cycle(rows: Rows, sweep: str, **wanted: Any) -> float:
    """Bytes an SM clock cycle, of the whole device."""
    return most(rows[sweep], "gb_s", **wanted) * 1e3 / _mhz(rows)


def _launch(rows: Rows, **wanted: Any) -> float:
    """Microseconds a launch."""
    launches = pick(rows["launches"], **wanted)[0].get("launches", 1)
    return one(rows["launches"], "median_ms", **wanted) * 1e3 / launches


def _block_interval(rows: Rows, block: int) -> float:
    """ns a block, of a large grid of empty blocks, without what a smaller grid takes."""
    found = {row["grid"]: row["ms"] for row in pick(rows["launches"], kind="alone", block=block, shared=0)}
    if not {100_000, 1_000_000} <= set(found):
        raise Missing("grids")
    return (found[1_000_000] - found[100_000]) * 1e6 / 900_000


def _gap(rows: Rows, block: int) -> float:
    return one(rows["slots"], "gap", block=block, how=0, resident=2, work=4000)


def _fetched(rows: Rows, way: str, granule: int, spacing: int) -> float:
    """Bytes that DRAM could have streamed in the time of one isolated access."""
    found = [
        row for row in pick(rows["strides"], way=way, granule=granule, spacing=spacing) if row["footprint"] > 512 * MIB
    ]
    if not found:
        raise Missing("a footprint beyond L2")
    accesses = found[0]["footprint"] / spacing
    peak = most(rows["dram"], "gb_s", way=way)
    return found[0]["ms"] * 1e6 * peak / accesses / (2 if way == "copy" else 1)


def _written_back(rows: Rows) -> float:
    """Bytes written back for each byte read when the L2 is full of dirty lines, as long as it is."""
    found = [row for row in pick(rows["cold"], way="read") if 12 * MIB < row["footprint"] < 40 * MIB]
    times = {state: {row["footprint"]: row["ms"] for row in pick(found, state=state)} for state in ("dirty", "clean")}
    extra = sum(times["dirty"].values()) - sum(times["clean"].values())
    return extra * 1e6 * most(rows["dram"], "gb_s", way="write") / sum(times["clean"])


def _by_footprint(rows: Rows, way: str) -> list[tuple[float, float]]:
    """Footprint, and bandwidth of using it again and again."""
    return sorted((row["footprint"], row["round_gb_s"]) for row in pick(rows["hot"], way=way) if "round_gb_s" in row)


def _kept(rows: Rows, way: str) -> float:
    """The largest footprint with at least 0.9 of the best bandwidth."""
    found = _by_footprint(rows, way)
    return max(size for size, rate in found if rate >= 0.9 * max(rate for _, rate in found))


def _lost(rows: Rows, way: str) -> float:
    """The smallest footprint with at most 1.05 of the largest one's bandwidth."""
    found = _by_footprint(rows, way)
    return min(size for size, rate in found if rate <= 1.05 * found[-1][1])


def _wave(rows: Rows, how: int, block: int) -> float:
    """Cycles from one wave of blocks to the next, two on an SM, that do nothing else."""
    return one(rows["turnaround"], "wave_us", block=block, resident=2, how=how, work=0) * _mhz(rows)


def of(function: Callable[..., float], sweep: str, *args: Any, **wanted: Any) -> Callable[[Rows], float]:
    """What a function says of one sweep's rows."""
    return lambda rows: function(rows[sweep], *args, **wanted)


WAYS = ("read", "write", "copy")
THREADS = (64, 128, 256, 512, 1024)


def _latencies() -> Iterator[Definition]:
    for op in (
        "FADD", "FMUL", "FFMA", "IADD3", "IMAD", "IMAD_HI", "LOP3", "SHF", "VIMNMX", "PRMT", "POPC", "FLO", "I2F",
        "F2I", "DADD", "DMUL", "DFMA", "HADD2", "HFMA2", "SHFL", "REDUX", "MUFU",
    ):  # fmt: skip
        kernel = {"IADD3": "IADD", "VIMNMX": "IMNMX", "MUFU": "EX2"}.get(op, op)
        yield f"latency_{op.lower()}", CYCLES, f"a chain of {op} of one warp", of(step, "issue", op=kernel, chains=1)
    for name, how, kind, footprint, state in (
        ("l1_hit", "pointer chase in 16 KiB, 64-bit loads", "CA64", 16 * KIB, None),
        ("l1_hit_constant", "pointer chase in 16 KiB by LDG.CONSTANT", "NC64", 16 * KIB, None),
        ("l2_hit", "pointer chase in 1 MiB past L1", "CG64", MIB, "filled"),
        ("l2_hit_large", "pointer chase in 20 MiB past L1", "CG64", 20 * MIB, "filled"),
        ("dram", "pointer chase in 256 MiB after a flush", "CG64", 256 * MIB, "flushed"),
        ("dram_far_pages", "pointer chase in 4 GiB after a flush, with misses of address translation", "CG64",
         4096 * MIB, "flushed"),
    ):  # fmt: skip
        yield f"latency_{name}", CYCLES, how, of(step, "chases", kind=kind, footprint=footprint, state=state)
    how = "loads of single lines from every SM, the median of the"
    yield "latency_l2_near", CYCLES, f"{how} lower group", lambda rows: _near_far(rows)[0]
    yield "latency_l2_far", CYCLES, f"{how} upper group", lambda rows: _near_far(rows)[1]
    for width in (4, 8, 16):
        how = f"pointer chase in shared memory, {8 * width}-bit loads"
        yield f"latency_shared_{8 * width}", CYCLES, how, of(step, "chains", kind="LDS", width=width)
    for name, kind, how in (
        ("shared_atomic", "SHARED_ADD", "a chain of atomic additions in shared memory"),
        ("shared_cas", "SHARED_CAS", "a chain of compare-and-swaps in shared memory"),
        ("global_atomic", "GLOBAL_ADD", "a chain of 64-bit atomic additions in global memory"),
        ("shared_store_load", "SHARED_STORE_LOAD", "a store to shared memory and the load after it"),
        ("global_store_load", "GLOBAL_STORE_LOAD", "a store to global memory and a volatile load after it"),
        ("local_store_load", "LOCAL_STORE_LOAD", "a store to local memory, the load after it and their addresses"),
        ("fence_block", "FENCE_BLOCK", "membar.cta"),
        ("fence_device", "FENCE_DEVICE", "membar.gl with nothing to wait for"),
        ("store_fence_device", "STORE_FENCE_DEVICE", "a store and membar.gl"),
    ):
        yield f"latency_{name}", CYCLES, how, of(step, "chains", kind=kind, threads=32)
    how = "a chain of indexed loads in 1 KiB of constant memory"
    yield "latency_constant_indexed", CYCLES, how, of(step, "chains", kind="LDC", words=256, distinct=1)


def _rates() -> Iterator[Definition]:
    for op in (
        "FADD", "FMUL", "FFMA", "IADD3", "IMAD", "IMAD_HI", "LOP3", "SHF", "VIMNMX", "FMNMX", "PRMT", "POPC", "FLO",
        "MUFU", "I2F", "F2I", "F2F", "DADD", "DMUL", "DFMA", "HADD2", "HFMA2", "SHFL", "REDUX", "IDP", "MATCH",
    ):  # fmt: skip
        kernel = {"IADD3": "IADD", "VIMNMX": "IMNMX", "MUFU": "EX2", "F2F": "F2F_UP", "IDP": "DP4A"}.get(op, op)
        how = f"{op}, eight chains a thread, the best of 4 to 64 warps"
        yield f"issue_{op.lower()}", RATE, how, partial(_issue, op=kernel)
    for op in ("ISETP_SEL", "FSETP_SEL"):
        yield (
            f"issue_{op.lower()}",
            RATE,
            f"{op.replace('_', ' and ')} in turn, together",
            partial(_issue, op=op, kinds=2),
        )
    for first, second in (
        ("FFMA", "IADD3"), ("FFMA", "IMAD"), ("FFMA", "LOP3"), ("IADD3", "LOP3"), ("IMAD", "LOP3"), ("FADD", "FMUL"),
        ("FFMA", "LDS"), ("FFMA", "MUFU"), ("SHFL", "LDS"), ("FFMA", "SHFL"), ("FFMA", "I2F"),
    ):  # fmt: skip
        kernel = f"{first}_{second}".replace("IADD3", "IADD").replace("MUFU", "EX2")
        name = f"issue_{first.lower()}_{second.lower()}"
        yield name, RATE, f"{first} and {second} in turn, together", partial(_issue, op=kernel)


def _within_sm() -> Iterator[Definition]:
    for way, op in (("load", "LDS"), ("store", "STS")):
        yield (
            f"shared_{way}_wavefront",
            "cycles/wavefront",
            f"{op} by conflict degree, slope",
            partial(_wavefront, way=way),
        )
    for name, kind in (("atomic", "ADD"), ("cas", "CAS_RETURN")):
        how = f"ATOMS.{kind[:3]} by conflict degree, slope"
        yield f"shared_{name}_lane", "cycles/lane in a bank", how, partial(_atomic_degree, kind=kind)
    for name, way in (("increment", "INCREMENT"), ("atomic", "ADD"), ("atomic_return", "ADD_RETURN")):
        how = f"ATOMS {way.lower().replace('_', ', ')} of one word by all lanes"
        yield f"shared_{name}_same", CYCLES, how, of(one, "shared", "each", way=way, stride=0, warps=32)
    yield "l1_line", "cycles/line", "LDG that hit in L1, by lines a request, slope", _l1_line
    for width, lines in ((4, 1), (8, 2), (16, 4)):
        how = f"{8 * width}-bit LDG of neighbouring lanes that hit in L1"
        yield f"l1_load_{8 * width}", CYCLES, how, of(
            one, "patterns", "each", kind="CA", width=width, lines=lines, sectors=4, warps=32
        )  # fmt: skip
    how = "128-bit LDG within one line that hit in L1"
    yield "l1_load_broadcast_128", CYCLES, how, of(
        one, "patterns", "each", kind="CA", width=16, lines=1, sectors=4, warps=32
    )  # fmt: skip
    yield "l1_kept", "bytes", "largest footprint of a pointer chase with a hit's latency", _l1_kept
    yield "local_load", CYCLES, "LDL that hit in L1", of(one, "constants", "each", kind="LDL", warps=32)
    yield "constant_load_word", "cycles/distinct word", "indexed LDC by distinct words, slope", _constant_word
    yield "barrier", CYCLES, "BAR.SYNC by warps of one block, intercept", lambda rows: _barrier(rows)[0]
    yield "barrier_warp", "cycles/warp", "BAR.SYNC by warps of one block, slope", lambda rows: _barrier(rows)[1]
    how = "a loop of four instructions, one warp"
    yield "branch_loop", CYCLES, how, lambda rows: one(rows["branches"], "cycles", kind="loop", warps=1) / 1000


def _l2() -> Iterator[Definition]:
    for way, kind, op in (("load", "CG", "LDG from L2"), ("store", "store", "STG")):
        unit, name = "cycles/sector", f"l2_{way}_sector"
        yield f"{name}_alone", unit, f"{op} by all SMs, 32 lines a request", partial(_sector, kind=kind, lines=32)
        yield name, unit, f"{op} by all SMs, four sectors of each line", partial(_sector, kind=kind, lines=8)
        how = f"{op} by one SM, four sectors of each line"
        yield f"{name}_one_sm", unit, how, partial(_sector, kind=kind, lines=8, alone=True)
    how = "one word of each of random sectors of 16 MiB, read, the best grid"
    function = of(most, "strides", "sectors_ns", way="random read", footprint=32 << 19)
    yield "l2_random_sectors", "sectors/ns", how, function
    for way in WAYS:
        how = f"{way} of some 9 or 18 MiB past L1, the best grid"
        yield f"l2_{way}", "bytes/cycle", how, partial(_per_cycle, sweep="l2", way=way)
        how = f"{way} of 4 MiB past L1 by one SM"
        yield f"l2_{way}_one_sm", "bytes/cycle", how, partial(_per_cycle, sweep="l2", way=way, sms=1)
    how = "bytes written back for each byte read after 256 MiB were written"
    yield "l2_dirty_read", "bytes/byte", how, _written_back
    for way in ("read", "copy"):
        words = "read" if way == "read" else "read and written in place"
        how = f"largest footprint {words} again and again at 0.9 of the best bandwidth"
        yield f"l2_kept_{way}", "bytes", how, partial(_kept, way=way)
        how = f"smallest footprint {words} again and again as slowly as the largest"
        yield f"l2_lost_{way}", "bytes", how, partial(_lost, way=way)


def _dram() -> Iterator[Definition]:
    for way in WAYS:
        yield f"dram_{way}", GBS, f"{way} of 1 GiB, the best grid", of(most, "dram", "gb_s", way=way)
    for way, granule, spacing in (
        *product(("read", "write"), (32,), (64, 128, 256)), ("read", 64, 128), ("write", 64, 128), ("write", 4, 32),
        ("write", 4, 128),
    ):  # fmt: skip
        how = f"{way} of {granule} bytes every {spacing}, as bytes that could have been streamed"
        name = f"dram_{way}_{granule}_of_{spacing}"
        yield name, "bytes", how, partial(_fetched, way=way, granule=granule, spacing=spacing)
    for name, way in (("sectors", "read"), ("stores", "write")):
        how = f"one word of each of random sectors of 1 GiB, {way}, the best grid"
        function = of(most, "strides", "sectors_ns", way=f"random {way}", footprint=32 << 25)
        yield f"dram_random_{name}", "sectors/ns", how, function
    unit, red = "lane operations/ns", {"kind": "RED_INT"}
    yield "atomic_one_address", unit, "RED to one address", of(one, "atomics", "operations_ns", distinct=1, **red)
    for lanes in ("neighbours", "random"):
        how = f"RED to 2^20 words, a warp's lanes {lanes}"
        function = of(one, "atomics", "operations_ns", distinct=1 << 20, lanes=lanes, apart=4, **red)
        yield f"atomic_{lanes}", unit, how, function


def _launches() -> Iterator[Definition]:
    yield "event_overhead", "us", "two events with nothing between", partial(_launch, kind="nothing")
    for name, kind, how in (
        ("launch_event", "alone", "an empty kernel of one block between two events"),
        (
            "launch_event_flushed",
            "flushed",
            "an empty kernel of one block between two events after 256 MiB were written",
        ),
    ):
        yield name, "us", how, partial(_launch, kind=kind, block=32, grid=1)
    how = "an empty kernel of one block, of 100 in a graph"
    yield "launch_graph", "us", how, partial(_launch, kind="graph", block=32, grid=1, name="empty")
    for block in (32, *THREADS):
        how = f"empty blocks of {block} threads, 1,000,000 less 100,000"
        yield f"block_interval_{block}", "ns", how, partial(_block_interval, block=block)
    for block in THREADS:
        how = f"from a block's end to the next one's start, {block} threads, two on an SM"
        yield f"slot_gap_{block}", CYCLES, how, partial(_gap, block=block)
    for name, number, what in (
        ("wave", 0, "do nothing"),
        ("wave_load", 1, "load a word"),
        ("wave_store", 2, "store a word"),
    ):
        for block in THREADS:
            how = f"from one wave to the next of blocks of {block} threads that {what}, two on an SM"
            yield f"{name}_{block}", CYCLES, how, partial(_wave, how=number, block=block)


DOCUMENTED: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("sms", "", ("MultiProcessorCount",)),
    ("clock_max", "kHz", ("ClockRate",)),
    ("memory_clock", "kHz", ("MemoryClockRate",)),
    ("memory_bus", "bits", ("GlobalMemoryBusWidth",)),
    ("l2_bytes", "bytes", ("L2CacheSize",)),
    ("threads_per_sm", "", ("MaxThreadsPerMultiProcessor",)),
    ("blocks_per_sm", "", ("MaxBlocksPerMultiprocessor",)),
    ("registers_per_sm", "", ("MaxRegistersPerMultiprocessor",)),
    ("shared_per_sm", "bytes", ("MaxSharedMemoryPerMultiprocessor",)),
    ("shared_per_block", "bytes", ("MaxSharedMemoryPerBlockOptin",)),
)


def documented(device: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Constants that the device says of itself."""
    known = {k.lower(): v for k, v in {**device.get("properties", {}), **device.get("attributes", {})}.items()}
    found: dict[str, dict[str, Any]] = {}
    for name, unit, attributes in DOCUMENTED:
        for attribute in attributes:
            if (value := known.get(attribute.lower())) is not None:
                if unit == "kHz":
                    value, unit = value / 1000, "MHz"
                found[name] = {"value": value, "unit": unit, "source": f"documented: CUDA device attribute {attribute}"}
    if {"memory_clock", "memory_bus"} <= set(found):
        peak = 2 * found["memory_clock"]["value"] * found["memory_bus"]["value"] / 8 / 1000
        found["dram_peak"] = {
            "value": peak,
            "unit": GBS,
            "source": "documented: twice the memory clock times the bus width",
        }
    if "threads_per_sm" in found:
        found["warps_per_sm"] = {**found["threads_per_sm"], "value": found["threads_per_sm"]["value"] // 32}
    return found


def everything() -> list[Definition]:
    """All constants that are measured: name, unit, how, and the function of the rows."""
    clock = ("clock", "MHz", "SM clock while all SMs multiply and add", _mhz)
    return [clock, *_latencies(), *_rates(), *_within_sm(), *_l2(), *_dram(), *_launches()]


def measured_on(date: str) -> str:
    """How the source of a measured constant begins."""
    return f"measured {date} by gpusim calibrate: "


def derive(sweeps: Rows, date: str) -> dict[str, dict[str, Any]]:
    """Every constant that the rows tell; one whose rows are missing is left out."""
    rows: Rows = defaultdict(list, sweeps)
    found: dict[str, dict[str, Any]] = {}
    for name, unit, how, function in everything():
        try:
            value = function(rows)
        except Missing:
            continue
        found[name] = {
            "value": float(f"{value:.5g}"), "unit": unit, "source": measured_on(date) + how
        }  # fmt: skip
    return found


def profile_of(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The profile that a file of :func:`gpusim.runner.calibrate.measure` makes, with the raw rows under "sweeps"."""
    properties = content["hardware"]["properties"]
    arch = 10 * properties["major"] + properties["minor"]
    date = content["source"]["date"]
    return {
        "name": name,
        "device": content["hardware"].get("name", ""),
        "arch": arch,
        "source": content["source"],
        "constants": {**documented(content["hardware"]), **derive(content["sweeps"], date)},
        "failed": content.get("failed", {}),
        "hardware": content["hardware"],
        "sweeps": content["sweeps"],
    }
