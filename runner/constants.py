"""From the rows of the sweeps to the constants of a device profile; needs no GPU.

:func:`profile_of` takes what :func:`gpusim.runner.calibrate.measure` returned.  Each constant is a function of the
rows, with a short description that becomes part of its source; docs/profiles.md explains them.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]
Rows = dict[str, list[Row]]
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


def _per_sector(rows: Rows, kind: str, grid_one: bool) -> tuple[float, float]:
    """Cycles a sector where each is in a line of its own, and where four of a line go together."""
    found = [r for r in pick(rows["patterns"], kind=kind, width=4, warps=32) if (r["grid"] == 1) == grid_one]
    alone = one(found, "each", lines=32, sectors=1) / 32
    together = one(found, "each", lines=8, sectors=4) / 32
    return alone, together


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
    return one(rows["launches"], "median_ms", **wanted) * 1e3


def _block_interval(rows: Rows, block: int) -> float:
    """ns a block, of a large grid of empty blocks, without what a smaller grid takes."""
    found = {row["grid"]: row["ms"] for row in pick(rows["launches"], kind="alone", block=block, shared=0)}
    if not {100_000, 1_000_000} <= set(found):
        raise Missing("grids")
    return (found[1_000_000] - found[100_000]) * 1e6 / 900_000


def _gap(rows: Rows, block: int, how: int) -> float:
    return one(rows["slots"], "gap", block=block, how=how, resident=2, work=4000)


def _latencies() -> list[tuple[str, str, str, Callable[[Rows], float]]]:
    chain = "a chain of one warp"
    found: list[tuple[str, str, str, Callable[[Rows], float]]] = [
        (f"latency_{op.lower()}", CYCLES, f"{chain}: {op}", lambda r, op=op: step(r["issue"], op=op, chains=1))  # type: ignore[misc]
        for op in (
            "FADD", "FMUL", "FFMA", "IADD", "IMAD", "LOP3", "SHF", "IMNMX", "PRMT", "POPC", "FLO", "I2F", "F2I", "DADD",
            "DMUL", "DFMA", "HADD2", "HFMA2", "SHFL", "REDUX", "EX2",
        )
    ]  # fmt: skip
    found = [(name.replace("iadd", "iadd3").replace("ex2", "mufu"), *rest) for name, *rest in found]
    found += [
        ("latency_l1_hit", CYCLES, "pointer chase in 16 KiB, 64-bit loads",
         lambda r: step(r["chases"], kind="CA64", footprint=16 * KIB)),
        ("latency_l1_hit_constant", CYCLES, "the same by LDG.CONSTANT",
         lambda r: step(r["chases"], kind="NC64", footprint=16 * KIB)),
        ("latency_l2_hit", CYCLES, "pointer chase in 1 MiB past L1",
         lambda r: step(r["chases"], kind="CG64", footprint=MIB, state="filled")),
        ("latency_l2_hit_large", CYCLES, "the same in 20 MiB",
         lambda r: step(r["chases"], kind="CG64", footprint=20 * MIB, state="filled")),
        ("latency_l2_near", CYCLES, "loads of single lines from every SM, the lower half's median",
         lambda r: _near_far(r)[0]),
        ("latency_l2_far", CYCLES, "the same, the upper half's median", lambda r: _near_far(r)[1]),
        ("latency_dram", CYCLES, "pointer chase in 256 MiB",
         lambda r: step(r["chases"], kind="CG64", footprint=256 * MIB, state="flushed")),
        ("latency_dram_far_pages", CYCLES, "pointer chase in 4 GiB, with misses of address translation",
         lambda r: step(r["chases"], kind="CG64", footprint=4096 * MIB, state="flushed")),
        *((f"latency_shared_{8 * w}", CYCLES, f"pointer chase in shared memory, {8 * w}-bit loads",
           lambda r, w=w: step(r["chains"], kind="LDS", width=w)) for w in (4, 8, 16)),
        *((f"latency_{name}", CYCLES, how, lambda r, kind=kind: step(r["chains"], kind=kind, threads=32))
          for name, kind, how in (
            ("shared_atomic", "SHARED_ADD", "a chain of atomic additions in shared memory"),
            ("shared_cas", "SHARED_CAS", "a chain of compare-and-swaps in shared memory"),
            ("global_atomic", "GLOBAL_ADD", "a chain of 64-bit atomic additions in global memory"),
            ("shared_store_load", "SHARED_STORE_LOAD", "a store to shared memory and the load after it"),
            ("global_store_load", "GLOBAL_STORE_LOAD", "a store to global memory and a volatile load after it"),
            ("fence_block", "FENCE_BLOCK", "membar.cta"),
            ("fence_device", "FENCE_DEVICE", "membar.gl with nothing to wait for"),
            ("store_fence_device", "STORE_FENCE_DEVICE", "a store and membar.gl"),
        )),
        ("latency_constant_indexed", CYCLES, "a chain of indexed loads in 1 KiB of constant memory",
         lambda r: step(r["chains"], kind="LDC", words=256, distinct=1)),
    ]  # fmt: skip
    return found


def _rates() -> list[tuple[str, str, str, Callable[[Rows], float]]]:
    ops = (
        ("fadd", "FADD"), ("fmul", "FMUL"), ("ffma", "FFMA"), ("iadd3", "IADD"), ("imad", "IMAD"),
        ("imad_hi", "IMAD_HI"), ("lop3", "LOP3"), ("shf", "SHF"), ("vimnmx", "IMNMX"), ("fmnmx", "FMNMX"),
        ("prmt", "PRMT"), ("popc", "POPC"), ("flo", "FLO"), ("mufu", "EX2"), ("i2f", "I2F"), ("f2i", "F2I"),
        ("f2f", "F2F_UP"), ("dadd", "DADD"), ("dmul", "DMUL"), ("dfma", "DFMA"), ("hadd2", "HADD2"),
        ("hfma2", "HFMA2"), ("shfl", "SHFL"), ("redux", "REDUX"), ("idp", "DP4A"),
        ("match", "MATCH"),
    )  # fmt: skip
    found: list[tuple[str, str, str, Callable[[Rows], float]]] = [
        (
            f"issue_{name}",
            RATE,
            f"eight chains a thread, the best of 4 to 64 warps: {op}",
            lambda r, op=op: _issue(r, op),
        )  # type: ignore[misc]
        for name, op in ops
    ]
    # loops of two kinds of instructions, half of which are the one that is named
    found.append(("issue_isetp_sel", RATE, "ISETP and SEL in turn, together", lambda r: _issue(r, "ISETP_SEL", 2)))
    found.append(("issue_fsetp_sel", RATE, "FSETP and SEL in turn, together", lambda r: _issue(r, "FSETP_SEL", 2)))
    for name, op in (
        ("ffma_iadd3", "FFMA_IADD"), ("ffma_imad", "FFMA_IMAD"), ("ffma_lop3", "FFMA_LOP3"),
        ("iadd3_lop3", "IADD_LOP3"),
        ("imad_lop3", "IMAD_LOP3"), ("fadd_fmul", "FADD_FMUL"), ("ffma_lds", "FFMA_LDS"), ("ffma_mufu", "FFMA_EX2"),
        ("shfl_lds", "SHFL_LDS"), ("ffma_shfl", "FFMA_SHFL"), ("ffma_i2f", "FFMA_I2F"),
    ):  # fmt: skip
        how = f"{name.replace('_', ' and ').upper().replace('AND', 'and')} in turn, together"
        found.append((f"issue_{name}", RATE, how, lambda r, op=op: _issue(r, op)))  # type: ignore[misc]
    return found


def _memory() -> list[tuple[str, str, str, Callable[[Rows], float]]]:
    return [
        ("shared_load_wavefront", "cycles/wavefront", "LDS by conflict degree, slope", lambda r: _wavefront(r, "load")),
        ("shared_store_wavefront", "cycles/wavefront", "STS by conflict degree, slope",
         lambda r: _wavefront(r, "store")),
        ("shared_atomic_lane", "cycles/lane in a bank", "ATOMS.ADD by conflict degree, slope",
         lambda r: _atomic_degree(r, "ADD")),
        ("shared_increment_same", CYCLES, "increments of one word by all lanes",
         lambda r: one(r["shared"], "each", way="INCREMENT", stride=0, warps=32)),
        ("shared_atomic_same", CYCLES, "additions to one word by all lanes",
         lambda r: one(r["shared"], "each", way="ADD", stride=0, warps=32)),
        ("shared_atomic_return_same", CYCLES, "returning additions to one word by all lanes",
         lambda r: one(r["shared"], "each", way="ADD_RETURN", stride=0, warps=32)),
        ("shared_cas_lane", "cycles/lane in a bank", "ATOMS.CAS by conflict degree, slope",
         lambda r: _atomic_degree(r, "CAS_RETURN")),
        ("l1_line", "cycles/line", "LDG that hit in L1, by lines a request, slope", _l1_line),
        ("l1_load_32", CYCLES, "LDG of 32 neighbouring words that hit in L1",
         lambda r: one(r["patterns"], "each", kind="CA", width=4, lines=1, sectors=4, warps=32)),
        ("l1_load_64", CYCLES, "LDG.64 of 32 neighbouring words that hit in L1",
         lambda r: one(r["patterns"], "each", kind="CA", width=8, lines=2, sectors=4, warps=32)),
        ("l1_load_128", CYCLES, "LDG.128 of 32 neighbouring words that hit in L1",
         lambda r: one(r["patterns"], "each", kind="CA", width=16, lines=4, sectors=4, warps=32)),
        ("l1_load_broadcast_128", CYCLES, "LDG.128 within one line that hit in L1",
         lambda r: one(r["patterns"], "each", kind="CA", width=16, lines=1, sectors=4, warps=32)),
        ("l2_load_sector_alone", "cycles/sector", "LDG from L2 by all SMs, 32 lines a request",
         lambda r: _per_sector(r, "CG", False)[0]),
        ("l2_load_sector", "cycles/sector", "LDG from L2 by all SMs, four sectors a line",
         lambda r: _per_sector(r, "CG", False)[1]),
        ("l2_load_sector_one_sm", "cycles/sector", "the same by one SM", lambda r: _per_sector(r, "CG", True)[1]),
        ("l2_store_sector_alone", "cycles/sector", "STG by all SMs, 32 lines a request",
         lambda r: _per_sector(r, "store", False)[0]),
        ("l2_store_sector", "cycles/sector", "STG by all SMs, four sectors a line",
         lambda r: _per_sector(r, "store", False)[1]),
        ("l2_store_sector_one_sm", "cycles/sector", "the same by one SM", lambda r: _per_sector(r, "store", True)[1]),
        ("local_load", CYCLES, "LDL that hit in L1", lambda r: one(r["constants"], "each", kind="LDL", warps=32)),
        ("constant_load_word", "cycles/distinct word", "indexed LDC by distinct words, slope",
         lambda r: line([(row["distinct"], row["each"])
                         for row in pick(r["constants"], kind="LDC", apart=1, warps=32) if row["distinct"] > 1])[1]),
        ("barrier", CYCLES, "BAR.SYNC by warps of one block, intercept", lambda r: _barrier(r)[0]),
        ("barrier_warp", "cycles/warp", "BAR.SYNC by warps of one block, slope", lambda r: _barrier(r)[1]),
        ("branch_loop", CYCLES, "a loop of four instructions, one warp",
         lambda r: one(r["branches"], "cycles", kind="loop", warps=1) / 1000),
        *((f"l2_{way}", "bytes/cycle", f"{way} of some 9 or 18 MiB past L1, the best grid",
           lambda r, way=way: _per_cycle(r, "l2", way=way)) for way in ("read", "write", "copy")),
        *((f"l2_{way}_one_sm", "bytes/cycle", f"{way} of 4 MiB by one SM",
           lambda r, way=way: _per_cycle(r, "l2", way=way, sms=1)) for way in ("read", "write", "copy")),
        *((f"dram_{way}", GBS, f"{way} of 1 GiB, the best grid", lambda r, way=way: most(r["dram"], "gb_s", way=way))
          for way in ("read", "write", "copy")),
        ("dram_random_sectors", "sectors/ns", "random sectors of 1 GiB, the best grid",
         lambda r: most(r["strides"], "sectors_ns", way="random read", footprint=32 << 25)),
        ("atomic_one_address", "lane operations/ns", "RED to one address",
         lambda r: one(r["atomics"], "operations_ns", kind="RED_INT", distinct=1)),
        ("atomic_random", "lane operations/ns", "RED to 2^20 words in random order",
         lambda r: one(r["atomics"], "operations_ns", kind="RED_INT", distinct=1 << 20, lanes="random", apart=4)),
        ("atomic_neighbours", "lane operations/ns", "RED to 2^20 words, neighbouring lanes neighbouring words",
         lambda r: one(r["atomics"], "operations_ns", kind="RED_INT", distinct=1 << 20, lanes="neighbours", apart=4)),
        ("event_overhead", "us", "two events with nothing between", lambda r: _launch(r, kind="nothing")),
        ("launch_event", "us", "an empty kernel of one block between two events",
         lambda r: _launch(r, kind="alone", block=32, grid=1)),
        ("launch_event_flushed", "us", "the same after 256 MiB were written",
         lambda r: _launch(r, kind="flushed", block=32, grid=1)),
        ("launch_graph", "us", "an empty kernel of one block, of 100 in a graph",
         lambda r: _launch(r, kind="graph", block=32, grid=1, name="empty") / 100),
        *((f"block_interval_{block}", "ns", f"empty blocks of {block} threads, 1,000,000 less 100,000",
           lambda r, block=block: _block_interval(r, block)) for block in (32, 64, 128, 256, 512, 1024)),
        *((f"slot_gap_{block}", CYCLES, f"from a block's end to the next one's start, {block} threads, two on an SM",
           lambda r, block=block: _gap(r, block, 0)) for block in (64, 128, 256, 512, 1024)),
        *((f"slot_gap_store_{block}", CYCLES, f"the same where each thread stores a word, {block} threads",
           lambda r, block=block: _gap(r, block, 2)) for block in (64, 128, 256, 512, 1024)),
    ]  # fmt: skip


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


def derive(sweeps: Rows, date: str) -> dict[str, dict[str, Any]]:
    """Every constant that the rows tell; one whose rows are missing is left out."""
    rows: Rows = defaultdict(list, sweeps)
    found: dict[str, dict[str, Any]] = {}
    clock = ("clock", "MHz", "SM clock while all SMs multiply and add", _mhz)
    for name, unit, how, function in (clock, *_latencies(), *_rates(), *_memory()):
        try:
            value = function(rows)
        except Missing:
            continue
        found[name] = {
            "value": float(f"{value:.5g}"), "unit": unit, "source": f"measured {date} by gpusim calibrate: {how}"
        }  # fmt: skip
    return found


def profile_of(content: dict[str, Any], name: str) -> dict[str, Any]:
    """The profile that a file of :func:`gpusim.runner.calibrate.measure` makes, with the raw rows under "sweeps"."""
    attributes = content["device"].get("attributes", {})
    arch = 10 * attributes.get("ComputeCapabilityMajor", 0) + attributes.get("ComputeCapabilityMinor", 0)
    date = content["source"]["date"]
    return {
        "name": name,
        "device": content["device"].get("name", ""),
        "arch": arch,
        "source": content["source"],
        "constants": {**documented(content["device"]), **derive(content["sweeps"], date)},
        "failed": content.get("failed", {}),
        "sweeps": content["sweeps"],
    }
