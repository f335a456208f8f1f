"""The first thing a reader sees: one or two sentences, and how far they can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.explain.base import place, totals
from gpusim.explain.findings import Finding, find
from gpusim.result import Result

WORTH_SAYING = 0.02  # severity from which a finding is the verdict
WORTH_ADDING = 0.10  # severity from which a second one joins it


@dataclass(frozen=True)
class Verdict:
    """``text`` in one or two sentences; ``severity`` is the worst finding's, 0 where nothing stands out."""

    text: str
    exactness: str
    severity: float


def collect(results: Sequence[Result]) -> Verdict:
    """The verdict over all launches of an analysis."""
    found = _ranked(results)
    several = len(results) > 1
    exactness = "exact"
    if any(result.caveats for result in results):
        certain = all(result.exactness == "exact" for result in results)
        exactness = "exact, but see the caveats" if certain else "modelled, see the caveats"
    if not found or found[0][1].severity < WORTH_SAYING:
        return Verdict(_clean(results), exactness, found[0][1].severity if found else 0.0)
    said = [_sentence(*found[0], several=several)]
    others = [(number, f) for number, f in found[1:] if f.severity >= WORTH_ADDING and f.id != found[0][1].id]
    if others:
        said.append(_sentence(*others[0], several=several))
    return Verdict(" ".join(said), exactness, found[0][1].severity)


def _ranked(results: Sequence[Result]) -> list[tuple[int, Finding]]:
    """(launch number from 1, finding), the worst first: its severity times its launch's share of all instructions."""
    executed = [max(1, totals(result).executed) for result in results]
    ranked = [
        (finding.severity * work / sum(executed), number, finding)
        for number, (result, work) in enumerate(zip(results, executed, strict=True), 1)
        for finding in find(result)
    ]
    ranked.sort(key=lambda entry: -entry[0])
    return [(number, finding) for _, number, finding in ranked]


def _sentence(number: int, finding: Finding, *, several: bool) -> str:
    where = place(finding.file, finding.line)
    marks = ", ".join(part for part in (f"launch {number}" if several else "", where) if part)
    return f"{finding.title}{f' [{marks}]' if marks else ''}."


def _clean(results: Sequence[Result]) -> str:
    """What can be said when nothing stands out, from the same counters."""
    sums = dict.fromkeys(("wavefronts", "wavefronts_ideal", "sectors", "sectors_ideal"), 0)
    for result in results:
        for counts in result.instructions:
            for name in sums:
                sums[name] += getattr(counts, name)
    parts = []
    if sums["sectors"]:
        parts.append(_excess("global memory moves", "sectors", sums["sectors"], sums["sectors_ideal"]))
    if sums["wavefronts"]:
        parts.append(_excess("shared memory takes", "wavefronts", sums["wavefronts"], sums["wavefronts_ideal"]))
    if not parts:
        return "The kernel accesses no memory that is counted."
    return f"No access pattern to mend: {' and '.join(parts)}."


def _excess(subject: str, unit: str, actual: int, ideal: int) -> str:
    share = (actual - ideal) / actual
    if actual <= ideal:
        return f"{subject} no more {unit} than its requests need"
    return f"{subject} {100 * share:.1f} % more {unit} than its requests need"
