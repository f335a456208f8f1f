"""Reports: every section is collected once as plain data, which the terminal shows and JSON carries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpusim.explain.findings import Finding, find
from gpusim.report import divergence, launch, lines, memory, metrics, occupancy, verdict
from gpusim.result import Result

__all__ = ["LaunchReport", "collect", "to_json", "verdict_of"]


@dataclass(frozen=True)
class LaunchReport:
    """All sections about one launch."""

    launch: launch.Launch
    findings: tuple[Finding, ...]
    memory: memory.Memory
    lines: lines.Lines
    occupancy: occupancy.OccupancySection
    divergence: divergence.Divergence
    metrics: metrics.Metrics
    output: str


def collect(result: Result) -> LaunchReport:
    """Collect every section of a launch."""
    return LaunchReport(
        launch=launch.collect(result),
        findings=tuple(find(result)),
        memory=memory.collect(result),
        lines=lines.collect(result),
        occupancy=occupancy.collect(result),
        divergence=divergence.collect(result),
        metrics=metrics.collect(result),
        output=result.output,
    )


def verdict_of(results: Sequence[Result]) -> verdict.Verdict:
    """The verdict over all launches."""
    return verdict.collect(results)


def to_json(report: LaunchReport) -> dict[str, Any]:
    """The sections as plain data; findings, metrics and output, which Result.to_json() has, are left out."""
    found = asdict(report)
    for row, plain in zip(report.memory.rows, found["memory"]["rows"], strict=True):
        plain |= {
            "per_request": row.per_request,
            "ideal_per_request": row.ideal_per_request,
            "excess": row.excess,
            "waste": row.waste,
        }
    for branch, plain in zip(report.divergence.branches, found["divergence"]["branches"], strict=True):
        plain["share"] = branch.share
    return {name: section for name, section in found.items() if name not in ("findings", "metrics", "output")}
