"""Findings about memory: bank conflicts, sectors nobody asked for, local memory, atomics that queue."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np

from gpusim.explain.base import NEGLIGIBLE, NOUNS, Finding, Group, Totals, count, groups, number
from gpusim.explain.names import accessed_array
from gpusim.explain.padding import best_padding
from gpusim.explain.patterns import Pattern
from gpusim.result import Result

ATOMICS = ("reduce", "atomic")
BANKS = 32
LINE_BYTES = 128


def memory_findings(result: Result, totals: Totals) -> Iterator[Finding]:
    """All of them; local memory is one finding, the others one for each source line and kind of access."""
    for group in groups(result.instructions):
        if group.space == "local":
            continue
        if group.operation in ATOMICS:
            yield from _atomic(result, group, totals)
            continue
        if group.total("wavefronts") > group.total("wavefronts_ideal"):
            yield from _bank_conflict(result, group, totals)
        if group.total("sectors") > group.total("sectors_ideal"):
            yield from _sectors(result, group, totals)
    yield from _local(result, totals)


def _subject(result: Result, group: Group, space: str) -> str:
    """'Shared loads of tile'."""
    first = group.first
    name = accessed_array(result.source.get(first.file or "", ()), first.line, space, group.operation)
    preposition = "to" if group.operation in ("store", "matrix_store") else "of"
    return f"{space.capitalize()} {NOUNS[group.operation]}" + (f" {preposition} {name}" if name else "")


def _bank_conflict(result: Result, group: Group, totals: Totals) -> Iterator[Finding]:
    wavefronts, ideal, requests = group.total("wavefronts"), group.total("wavefronts_ideal"), group.total("requests")
    excess = wavefronts - ideal
    severity = totals.share(wavefronts=excess)
    if severity < NEGLIGIBLE or not ideal:
        return
    requests = requests or ideal  # the shared side of an asynchronous copy counts no requests of its own
    worst = group.worst(lambda c: c.wavefronts - c.wavefronts_ideal)
    pattern = result.patterns.get(worst.address)
    ways = wavefronts / ideal
    average = "" if number(ways) == str(round(ways)) else " on average"
    title = (
        f"{_subject(result, group, 'shared')} take {count(wavefronts / requests, 'wavefront')} where "
        f"{number(ideal / requests)} would do ({number(ways)}-way bank conflict{average})"
    )
    detail = (
        f"{count(requests, 'request')} took {wavefronts:,} wavefronts, and {ideal:,} without conflicts: "
        f"{excess:,} passes through the banks are repetitions."
    )
    yield Finding(
        "bank_conflict",
        severity,
        title,
        f"{detail} {_banks(pattern)}".strip(),
        _conflict_advice(pattern, group.operation, wavefronts / requests),
        worst.file,
        worst.line,
        worst.address,
        {"wavefronts": wavefronts, "wavefronts_ideal": ideal, "excess": excess, "requests": requests, "ways": ways},
    )


def _banks(pattern: Pattern | None) -> str:
    """Which banks the sampled warp hits, and how its lanes lie."""
    if pattern is None or pattern.space != "shared":
        return ""
    words = {(pattern.base + offset + k) // 4 for offset in pattern.used for k in range(0, pattern.width, 4)}
    fullest = int(np.bincount([word % BANKS for word in words], minlength=BANKS).max())
    banks = len({word % BANKS for word in words})
    step = pattern.common_step
    apart = f"most lanes lie {count(abs(step), 'byte')} from the next, and " if step else ""
    return (
        f"In the first warp {apart}{count(len(words), 'different word')} fall into {banks} of {BANKS} banks, up to "
        f"{fullest} in one."
    )


def _conflict_advice(pattern: Pattern | None, operation: str, average: float) -> str:
    found = best_padding(pattern, operation) if pattern else None
    if found is not None and abs(found.wavefronts - average) < 0.01 * average:
        swizzle = ""
        if found.swizzled is not None and found.swizzled <= found.better_wavefronts:
            swizzle = " Keeping column c of row r at column c ^ r does the same without padding."
        rest = ", ".join(f"{pitch}: {waves}" for pitch, waves in found.tried.items())
        return (
            f"Pad the rows: if they are {found.pitch} words apart, as the addresses of the first warp suggest, rows of "
            f"{found.better} words would take {count(found.better_wavefronts, 'wavefront')}"
            f"{f' ({rest})' if rest else ''}.{swizzle}"
        )
    step = pattern.common_step if pattern else None
    if step is not None and step % 8 == 0:
        used = BANKS // math.gcd(abs(step) // 4, BANKS)
        return (
            f"Give neighbouring lanes neighbouring words: a step of {abs(step) // 4} words reaches only "
            f"{count(used, 'bank')} of {BANKS}. In a tree let thread t add element t + s for s halving, rather than "
            "element 2 * s * t + s for s doubling."
        )
    return (
        "Let the lanes of a warp access different banks: neighbouring lanes neighbouring words, or rows whose pitch in "
        "words is odd where lanes go down a column."
    )


def _sectors(result: Result, group: Group, totals: Totals) -> Iterator[Finding]:
    sectors, ideal, requests = group.total("sectors"), group.total("sectors_ideal"), group.total("requests")
    excess = sectors - ideal
    severity = totals.share(sectors=excess)
    if severity < NEGLIGIBLE or not requests:
        return
    worst = group.worst(lambda c: c.sectors - c.sectors_ideal)
    pattern = result.patterns.get(worst.address)
    if pattern is not None and pattern.space != "global":
        pattern = None
    subject = _subject(result, group, "global")
    cost: dict[str, float] = {"sectors": sectors, "sectors_ideal": ideal, "excess": excess, "requests": requests}
    numbers = (
        f"{count(requests, 'request')} touched {sectors:,} sectors of 32 bytes, and {ideal:,} would hold what was "
        f"asked for: {32 * excess:,} bytes more than needed."
    )
    each = f"touch {count(sectors / requests, 'sector')} a request where {number(ideal / requests)} would do"
    if _is_misaligned(pattern, excess, requests, ideal):
        start = f" The first warp's bytes start {pattern.base % 32} bytes into a sector." if pattern else ""
        yield Finding(
            "misaligned",
            severity,
            f"{subject} {each}: they do not start at a sector boundary",
            numbers + start,
            "Start each warp's run of bytes at a multiple of 32: align the first element, and pad the rows of a "
            "matrix to a multiple of 32 bytes (cudaMallocPitch does).",
            worst.file,
            worst.line,
            worst.address,
            cost,
        )
        return
    yield Finding(
        "uncoalesced",
        severity,
        f"{subject} {each}",
        f"{numbers} {_spread(pattern)}".strip(),
        _coalescing_advice(pattern),
        worst.file,
        worst.line,
        worst.address,
        cost,
    )


def _is_misaligned(pattern: Pattern | None, excess: int, requests: int, ideal: int) -> bool:
    """At most one sector a request too many, and lanes that lie side by side."""
    if excess > requests:
        return False
    return pattern.contiguous if pattern is not None else ideal >= 2 * requests


def _spread(pattern: Pattern | None) -> str:
    if pattern is None:
        return ""
    if pattern.stride is not None:
        return f"In the first warp each lane lies {count(abs(pattern.stride), 'byte')} from the one before."
    if pattern.common_step:
        return f"In the first warp most lanes lie {count(abs(pattern.common_step), 'byte')} from the one before."
    lines = len({(pattern.base + offset) // LINE_BYTES for offset in pattern.used})
    return f"The first warp's lanes are scattered over {lines} lines of {LINE_BYTES} bytes."


def _coalescing_advice(pattern: Pattern | None) -> str:
    step = pattern.common_step if pattern else None
    if pattern is not None and step is not None and pattern.width < abs(step) <= 64:
        return (
            f"Use the bytes between: a lane takes {pattern.width} of every {abs(step)}. Keep fields that are used "
            "together side by side (a structure of arrays), or load all of them with one wide access."
        )
    if pattern is not None and step is None and not pattern.contiguous:
        return (
            "The addresses follow no fixed step: sort or group the indices so that the lanes of a warp meet in the "
            "same lines, or gather through shared memory."
        )
    return (
        "Let threadIdx.x run along the contiguous dimension, so that neighbouring lanes access neighbouring elements. "
        "Where the other side needs it the other way round, turn the data in a tile of shared memory."
    )


_FRAME = re.compile(r"\[R1(?:\+0x[0-9a-f]+)?\]")


def _local(result: Result, totals: Totals) -> Iterator[Finding]:
    local = [counts for counts in result.instructions if counts.space == "local" and counts.requests]
    if not local:
        return
    sectors = sum(counts.sectors for counts in local)
    requests = sum(counts.requests for counts in local)
    severity = totals.share(sectors=sectors)
    if severity < NEGLIGIBLE:
        return
    worst = max(local, key=lambda counts: counts.sectors)
    indexed = sum(counts.requests for counts in local if not _FRAME.search(counts.sass))
    held = result.launch.local_bytes
    detail = (
        f"{count(requests, 'request')} to local memory moved {sectors:,} sectors; a thread keeps {held} bytes there. "
        f"{indexed:,} of these requests use an address computed at run time, {requests - indexed:,} a fixed place in "
        "the stack frame."
    )
    if indexed:  # spilled registers always have a fixed place
        advice = (
            "Registers cannot be indexed: give the array only indices that the compiler knows (unroll the loops over "
            "it completely), or keep it in shared memory."
        )
    else:
        advice = (
            f"Fixed places are spilled registers or arrays of a called function: the kernel has "
            f"{result.launch.registers} registers a thread. Allow more (a larger second bound or none in "
            "__launch_bounds__, a higher -maxrregcount), or keep fewer values alive."
        )
    yield Finding(
        "local_memory",
        severity,
        f"Local memory takes {100 * severity:.0f} % of the traffic: {number(sectors / requests)} sectors a request",
        detail,
        advice,
        worst.file,
        worst.line,
        worst.address,
        {"sectors": sectors, "requests": requests, "indexed": indexed, "bytes_a_thread": held},
    )


def _atomic(result: Result, group: Group, totals: Totals) -> Iterator[Finding]:
    requests = group.total("requests")
    worst = group.worst(lambda c: c.wavefronts + c.sectors)
    for space, actual, best, unit in (
        ("shared", group.total("wavefronts"), group.total("wavefronts_ideal"), "wavefront"),
        ("global", group.total("sectors"), group.total("sectors_ideal"), "sector pass"),
    ):
        excess = actual - best
        severity = totals.share(**{"wavefronts" if space == "shared" else "sectors": excess})
        if excess <= 0 or not requests or severity < NEGLIGIBLE:
            continue
        pattern = result.patterns.get(worst.address)
        places = len(set(pattern.used)) if pattern else 0
        lanes = len(pattern.used) if pattern else 0
        named = count(places, "address", "addresses")
        sample = f" In the first warp {count(lanes, 'lane')} name {named}." if lanes else ""
        plural = {"sector pass": "sector passes"}.get(unit)
        if pattern is not None and 2 * places <= lanes:
            advice = (
                "Combine before the atomic: add the lanes of a warp with shuffles or __reduce_add_sync and let one "
                "lane do it, or count in several copies and add those at the end."
            )
        elif space == "global":
            advice = "Collect in shared memory first and add a block's total once."
        else:
            advice = "Keep a copy of the counters for each warp, so that lanes and warps meet less often."
        yield Finding(
            "atomic_contention",
            severity,
            f"{_subject(result, group, space)} take {count(actual / requests, unit, plural)} a request where "
            f"{number(best / requests)} would do",
            f"{count(requests, 'request')} took {actual:,} {plural or unit + 's'}, and {best:,} if no two lanes met."
            f"{sample}",
            advice,
            worst.file,
            worst.line,
            worst.address,
            {"passes": actual, "passes_ideal": best, "excess": excess, "requests": requests},
        )
