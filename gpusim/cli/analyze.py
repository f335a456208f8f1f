"""``gpusim analyze``: count a kernel's memory accesses and report what they cost."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from gpusim import kernels, report
from gpusim.api import Kernel, Progress
from gpusim.cli import argspec, files
from gpusim.cli.catalogue import (
    CHECK_WORK,
    Check,
    check,
    check_elsewhere,
    choose_size,
    compile_case,
    count,
    execute,
    thread_instructions,
)
from gpusim.cli.targets import Job, case_jobs
from gpusim.cli.timing import Timing, predict_all
from gpusim.errors import InputError, UsageError
from gpusim.kernels import Case
from gpusim.report import prediction
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.result import SCHEMA, Result
from gpusim.trace import TraceRecorder, load_trace

EXIT_CHECK_FAILED = 1
OF_FILES = ("a catalogue kernel and brings its own launch", "kernel", "grid", "block", "shared", "args")


@dataclass
class Options:
    """The command line, as given."""

    target: str
    kernel: str | None
    grid: str | None
    block: str | None
    shared: int | None
    args: tuple[str, ...]
    size: int | None
    arch: str | None
    compiler: tuple[str, ...]
    trace: Path | None = None
    execute: bool = False
    predict: bool = False
    device: str | None = None


@dataclass
class Analysis:
    """What came out: the launches, and what else there is to say."""

    kind: str
    target: str
    results: list[Result]
    notes: list[str] = field(default_factory=list)
    case: Case | None = None
    size: int | None = None
    check: Check | None = None
    timing: Timing = field(default_factory=Timing)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The argument TARGET and the options that say what of it is launched, for several commands; see ``Options``."""
    options = (
        click.argument("target"),
        click.option(
            "--kernel", metavar="NAME", help="Kernel of a file; a name expression for a template: 'k<float,32>'."
        ),
        click.option("--grid", metavar="X,Y,Z", help="Blocks in the grid, for example 256,256."),
        click.option("--block", metavar="X,Y,Z", help="Threads in a block, for example 32,16."),
        click.option("--shared", type=click.IntRange(min=0), metavar="BYTES", help="Dynamic shared memory of a block."),
        click.option("--arg", "args", multiple=True, metavar="SPEC", help="A kernel argument, in order; see below."),
        click.option("--size", type=click.IntRange(min=1), metavar="N", help="Problem size of a catalogue kernel."),
        click.option(
            "--arch", metavar="sm_90", help="Architecture to compile for, or to pick from a file with several."
        ),
        click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="Macro for the compiler."),
        click.option("-I", "includes", multiple=True, metavar="DIR", help="Directory of headers for the compiler."),
        click.option("--option", "compiler", multiple=True, metavar="OPTION", help="Any other compiler option."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def compiler_options(defines: Sequence[str], includes: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """What -D, -I and --option pass to the compiler."""
    return (*(f"-D{d}" for d in defines), *(f"-I{d}" for d in includes), *others)


@click.command(epilog=argspec.GRAMMAR)
@target_options
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Record the launches to a trace file.")
@click.option("--execute", is_flag=True, help="Execute every thread, also where counters do not need it.")
@click.option("--predict/--no-predict", default=True, help="Also model the time; on by default.")
@click.option("--device", metavar="NAME|FILE.json", help="Device profile for the time; one of the architecture.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the report.")
@click.option("--max-rows", type=click.IntRange(min=1), default=12, show_default=True, help="Longest table.")
@click.option("--all", "show_all", is_flag=True, help="All rows, and metrics that are zero.")
def analyze(
    target: str,
    defines: tuple[str, ...],
    includes: tuple[str, ...],
    compiler: tuple[str, ...],
    as_json: bool,
    max_rows: int,
    show_all: bool,
    **given: Any,
) -> int:
    """Count TARGET's memory accesses.

    TARGET is a name of the catalogue (see 'gpusim list'), a CUDA source, a cubin (also a fatbin, an object file or a
    program that contains one), or a trace file.
    """
    analysis = run(Options(target=target, compiler=compiler_options(defines, includes, compiler), **given))
    if as_json:
        click.echo(json.dumps(document(analysis), indent=1))
    else:
        show(analysis, Style(None if show_all else max_rows))
    return EXIT_CHECK_FAILED if analysis.check is not None and analysis.check.failed else 0


# -- doing it ------------------------------------------------------------------------------------------------------


def run(options: Options) -> Analysis:
    """Find the target and execute or recount it."""
    target = find_target(options.target)
    if isinstance(target, Case):
        return _run_case(target, options)
    return _run_trace(target, options) if files.kind_of(target) == "trace" else _run_file(target, options)


def find_target(name: str) -> Case | Path:
    """What a TARGET is: a case of the catalogue, or a file that exists.  Raises InputError or UsageError."""
    path = Path(name)
    if name in kernels.names():
        return kernels.find(name)
    if path.exists():
        return path
    if path.suffix or len(path.parts) > 1:
        raise InputError(f"{path} cannot be read: there is no such file")
    return kernels.find(name)  # also a row's name; else the error that names the nearest


def refuse(options: Options, what: str, *names: str) -> None:
    """Raises UsageError for options that make no sense for a target."""
    for name in names:
        if getattr(options, name) not in (None, (), False):
            shown = {"args": "--arg", "compiler": "-D, -I or --option"}.get(name, f"--{name}")
            raise UsageError(f"{options.target} is {what}: {shown} does not apply")


def _run_case(case: Case, options: Options) -> Analysis:
    refuse(options, *OF_FILES)
    module = compile_case(case, options.arch, options.compiler)
    size, note = (options.size, "") if options.size is not None else choose_size(case, module)
    problem = case.build(size)
    with _recorder(options.trace) as listeners, progress_bar(case.name) as progress:
        if options.execute or listeners:
            results = execute(module, problem, listeners=listeners, progress=progress)
            checked = check(case, problem)
        else:
            results = count(module, problem, progress=progress)
            if thread_instructions(results) <= CHECK_WORK:
                problem = case.build(size)
                execute(module, problem)
                checked = check(case, problem)
            else:
                checked = check_elsewhere(case, module, size)
    notes = [note] if note else []
    if case.needs_gpu:
        notes.append(
            f"{case.needs_gpu}: what is counted here is the kernel alone; 'gpusim run {case.name}' measures the rest "
            "on a GPU, and with --recorded h200 shows what an H200 gave"
        )
    if case.wrong:
        notes.append(f"wrong on purpose: {case.wrong}")
    timing = Timing()
    if options.predict:
        with progress_bar(f"{case.name}: time"):
            timing = predict_all(case_jobs(module, case.build(size)), results, options.device)
    return Analysis("catalogue", case.name, results, notes, case, size, checked, timing)


@dataclass(frozen=True)
class FileLaunch:
    """A launch of a kernel of a file, as the options say."""

    kernel: Kernel
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: list[Any]
    shared: int
    notes: list[str]


def file_launch(path: Path, options: Options) -> FileLaunch:
    """The module in the file, its kernel, and the launch that the options describe.  Raises UsageError."""
    refuse(options, "a file, not a catalogue kernel", "size")
    module = files.open_module(path, options.kernel, files.CompileOptions(options.arch, options.compiler))
    kernel = files.pick_kernel(module, options.kernel, path)
    for name, value, example in (("grid", options.grid, "256,256"), ("block", options.block, "32,16")):
        if value is None:
            raise UsageError(f"--{name} is missing: {kernel.name} needs a launch, for example --{name} {example}")
    files.check_arguments(kernel, options.args)
    grid, block = shape_of("grid", options.grid or ""), shape_of("block", options.block or "")
    args = argspec.parse_all(options.args)
    notes = [f"compiler warning: {line}" for line in module.log.splitlines() if ": warning" in line]
    return FileLaunch(kernel, grid, block, args, options.shared or 0, notes)


def _run_file(path: Path, options: Options) -> Analysis:
    wanted = file_launch(path, options)
    kernel = wanted.kernel
    with _recorder(options.trace) as listeners, progress_bar(kernel.name) as progress:
        run = kernel.launch if options.execute or listeners else kernel.count
        result = run(wanted.grid, wanted.block, wanted.args, wanted.shared, listeners=listeners, progress=progress)
    timing = Timing()
    if options.predict:
        job = Job(kernel, wanted.grid, wanted.block, wanted.args, wanted.shared)
        with progress_bar(f"{kernel.name}: time"):
            timing = predict_all([job], [result], options.device)
    return Analysis(files.kind_of(path), str(path), [result], wanted.notes, timing=timing)


def _run_trace(path: Path, options: Options) -> Analysis:
    refused = ("kernel", "grid", "block", "shared", "args", "size", "arch", "compiler", "trace", "execute", "device")
    refuse(options, "a trace, which is counted as it was recorded", *refused)
    trace = load_trace(path)
    return Analysis("trace", str(path), trace.count(), [f"recounted from a trace by gpusim {trace.made_by}"])


def shape_of(name: str, text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.replace("x", ",").split(","))
    except ValueError:
        shape = ()
    if not 1 <= len(shape) <= 3:
        raise UsageError(f"--{name} {text} is not one to three whole numbers: write for example --{name} 256,256")
    return shape


@contextmanager
def _recorder(path: Path | None) -> Iterator[tuple[Any, ...]]:
    """Listeners that write the trace, if one is wanted."""
    with TraceRecorder(path) if path is not None else nullcontext() as recorder:
        yield () if recorder is None else (recorder,)


@contextmanager
def progress_bar(title: str) -> Iterator[Progress | None]:
    """A bar on stderr while a launch runs, where somebody can see it."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(stderr=True)
    if not console.is_terminal:
        yield None
        return
    with Bar(console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


# -- saying it -----------------------------------------------------------------------------------------------------


def document(analysis: Analysis) -> dict[str, Any]:
    """The analysis as JSON data.

    One launch: ``Result.to_json()`` and what the analysis adds.  Several: their documents in ``launches``, and in
    ``metrics`` the sums of the counters.
    """
    launches = [result.to_json() | {"report": report.to_json(report.collect(result))} for result in analysis.results]
    if len(launches) == 1:
        found = launches[0]
    else:
        sums: dict[str, int] = {}
        for result in analysis.results:
            for name, value in result.metrics.items():
                if name.endswith(".sum"):
                    sums[name] = sums.get(name, 0) + value
        words = {result.exactness for result in analysis.results}
        exactness = "modelled" if "modelled" in words else "exact"
        found = {"schema": SCHEMA, "kind": "launches", "exactness": exactness, "metrics": sums, "launches": launches}
    found["target"] = {"kind": analysis.kind, "name": analysis.target}
    found["verdict"] = asdict(report.verdict_of(analysis.results))
    found["notes"] = analysis.notes
    timing = analysis.timing.to_json()
    if timing is not None:
        found["prediction"] = timing
    case = analysis.case
    if case is not None and analysis.check is not None:
        found["catalogue"] = {
            "name": case.name,
            "family": case.family,
            "title": case.title,
            "lesson": case.lesson,
            "wrong": case.wrong,
            "needs_gpu": case.needs_gpu,
            "size": analysis.size,
            "sizes": list(case.sizes),
        }
        found["check"] = asdict(analysis.check)
    return found


def show(analysis: Analysis, style: Style) -> None:
    """The analysis on the terminal."""
    terminal = Terminal(make_console(), style)
    terminal.verdict(report.verdict_of(analysis.results))
    if analysis.check is not None:
        failed = analysis.check.failed
        terminal.text(f"result: {analysis.check.text}", "bold red" if failed else "", 0)
        for difference in analysis.check.differences[:3]:
            terminal.text(difference, indent=2)
    predictions = analysis.timing.predictions
    if predictions:
        prediction.show_line(terminal, predictions)
    elif analysis.timing.why_not:
        terminal.text(analysis.timing.why_not, "dim", 0)
    if analysis.case is not None:
        terminal.text(f"{analysis.case.name}: {analysis.case.title}", "dim", 0)
    for note in analysis.notes:
        terminal.text(f"note: {note}", "dim", 0)
    for caveat in dict.fromkeys(caveat for result in analysis.results for caveat in result.caveats):
        terminal.text(f"caveat: {caveat}", "yellow", 0)
    for number, result in enumerate(analysis.results, 1):
        if len(analysis.results) > 1:
            terminal.rule(f"launch {number} of {len(analysis.results)}")
        if predictions:
            prediction.show_breakdown(terminal, predictions[number - 1])
        terminal.report(report.collect(result))
    if analysis.case is not None:
        terminal.heading("Lesson")
        terminal.text(analysis.case.lesson)
    terminal.legend()
