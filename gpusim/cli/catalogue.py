"""Running a case of the catalogue: a size that takes seconds, its launches, and the check of what they computed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import gpusim
from gpusim.errors import ExecutionError, UsageError
from gpusim.kernels import Case, Check, Problem, check
from gpusim.toolchain import DEFAULT_ARCH, normalize_arch

__all__ = [
    "Check",
    "check",
    "check_elsewhere",
    "choose_size",
    "compile_case",
    "count",
    "execute",
    "thread_instructions",
]

WORK_BY_DEFAULT = 600e6
"""Thread instructions that are executed without being asked for more: some seconds on two cores."""
CHECK_WORK = 30e6
"""Thread instructions up to which a counted problem is executed too, to check its result: a fraction of a second."""


def compile_case(case: Case, arch: str | None, options: tuple[str, ...] = ()) -> gpusim.Module:
    """The module of a case.  Raises UsageError for an architecture that lacks what the kernel uses."""
    target = normalize_arch(arch if arch is not None else DEFAULT_ARCH)
    if int(target.removeprefix("sm_").rstrip("af")) < case.min_arch:
        raise UsageError(f"{case.name} needs sm_{case.min_arch} or later, not {target}")
    return gpusim.compile(case.source, arch=target, options=(*case.options, *options), names=case.names)


def arguments(problem: Problem, args: tuple[Any, ...]) -> list[Any]:
    """A launch's arguments with the buffers in the place of their names."""
    return [problem.buffers[arg] if isinstance(arg, str) else arg for arg in args]


def choose_size(case: Case, module: gpusim.Module) -> tuple[int, str]:
    """(a size that is counted in a few seconds, a sentence that says so or "").

    The case's default if blocks need not be executed one by one to count them.  Else the first of its sizes whose
    estimated work is small enough; the estimate extrapolates what two small sizes execute.
    """
    small = [size for size in sorted(case.small_sizes) if size > 1] or list(case.small_sizes)
    largest = small[-1]
    smaller = max((size for size in small if 2 * size <= largest), default=None)
    try:
        work, executed = _work(case, module, largest)
        if not executed:
            return case.sizes[0], ""
        less = _work(case, module, smaller)[0] if smaller is not None else None
    except ExecutionError:  # a kernel that fails on purpose
        return min(case.sizes), ""
    power = 1.0
    if smaller is not None and less:
        power = max(1.0, math.log(work / less) / math.log(largest / smaller))

    def estimate(size: int) -> float:
        return work * (size / largest) ** power

    fitting = [size for size in case.sizes if estimate(size) <= WORK_BY_DEFAULT]
    size = fitting[0] if fitting else min(*case.sizes, largest)
    if size == case.sizes[0]:
        return size, ""
    default = case.sizes[0]
    return size, (
        f"size {size} is counted; {default}, the kernel's own default, takes about "
        f"{estimate(default) / estimate(size):,.0f} times as long (--size {default})"
    )


def _work(case: Case, module: gpusim.Module, size: int) -> tuple[int, int]:
    """(thread instructions, blocks that had to be executed to count them) of all launches at a size."""
    results = count(module, case.build(size))
    return max(1, thread_instructions(results)), sum(result.blocks_executed or 0 for result in results)


def thread_instructions(results: list[gpusim.Result]) -> int:
    """Thread instructions of all launches."""
    return sum(result.metrics["smsp__sass_thread_inst_executed.sum"] for result in results)


def execute(module: gpusim.Module, problem: Problem, **options: Any) -> list[gpusim.Result]:
    """Launch all of a problem's kernels; ``options`` as for Kernel.launch."""
    return [
        module[launch.kernel].launch(
            launch.grid, launch.block, arguments(problem, launch.args), launch.shared_bytes, **options
        )
        for launch in problem.launches
    ]


def count(module: gpusim.Module, problem: Problem, **options: Any) -> list[gpusim.Result]:
    """Count all launches; executes them where the counters of a later one may depend on what an earlier one wrote."""
    if any(module[launch.kernel].counts_depend_on_memory for launch in problem.launches[1:]):
        return execute(module, problem, **options)
    return [
        module[launch.kernel].count(
            launch.grid, launch.block, arguments(problem, launch.args), launch.shared_bytes, **options
        )
        for launch in problem.launches
    ]


def check_elsewhere(case: Case, module: gpusim.Module, size: int) -> Check:
    """Execute the case at its largest small size that is not above ``size`` and compare with the reference."""
    small = max((n for n in case.small_sizes if n <= size), default=min(case.small_sizes))
    problem = case.build(small)
    execute(module, problem)
    found = check(case, problem)
    return replace(found, text=f"{found.text}, executed at size {small}")
