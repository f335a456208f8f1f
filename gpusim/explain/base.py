"""What a finding is, and the numbers that every kind of finding is computed from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpusim.result import InstructionCounts, Result

SECTORS_A_PASS = 4
"""A wavefront of shared memory and four sectors of global memory both carry 128 bytes: one pass of the L1's data."""

NEGLIGIBLE = 0.002
"""Findings below this share of the launch are not worth a reader's time."""


@dataclass(frozen=True)
class Finding:
    """One thing that the counters show.

    ``severity``: share of the launch's traffic (or of its lanes) that is lost to it, 0 to 1.  ``detail``: the reason,
    with its numbers; ``advice``: what to change.  ``cost``: the numbers themselves.  ``address``: the instruction
    that costs most.
    """

    id: str
    severity: float
    title: str
    detail: str
    advice: str
    file: str | None = None
    line: int | None = None
    address: int | None = None
    cost: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Memory instructions of one kind that one source line became."""

    members: tuple[InstructionCounts, ...]

    @property
    def first(self) -> InstructionCounts:
        return self.members[0]

    @property
    def operation(self) -> str:
        return self.first.operation or ""

    @property
    def space(self) -> str:
        return self.first.space or ""

    def total(self, name: str) -> int:
        return sum(int(getattr(member, name)) for member in self.members)

    def worst(self, cost: Callable[[InstructionCounts], int]) -> InstructionCounts:
        return max(self.members, key=cost)


def groups(instructions: Iterable[InstructionCounts]) -> list[Group]:
    """Memory instructions by source line, kind and cost a request, in order of address.

    An unrolled loop is one group.  Instructions without a line stay alone, and so do those of a line that cost more
    than their neighbours, such as the second load of ``in[index[i]]``.
    """
    found: dict[tuple[object, ...], list[InstructionCounts]] = {}
    for counts in instructions:
        if counts.space is None:
            continue
        where = (counts.file, counts.line) if counts.line is not None else (counts.address,)
        each = [round(total / max(1, counts.requests), 1) for total in (counts.wavefronts, counts.sectors)]
        found.setdefault((*where, counts.space, counts.operation, counts.width, *each), []).append(counts)
    return [Group(tuple(members)) for members in found.values()]


@dataclass(frozen=True)
class Totals:
    """Sums over the launch."""

    wavefronts: int
    sectors: int
    executed: int
    thread_executed: int
    predicated_on: int
    divergent: int

    @property
    def passes(self) -> float:
        """128-byte passes of shared and global data together."""
        return self.wavefronts + self.sectors / SECTORS_A_PASS

    @property
    def idle_lanes(self) -> float:
        """Share of the lanes of issued instructions that did not execute."""
        return 1 - self.thread_executed / (32 * self.executed) if self.executed else 0.0

    def share(self, wavefronts: int = 0, sectors: int = 0) -> float:
        """The share of all passes that so many wavefronts and sectors are."""
        return (wavefronts + sectors / SECTORS_A_PASS) / self.passes if self.passes else 0.0


def totals(result: Result) -> Totals:
    """The sums that severities are shares of."""

    def total(name: str) -> int:
        return sum(getattr(counts, name) for counts in result.instructions)

    return Totals(*(total(name) for name in Totals.__dataclass_fields__))


def number(value: float) -> str:
    """16, 15.5 or 1,234.5: without decimals where there are none."""
    return f"{value:,.0f}" if abs(value - round(value)) < 0.005 else f"{value:,.1f}"


def count(value: float, noun: str, plural: str | None = None) -> str:
    """'1 sector', '4 sectors', '2.5 sectors'."""
    return f"{number(value)} {noun if number(value) == '1' else plural or noun + 's'}"


def place(file: str | None, line: int | None) -> str:
    """'transpose.cu:60', or nothing where the line is not known."""
    return f"{os.path.basename(file)}:{line}" if file and line is not None else ""


NOUNS = {
    "load": "loads",
    "store": "stores",
    "reduce": "reductions",
    "atomic": "atomics",
    "matrix_load": "matrix loads",
    "matrix_store": "matrix stores",
    "async_copy": "asynchronous copies",
}
