"""Transfers on the terminal and as a drawing: rates of copies, and what ran when in which stream.

Takes what :mod:`gpusim.runner.transfers` measured or recorded, as plain data.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

from rich.table import Column
from rich.text import Text

from gpusim.report.terminal import Terminal

Timeline = dict[str, Any]

LETTERS = {"copy in": ("I", "blue"), "kernel": ("K", "green"), "copy out": ("O", "magenta")}
COLOURS = {"copy in": "#3b6fb6", "kernel": "#3f9142", "copy out": "#a6529b"}
WAITS = "."
BAR = 30  # characters of the longest bar
LEAST_WIDTH, MOST_WIDTH = 40, 160  # characters of a timeline


def show(terminal: Terminal, result: dict[str, Any]) -> None:
    """One result of ``run`` or ``recorded``."""
    header = result["header"]
    terminal.heading(result["name"], f"measured: {header['device']}, driver {header['driver']}, {header['date']}")
    if "copies" in result:
        _show_copies(terminal, result)
    else:
        _show_overlap(terminal, result)


def _right(title: str) -> Column:
    return Column(title, justify="right", no_wrap=True)


def _show_copies(terminal: Terminal, result: dict[str, Any]) -> None:
    rows = result["copies"]
    fastest = max(row[way]["gb_per_s"] for row in rows for way in ("to_device", "to_host"))
    terminal.text(f"{result['memory']} host memory; medians of at least {_samples(rows)} copies, each timed alone")
    columns = [_right("size"), _right("to device"), _right("GB/s"), _right("to host"), _right("GB/s")]
    cells: list[list[str | Text]] = []
    for row in rows:
        cell: list[str | Text] = [size_text(row["bytes"])]
        for way in ("to_device", "to_host"):
            cell += [f"{row[way]['median']:,.1f} us", f"{row[way]['gb_per_s']:,.2f}"]
        there, back = (round(BAR * row[way]["gb_per_s"] / fastest) for way in ("to_device", "to_host"))
        cell.append(Text.assemble(("#" * there, "blue"), "\n", ("=" * back, "magenta")))
        cells.append(cell)
    terminal.table([*columns, Column("# to device, = to host", no_wrap=True)], cells)


def _samples(rows: Sequence[dict[str, Any]]) -> int:
    return min(row[way]["samples"] for row in rows for way in ("to_device", "to_host"))


def _show_overlap(terminal: Terminal, result: dict[str, Any]) -> None:
    parts, runs = result["parts"], result["runs"]
    alone = {kind: part["median"] for kind, part in parts.items()}
    terminal.text(
        f"{size_text(result['bytes'])} copied in, worked on and copied out in {result['chunks']} pieces; each part "
        f"alone and whole: {', '.join(f'{kind} {us:,.0f} us' for kind, us in alone.items())}"
    )
    one = {run["memory"]: run["time"]["median"] for run in runs if run["streams"] == 1}
    columns = [
        Column("host memory", no_wrap=True),
        _right("streams"),
        _right("time"),
        _right("quartiles"),
        _right("gain"),
    ]
    longest = max(run["time"]["median"] for run in runs)
    cells: list[list[str | Text]] = []
    for run in runs:
        time = run["time"]
        low, high = time["quartiles"]
        gain = f"{one[run['memory']] / time['median']:.2f} x" if run["memory"] in one else ""
        bar = Text("#" * round(BAR * time["median"] / longest), "green")
        quartiles = f"{low:,.0f} to {high:,.0f}"
        cells.append([run["memory"], str(run["streams"]), f"{time['median']:,.0f} us", quartiles, gain, bar])
    terminal.table([*columns, ""], cells)
    best = min(run["time"]["median"] for run in runs)
    terminal.text(
        f"the parts' sum is {sum(alone.values()):,.0f} us, the longest of them {max(alone.values()):,.0f} us, which no "
        f"overlap can be expected to beat; the best run took {best:,.0f} us"
    )
    for each in result["timelines"]:
        _show_timeline(terminal, each)
    terminal.console.print()
    legend = Text("  ")
    for kind, (letter, colour) in LETTERS.items():
        legend.append(letter, f"bold {colour}").append(f" {kind}  ")
    terminal.text(legend.append(f"{WAITS} waits for the engine or the multiprocessors").plain, "dim", 0)


def _show_timeline(terminal: Terminal, each: Timeline) -> None:
    streams = "1 stream" if each["streams"] == 1 else f"{each['streams']} streams"
    terminal.heading(f"{streams}, {each['memory']} memory", "one run, by events around every operation")
    width = max(LEAST_WIDTH, min(MOST_WIDTH, terminal.console.width - 16))
    rows, end = bars(each, width)
    for number, row in enumerate(rows):
        line = Text(f"  stream {number}  ")
        for letter in row:
            colour = next((colour for mark, colour in LETTERS.values() if mark == letter), "dim")
            line.append(letter, f"bold {colour}" if letter.strip() else "")
        terminal.line(line)
    left, right = "0", f"{end:,.0f} us"
    terminal.text(f"{left}{right:>{width - len(left)}}", "dim", 12)


def bars(each: Timeline, width: int) -> tuple[list[str], float]:
    """(a row of ``width`` letters a stream, the end of all in microseconds).

    A letter stands for what ran in the middle of its time; where it waited there, a dot.  Whatever is too short to be
    met in the middle of any gets the letter in which it began, if that would be empty or waiting.
    """
    end = max(float(operation[5]) for operation in each["operations"])
    rows = [[" "] * width for _ in range(each["streams"])]
    step = end / width

    def cells(start: float, stop: float) -> range:
        """Letters whose middle lies in a time."""
        return range(max(0, round(start / step)), min(width, round(stop / step)))

    for stream, _, _, ready, start, _ in each["operations"]:
        for cell in cells(ready, start):
            rows[stream][cell] = WAITS
    for stream, _, kind, _, start, stop in each["operations"]:
        letter = LETTERS[kind][0]
        found = cells(start, stop)
        for cell in found:
            rows[stream][cell] = letter
        at = min(width - 1, int(start / step))
        if not found and rows[stream][at] in (" ", WAITS):
            rows[stream][at] = letter
    return ["".join(row) for row in rows], end


def size_text(size: int) -> str:
    """Bytes in binary units."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:,.4g} {unit}"
    return f"{size} B"


# -- a drawing -----------------------------------------------------------------------------------------------------

WIDTH, LEFT, ROW, GAP = 960, 90, 22, 34  # pixels


def svg(result: dict[str, Any]) -> str:
    """The timelines of an overlap as one SVG, all on the same scale."""
    timelines = result["timelines"]
    end = max(float(operation[5]) for each in timelines for operation in each["operations"])
    scale = (WIDTH - LEFT - 20) / end
    parts: list[str] = []
    y = 50
    header = result["header"]
    title = f"{result['name']}: {header['device']}, driver {header['driver']}, {header['date']}"
    parts.append(_text(10, 24, title, "font-weight='bold'"))
    for each in timelines:
        streams = "1 stream" if each["streams"] == 1 else f"{each['streams']} streams"
        parts.append(_text(10, y + 14, f"{streams}, {each['memory']} memory"))
        y += GAP - 10
        for stream in range(each["streams"]):
            parts.append(_text(20, y + 15, f"stream {stream}", "fill='#555'"))
            parts += [_bar(each, o, y, scale) for o in each["operations"] if o[0] == stream]
            y += ROW
        y += GAP - 14
    parts.append(_axis(end, scale, y))
    x = LEFT
    for kind, colour in COLOURS.items():
        parts.append(f"<rect x='{x}' y='{y + 34}' width='14' height='14' fill='{colour}'/>")
        parts.append(_text(x + 20, y + 46, kind))
        x += 120
    body = "\n".join(parts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH}' height='{y + 64}' font-family='sans-serif' "
        f"font-size='13'>\n<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n"
    )


def _bar(each: Timeline, operation: Sequence[Any], y: int, scale: float) -> str:
    _, chunk, kind, ready, start, end = operation
    x, width = LEFT + start * scale, max(1.0, (end - start) * scale)
    told = escape(f"{kind} of piece {chunk}: {start:,.1f} to {end:,.1f} us, ready at {ready:,.1f} us")
    waits = ""
    if start > ready:
        shape = f"x='{LEFT + ready * scale:.1f}' y='{y + 8}' width='{(start - ready) * scale:.1f}' height='3'"
        waits = f"<rect {shape} fill='#ccc'/>"
    shape = f"x='{x:.1f}' y='{y}' width='{width:.1f}' height='{ROW - 4}'"
    return f"{waits}<rect {shape} fill='{COLOURS[kind]}' stroke='white' stroke-width='0.5'><title>{told}</title></rect>"


def _axis(end: float, scale: float, y: int) -> str:
    """A line with about five round numbers."""
    step = 10 ** (len(str(int(end))) - 1)
    while end / step > 6:
        step *= 2
    ticks = [
        _text(LEFT + at * scale, y + 18, f"{at:,} us", "fill='#555'") for at in range(0, int(end) + 1, max(1, step))
    ]
    line = f"<line x1='{LEFT}' x2='{LEFT + end * scale:.1f}' y1='{y}' y2='{y}' stroke='#555'/>"
    return "\n".join([line, *ticks])


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y}' {more}>{escape(words)}</text>"
