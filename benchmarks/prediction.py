"""Predicted against recorded times: ``python benchmarks/prediction.py [--family F]... [--write]``.

Every launch of the catalogue that was timed on an H200 is predicted, cold and hot, and so are kernels that no constant
was fitted on (``tests/data/timed_kernels*.cu``).  Prints the errors by family and the pairs of variants
whose order is wrong; ``--write`` renews the table and the picture of docs/prediction.md.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from gpusim import kernels
from gpusim.runner import order, times
from gpusim.runner.replay import make_buffer
from gpusim.timing import pipeline
from gpusim.timing.model import Model, model_of
from gpusim.timing.predict import problem_milliseconds

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
# kernels outside the catalogue: their source and, with h200_ before, their recorded times
OTHERS = ("timed_kernels", "timed_kernels_more", "timed_kernels_third", "timed_kernels_fourth")
FITTED = {"access", "basic", "reduce", "transpose", "softmax"}  # families that constants were fitted on
FILLING = {
    "access": 33554432, "banks": 33554432, "basic": 33554432, "histogram": 67108864, "matmul": 4096, "reduce": 67108864,
    "resources": 33554432, "softmax": 65536, "threads": 33554432, "tiles": 33554432, "transpose": 8192,
}  # fmt: skip
DECIDED = 0.05  # a pair of variants whose recorded medians differ by more is decided
CACHES = ("cold", "hot")


@dataclass(frozen=True)
class Row:
    """One launch, or the launches of a problem: microseconds, by cache."""

    family: str
    name: str
    size: int
    predicted: dict[str, float]
    measured: dict[str, float]
    seconds: float

    def error(self, cache: str) -> float:
        """Relative."""
        return self.predicted[cache] / self.measured[cache] - 1


def catalogue_rows(model: Model, families: list[str]) -> Iterator[tuple[Row, list[Row]]]:
    """(the problem, its launches) of what was timed."""
    recording = times.recorded("h200")
    for family, cases in kernels.families().items():
        if families and family not in families:
            continue
        names: dict[Path, list[str]] = {}
        for case in cases:
            names.setdefault(case.source, []).extend(case.names)
        modules: dict[Path, Any] = {}
        for case in cases:
            for size in recording.sizes(case.name):
                if case.source not in modules:
                    modules[case.source] = gpusim.compile(str(case.source), arch="sm_90", names=names[case.source])
                problem = case.build(size)
                launches = []
                for number, launch in enumerate(problem.launches):
                    args = [problem.buffers[a] if isinstance(a, str) else a for a in launch.args]
                    kernel = modules[case.source][launch.kernel]
                    predicted, seconds = predicted_times(model, kernel, launch.grid, launch.block, args,
                                                         launch.shared_bytes)  # fmt: skip
                    entry = recording.launches[f"{case.name}/{size}/{number}"]
                    measured = {c: entry[c]["median"] for c in CACHES}
                    launches.append(Row(family, f"{case.name}/{number}", size, predicted, measured, seconds))
                whole = {c: recording.of(case.name, size, c) for c in CACHES}
                parts = [row.predicted for row in launches]
                total = {c: 1e3 * problem_milliseconds([{k: v * 1e-3 for k, v in p.items()} for p in parts], c, model)
                         for c in CACHES}  # fmt: skip
                measured = {c: t.median for c, t in whole.items() if t is not None}
                yield Row(family, case.name, size, total, measured, sum(r.seconds for r in launches)), launches


def predicted_times(
    model: Model, kernel: Any, grid: Any, block: Any, args: Any, shared: int
) -> tuple[dict[str, float], float]:
    """Microseconds by cache, and the seconds that it took to say so."""
    begun = time.perf_counter()
    seen = pipeline.follow_launch(kernel.prepare(grid, block, args, shared), int(model["sms"]))
    found = {}
    for cache in CACHES:
        cycles = float(pipeline.simulate(seen, model, cache).cycles)
        found[cache] = cycles / model["sm_clock"] + model[f"overhead_{cache}"]
    return found, time.perf_counter() - begun


def other_rows(model: Model, name: str) -> Iterator[Row]:
    """Kernels that are not in the catalogue, of one of OTHERS."""
    with gzip.open(DATA / f"h200_{name}.json.gz", "rt") as stream:
        content = json.load(stream)
    measured = {entry["id"]: entry for entry in content["times"]}
    module = gpusim.compile(str(DATA / f"{name}.cu"), arch="sm_90")
    for launch in content["plan"]["launches"]:
        args = [np.dtype(a["scalar"]).type(a["value"]) if "scalar" in a else make_buffer(a) for a in launch["args"]]
        predicted, seconds = predicted_times(
            model, module[launch["kernel"]], tuple(launch["grid"]), tuple(launch["block"]), args, launch["shared"]
        )
        entry = measured[launch["id"]]
        yield Row(name, launch["kernel"], launch["size"], predicted, {c: entry[c]["median"] for c in CACHES}, seconds)


def wrong_pairs(rows: list[Row]) -> tuple[int, list[str], float | None]:
    """(decided pairs, those whose order is wrong, Kendall's tau over decided ones)."""
    decided, wrong = 0, []
    groups: dict[tuple[str, int], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.family, row.size), []).append(row)
    for (family, size), members in groups.items():
        for a, b in combinations(members, 2):
            for cache in CACHES:
                x, y = a.measured[cache], b.measured[cache]
                if abs(x - y) <= DECIDED * min(x, y):
                    continue
                decided += 1
                if order.sign(a.predicted[cache], b.predicted[cache]) != order.sign(x, y):
                    wrong.append(
                        f"{family} {size} {cache}: {a.name} {x:.2f} us, {b.name} {y:.2f} us; predicted "
                        f"{a.predicted[cache]:.2f} and {b.predicted[cache]:.2f}"
                    )
    return decided, wrong, 1 - 2 * len(wrong) / decided if decided else None


def table(problems: list[Row], launches: list[Row], others: list[Row]) -> list[str]:
    """Markdown lines of mean absolute errors."""
    lines = [
        "| family | launches | cold | hot | filling the chip, cold | hot | largest there |",
        "|---|---|---|---|---|---|---|",
    ]

    def mean(rows: list[Row], cache: str) -> str:
        return f"{100 * np.mean([abs(r.error(cache)) for r in rows]):.1f} %" if rows else ""

    def largest(rows: list[Row]) -> str:
        found = max(((abs(r.error(c)), r, c) for r in rows for c in CACHES), key=lambda x: x[0], default=None)
        return "" if found is None else f"{100 * found[1].error(found[2]):+.0f} % {found[1].name.split('/')[0]}"

    groups = {}
    for row in launches:
        groups.setdefault(row.family, []).append(row)
    for family, rows in groups.items():
        big = [r for r in rows if r.size == FILLING.get(family) and r.name.endswith("/0")]
        fitted = " (fitted on)" if family in FITTED else ""
        cells = (mean(rows, "cold"), mean(rows, "hot"), mean(big, "cold"), mean(big, "hot"), largest(big))
        lines.append(f"| {family}{fitted} | {len(rows)} | " + " | ".join(cells) + " |")
    for title, chosen in (
        ("fitted on", [r for r in launches if r.family in FITTED]),
        ("not fitted on", [r for r in launches if r.family not in FITTED]),
        ("all", launches),
    ):
        big = [r for r in chosen if r.size == FILLING.get(r.family) and r.name.endswith("/0")]
        cells = (mean(chosen, "cold"), mean(chosen, "hot"), mean(big, "cold"), mean(big, "hot"), "")
        lines.append(f"| **{title}** | {len(chosen)} | " + " | ".join(cells) + " |")
    for name in OTHERS:
        rows = [r for r in others if r.family == name]
        if rows:
            lines.append(f"| `{name}.cu` | {len(rows)} | {mean(rows, 'cold')} | {mean(rows, 'hot')} | | | |")
    return lines


def picture(launches: list[Row], others: list[Row], path: Path) -> None:
    """Predicted against measured, logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 6.0))
    groups = {"fitted on": [r for r in launches if r.family in FITTED]}
    groups |= {"not fitted on": [r for r in launches if r.family not in FITTED], "other kernels": others}
    for (title, rows), marker, colour in zip(
        groups.items(), "o^s", ("tab:blue", "tab:orange", "tab:green"), strict=True
    ):
        x = [r.measured[c] for r in rows for c in CACHES]
        y = [r.predicted[c] for r in rows for c in CACHES]
        axes.scatter(x, y, s=12, marker=marker, alpha=0.6, label=title, color=colour, linewidths=0)
    ends = np.array([0.8, 5e5])
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (1.2, 1 / 1.2):
        axes.plot(ends, ends * factor, color="grey", linewidth=0.6, linestyle="--")
    axes.set(xscale="log", yscale="log", xlabel="measured on an H200, us", ylabel="predicted, us",
             xlim=ends, ylim=ends, aspect="equal")  # fmt: skip
    axes.legend(frameon=False)
    axes.set_title("Time of launches, cold and hot; dashed: 20 %", fontsize=10)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> int:
    """Predict, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--no-others", action="store_true", help="leave kernels outside the catalogue out")
    parser.add_argument("--write", action="store_true", help="renew docs/prediction.md and docs/prediction.svg")
    parser.add_argument("--rows", type=Path, help="also write all rows as JSON")
    options = parser.parse_args()
    model = model_of("h200")
    problems, launches = [], []
    for problem, parts in catalogue_rows(model, options.family):
        problems.append(problem)
        launches += parts
        print(f"\r{problem.name} {problem.size}{'':40s}", end="", file=sys.stderr, flush=True)
    others = [] if options.no_others or options.family else [row for name in OTHERS for row in other_rows(model, name)]
    print("\r" + " " * 70 + "\r", end="", file=sys.stderr)
    lines = table(problems, launches, others)
    decided, wrong, tau = wrong_pairs(problems)
    summary = [
        f"Of {decided} pairs of variants whose recorded times differ by more than 5 %, cold and hot, "
        f"{decided - len(wrong)} are predicted in the recorded order (Kendall's tau "
        f"{'-' if tau is None else format(tau, '.3f')}).",
    ]
    slow = max((r.seconds for r in problems), default=math.nan)
    print("\n".join([*lines, "", *summary, *wrong, f"slowest problem: {slow:.1f} s for both caches"]))
    if options.rows:
        options.rows.write_text(json.dumps([vars(r) for r in (*launches, *others)]))
    if options.write:
        picture(launches, others, ROOT / "docs" / "prediction.svg")
        page = ROOT / "docs" / "prediction.md"
        text = page.read_text()
        begin, end = "<!-- begin: benchmarks/prediction.py -->\n", "<!-- end -->"
        before, rest = text.split(begin)
        after = rest.split(end, 1)[1]
        listed = [f"- {line}" for line in wrong]
        body = "\n".join([*lines, "", *summary, "", *listed, ""])
        temporary = page.with_suffix(".part")
        temporary.write_text(before + begin + body + end + after)
        temporary.replace(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
