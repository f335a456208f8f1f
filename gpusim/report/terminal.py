"""Reports on the terminal: text in sections, tables that keep their numbers whole at any width."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Column, Table
from rich.text import Text

from gpusim.explain.base import Finding, count, place
from gpusim.kernels import Case
from gpusim.report import LaunchReport
from gpusim.report import memory as memory_section
from gpusim.report.divergence import Divergence
from gpusim.report.launch import Launch
from gpusim.report.lines import Lines
from gpusim.report.memory import Memory, MemoryRow
from gpusim.report.metrics import MetricRow, Metrics
from gpusim.report.occupancy import OccupancySection
from gpusim.report.verdict import Verdict

WIDE = 112  # columns from which instructions get a column of their own
LINES_SHOWN = 5
LEGEND = (
    "request: one warp's access. sector: 32 bytes of global or local memory. wavefront: one pass through the 32 banks "
    "of shared memory, at most 128 bytes. ideal: what the same lanes need at best. waste: share beyond the ideal. "
    "Exact counts are those that Nsight Compute shows for this machine code."
)


@dataclass(frozen=True)
class Style:
    """How much to show: rows of a table at most (None: all of them)."""

    max_rows: int | None = 12

    @property
    def all(self) -> bool:
        return self.max_rows is None

    def cut(self, rows: Sequence[object], least: int | None = None) -> int:
        """How many of the rows to show."""
        if self.max_rows is None:
            return len(rows)
        return min(len(rows), self.max_rows if least is None else min(self.max_rows, least))


class PlainConsole(Console):
    """rich's console, which would exit the program when the reader of a pipe is gone."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def make_console() -> Console:
    """A console on standard output: plain text, a little over 80 columns wide, where that is no terminal."""
    console = PlainConsole(highlight=False, markup=False, emoji=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = PlainConsole(highlight=False, markup=False, emoji=False, width=100)
    return console


class Terminal:
    """Prints the sections of a report."""

    def __init__(self, console: Console, style: Style) -> None:
        self.console, self.style = console, style

    # -- building blocks --------------------------------------------------------------------------------------------
    def text(self, words: str, style: str = "", indent: int = 2) -> None:
        """A paragraph."""
        self._print(Padding(Text(words, style=style), (0, 0, 0, indent)))

    def line(self, words: Text) -> None:
        """A line that is not wrapped or filled up."""
        words.no_wrap, words.overflow = True, "ignore"
        self._print(words)

    def _print(self, what: RenderableType) -> None:
        """Print; into a file or pipe without the blanks that fill lines up."""
        if self.console.is_terminal:
            self.console.print(what)
            return
        with self.console.capture() as captured:
            self.console.print(what)
        for line in captured.get().splitlines():
            self.console.out(line.rstrip(), highlight=False)

    def heading(self, title: str, note: str = "") -> None:
        """A section's title, after an empty line."""
        self.console.print()
        self._print(Text.assemble((title, "bold"), (f"  ({note})" if note else "", "dim")))

    def rule(self, title: str) -> None:
        """A line across, before each of several launches."""
        self.console.print()
        self._print(Rule(Text(title, "bold"), align="left", characters="-"))

    def catalogue(self, cases: Sequence[Case]) -> None:
        """The kernels of one family, with the sizes of their problems."""
        self.table(
            [Column("name", no_wrap=True), _words("shows"), Column("sizes", no_wrap=True, style="dim")],
            [(case.name + _mark(case), case.title, ", ".join(map(_size, case.sizes))) for case in cases],
        )

    def coverage(self, rows: Sequence[tuple[str, int, int]]) -> None:
        """(kernel, instructions, of these not supported)."""
        columns = [_words("kernel"), _number("instructions"), _number("unsupported")]
        self.table(columns, [(name, f"{total:,}", f"{bad:,}") for name, total, bad in rows])

    def table(self, columns: Sequence[Column | str], rows: Iterable[Sequence[str | Text]], header: bool = True) -> None:
        """A table whose number columns are never cut: only columns made by ``_words`` may wrap."""
        table = Table(*columns, box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
        table.show_header = header
        for row in rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
        self._indented(table)

    def _indented(self, what: RenderableType) -> None:
        self._print(Padding(what, (0, 0, 0, 2)))

    def more(self, hidden: int, what: str) -> None:
        if hidden > 0:
            self.text(f"... {hidden} more {what} (--all shows them)", "dim")

    # -- sections ---------------------------------------------------------------------------------------------------
    def verdict(self, verdict: Verdict) -> None:
        mark = "bold green" if verdict.severity < 0.02 else "bold yellow" if verdict.severity < 0.3 else "bold red"
        self._print(Text.assemble((verdict.text, mark), (f" ({verdict.exactness})", "dim")))

    def launch(self, launch: Launch) -> None:
        self.heading("Launch")
        shared = f"{launch.shared_static:,} B static"
        if launch.shared_dynamic:
            shared += f" + {launch.shared_dynamic:,} B dynamic"
        local = f", {launch.local_bytes:,} B local memory a thread" if launch.local_bytes else ""
        rows = [
            ("kernel", f"{launch.kernel} for {launch.arch}, machine code of {launch.made_by}"),
            ("grid", _shape(launch.grid, count(launch.blocks, "block"))),
            ("block", _shape(launch.block, count(launch.threads, "thread"))),
            ("resources", f"{launch.registers} registers a thread, shared memory {shared}{local}"),
            ("executed", f"{launch.warp_instructions:,} warp and {launch.thread_instructions:,} thread instructions"),
            ("counted", launch.path),
        ]
        self.facts(rows)

    def facts(self, rows: Sequence[tuple[str, str]], indent: int = 2) -> None:
        """Names and what is to be said about each."""
        grid = Table.grid(Column(no_wrap=True, style="dim"), Column(overflow="fold"), padding=(0, 2, 0, 0))
        for name, value in rows:
            grid.add_row(Text(name), Text(value))
        self._print(Padding(grid, (0, 0, 0, indent)))

    def output(self, output: str) -> None:
        """What the kernel printed, if anything."""
        if not output:
            return
        self.heading("Output", "of the kernel's printf")
        lines = output.splitlines()
        shown = self.style.cut(lines)
        for line in lines[:shown]:
            self.text(line)
        self.more(len(lines) - shown, "lines")

    def findings(self, findings: Sequence[Finding]) -> None:
        self.heading("Findings", "worst first")
        if not findings:
            self.text("none")
        shown = self.style.cut(findings, 6)
        for index, finding in enumerate(findings[:shown], 1):
            where = place(finding.file, finding.line)
            title = f"{index}. {finding.title}{f' [{where}]' if where else ''}"
            self.text(title, "bold")
            self.text(finding.detail, indent=5)
            self.text(f"Fix: {finding.advice}", "green", indent=5)
        self.more(len(findings) - shown, "findings")

    def memory(self, memory: Memory) -> None:
        limit = self.style.max_rows
        if limit is not None and len(memory.rows) > limit:
            memory = memory_section.merged(memory)
        titles = {"wavefronts": "Shared memory operations", "sectors": "Global and local memory operations"}
        for unit, title in titles.items():
            rows = [row for row in memory.rows if row.unit == unit]
            if not rows:
                continue
            self.heading(title, "worst first")
            self._memory_table(rows[: self.style.cut(rows)], unit)
            self.more(len(rows) - self.style.cut(rows), "rows")
        if not memory.rows:
            self.heading("Memory operations")
            self.text("none")

    def _memory_table(self, rows: Sequence[MemoryRow], unit: str) -> None:
        wide = self.console.width >= WIDE
        numbers = ("requests", unit, "a request", "ideal", "waste")
        columns = [_number("line"), _words("access"), *(_number(name) for name in numbers)]
        if wide:
            columns.insert(2, _words("instruction"))
        cells: list[list[str | Text]] = []
        for row in rows:
            sass = _sass(row)
            access = Text(row.access) if wide else Text.assemble(row.access, "\n", (sass, "dim"))
            cells.append(
                [
                    str(row.line) if row.line is not None else f"{row.address:#x}",
                    access,
                    *([Text(sass, "dim")] if wide else []),
                    f"{row.requests:,}",
                    f"{row.amount:,}",
                    f"{row.per_request:,.2f}",
                    f"{row.ideal_per_request:,.2f}",
                    Text(f"{100 * row.waste:.1f} %", _heat(row.waste)),
                ]
            )
        self.table(columns, cells)

    def lines(self, lines: Lines) -> None:
        rows = lines.rows
        if not rows:
            return
        shown = rows[: self.style.cut(rows, LINES_SHOWN)]
        files = sorted({row.file for row in shown})
        several = len(files) > 1
        self.heading("Source lines", "most waste first, then most instructions")
        for file in files:
            self.text(_short(file), "dim")
        numbers = ("line", "instr.", "wasted\nwavefronts", "wasted\nsectors")
        columns = [*(_number(name) for name in numbers), _words("source")]
        cells: list[list[str | Text]] = [
            [
                place(row.file, row.line) if several else str(row.line),
                f"{100 * row.executed_share:.1f} %",
                f"{row.wavefronts_excess:,}" if row.wavefronts else "",
                f"{row.sectors_excess:,}" if row.sectors else "",
                Text((row.text or "").strip(), "bold" if row.excess_passes else ""),
            ]
            for row in shown
        ]
        self.table(columns, cells)
        self.more(len(rows) - len(shown), "lines")

    def occupancy(self, occupancy: OccupancySection) -> None:
        self.heading("Occupancy", "theoretical")
        self.text(
            f"{occupancy.percent:.1f} %: {count(occupancy.blocks, 'block')} of "
            f"{count(occupancy.warps_a_block, 'warp')}, {occupancy.warps} of {occupancy.warps_possible} warps of a "
            f"multiprocessor, limited by {occupancy.limiter}"
        )
        numbers = (_number(name) for name in ("available", "blocks", "warps"))
        columns = [_words("resource"), _words("a block takes"), *numbers, _words("")]
        self.table(
            columns,
            [
                (r.name, r.block_takes, r.available, str(r.blocks), str(r.warps), "<- limit" if r.limits else "")
                for r in occupancy.resources
            ],
        )

    def divergence(self, divergence: Divergence) -> None:
        self.heading("Divergence")
        self.text(
            f"{divergence.lanes:.2f} of 32 lanes execute an instruction on average "
            f"({100 * divergence.lanes_share:.1f} %); "
            f"the guard holds for {100 * divergence.predicated_on:.1f} % of them"
        )
        if not divergence.branches:
            self.text("no branch splits a warp")
            return
        shown = divergence.branches[: self.style.cut(divergence.branches, LINES_SHOWN)]
        columns = [_number("line"), _words("branch"), _number("executed"), _number("split"), _number("share")]
        self.table(
            columns,
            [
                (
                    str(b.line) if b.line is not None else f"{b.address:#x}",
                    Text(b.sass, "dim"),
                    f"{b.executed:,}",
                    f"{b.divergent:,}",
                    f"{100 * b.share:.1f} %",
                )
                for b in shown
            ],
        )
        self.more(len(divergence.branches) - len(shown), "branches")

    def metrics(self, metrics: Metrics) -> None:
        rows = [row for row in metrics.rows if self.style.all or (row.value and not row.name.startswith("launch__"))]
        hidden = "" if self.style.all else "; zeros are left out, --all shows them"
        modelled = "; ~: modelled" if any(row.exactness != "exact" for row in rows) else ""
        self.heading("Nsight Compute metrics", f"exact{modelled}{hidden}")
        wide = self.console.width >= WIDE
        columns = [_words("metric"), _number("value"), *([_words("")] if wide else [])]
        self.table(columns, [self._metric(r, wide) for r in rows])

    @staticmethod
    def _metric(row: MetricRow, wide: bool) -> tuple[str | Text, ...]:
        value = f"{row.value:,}" if row.exactness == "exact" else f"~{row.value:,}"
        return (row.name, value, *([Text(row.what, "dim")] if wide else []))

    def legend(self) -> None:
        self.heading("Legend")
        self.text(LEGEND, "dim")

    def report(self, report: LaunchReport) -> None:
        """All sections about one launch."""
        self.launch(report.launch)
        self.output(report.output)
        self.findings(report.findings)
        self.memory(report.memory)
        self.lines(report.lines)
        self.occupancy(report.occupancy)
        self.divergence(report.divergence)
        self.metrics(report.metrics)


def _number(title: str) -> Column:
    return Column(title, justify="right", no_wrap=True, min_width=4)


def _words(title: str) -> Column:
    return Column(title, overflow="fold")


def _shape(shape: tuple[int, int, int], total: str) -> str:
    """'32 x 64 = 2,048 blocks', without the ones at the end; only the total of a single dimension."""
    parts = list(shape)
    while len(parts) > 1 and parts[-1] == 1:
        parts.pop()
    return total if len(parts) == 1 else f"{' x '.join(f'{part:,}' for part in parts)} = {total}"


def _mark(case: Case) -> str:
    """What is special about a case in the catalogue's list."""
    return " *" if case.wrong else " +" if case.needs_gpu else ""


def _size(size: int) -> str:
    """A problem's size; a large power of two as such."""
    return f"2^{size.bit_length() - 1}" if size >= 1 << 16 and size & (size - 1) == 0 else str(size)


def _short(file: str) -> str:
    """The path from the current directory, where that is shorter."""
    try:
        return min(file, os.path.relpath(file), key=len)
    except ValueError:  # another drive
        return file


def _sass(row: MemoryRow) -> str:
    return row.sass if row.merged == 1 else f"{row.merged} instructions like {row.sass}"


def _heat(waste: float) -> str:
    return "" if waste < 0.02 else "yellow" if waste < 0.3 else "red"
