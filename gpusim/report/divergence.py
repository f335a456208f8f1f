"""How full the warps run: active lanes, guards that hold, and the branches that split warps."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.explain.base import totals
from gpusim.result import Result


@dataclass(frozen=True)
class SplitBranch:
    """A branch that sent lanes of one warp both ways, ``divergent`` times out of ``executed``."""

    file: str | None
    line: int | None
    address: int
    sass: str
    executed: int
    divergent: int

    @property
    def share(self) -> float:
        return self.divergent / self.executed if self.executed else 0.0


@dataclass(frozen=True)
class Divergence:
    """``lanes``: executing lanes an instruction, of 32; ``predicated_on``: share of these whose guard held."""

    lanes: float
    lanes_share: float
    predicated_on: float
    branches: tuple[SplitBranch, ...]


def collect(result: Result) -> Divergence:
    """Lanes of the launch and its splitting branches, the most frequent first."""
    sums = totals(result)
    lanes = sums.thread_executed / sums.executed if sums.executed else 0.0
    branches = [
        SplitBranch(c.file, c.line, c.address, c.sass, c.executed, c.divergent)
        for c in result.instructions
        if c.divergent
    ]
    branches.sort(key=lambda branch: (-branch.divergent, branch.address))
    on = sums.predicated_on / sums.thread_executed if sums.thread_executed else 1.0
    return Divergence(lanes, lanes / 32, on, tuple(branches))
