"""Predicted times, on the terminal: one line, and bars of what each unit would need and of what warps wait for."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Column
from rich.text import Text

from gpusim.report.terminal import Terminal
from gpusim.timing import profiles
from gpusim.timing.predict import Prediction

WIDEST_BAR = 40
LEAST_SHARE = 0.005  # smaller ones are left out
# Nsight Compute's smsp__pcsamp_warps_issue_stalled_... of each stall
COUNTERS = {
    "long scoreboard": "stalled_long_scoreboard",
    "short scoreboard": "stalled_short_scoreboard",
    "barrier": "stalled_barrier",
    "math pipe throttle": "stalled_math_pipe_throttle",
    "LSU queue throttle": "stalled_lg_throttle, _mio_throttle",
    "wait": "stalled_wait",
    "branch resolving": "stalled_branch_resolving",
    "not selected": "stalled_not_selected",
    "selected": "stalled_selected",
}
CACHES = {"cold": "L2 flushed before", "hot": "launched over and over"}


def duration(milliseconds: float) -> str:
    """Three or four digits of a time, in the unit that suits it."""
    for unit, factor in (("s", 1e-3), ("ms", 1.0), ("us", 1e3)):
        value = milliseconds * factor
        if value >= 1 or unit == "us":
            return f"{value:,.0f} {unit}" if value >= 1000 else f"{value:.{2 if value < 100 else 1}f} {unit}"
    raise AssertionError


def volume(size: float) -> str:
    """Bytes in decimal units."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:,.{1 if size < 100 * factor else 0}f} {unit}"
    return f"{size:,.0f} B"


def device_title(name: str) -> str:
    """The device of a profile; of one from a file its name."""
    return profiles.load(name).device if name in profiles.names() else name


def total(predictions: Sequence[Prediction]) -> float:
    """Milliseconds of all launches, one after the other."""
    return sum(p.milliseconds for p in predictions)


def slowest(predictions: Sequence[Prediction]) -> Prediction:
    """The launch that takes longest."""
    return max(predictions, key=lambda p: p.milliseconds)


def sentence(predictions: Sequence[Prediction]) -> str:
    """What is predicted, in one line."""
    worst = slowest(predictions)
    several = f"; {len(predictions)} launches" if len(predictions) > 1 else ""
    return (
        f"time: {duration(total(predictions))} on {device_title(worst.device)}, limited by {worst.limiter} "
        f"(modelled, {CACHES[predictions[0].cache]}{several})"
    )


def show_line(terminal: Terminal, predictions: Sequence[Prediction]) -> None:
    """The one line, and below it, dim, what was noted."""
    terminal.text(sentence(predictions), "bold", 0)
    for note in dict.fromkeys(note for p in predictions for note in p.notes):
        terminal.text(f"note: {note}", "dim", 0)


def bars(terminal: Terminal, rows: Sequence[tuple[str, float, str, str]], marked: str = "") -> None:
    """Rows of (name, length relative to the longest, number, remark) with bars between; ``marked`` is shown bold."""
    shown = [row for row in rows if row[1] > 0]
    if not shown:
        return
    console = terminal.console
    names, numbers, remarks = (max(len(str(row[k])) for row in shown) for k in (0, 2, 3))
    room = console.width - 2 - names - numbers - 6 - (remarks + 2 if remarks else 0)
    width = max(5, min(WIDEST_BAR, room))
    block = "█" if (console.encoding or "").lower().startswith("utf") else "#"
    longest = max(row[1] for row in shown)
    columns = [Column(no_wrap=True) for _ in range(4 if remarks else 3)]
    columns[1].justify = "right"
    cells: list[list[str | Text]] = []
    for name, length, number, remark in shown:
        bold = "bold" if name == marked else ""
        drawn = Text(block * max(1, round(width * length / longest)), "yellow" if bold else "cyan")
        cells.append([Text(name, bold), Text(number, bold), drawn, *([Text(remark, "dim")] if remarks else [])])
    for column, drawn_width in zip(columns, (names, numbers, width, remarks), strict=False):
        column.min_width = drawn_width
    terminal.table(columns, cells, header=False)


def show_breakdown(terminal: Terminal, p: Prediction) -> None:
    """What each unit alone would need."""
    terminal.heading("Time", f"modelled: what each part alone would need of {duration(p.milliseconds)}")
    ordered = sorted(p.breakdown.items(), key=lambda item: -item[1])
    rows = [(name, ms, duration(ms), "") for name, ms in ordered if ms >= LEAST_SHARE * p.milliseconds]
    bars(terminal, rows, p.limiter)


def show_stalls(terminal: Terminal, p: Prediction) -> None:
    """What warps spend their time on."""
    terminal.heading("Warps' time", "modelled; right: Nsight Compute's smsp__pcsamp_warps_issue_...")
    ordered = sorted(p.stalls.items(), key=lambda item: -item[1])
    bars(terminal, [(n, s, f"{100 * s:.1f} %", COUNTERS.get(n, "")) for n, s in ordered if s >= LEAST_SHARE])


def show_facts(terminal: Terminal, p: Prediction) -> None:
    """Bytes, occupancy and how sure it is."""
    terminal.heading("Estimates", "modelled")
    terminal.facts(
        [
            ("L1 hit rate", f"{100 * p.l1_hit_rate:.1f} % of loaded sectors"),
            ("SMs and L2", f"{volume(p.l2_bytes)} moved"),
            ("DRAM", f"{volume(p.dram_bytes_read)} read, {volume(p.dram_bytes_written)} written"),
            ("achieved occupancy", f"{100 * p.achieved_occupancy:.1f} % of the SM's warps while it is busy"),
            ("model", f"{p.model}, {p.cycles:,.0f} cycles beside the launch overhead"),
            ("confidence", p.confidence),
        ]
    )
