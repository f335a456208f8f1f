"""The counters by Nsight Compute's names."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.counters.metrics import METRICS
from gpusim.result import Result


@dataclass(frozen=True)
class MetricRow:
    """One counter; ``exactness`` is "exact", "modelled" or "measured"."""

    name: str
    value: int
    exactness: str
    what: str


@dataclass(frozen=True)
class Metrics:
    """All counters, in the order of the table of metrics; launch facts last."""

    rows: tuple[MetricRow, ...]


def collect(result: Result) -> Metrics:
    """Every metric of the launch."""
    known = {metric.name: metric for metric in METRICS}
    rows = []
    for name, value in result.metrics.items():
        metric = known.get(name)
        kind: str = metric.kind if metric else "exact"
        if metric and kind == "exact":
            kind = result.exactness
        rows.append(MetricRow(name, value, kind, metric.what if metric else ""))
    return Metrics(tuple(rows))
