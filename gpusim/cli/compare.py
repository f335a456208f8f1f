"""``gpusim compare``: the variants of a family side by side, with recorded times, or times measured now, if wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import click
from click.core import ParameterSource
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

import gpusim
from gpusim import kernels
from gpusim.cli import measuring
from gpusim.cli.analyze import progress_bar
from gpusim.cli.catalogue import compile_case, count
from gpusim.cli.targets import cache_of, case_jobs, following, in_order
from gpusim.errors import ExecutionError, UnsupportedError, UsageError
from gpusim.kernels import Case, Problem
from gpusim.report.prediction import total
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.result import SCHEMA
from gpusim.runner import device as devices
from gpusim.runner import order, times
from gpusim.runner.results import Results
from gpusim.runner.sampling import Criterion
from gpusim.timing.model import model_of

SHARED = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"
GLOBAL = "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
# columns: title, metrics that are added up
COLUMNS: dict[str, tuple[str, ...]] = {
    "instructions": ("smsp__sass_inst_executed.sum",),
    "global sectors": tuple(f"{GLOBAL}{op}.sum" for op in ("ld", "st", "red", "atom", "ldgsts")),
    "shared wavefronts": tuple(f"{SHARED}{op}.sum" for op in ("ld", "st", "atom", "ldsm", "stsm", "ldgsts")),
    "bank conflicts": tuple(f"{CONFLICTS}{op}.sum" for op in ("ld", "st", "atom")),
    "divergent branches": ("smsp__sass_branch_targets_threads_divergent.sum",),
}
SHORT = {"instructions": "instr."}
MANY_TIMES = 1.05  # a change that is worth a word


@dataclass(frozen=True)
class Variant:
    """One case of a family: counters summed over its launches, and what they are beside the first variant's."""

    name: str
    title: str
    counters: dict[str, int]
    occupancy: float
    exactness: str
    microseconds: float | None = None
    quartiles: tuple[float, float] | None = None
    predicted: float | None = None
    """Modelled microseconds."""
    limiter: str = ""
    """What limits the launch that takes longest, as modelled."""
    other_code: bool = False
    """Whether the time is known to be of other machine code than the counters, made by another compiler."""

    @property
    def time(self) -> times.Time | None:
        """The measured time."""
        if self.microseconds is None or self.quartiles is None:
            return None
        return times.Time(self.microseconds, *self.quartiles, 0)

    def beside(self, first: Variant) -> str:
        """What differs from another variant, in words."""
        parts = []
        for title, value in self.counters.items():
            before = first.counters[title]
            if value == before:
                continue
            if not before or not value:
                parts.append(f"{title} {value:,} instead of {before:,}")
            elif max(value / before, before / value) >= MANY_TIMES:
                parts.append(f"{value / before:.2f} x the {title}")
        return ", ".join(parts) or "the same counters"


@click.command()
@click.argument("family")
@click.option(
    "--size", type=click.IntRange(min=1), metavar="N", help="Problem size; one that fills the chip by default."
)
@click.option(
    "--recorded", metavar="DEVICE", help="Add recorded times: h200, or a file that 'run' or 'validate' wrote."
)
@click.option("--gpu", is_flag=True, help="Add times measured now, on a real GPU, of results that were checked.")
@click.option("--hot", is_flag=True, help="Times with warm caches, not after a flush of L2.")
@measuring.device_option
@measuring.seconds_option
@click.option("--arch", metavar="sm_90", help="Architecture to compile for.")
@click.option("--profile", default="h200", metavar="DEVICE", help="Device whose times are predicted (h200).")
@click.option("--predict/--no-predict", default=True, help="Leave the modelled times out.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
@click.pass_context
def compare(
    context: click.Context,
    family: str,
    size: int | None,
    recorded: str | None,
    gpu: bool,
    hot: bool,
    number: int,
    seconds: float,
    arch: str | None,
    profile: str,
    predict: bool,
    as_json: bool,
) -> int:
    """Count all variants of a FAMILY at one size and show them side by side.

    Modelled times stand beside the counters. With --recorded those of a real GPU are added, with --gpu those that are
    measured now; the variants are in order of these, and each pair's predicted order is compared with the measured one.
    """
    if family not in kernels.families():
        raise UsageError(f"there is no family {family!r}: there are {', '.join(kernels.families())}")
    if not gpu and any(
        context.get_parameter_source(name) is not ParameterSource.DEFAULT for name in ("number", "seconds")
    ):
        raise UsageError("--device and --seconds belong to --gpu, which measures now")
    if recorded is not None and gpu:
        raise UsageError("--recorded and --gpu exclude each other: times are either recorded or measured now")
    if all(case.needs_gpu for case in kernels.families()[family]):
        raise UsageError(f"{kernels.families()[family][0].needs_gpu}: 'gpusim run {family}' compares them on a GPU")
    cases = kernels.families()[family]
    chosen = size if size is not None else measuring.default_size(cases)
    recording, results = None, None
    if recorded is not None:
        recording = times.recorded(recorded)
        target = recording.header.get("arch", "sm_90")
        if arch not in (None, target):
            raise UsageError(f"the recorded times are of {target}: leave --arch out")
        if not any(recording.of(c.name, chosen, "cold") for c in cases):
            sizes = sorted({n for c in cases for n in recording.sizes(c.name)})
            if not sizes and recorded in times.names():
                raise UsageError(f"nothing of {family} was timed: leave --recorded out")
            raise UsageError(
                f"nothing of {family} was timed at size {chosen}: "
                + (f"--size {' or '.join(map(str, sizes))}" if sizes else "measure it with 'gpusim run'")
            )
        arch = target
    elif gpu:
        with devices.opened(number) as device:
            arch = measuring.chosen_arch(device, arch)
            command = f"gpusim compare {family} --gpu --size {chosen} --seconds {seconds:g}"
            results = measuring.measure_cases(device, cases, chosen, arch, Criterion.of(seconds), command)
        recording = times.recording_of(results.document())
    variants = []
    with progress_bar(family) as progress:
        for done, case in enumerate(cases):
            if progress is not None:
                progress(done, len(cases))
            variants.append(
                _variant(case, chosen, arch, recording, "hot" if hot else "cold", profile if predict else None)
            )
    if recording is not None:
        variants.sort(key=lambda v: (v.microseconds is None, v.microseconds or 0))
    predicted = {v.name: v.predicted for v in variants if v.predicted is not None} if predict else None
    comparison = Comparison(family, chosen, variants, recording, hot, results, predicted, profile)
    if as_json:
        click.echo(json.dumps(document(comparison), indent=1))
    else:
        show(comparison)
    return measuring.EXIT_WRONG_RESULT if results is not None and measuring.wrong(results) else 0


@dataclass(frozen=True)
class Comparison:
    """What is shown.  ``results`` if times were measured now; ``predicted``: times by variant, in any unit."""

    family: str
    size: int
    variants: list[Variant]
    recording: times.Recording | None = None
    hot: bool = False
    results: Results | None = None
    predicted: Mapping[str, float] | None = None
    profile: str = "h200"

    @property
    def pairs(self) -> list[order.Pair]:
        """Predicted and measured order of each two variants; empty without either."""
        measured = {v.name: v.time for v in self.variants if v.time is not None}
        return order.pairs_of(self.predicted or {}, measured)


def _variant(
    case: Case, size: int, arch: str | None, recording: times.Recording | None, how: str, profile: str | None
) -> Variant:
    module = compile_case(case, arch)
    problem = case.build(size)
    predicted, limiter = (None, "") if profile is None else _predicted(module, problem, how, profile)
    results = count(module, problem)
    counters = {
        title: sum(r.metrics.get(name, 0) for r in results for name in names) for title, names in COLUMNS.items()
    }
    time = recording.of(case.name, size, how) if recording is not None else None
    return Variant(
        case.name,
        case.title,
        counters,
        results[0].occupancy.percent,
        "modelled" if any(r.exactness == "modelled" for r in results) else "exact",
        None if time is None else time.median,
        None if time is None else (time.low, time.high),
        predicted,
        limiter,
        time is not None and _other_code(recording, module, case, size, problem),
    )


def _predicted(module: gpusim.Module, problem: Problem, how: str, profile: str) -> tuple[float | None, str]:
    """(modelled microseconds of all launches, what limits the longest); None where the model cannot follow."""
    model, found = model_of(profile), []
    try:
        for number, job in enumerate(in_order(case_jobs(module, problem))):
            one = job.kernel.predict(
                job.grid, job.block, job.args, job.shared_bytes, device=profile, cache=cache_of(number, how)
            )
            found.append(following(one, number, how, model))
    except (UnsupportedError, ExecutionError):
        return None, ""
    return 1e3 * total(found), max(found, key=lambda p: p.milliseconds).limiter


def _other_code(
    recording: times.Recording | None, module: gpusim.Module, case: Case, size: int, problem: Problem
) -> bool:
    recorded = recording.code(case.name, size) if recording is not None else None
    ours = [module[launch.kernel].function.code_sha256 for launch in problem.launches]
    return recorded is not None and recorded != ours


def ties(variants: list[Variant]) -> list[tuple[str, str]]:
    """Pairs whose measured times cannot be told apart."""
    timed = [(v.name, v.time) for v in variants if v.time is not None]
    return [(a, b) for (a, s), (b, t) in combinations(timed, 2) if s is not None and t is not None and times.tied(s, t)]


def document(comparison: Comparison) -> dict[str, Any]:
    """The comparison as JSON data."""
    variants, recording = comparison.variants, comparison.recording
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "comparison",
        "family": comparison.family,
        "size": comparison.size,
        "variants": [asdict(v) | {"beside_first": v.beside(variants[0])} for v in variants],
    }
    if recording is not None:
        cache = "hot" if comparison.hot else "cold"
        found["times"] = {"device": recording.header, "cache": cache, "ties": ties(variants)}
    if comparison.results is not None:
        found["measurement"] = comparison.results.document()
    if comparison.predicted is not None:
        found["predicted"] = {"device": comparison.profile, "microseconds": dict(comparison.predicted)}
    if comparison.predicted is not None and recording is not None:
        agreement = order.agreement(comparison.pairs)
        found["order"] = {
            "predicted": dict(comparison.predicted),
            "pairs": [asdict(pair) | {"verdict": pair.verdict} for pair in comparison.pairs],
            **asdict(agreement),
        }
    return found


def show(comparison: Comparison) -> None:
    """The comparison on the terminal."""
    family, size, variants, recording = comparison.family, comparison.size, comparison.variants, comparison.recording
    terminal = Terminal(make_console(), Style(None))
    terminal.text(f"{family} at size {size:,}, all launches of each variant", "bold", 0)
    columns = [
        Column("variant", overflow="fold"),  # the only one that may wrap: numbers are never cut
        *(Column(SHORT.get(title, title).replace(" ", "\n"), justify="right", no_wrap=True) for title in COLUMNS),
        Column("occup.", justify="right", no_wrap=True),
    ]
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for v in variants:
        mark = "~" if v.exactness == "modelled" else ""
        row = [v.name, *(f"{mark}{value:,}" for value in v.counters.values()), f"{v.occupancy:.0f} %"]
        table.add_row(*row)
    terminal.console.print(Padding(table, (1, 0, 0, 0)))
    first = variants[0]
    terminal.heading(f"Beside {first.name}")
    terminal.facts([(v.name, _words(v, first)) for v in variants[1:]])
    if comparison.predicted is not None or recording is not None:
        _show_times(terminal, comparison)
    terminal.console.print()
    if recording is not None:
        how = "warm caches" if comparison.hot else "after a flush of L2"
        terminal.text(f"measured: {recording.source}, {how}; medians of all launches of a variant", "dim", 0)
        for v in variants:
            if v.other_code:
                terminal.text(f"{v.name} was measured with other machine code than is counted here", "yellow", 0)
        for a, b in ties(variants):
            terminal.text(f"a tie: {a} and {b}", "dim", 0)
    if comparison.results is not None:
        for sentence in measuring.remarks(comparison.results):
            terminal.text(sentence, "yellow", 0)
    if comparison.predicted is not None and recording is not None:
        _show_order(terminal, comparison.pairs)
    if any(v.exactness == "modelled" for v in variants):
        terminal.text("~: not certain; 'gpusim analyze' of that variant says why", "dim", 0)


def _show_times(terminal: Terminal, comparison: Comparison) -> None:
    """Modelled and measured times, and what the modelled ones go into."""
    terminal.heading("Time of all launches")
    columns = [Column("variant", no_wrap=True)]
    modelled, measured = comparison.predicted is not None, comparison.recording is not None
    if modelled:
        columns.append(Column("modelled", justify="right", no_wrap=True))
    if measured:
        columns.append(Column("measured", justify="right", no_wrap=True))
    if modelled:
        columns.append(Column("goes into, as modelled", overflow="fold"))
    rows: list[tuple[str, ...]] = []
    for v in comparison.variants:
        row = [v.name]
        if modelled:
            row.append("-" if v.predicted is None else f"{v.predicted:,.1f} us")
        if measured:
            row.append("-" if v.microseconds is None else f"{v.microseconds:,.1f} us")
        if modelled:
            row.append(v.limiter)
        rows.append(tuple(row))
    terminal.table(columns, rows)


def _words(variant: Variant, first: Variant) -> str:
    text = variant.beside(first)
    if variant.microseconds is not None and first.microseconds:
        text = f"{variant.microseconds / first.microseconds:.2f} x the time: {text}"
    return text


def _show_order(terminal: Terminal, pairs: list[order.Pair]) -> None:
    """How many pairs are in the right order, and those that are not."""
    terminal.heading("Modelled and measured order")
    words = {-1: "{0} faster", 0: "a tie", 1: "{1} faster"}
    wrong = [p for p in pairs if p.verdict == "disagree"]
    if wrong:
        columns = [Column(name, overflow="fold") for name in ("first, second", "modelled", "measured")]
        rows = [
            (
                f"{p.first}, {p.second}",
                Text(words[p.predicted].format("first", "second"), "bold red"),
                words[p.measured].format("first", "second"),
            )
            for p in wrong
        ]
        terminal.table(columns, rows)
    found = order.agreement(pairs)
    tau = "" if found.tau is None else f"; Kendall's tau-b {found.tau:.3f}"
    terminal.text(
        f"{found.agree} of {found.decided} decided pairs in the right order, {found.tie} ties (modelled times within "
        f"5 %, or measured ones that cannot be told apart){tau}"
    )
