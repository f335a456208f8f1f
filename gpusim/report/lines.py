"""The source lines that cost most, with their text."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.explain.base import SECTORS_A_PASS
from gpusim.result import Result


@dataclass(frozen=True)
class SourceLine:
    """Sums over the instructions of one source line; ``text`` is None where the source cannot be had."""

    file: str
    line: int
    text: str | None
    executed: int
    executed_share: float
    wavefronts: int
    wavefronts_excess: int
    sectors: int
    sectors_excess: int
    divergent: int

    @property
    def excess_passes(self) -> float:
        """128-byte passes that are wasted."""
        return self.wavefronts_excess + self.sectors_excess / SECTORS_A_PASS


@dataclass(frozen=True)
class Lines:
    """Source lines, those that waste most first, then those with the most instructions."""

    rows: tuple[SourceLine, ...]


def collect(result: Result) -> Lines:
    """Every source line that was executed."""
    sums: dict[tuple[str, int], list[int]] = {}
    executed = 0
    for counts in result.instructions:
        executed += counts.executed
        if counts.file is None or counts.line is None or not counts.executed:
            continue
        at = sums.setdefault((counts.file, counts.line), [0] * 6)
        for place, amount in enumerate(
            (
                counts.executed,
                counts.wavefronts,
                max(0, counts.wavefronts - counts.wavefronts_ideal),
                counts.sectors,
                max(0, counts.sectors - counts.sectors_ideal),
                counts.divergent,
            )
        ):
            at[place] += amount
    rows = []
    for (file, line), (issued, wavefronts, more_wavefronts, sectors, more_sectors, divergent) in sums.items():
        text = result.source.get(file, [])
        rows.append(
            SourceLine(
                file,
                line,
                text[line - 1].rstrip() if 0 < line <= len(text) else None,
                issued,
                issued / executed,
                wavefronts,
                more_wavefronts,
                sectors,
                more_sectors,
                divergent,
            )
        )
    rows.sort(key=lambda row: (-row.excess_passes, -row.executed, row.file, row.line))
    return Lines(tuple(rows))
