"""How fast kernels are executed: ``python benchmarks/run.py``.

Each transpose and reduction of the catalogue is launched at 2^20 elements, and NumPy does the same job in the same
run.  Printed are thread instructions a second and how many times as long as NumPy the simulator takes.  The best of
several runs counts; compiling is left out.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from collections.abc import Callable

import numpy as np

import gpusim
from gpusim.kernels import Case, Problem, families

ELEMENTS = 1 << 20
SIZES = {"transpose": math.isqrt(ELEMENTS), "reduce": ELEMENTS}
EXECUTED = "smsp__sass_thread_inst_executed.sum"


def best_of(repeats: int, job: Callable[[], object]) -> float:
    """Seconds of the fastest run."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def simulate(case: Case, repeats: int) -> tuple[int, float]:
    """(thread instructions, seconds) of all launches of a case."""
    module = gpusim.compile(case.source, options=case.options, names=case.names)
    problem = case.build(SIZES[case.family])

    def run() -> list[gpusim.Result]:
        return [
            module[launch.kernel].launch(
                launch.grid,
                launch.block,
                [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args],
                launch.shared_bytes,
            )
            for launch in problem.launches
        ]

    executed = sum(result.metrics[EXECUTED] for result in run())  # disassembles and compiles what later runs reuse
    return executed, best_of(repeats, run)


def numpy_seconds(case: Case, repeats: int) -> float:
    """Seconds that NumPy takes for the case's result."""
    source = next(iter(input_of(case.build(SIZES[case.family]))))
    if case.family == "transpose":
        target = np.empty_like(source)
        return best_of(10 * repeats, lambda: np.copyto(target, source if case.name == "transpose_copy" else source.T))
    return best_of(10 * repeats, source.sum)


def input_of(problem: Problem) -> list[np.ndarray]:
    """The buffers with data in them, the largest first."""
    filled = [buffer for buffer in problem.buffers.values() if not np.isnan(buffer).any()]
    return sorted(filled, key=lambda buffer: -buffer.size)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kernel, of which the best counts")
    repeats = parser.parse_args().repeats
    print(f"{ELEMENTS:,} elements, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"{'kernel':26}{'x NumPy':>10}{'M thread instr./s':>20}{'instructions':>16}{'ms':>10}")
    for family in SIZES:
        rates, ratios = [], []
        for case in families()[family]:
            executed, seconds = simulate(case, repeats)
            rates.append(executed / seconds / 1e6)
            ratios.append(seconds / numpy_seconds(case, repeats))
            print(f"{case.name:26}{ratios[-1]:10,.0f}{rates[-1]:20,.0f}{executed:16,}{seconds * 1e3:10,.1f}")
        print(f"{family + ', median':26}{np.median(ratios):10,.0f}{np.median(rates):20,.0f}\n")


if __name__ == "__main__":
    main()
