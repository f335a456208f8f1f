"""``gpusim run``: check and time kernels of the catalogue on a real GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from rich.table import Column
from rich.text import Text

from gpusim.cli import measuring
from gpusim.cli.measuring import Row
from gpusim.cli.transfers import run_transfers
from gpusim.errors import UsageError
from gpusim.report.terminal import Style, Terminal, make_console
from gpusim.runner import device as devices
from gpusim.runner import results as files
from gpusim.runner.results import Results
from gpusim.runner.sampling import Criterion

BAR = 24  # columns of the longest bar


@click.command()
@click.argument("target")
@click.option(
    "--size", type=click.IntRange(min=1), metavar="N", help="Problem size; one that fills the chip by default."
)
@measuring.device_option
@click.option("--arch", metavar="sm_90", help="Architecture to compile for; the GPU's own by default.")
@measuring.seconds_option
@click.option("--json", "as_json", is_flag=True, help="One JSON document, that of the file, instead of the table.")
@click.option("--recorded", metavar="DEVICE", help="Of transfers: show what was recorded: h200; needs no GPU.")
@click.option("--svg", type=click.Path(path_type=Path), metavar="FILE", help="Of stream_overlap: draw the streams.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="File of results; a new one in gpusim-results/."
)
def run(
    target: str,
    size: int | None,
    number: int,
    arch: str | None,
    seconds: float,
    as_json: bool,
    out: Path | None,
    recorded: str | None,
    svg: Path | None,
) -> int:
    """Run TARGET, a kernel or a family of the catalogue, on a real GPU: check its result, then time it.

    The GPU gets the very machine code that 'gpusim analyze' counts. Times are medians of CUDA events: cold, after a
    flush of the L2 cache, and hot, of many launches back to back.
    """
    cases = measuring.chosen_cases(target)
    if all(case.needs_gpu for case in cases):
        if out is not None or arch is not None:
            raise UsageError("--out and --arch do not apply to transfers: --json prints the results")
        return run_transfers((target,), size=size, device=number, recorded=recorded, svg=svg, as_json=as_json)
    if recorded is not None or svg is not None:
        raise UsageError(
            f"--recorded and --svg belong to transfers: 'gpusim compare {cases[0].family} --recorded h200'"
        )
    chosen = size if size is not None else measuring.default_size(cases)
    if out is not None:
        files.check_new(out)
    with devices.opened(number) as device:
        results = measuring.measure_cases(
            device,
            cases,
            chosen,
            measuring.chosen_arch(device, arch),
            Criterion.of(seconds),
            f"gpusim run {target} --size {chosen} --seconds {seconds:g}",
        )
    document = results.document()
    if out is not None:
        files.write_new(out, document)
    else:
        out = files.write_default(f"{target}-{chosen}", document)
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        show(Terminal(make_console(), Style(None)), target, chosen, results)
        click.echo(f"\nwritten to {out}")
    return measuring.EXIT_WRONG_RESULT if measuring.wrong(results) else 0


def show(terminal: Terminal, target: str, size: int, results: Results) -> None:
    """The table: the slowest first."""
    rows = measuring.rows_of(results)
    terminal.text(f"{target} at size {size:,}, measured; the slowest first", "bold", 0)
    terminal.text(checks(results), indent=0)
    terminal.console.print()
    _times(terminal, rows)
    terminal.heading("Samples", "microseconds")
    _samples(terminal, rows)
    terminal.console.print()
    for sentence in measuring.remarks(results):
        terminal.text(sentence, "yellow", 0)
    clocks = [mhz for entry in results.times.values() for mhz in entry["clock_mhz"] or ()]
    clock = "unknown (NVML is missing)" if not clocks else f"{min(clocks)} to {max(clocks)} MHz"
    header = results.header
    terminal.text(f"{measuring.source_of(header)}; SM clock {clock}", "dim", 0)
    terminal.text(
        "cold: after a flush of the L2 cache. hot: many launches back to back, warm caches. GB/s: bytes of the "
        "buffers, each once for reading and once for writing, over the cold time; copy: their share of what a large "
        f"copy on this GPU moves ({header['copy_bytes_per_second'] / 1e9:,.0f} GB/s).",
        "dim",
        0,
    )


def checks(results: Results) -> str:
    """How many results are right, in words."""
    found = [problem["check"] for problem in results.problems.values() if "check" in problem]
    equal = sum(check["equal"] for check in found)
    if equal == len(found):
        return f"results: {'all ' if len(found) > 1 else ''}{equal} equal to the NumPy reference"
    return f"results: {equal} of {len(found)} equal to the NumPy reference"


def _times(terminal: Terminal, rows: list[Row]) -> None:
    longest = max((row.cold for row in rows if row.cold is not None), default=0.0)
    columns = [
        Column("variant", no_wrap=True),
        *(Column(name, justify="right", no_wrap=True) for name in ("cold us", "hot us", "GB/s", "copy")),
        Column("", no_wrap=True),
    ]
    cells: list[list[str | Text]] = []
    for row in rows:
        if row.cold is None or row.entry is None:
            cells.append([row.name, "-", "-", "-", "-", "" if row.failed is None else "not run"])
            continue
        rate, share = row.bytes_per_second, row.share_of_copy
        cells.append(
            [
                row.name,
                microseconds(row.cold),
                microseconds(row.entry["hot"]["median"]),
                "-" if rate is None else f"{rate / 1e9:,.0f}",
                "-" if share is None else f"{100 * share:.0f} %",
                Text(bar(row.cold, longest), "green"),
            ]
        )
    terminal.table(columns, cells)


def _samples(terminal: Terminal, rows: list[Row]) -> None:
    names = ("cold", "quartiles", "least", "n", "hot", "quartiles", "least", "n")
    columns = [Column("", no_wrap=True), *(Column(name, justify="right", no_wrap=True) for name in names)]
    cells: list[list[str | Text]] = []
    for row in rows:
        if row.cold is None or row.entry is None:
            continue
        cells.append([row.name, *_ways(row.entry)])
        for number, entry in enumerate(row.launches, 1):
            if "cold" in entry:
                cells.append([f"  launch {number}", *_ways(entry)])
    terminal.table(columns, cells)


def _ways(entry: dict[str, Any]) -> list[str]:
    cells = []
    for how in ("cold", "hot"):
        t = entry[how]
        quartiles = "-".join(map(microseconds, t["quartiles"]))
        cells += [microseconds(t["median"]), quartiles, microseconds(t["least"]), str(t["samples"])]
    return cells


def microseconds(value: float) -> str:
    """A time with as many digits as mean something."""
    return f"{value:,.2f}" if value < 100 else f"{value:,.1f}" if value < 10_000 else f"{value:,.0f}"


def bar(value: float, longest: float) -> str:
    """A bar of a length in proportion, in eighths of a column."""
    eighths = max(1, round(8 * BAR * value / longest)) if longest > 0 else 0
    full, rest = divmod(eighths, 8)
    return "█" * full + ("▏▎▍▌▋▊▉"[rest - 1] if rest else "")
