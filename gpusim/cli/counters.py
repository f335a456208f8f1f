"""``gpusim counters``: the simulator's counters beside those that Nsight Compute reads from a GPU."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.table import Column
from rich.text import Text

import gpusim
from gpusim.cli import argspec, files
from gpusim.cli.analyze import (
    EXIT_CHECK_FAILED,
    OF_FILES,
    Options,
    compiler_options,
    file_launch,
    find_target,
    progress_bar,
    refuse,
    target_options,
)
from gpusim.cli.catalogue import arguments, choose_size, compile_case, count
from gpusim.errors import UsageError
from gpusim.explain.base import place
from gpusim.kernels import Case
from gpusim.report import hardware
from gpusim.report.hardware import Comparison, InstructionRow, Row
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.result import SCHEMA, Result
from gpusim.runner import ncu

MARKS = {
    "equal": "",
    "differs": "DIFFERS",
    "arbitration": "arbitration",
    "modelled": "modelled",
    "absent": "not served",
}
NOTES = {
    "arbitration": "arbitration: the hardware's plain counter of bank conflicts also sees a few collisions between "
    "warps, which change from run to run; the wavefronts are compared exactly",
    "modelled": "modelled: the simulator does not call this count exact",
    "absent": "not served: this Nsight Compute or GPU does not have the metric",
}


@dataclass
class Work:
    """What is to be counted twice: the simulator's results, and the same launches of the same machine code for ncu."""

    kind: str
    target: str
    module: gpusim.Module
    results: list[Result]
    launches: list[ncu.Planned]
    notes: list[str]
    size: int | None = None


@click.command(epilog=argspec.GRAMMAR)
@target_options
@click.option("--ncu", "program", metavar="PATH", help="Nsight Compute's ncu, if it is not found by itself.")
@click.option("--source", is_flag=True, help="Also compare every instruction.")
@click.option("--device", type=click.IntRange(min=0), default=0, metavar="N", help="Number of the GPU [default: 0].")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the tables.")
@click.option("--all", "show_all", is_flag=True, help="Also counters and instructions that are zero on both sides.")
def counters(
    target: str,
    defines: tuple[str, ...],
    includes: tuple[str, ...],
    compiler: tuple[str, ...],
    program: str | None,
    source: bool,
    device: int,
    as_json: bool,
    show_all: bool,
    **given: Any,
) -> int:
    """Run Nsight Compute on TARGET and show its counters beside the simulator's.

    TARGET is a name of the catalogue, a CUDA source or a cubin (also a fatbin, an object file or a program), with
    options as for 'gpusim analyze'. Simulator and GPU execute the same machine code. The exit code is 1 if an exact
    counter differs, and 3 without a GPU, Nsight Compute, or permission to read the counters.
    """
    options = Options(target=target, compiler=compiler_options(defines, includes, compiler), **given)
    tool = ncu.find(program)
    facts = ncu.device_facts(device)
    work = prepare(options, facts.get("compute_capability"))
    names = list(dict.fromkeys(name for result in work.results for name in result.metrics))
    session = ncu.count(tool, work.module.cubin.data, work.launches, names, source=source, device=device)
    compared = [
        hardware.compare(result, found.metrics, found.columns if source else None, found.count)
        for result, found in zip(work.results, session.launches, strict=True)
    ]
    origin = {**facts, "ncu": tool.version, "command": session.command}
    if as_json:
        click.echo(json.dumps(document(work, compared, origin), indent=1))
    else:
        show(work, compared, origin, show_all)
    return EXIT_CHECK_FAILED if differences(compared) else 0


# -- the launches --------------------------------------------------------------------------------------------------


def prepare(options: Options, capability: str | None = None) -> Work:
    """Compile or load the target and count it in the simulator.

    Without --arch a source is compiled for the GPU's own compute ``capability``, such as "9.0", if that is known.
    """
    if options.arch is None and capability is not None:
        options.arch = f"sm_{capability.replace('.', '')}"
    found = find_target(options.target)
    return _of_case(found, options) if isinstance(found, Case) else _of_file(found, options)


def _of_case(case: Case, options: Options) -> Work:
    refuse(options, *OF_FILES)
    if case.hangs:
        raise UsageError(f"{case.name} waits for threads that never come, so on a GPU it would not end: choose another")
    module = compile_case(case, options.arch, options.compiler)
    size, note = (options.size, "") if options.size is not None else choose_size(case, module)
    problem = case.build(size)
    with progress_bar(case.name) as progress:
        results = count(module, problem, progress=progress)
    fresh = case.build(size)  # what counting executed may have been written back
    launches = [
        _planned(module[each.kernel], each.grid, each.block, each.shared_bytes, arguments(fresh, each.args))
        for each in fresh.launches
    ]
    return Work("catalogue", case.name, module, results, launches, [note] if note else [], size)


def _of_file(path: Path, options: Options) -> Work:
    kind = files.kind_of(path)
    if kind == "trace":
        raise UsageError(f"{path} is a trace, which has no machine code to run: give a .cu, a .cubin or a program")
    wanted = file_launch(path, options)
    with progress_bar(wanted.kernel.name) as progress:
        result = wanted.kernel.count(wanted.grid, wanted.block, wanted.args, wanted.shared, progress=progress)
    launch = _planned(wanted.kernel, result.launch.grid, result.launch.block, wanted.shared, wanted.args)
    return Work(kind, str(path), wanted.kernel.module, [result], [launch], wanted.notes)


def _planned(
    kernel: gpusim.Kernel, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int, args: Sequence[Any]
) -> ncu.Planned:
    return ncu.Planned(kernel.function.name, grid, block, shared, tuple(args))


# -- saying it -----------------------------------------------------------------------------------------------------


def differences(compared: Sequence[Comparison]) -> list[str]:
    """What fails in all launches, in words."""
    several = len(compared) > 1
    return [
        f"launch {number}: {text}" if several else text
        for number, each in enumerate(compared, 1)
        for text in each.differences
    ]


def verdict(compared: Sequence[Comparison]) -> str:
    """How the comparison came out, in a sentence."""
    failed = differences(compared)
    if failed:
        names = list(dict.fromkeys(text.rsplit(": ", 1)[0] for text in failed))
        shown = "; ".join(names[:3]) + ("; ..." if len(names) > 3 else "")
        counted = "1 exact count differs" if len(failed) == 1 else f"{len(failed)} exact counts differ"
        return f"{counted} from the hardware: {shown}"
    rows = [row for each in compared for row in each.rows]
    exact = sum(row.state == "equal" and row.exactness == "exact" for row in rows)
    text = f"All {exact} exact counters that were compared equal the hardware's"
    cells = [k for each in compared if each.exactness == "exact" for i in each.instructions or () for k in i.counts]
    if cells:
        text += f", and so do {len(cells):,} numbers of instructions"
    modelled = sum(row.exactness != "exact" for row in rows)
    off = sum(row.state == "modelled" for row in rows)
    if modelled:
        text += f"; {modelled} modelled, {off} of them off"
    return text


def document(work: Work, compared: Sequence[Comparison], origin: dict[str, str]) -> dict[str, Any]:
    """The comparison as JSON data."""
    failed = differences(compared)
    launches = []
    for result, each in zip(work.results, compared, strict=True):
        entry: dict[str, Any] = {
            "launch": asdict(result.launch),
            "exactness": each.exactness,
            "caveats": list(each.caveats),
            "metrics": [asdict(row) for row in each.rows],
        }
        if each.instructions is not None:
            entry["instructions"] = [
                {
                    "address": i.address,
                    "sass": i.sass,
                    "file": i.file,
                    "line": i.line,
                    "simulator": {column: ours for column, (ours, _) in i.counts.items()},
                    "hardware": {column: theirs for column, (_, theirs) in i.counts.items()},
                    "differs": list(i.differs),
                }
                for i in each.instructions
            ]
        launches.append(entry)
    return {
        "schema": SCHEMA,
        "kind": "counters",
        "target": {"kind": work.kind, "name": work.target, "size": work.size},
        "hardware": origin,
        "verdict": verdict(compared),
        "equal": not failed,
        "differences": failed,
        "notes": work.notes,
        "launches": launches,
    }


def show(work: Work, compared: Sequence[Comparison], origin: dict[str, str], show_all: bool) -> None:
    """The comparison on the terminal."""
    terminal = Terminal(make_console(), Style(None))
    failed = differences(compared)
    terminal.text(verdict(compared), "bold red" if failed else "bold green", 0)
    size = f" at size {work.size:,}" if work.size is not None else ""
    device = f"{origin['device']}, driver {origin['driver']}, " if "device" in origin else ""
    terminal.text(f"{work.target}{size}; hardware: {device}Nsight Compute {origin['ncu']}", "dim", 0)
    for note in work.notes:
        terminal.text(f"note: {note}", "dim", 0)
    for caveat in dict.fromkeys(caveat for each in compared for caveat in each.caveats):
        terminal.text(f"caveat: {caveat}", "yellow", 0)
    for number, each in enumerate(compared, 1):
        if len(compared) > 1:
            terminal.rule(f"launch {number} of {len(compared)}: {each.kernel}")
        _show_totals(terminal, each, show_all)
        if each.instructions is not None:
            _show_instructions(terminal, each.instructions, show_all)
    terminal.console.print()
    for state in dict.fromkeys(row.state for each in compared for row in each.rows if row.state in NOTES):
        terminal.text(NOTES[state], "dim", 0)


def _show_totals(terminal: Terminal, compared: Comparison, show_all: bool) -> None:
    terminal.heading("Nsight Compute metrics", "" if show_all else "zeros on both sides are left out, --all shows them")
    rows = [row for row in compared.rows if show_all or row.simulator or row.hardware]
    columns = [
        Column("metric", overflow="fold"),
        Column("simulator", justify="right", no_wrap=True),
        Column("hardware", justify="right", no_wrap=True),
        Column("", no_wrap=True),
    ]
    terminal.table(columns, [_total(row) for row in rows])


def _total(row: Row) -> tuple[str | Text, ...]:
    mark = "~" if row.exactness != "exact" else ""
    theirs = "-" if row.hardware is None else f"{row.hardware:,}"
    style = "bold red" if row.state == "differs" else "dim"
    return (row.name, f"{mark}{row.simulator:,}", theirs, Text(MARKS[row.state], style))


def _show_instructions(terminal: Terminal, rows: Sequence[InstructionRow], show_all: bool) -> None:
    """One line an instruction: its number where both agree, else the simulator's and below it the hardware's."""
    shown = [row for row in rows if show_all or row.differs or any(any(pair) for pair in row.counts.values())]
    columns = [c for c in hardware.COLUMNS if any(any(row.counts.get(c, (0, 0))) for row in shown)]
    titles = [hardware.COLUMNS[column].replace(" ", "\n") for column in columns]
    terminal.heading("Instructions", "where the two differ: simulator | hardware; never executed ones are left out")
    table = [Column("line", justify="right", no_wrap=True), Column("instruction", overflow="fold")]
    table += [Column(title, justify="right", no_wrap=True) for title in titles]
    cells = []
    for row in shown:
        where = place(row.file, row.line).rsplit(":", 1)[-1] if row.line is not None else f"{row.address:#x}"
        cells.append([where, Text(row.sass, "dim"), *(_cell(row, column) for column in columns)])
    terminal.table(table, cells)


def _cell(row: InstructionRow, column: str) -> str | Text:
    ours, theirs = row.counts.get(column, (0, 0))
    if ours != theirs:
        return Text(f"{ours:,}\n| {theirs:,}", "bold red")
    return f"{ours:,}" if ours else ""
