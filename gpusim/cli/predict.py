"""``gpusim predict``: the modelled time of launches, and of sweeps over sizes and macros."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
from rich.table import Column
from rich.text import Text

from gpusim.cli import argspec, files, plot
from gpusim.cli.analyze import (
    OF_FILES,
    Options,
    compiler_options,
    file_launch,
    find_target,
    progress_bar,
    refuse,
)
from gpusim.cli.catalogue import choose_size, compile_case
from gpusim.cli.targets import Job, cache_of, case_jobs, flags_of, following, in_order, macros_of, sizes_of
from gpusim.errors import UnsupportedError, UsageError
from gpusim.kernels import Case
from gpusim.report import prediction as section
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.result import SCHEMA
from gpusim.runner import times
from gpusim.timing.model import model_of
from gpusim.timing.predict import CACHES, MODELS, Prediction
from gpusim.timing.profiles import load

BARS = 24  # columns of the longest bar in a sweep's table
LIMITER = 24  # columns kept for what limits


@dataclass(frozen=True)
class Launched:
    """One launch and what is predicted of it."""

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    prediction: Prediction


@dataclass(frozen=True)
class Point:
    """One problem of a sweep: its size and macros, its launches, and the recorded time in microseconds, if any."""

    size: int | None
    macros: dict[str, str | None]
    launches: list[Launched]
    measured: times.Time | None = None
    note: str = ""

    @property
    def predictions(self) -> list[Prediction]:
        """Those of all launches."""
        return [launched.prediction for launched in self.launches]

    @property
    def milliseconds(self) -> float:
        """Of all launches."""
        return section.total(self.predictions)

    @property
    def limiter(self) -> str:
        """Of the slowest launch."""
        return section.slowest(self.predictions).limiter

    @property
    def error(self) -> float | None:
        """How far the prediction is off the recorded time, as a share of it."""
        return None if self.measured is None else self.milliseconds * 1e3 / self.measured.median - 1

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        found: dict[str, Any] = {
            "size": self.size,
            "macros": self.macros,
            "milliseconds": self.milliseconds,
            "limiter": self.limiter,
            "launches": [
                {"kernel": one.kernel, "grid": list(one.grid), "block": list(one.block)} | one.prediction.to_json()
                for one in self.launches
            ],
            "measured": None,
        }
        if self.measured is not None:
            t = self.measured
            found["measured"] = {"milliseconds": t.median * 1e-3, "quartiles_ms": [t.low * 1e-3, t.high * 1e-3]}
        return found


@dataclass
class Sweep:
    """What is asked for: a target's launch, the sizes and macros to vary, and how it is timed."""

    options: Options
    sizes: list[int]
    macros: list[dict[str, str | None]]
    device: str
    cache: str
    model: str
    recorded: times.Recording | None = field(default=None)


@click.command(epilog=argspec.GRAMMAR)
@click.argument("target")
@click.option("--kernel", metavar="NAME", help="Kernel of a file; a name expression for a template: 'k<float,32>'.")
@click.option("--grid", metavar="X,Y,Z", help="Blocks in the grid, for example 256,256.")
@click.option("--block", metavar="X,Y,Z", help="Threads in a block, for example 32,16.")
@click.option("--shared", type=click.IntRange(min=0), metavar="BYTES", help="Dynamic shared memory of a block.")
@click.option("--arg", "args", multiple=True, metavar="SPEC", help="A kernel argument, in order; see below.")
@click.option("--size", metavar="N,N or A:B:xF", help="Problem sizes of a catalogue kernel: 1000,1024 or 256:4096:x2.")
@click.option("-D", "defines", multiple=True, metavar="NAME=V1,V2", help="Macro, and its values in turn.")
@click.option("-I", "includes", multiple=True, metavar="DIR", help="Directory of headers for the compiler.")
@click.option("--option", "compiler", multiple=True, metavar="OPTION", help="Any other compiler option.")
@click.option("--arch", metavar="sm_90", help="Architecture to compile for; the device's own by default.")
@click.option("--device", default="h200", show_default=True, metavar="NAME|FILE.json", help="Device profile.")
@click.option("--cache", type=click.Choice(CACHES), default="cold", show_default=True, help="L2 before a launch.")
@click.option("--model", type=click.Choice(MODELS), default="auto", show_default=True, help="How to predict.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the report.")
@click.option("--plot", "picture", type=click.Path(path_type=Path), metavar="FILE.png|.svg", help="Draw the times.")
def predict(
    target: str,
    size: str | None,
    defines: tuple[str, ...],
    includes: tuple[str, ...],
    compiler: tuple[str, ...],
    arch: str | None,
    device: str,
    cache: str,
    model: str,
    as_json: bool,
    picture: Path | None,
    **given: Any,
) -> None:
    """Predict how long TARGET takes on a device, and what limits it.

    TARGET is a name of the catalogue (see 'gpusim list'), a CUDA source, or a cubin.  With several sizes or several
    values of a macro all of them are predicted.  Every time is modelled, except where it says measured.
    """
    if picture is not None:
        plot.check(picture)
    load(device)  # or say at once that there is no such profile
    options = Options(target=target, size=None, arch=arch, compiler=compiler_options((), includes, compiler), **given)
    sweep = Sweep(options, sizes_of(size), macros_of(defines), device, cache, model)
    points = _with_progress(sweep)
    if picture is not None:
        plot.draw(picture, target, points)
    if as_json:
        click.echo(json.dumps(_document(sweep, points), indent=1))
    elif len(points) == 1:
        _show_one(points[0], sweep)
    else:
        _show_sweep(points, sweep)
    if picture is not None:
        click.echo(f"plot written to {picture}", err=True)


# -- doing it ------------------------------------------------------------------------------------------------------


def _with_progress(sweep: Sweep) -> list[Point]:
    target = find_target(sweep.options.target)
    if sweep.options.arch is None and (isinstance(target, Case) or files.kind_of(target) == "source"):
        sweep.options.arch = f"sm_{load(sweep.device).arch}"
    count = max(1, len(sweep.sizes)) * len(sweep.macros)
    found: list[Point] = []
    with progress_bar(f"predicting {sweep.options.target}") as progress:
        for point in _of_case(target, sweep) if isinstance(target, Case) else _of_file(target, sweep):
            found.append(point)
            if progress is not None:
                progress(len(found), count)
    return found


def _of_case(case: Case, sweep: Sweep) -> Iterator[Point]:
    options = sweep.options
    refuse(options, *OF_FILES)
    recording = None
    device = load(sweep.device)
    if device.name in times.names() and options.arch == f"sm_{device.arch}":
        recording = sweep.recorded = times.recorded(device.name)
    for macros in sweep.macros:
        flags = (*flags_of(macros), *options.compiler)
        module = compile_case(case, options.arch, flags)
        chosen = [(n, "") for n in sweep.sizes] or [choose_size(case, module)]
        for size, note in chosen:
            jobs = case_jobs(module, case.build(size))
            launches = [_predicted(job, sweep, number) for number, job in enumerate(in_order(jobs))]
            measured = recording.of(case.name, size, sweep.cache) if recording is not None and not flags else None
            yield Point(size, macros, launches, measured, note.replace("is counted", "is predicted"))


def _of_file(path: Path, sweep: Sweep) -> Iterator[Point]:
    if sweep.sizes:
        raise UsageError(f"{path} is a file, not a catalogue kernel: --size does not apply; sweep a macro with -D")
    if files.kind_of(path) == "trace":
        raise UsageError(f"{path} is a trace, whose launch cannot be followed: give the source or the cubin")
    for macros in sweep.macros:
        flags = (*flags_of(macros), *sweep.options.compiler)
        wanted = file_launch(path, replace(sweep.options, compiler=flags))
        job = Job(wanted.kernel, wanted.grid, wanted.block, wanted.args, wanted.shared)
        yield Point(None, macros, [_predicted(job, sweep)])


def _predicted(job: Job, sweep: Sweep, number: int = 0) -> Launched:
    cache = cache_of(number, sweep.cache)
    found = job.kernel.predict(
        job.grid, job.block, job.args, job.shared_bytes, device=sweep.device, cache=cache, model=sweep.model
    )
    if not math.isfinite(found.milliseconds):
        raise UnsupportedError(
            f"the pipeline model does not get to the end of {job.kernel.name}, whose warps wait in a way that it does "
            "not know: use --model bounds"
        )
    found = following(found, number, sweep.cache, model_of(sweep.device))
    grid, block = (shape if isinstance(shape, tuple) else (shape,) for shape in (job.grid, job.block))
    return Launched(job.kernel.name, grid, block, found)


# -- saying it -----------------------------------------------------------------------------------------------------


def _document(sweep: Sweep, points: list[Point]) -> dict[str, Any]:
    device = load(sweep.device)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "prediction" if len(points) == 1 else "predictions",
        "exactness": "modelled",
        "target": sweep.options.target,
        "device": {"profile": device.name, "name": device.device, "arch": f"sm_{device.arch}"},
        "cache": sweep.cache,
    }
    if any(point.measured for point in points) and sweep.recorded is not None:
        found["measured_on"] = sweep.recorded.header
    return found | (points[0].to_json() if len(points) == 1 else {"points": [point.to_json() for point in points]})


def _title(point: Point) -> str:
    parts = [] if point.size is None else [f"size {point.size:,}"]
    parts += [name if value is None else f"{name}={value}" for name, value in point.macros.items()]
    return ", ".join(parts)


def _show_one(point: Point, sweep: Sweep) -> None:
    terminal = Terminal(make_console(), Style(None))
    section.show_line(terminal, point.predictions)
    named = ", ".join(part for part in (sweep.options.target, _title(point)) if part)
    terminal.text(named, "dim", 0)
    if point.note:
        terminal.text(f"note: {point.note}", "dim", 0)
    _show_measured(terminal, point, sweep)
    if len(point.launches) > 1:
        terminal.heading("Launches")
        columns: list[Column | str] = [
            Column("kernel", overflow="fold"),
            Column("grid", justify="right", no_wrap=True),
            Column("block", justify="right", no_wrap=True),
            Column("time", justify="right", no_wrap=True),
            Column("limited by", overflow="fold"),
        ]
        terminal.table(
            columns,
            [
                (one.kernel, _plain(one.grid), _plain(one.block), section.duration(p.milliseconds), p.limiter)
                for one, p in zip(point.launches, point.predictions, strict=True)
            ],
        )
    for number, one in enumerate(point.launches, 1):
        if len(point.launches) > 1:
            terminal.rule(f"launch {number} of {len(point.launches)}: {one.kernel}")
        section.show_breakdown(terminal, one.prediction)
        section.show_stalls(terminal, one.prediction)
        section.show_facts(terminal, one.prediction)


def _show_measured(terminal: Terminal, point: Point, sweep: Sweep) -> None:
    if point.measured is None or point.error is None or sweep.recorded is None:
        return
    measured = section.duration(point.measured.median * 1e-3)
    how = "above" if point.error > 0 else "below"
    terminal.text(
        f"measured: {measured} ({sweep.recorded.source}); the prediction is {100 * abs(point.error):.0f} % {how}", "", 0
    )


def _plain(shape: tuple[int, ...]) -> str:
    parts = list(shape)
    while len(parts) > 1 and parts[-1] == 1:
        parts.pop()
    return " x ".join(f"{part:,}" for part in parts)


def _show_sweep(points: list[Point], sweep: Sweep) -> None:
    terminal = Terminal(make_console(), Style(None))
    device = load(sweep.device).device
    terminal.text(f"{sweep.options.target} on {device}, {section.CACHES[sweep.cache]} (modelled)", "bold", 0)
    for note in dict.fromkeys(note for point in points for p in point.predictions for note in p.notes):
        terminal.text(f"note: {note}", "dim", 0)
    terminal.console.print()
    longest = max(point.milliseconds for point in points)
    sized = any(point.size is not None for point in points)
    macros = list(points[0].macros)
    timed = any(point.measured is not None for point in points)
    utf = (terminal.console.encoding or "").lower().startswith("utf")
    columns: list[Column | str] = [Column("size", justify="right", no_wrap=True)] if sized else []
    columns += [Column(name, justify="right", no_wrap=True) for name in macros]
    columns.append(Column("time", justify="right", no_wrap=True))
    if timed:
        columns += [Column("measured", justify="right", no_wrap=True), Column("off", justify="right", no_wrap=True)]
    others = 2 + 12 * sized + sum(max(len(name), 6) + 2 for name in macros) + (32 if timed else 12) + LIMITER
    width = min(BARS, max(6, terminal.console.width - others))
    columns += [Column("", no_wrap=True, min_width=width), Column("limited by", overflow="fold")]
    rows: list[list[str | Text]] = []
    for point in points:
        row: list[str | Text] = [f"{point.size:,}"] if sized else []
        row += [point.macros[name] or "" for name in macros]
        row.append(section.duration(point.milliseconds))
        if timed and point.measured is not None and point.error is not None:
            row += [section.duration(point.measured.median * 1e-3), f"{100 * point.error:+.0f} %"]
        elif timed:
            row += ["", ""]
        row.append(Text(("█" if utf else "#") * max(1, round(width * point.milliseconds / longest)), "cyan"))
        row.append(point.limiter)
        rows.append(row)
    terminal.table(columns, rows)
    terminal.console.print()
    best = min(points, key=lambda point: point.milliseconds)
    if not sized or len({point.size for point in points}) == 1:
        alike = longest <= 1.01 * best.milliseconds
        terminal.text("all alike, within 1 %" if alike else f"fastest: {_title(best)}", "", 0)
    if timed and sweep.recorded is not None:
        terminal.text(f"measured: {sweep.recorded.source}; medians, summed over launches", "dim", 0)
    terminal.text(f"confidence: {section.slowest(best.predictions).confidence}", "dim", 0)
