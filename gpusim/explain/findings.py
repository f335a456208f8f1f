"""What a launch's counters say, worst first.

Everything here follows from counters, launch facts and the sampled addresses of a Result; nothing is known about any
kernel beforehand.
"""

from __future__ import annotations

from gpusim.explain.base import Finding, totals
from gpusim.explain.flow import flow_findings
from gpusim.explain.memory import memory_findings
from gpusim.result import Result

__all__ = ["Finding", "find"]


def find(result: Result) -> list[Finding]:
    """The findings of a launch, the most severe first."""
    sums = totals(result)
    found = [*memory_findings(result, sums), *flow_findings(result, sums)]
    # of equal ones those first that name a place
    return sorted(found, key=lambda f: (-round(f.severity, 9), f.address is None, f.address or 0, f.id))
