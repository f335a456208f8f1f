"""Pictures of predicted times, through matplotlib (the extra ``plot``)."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.errors import InputError, UsageError
from gpusim.report.prediction import device_title, slowest

if TYPE_CHECKING:
    from gpusim.cli.predict import Point

FORMATS = (".png", ".svg", ".pdf")


def check(path: Path) -> None:
    """Raises UsageError before any work is done if no picture can be written there."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"--plot {path}: the file's name must end in .png, .svg or .pdf")
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError("--plot needs matplotlib: pip install 'gpusim[plot]'")
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path} cannot be written: there is no such directory")


def draw(path: Path, title: str, points: Sequence[Point]) -> None:
    """Draw one problem's parts as bars, or a sweep's times, and the recorded times beside them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Any = Figure(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if len(points) == 1:
        _parts(axes, points[0])
    else:
        _times(axes, points)
    first = slowest(points[0].predictions)
    axes.set_title(f"{title} on {device_title(first.device)}, {first.cache} L2: modelled", fontsize=10)
    axes.grid(alpha=0.3)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    try:
        figure.savefig(unfinished, dpi=150)
        os.replace(unfinished, path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)


def _parts(axes: Any, point: Point) -> None:
    longest = slowest(point.predictions)
    rows = sorted(longest.breakdown.items(), key=lambda item: item[1])
    axes.barh([name for name, _ in rows], [ms for _, ms in rows])
    axes.axvline(longest.milliseconds, color="black", linewidth=1, label="predicted time")
    if point.measured is not None and len(point.launches) == 1:
        axes.axvline(point.measured.median * 1e-3, color="tab:red", linestyle="--", linewidth=1, label="measured")
    axes.legend(fontsize=8)
    axes.set_xlabel("milliseconds that each part alone would need")


def _times(axes: Any, points: Sequence[Point]) -> None:
    lines: dict[str, list[Point]] = {}
    sizes = {point.size for point in points}
    several = len(sizes) > 1
    for point in points:
        label = ", ".join(name if value is None else f"{name}={value}" for name, value in point.macros.items())
        lines.setdefault(label if several else "", []).append(point)
    for label, line in lines.items():
        labels = [", ".join(f"{n}={v}" for n, v in p.macros.items()) for p in line]
        places: list[Any] = [p.size for p in line] if several else labels
        axes.plot(places, [p.milliseconds for p in line], marker="o", label=f"predicted {label}".strip())
        timed = [(x, p.measured.median * 1e-3) for x, p in zip(places, line, strict=True) if p.measured is not None]
        if timed:
            axes.plot(*zip(*timed, strict=True), "x", color="tab:red", label=f"measured {label}".strip())
    if several:
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("size")
    else:
        axes.set_ylim(bottom=0)
        axes.tick_params(axis="x", rotation=30)
    axes.set_ylabel("milliseconds")
    axes.legend(fontsize=8)
