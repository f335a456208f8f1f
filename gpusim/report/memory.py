"""The table of memory operations: what each moved, what would have been enough, and what was wasted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gpusim.explain.base import SECTORS_A_PASS
from gpusim.explain.patterns import Pattern
from gpusim.result import InstructionCounts, Result


@dataclass(frozen=True)
class MemoryRow:
    """One memory instruction, or ``merged`` of them, and one kind of data that it moved.

    ``unit``: "wavefronts" of shared memory or "sectors" of 32 bytes; ``waste``: share of ``amount`` beyond ``ideal``.
    """

    file: str | None
    line: int | None
    address: int
    sass: str
    merged: int
    space: str
    operation: str
    width: int
    requests: int
    unit: str
    amount: int
    ideal: int
    tags: int
    first_warp: Pattern | None = None
    """The addresses of the first warp that accessed memory here."""

    @property
    def per_request(self) -> float:
        return self.amount / self.requests if self.requests else 0.0

    @property
    def ideal_per_request(self) -> float:
        return self.ideal / self.requests if self.requests else 0.0

    @property
    def excess(self) -> int:
        return max(0, self.amount - self.ideal)

    @property
    def waste(self) -> float:
        return self.excess / self.amount if self.amount else 0.0

    @property
    def access(self) -> str:
        """'shared load, 4 B'."""
        return f"{self.space} {self.operation.replace('_', ' ')}, {self.width} B"

    @property
    def _rank(self) -> tuple[float, float, int]:
        """Excess passes of 128 bytes, then all passes, the worst first."""
        scale = 1.0 if self.unit == "wavefronts" else 1 / SECTORS_A_PASS
        return (-self.excess * scale, -self.amount * scale, self.address)


@dataclass(frozen=True)
class Memory:
    """All memory operations, the worst first; ``unused``: memory instructions that no lane reached."""

    rows: tuple[MemoryRow, ...]
    unused: int


def collect(result: Result) -> Memory:
    """One row for each memory instruction and kind of data."""
    memory = [counts for counts in result.instructions if counts.space is not None]
    rows = [row for counts in memory for row in _rows(counts, result.patterns.get(counts.address))]
    unused = sum(1 for counts in memory if not (counts.wavefronts or counts.sectors or counts.tags))
    return Memory(_sorted(rows), unused)


def merged(memory: Memory) -> Memory:
    """With the instructions of one source line and kind in one row: what an unrolled loop became."""
    found: dict[tuple[object, ...], MemoryRow] = {}
    for row in memory.rows:
        where = (row.file, row.line) if row.line is not None else (row.address,)
        key = (*where, row.space, row.operation, row.width, row.unit)
        earlier = found.get(key)
        found[key] = row if earlier is None else _joined(earlier, row)
    return Memory(_sorted(found.values()), memory.unused)


def _joined(first: MemoryRow, second: MemoryRow) -> MemoryRow:
    return replace(
        first,
        merged=first.merged + second.merged,
        requests=first.requests + second.requests,
        amount=first.amount + second.amount,
        ideal=first.ideal + second.ideal,
        tags=first.tags + second.tags,
    )


def _sorted(rows: Iterable[MemoryRow]) -> tuple[MemoryRow, ...]:
    return tuple(sorted(rows, key=lambda row: row._rank))


def _rows(counts: InstructionCounts, pattern: Pattern | None) -> Sequence[MemoryRow]:
    assert counts.operation is not None and counts.width is not None
    found = []
    for unit, amount, ideal in (
        ("wavefronts", counts.wavefronts, counts.wavefronts_ideal),
        ("sectors", counts.sectors, counts.sectors_ideal),
    ):
        if not amount:
            continue
        space = counts.space or ""
        if counts.operation == "async_copy":  # one instruction that reads here and writes there
            space = "shared" if unit == "wavefronts" else "global"
        found.append(
            MemoryRow(
                counts.file,
                counts.line,
                counts.address,
                counts.sass,
                1,
                space,
                counts.operation,
                counts.width,
                counts.requests,
                unit,
                amount,
                ideal,
                counts.tags if unit == "sectors" else 0,
                pattern if pattern and (pattern.space == "shared") == (unit == "wavefronts") else None,
            )
        )
    return found
