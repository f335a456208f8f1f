"""``gpusim validate``: check and time the whole catalogue on a real GPU, into one file that can be continued."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click

from gpusim import Module, kernels
from gpusim.cli import measuring, validate_counters
from gpusim.cli.catalogue import compile_case
from gpusim.errors import UsageError
from gpusim.kernels import Case
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.runner import device as devices
from gpusim.runner import ncu
from gpusim.runner import results as files
from gpusim.runner.cases import measure_all
from gpusim.runner.results import Results, header_of
from gpusim.runner.sampling import Criterion

Job = tuple[Case, int, Module]


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File of results (.json or .json.gz); gpusim-results/DEVICE_times.json.gz by default.",
)
@measuring.device_option
@click.option("--family", "chosen", multiple=True, metavar="F", help="Only this family; may be given several times.")
@click.option("--arch", metavar="sm_90", help="Architecture to compile for; the GPU's own by default.")
@measuring.seconds_option
@click.option("--counters", is_flag=True, help="Also compare the exact counters with Nsight Compute's, at small sizes.")
@click.option("--ncu", "program", metavar="PATH", help="With --counters: ncu, if it is not found by itself.")
def validate(
    out: Path | None,
    number: int,
    chosen: tuple[str, ...],
    arch: str | None,
    seconds: float,
    counters: bool,
    program: str | None,
) -> int:
    """Check and time every kernel of the catalogue at all of its sizes on a real GPU.

    The file of results is written after every family and size, so that an interrupted run can be continued by the same
    command: what was measured with the same machine code is not measured again. It can be given to 'gpusim compare
    --recorded FILE'.
    """
    if program is not None and not counters:
        raise UsageError("--ncu belongs to --counters")
    families = _families(chosen)
    tool = ncu.find(program) if counters else None
    with devices.opened(number) as device:
        target = measuring.chosen_arch(device, arch)
        path = out if out is not None else files.FOLDER / f"{files.slug(device.facts.name)}_times.json.gz"
        files.make_folder(path.parent)
        results = files.load(path) if path.exists() else None
        criterion = Criterion.of(seconds)
        header = header_of(device, target, criterion, f"gpusim validate --seconds {seconds:g}")
        if results is None:
            results = Results(header)
        else:
            results.check_same(header, path)
            results.header = header
        with _whole_bar() as bar:
            groups = list(todo(families, target, results, bar))
            _measure(device, groups, results, criterion, path, bar)
    files.replace(path, results.document())
    if tool is not None:
        with _whole_bar() as bar:
            validate_counters.count_all(families, target, number, tool, results, path, bar.doing)
    show(Terminal(make_console(), Style(None)), results, families, path)
    unequal = any(not each["equal"] for each in results.counters.values())
    return measuring.EXIT_WRONG_RESULT if measuring.wrong(results) or unequal else 0


def _families(chosen: Sequence[str]) -> dict[str, tuple[Case, ...]]:
    known = kernels.families()
    for name in chosen:
        if name not in known:
            raise UsageError(f"there is no family {name!r}: there are {', '.join(known)}")
    return {name: cases for name, cases in known.items() if not chosen or name in chosen}


def _measure(
    device: devices.Device, groups: Sequence[list[Job]], results: Results, criterion: Criterion, path: Path, bar: _Bar
) -> None:
    """Measure the groups and write the file after each, also when one is the last because the GPU is lost."""
    bar.total(sum(map(len, groups)))
    for jobs in groups:
        try:
            for problem, entries in measure_all(device, jobs, criterion, bar.doing):
                results.add(problem, entries)
                bar.advance()
        finally:
            files.replace(path, results.document())


def todo(
    families: dict[str, tuple[Case, ...]], arch: str, results: Results, bar: _Bar | None = None
) -> Iterator[list[Job]]:
    """What is not in the results yet, or with other machine code: groups of problems that take turns."""
    for name, cases in families.items():
        modules: dict[str, Module] = {}
        for number, case in enumerate(cases):
            if bar is not None:
                bar.doing(f"compiling {name}", number, len(cases))
            if not case.hangs and not case.needs_gpu:  # transfers are measured by 'gpusim run' in their own way
                try:
                    modules[case.name] = compile_case(case, arch)
                except UsageError:  # it needs a later architecture
                    continue
        for size in dict.fromkeys(size for case in cases if case.name in modules for size in case.sizes):
            jobs = [
                (case, size, modules[case.name])
                for case in cases
                if size in case.sizes
                and case.name in modules
                and not results.done(f"{case.name}/{size}", modules[case.name].cubin.sha256)
            ]
            if jobs:
                yield jobs


class _Bar:
    """Progress on stderr, where somebody can see it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self.progress.add_task("", total=None)

    def total(self, number: int) -> None:
        """How many problems there are."""
        self.progress.update(self._task, total=number)

    def advance(self) -> None:
        """One more is done."""
        self.progress.advance(self._task)

    def doing(self, what: str, done: int, total: int) -> None:
        """What is being done with the next ones."""
        self.progress.update(self._task, description=f"{what} ({done} of {total})")


@contextmanager
def _whole_bar() -> Iterator[_Bar]:
    bar = _Bar()
    with bar.progress:
        yield bar


def show(terminal: Terminal, results: Results, families: dict[str, tuple[Case, ...]], path: Path) -> None:
    """A line for each family, what must be said, and where the results are."""
    rows = []
    for name, cases in families.items():
        problems = [p for p in results.problems.values() if p["family"] == name]
        found = [p["check"] for p in problems if "check" in p]
        on_purpose = sum(not c["equal"] and c["expected_to_differ"] for c in found)
        wrong = sum(not c["equal"] and not c["expected_to_differ"] for c in found)
        rows.append(
            (
                name,
                str(len(problems)),
                str(sum(c["equal"] for c in found)),
                str(on_purpose),
                str(wrong),
                str(sum("failed" in p for p in problems)),
                ", ".join(case.name for case in cases if case.hangs),
            )
        )
    titles = ("family", "problems", "equal", "differ on purpose", "WRONG", "not run", "never run on a GPU")
    terminal.text("Results on the GPU beside the NumPy references", "bold", 0)
    terminal.table(titles, rows)
    terminal.console.print()
    purposely = "is wrong on purpose"
    for sentence in measuring.remarks(results):
        if purposely not in sentence:
            terminal.text(sentence, "yellow", 0)
    if results.counters:
        terminal.text(validate_counters.verdict(results), indent=0)
        for each in results.counters.values():
            for text in each["differences"]:
                terminal.text(f"{each['id']}: {text}", "bold red", 0)
    terminal.text(measuring.source_of(results.header), "dim", 0)
    terminal.text(
        f"{len(results.times)} times in {path}: 'gpusim compare FAMILY --recorded {path}' shows them", "dim", 0
    )
