"""``gpusim compare``: the variants of a family side by side, with recorded times if wanted."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import click
from rich.padding import Padding
from rich.table import Column, Table

from gpusim import kernels
from gpusim.cli.analyze import progress_bar
from gpusim.cli.catalogue import compile_case, count
from gpusim.errors import UsageError
from gpusim.kernels import Case
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.result import SCHEMA
from gpusim.runner import times

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

    @property
    def time(self) -> times.Time | None:
        """The recorded time."""
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
@click.option("--recorded", metavar="DEVICE", help="Add recorded times: h200.")
@click.option("--hot", is_flag=True, help="Recorded times with warm caches, not after a flush of L2.")
@click.option("--arch", metavar="sm_90", help="Architecture to compile for.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
def compare(family: str, size: int | None, recorded: str | None, hot: bool, arch: str | None, as_json: bool) -> None:
    """Count all variants of a FAMILY at one size and show them side by side.

    With --recorded the times of a real GPU stand beside them, and the variants are in order of these.
    """
    if family not in kernels.families():
        raise UsageError(f"there is no family {family!r}: there are {', '.join(kernels.families())}")
    if recorded is not None and arch not in (None, "sm_90"):
        raise UsageError("the recorded times are of sm_90: leave --arch out")
    recording = times.recorded(recorded) if recorded is not None else None
    cases = kernels.families()[family]
    chosen = size if size is not None else _common_size(cases)
    if recording is not None and not any(recording.of(c.name, chosen, "cold") for c in cases):
        sizes = sorted({n for c in cases for n in recording.sizes(c.name)})
        if not sizes:
            raise UsageError(f"nothing of {family} was timed: leave --recorded out")
        raise UsageError(f"nothing of {family} was timed at size {chosen}: --size {' or '.join(map(str, sizes))}")
    variants = []
    with progress_bar(family) as progress:
        for number, case in enumerate(cases):
            if progress is not None:
                progress(number, len(cases))
            variants.append(_variant(case, chosen, arch, recording, "hot" if hot else "cold"))
    if recording is not None:
        variants.sort(key=lambda v: (v.microseconds is None, v.microseconds or 0))
    if as_json:
        click.echo(json.dumps(_document(family, chosen, variants, recording, hot), indent=1))
    else:
        _show(family, chosen, variants, recording, hot)


def _common_size(cases: tuple[Case, ...]) -> int:
    """The smaller of the first variant's first two sizes: they fill the chip, and are counted in seconds."""
    return min(cases[0].sizes[:2])


def _variant(case: Case, size: int, arch: str | None, recording: times.Recording | None, how: str) -> Variant:
    module = compile_case(case, arch)
    results = count(module, case.build(size))
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
    )


def ties(variants: list[Variant]) -> list[tuple[str, str]]:
    """Pairs whose recorded times cannot be told apart."""
    timed = [(v.name, v.time) for v in variants if v.time is not None]
    return [(a, b) for (a, s), (b, t) in combinations(timed, 2) if s is not None and t is not None and times.tied(s, t)]


def _document(
    family: str, size: int, variants: list[Variant], recording: times.Recording | None, hot: bool
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "kind": "comparison",
        "family": family,
        "size": size,
        "variants": [asdict(v) | {"beside_first": v.beside(variants[0])} for v in variants],
    }
    if recording is not None:
        found["times"] = {"device": recording.header, "cache": "hot" if hot else "cold", "ties": ties(variants)}
    return found


def _show(family: str, size: int, variants: list[Variant], recording: times.Recording | None, hot: bool) -> None:
    terminal = Terminal(make_console(), Style(None))
    terminal.text(f"{family} at size {size:,}, all launches of each variant", "bold", 0)
    columns = [
        Column("variant", no_wrap=True),
        *(Column(title, justify="right") for title in COLUMNS),
        Column("occupancy", justify="right"),
    ]
    if recording is not None:
        columns.append(Column("measured", justify="right"))
    table = Table(*columns, box=None, padding=(0, 2, 0, 0), header_style="dim")
    for v in variants:
        mark = "~" if v.exactness == "modelled" else ""
        row = [v.name, *(f"{mark}{value:,}" for value in v.counters.values()), f"{v.occupancy:.0f} %"]
        if recording is not None:
            row.append("-" if v.microseconds is None else f"{v.microseconds:,.1f} us")
        table.add_row(*row)
    terminal.console.print(Padding(table, (1, 0, 0, 0)))
    first = variants[0]
    terminal.heading(f"Beside {first.name}")
    terminal.facts([(v.name, _words(v, first)) for v in variants[1:]])
    terminal.console.print()
    if recording is not None:
        how = "warm caches" if hot else "after a flush of L2"
        terminal.text(f"measured: {recording.source}, {how}; medians, summed over a variant's launches", "dim", 0)
        for a, b in ties(variants):
            terminal.text(f"a tie: {a} and {b}", "dim", 0)
    if any(v.exactness == "modelled" for v in variants):
        terminal.text("~: not certain; 'gpusim analyze' of that variant says why", "dim", 0)


def _words(variant: Variant, first: Variant) -> str:
    text = variant.beside(first)
    if variant.microseconds is not None and first.microseconds:
        text = f"{variant.microseconds / first.microseconds:.2f} x the time: {text}"
    return text
