"""Findings about lanes: branches that split warps, lanes that idle, instructions predicated off, occupancy."""

from __future__ import annotations

from collections.abc import Iterator

from gpusim.explain.base import NEGLIGIBLE, Finding, Totals, count, number
from gpusim.result import Result

LEAST_IDLE = 0.05  # share of lanes below which idling is not reported
LEAST_PREDICATED_OFF = 0.10
LOW_OCCUPANCY = 50.0  # percent
OCCUPANCY_WEIGHT = 0.1
"""Few resident warps are a risk, not traffic that is lost: with enough work a thread they may do."""


def flow_findings(result: Result, totals: Totals) -> Iterator[Finding]:
    """All of them."""
    yield from _divergence(result, totals)
    yield from _idle_lanes(result, totals)
    yield from _predicated_off(result, totals)
    yield from _occupancy(result)


def _divergence(result: Result, totals: Totals) -> Iterator[Finding]:
    """One finding a source line; all of them together are charged with all idle lanes."""
    lines: dict[tuple[object, ...], list[int]] = {}
    for index, counts in enumerate(result.instructions):
        if counts.divergent:
            where = (counts.file, counts.line) if counts.line is not None else (counts.address,)
            lines.setdefault(where, []).append(index)
    for members in lines.values():
        branches = [result.instructions[index] for index in members]
        split, executed = sum(b.divergent for b in branches), sum(b.executed for b in branches)
        severity = totals.idle_lanes * split / totals.divergent
        if severity < NEGLIGIBLE:
            continue
        worst = max(branches, key=lambda b: b.divergent)
        yield Finding(
            "divergent_branch",
            severity,
            f"A branch splits {100 * split / executed:.0f} % of the warps that reach it",
            f"{split:,} of {executed:,} executions went both ways: the two sides run one after the other, each with a "
            f"part of the lanes. Over the whole launch {100 * totals.idle_lanes:.0f} % of the lanes idle.",
            "Let the condition be the same for all lanes of a warp: choose the working threads by whole warps "
            "(tid < n rather than tid % n == 0), or sort the data so that neighbours decide alike.",
            worst.file,
            worst.line,
            worst.address,
            {"divergent": split, "executed": executed, "idle_lanes": totals.idle_lanes},
        )


def _idle_lanes(result: Result, totals: Totals) -> Iterator[Finding]:
    if totals.idle_lanes < LEAST_IDLE:
        return
    threads = result.metrics["launch__block_size"]
    lanes = totals.thread_executed / totals.executed
    missing = -threads % 32
    unfilled = missing / (threads + missing)
    if unfilled >= totals.idle_lanes / 2:
        reason = f"A block of {threads} threads leaves {count(missing, 'lane')} of its last warp empty."
        advice = f"Use a multiple of 32 threads a block, for example {threads + missing}."
    elif totals.divergent:
        reason = f"{totals.divergent:,} executions of branches split a warp."
        advice = "See the divergent branches: what is on one side of them runs without the lanes of the other."
    else:
        reason = "No branch splits a warp, so lanes have left early or never had work."
        advice = "Give each warp a full set of elements: neighbouring work to neighbouring lanes, whole warps exit."
    yield Finding(
        "idle_lanes",
        totals.idle_lanes,
        f"Warps run with {number(lanes)} of 32 lanes on average",
        f"{totals.executed:,} warp instructions executed {totals.thread_executed:,} thread instructions of "
        f"{32 * totals.executed:,} possible. {reason}",
        advice,
        cost={"lanes": lanes, "executed": totals.executed, "thread_executed": totals.thread_executed},
    )


def _predicated_off(result: Result, totals: Totals) -> Iterator[Finding]:
    off = totals.thread_executed - totals.predicated_on
    share = off / totals.thread_executed if totals.thread_executed else 0.0
    if share < LEAST_PREDICATED_OFF:
        return
    worst = max(result.instructions, key=lambda c: c.thread_executed - c.predicated_on)
    yield Finding(
        "predicated_off",
        off / (32 * totals.executed),
        f"{100 * share:.0f} % of the thread instructions are predicated off",
        f"{off:,} of {totals.thread_executed:,} thread instructions were issued with a guard that did not hold: they "
        "took a lane and did nothing.",
        "Short branches become guards, which cost every lane the instruction: let whole warps skip the work, or move "
        "the test out of the loop.",
        worst.file,
        worst.line,
        worst.address,
        {"predicated_off": off, "thread_executed": totals.thread_executed},
    )


_OCCUPANCY_ADVICE = {
    "registers": "Use fewer registers a thread (__launch_bounds__, fewer values alive), or smaller blocks.",
    "shared memory": "Use less shared memory a block: smaller tiles, or more threads on the same tile.",
    "warps": "Use a block whose warps divide the multiprocessor's evenly.",
    "blocks": "Use larger blocks: the number of resident blocks is the limit.",
    "barriers": "Use fewer named barriers a block.",
}


def _occupancy(result: Result) -> Iterator[Finding]:
    fits = result.occupancy
    if fits.percent >= LOW_OCCUPANCY:
        return
    advice = " ".join(_OCCUPANCY_ADVICE[name] for name in fits.limiter.split(" and "))
    yield Finding(
        "low_occupancy",
        OCCUPANCY_WEIGHT * (1 - fits.percent / 100),
        f"Only {count(fits.warps, 'warp')} of {fits.warps_possible} can be resident on a multiprocessor, limited by "
        f"{fits.limiter}",
        f"{count(fits.blocks, 'block')} of {count(fits.warps // max(1, fits.blocks), 'warp')} fit "
        f"({fits.percent:.1f} % theoretical occupancy): fewer warps are there to hide the latency of memory.",
        advice,
        cost={"percent": fits.percent, "warps": fits.warps, "blocks": fits.blocks},
    )
