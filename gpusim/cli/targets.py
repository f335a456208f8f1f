"""What the commands that take a TARGET share: its launches, and the sizes and macros of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gpusim
from gpusim.cli.catalogue import arguments
from gpusim.errors import UsageError
from gpusim.kernels import Problem
from gpusim.timing.model import Model
from gpusim.timing.predict import Prediction

MOST_POINTS = 200


@dataclass(frozen=True)
class Job:
    """One launch of a kernel."""

    kernel: gpusim.Kernel
    grid: Any
    block: Any
    args: Sequence[Any]
    shared_bytes: int = 0

    def launch(self, **options: Any) -> gpusim.Result:
        """Execute it."""
        return self.kernel.launch(self.grid, self.block, self.args, self.shared_bytes, **options)

    def count(self, **options: Any) -> gpusim.Result:
        """Count it."""
        return self.kernel.count(self.grid, self.block, self.args, self.shared_bytes, **options)


def case_jobs(module: gpusim.Module, problem: Problem) -> list[Job]:
    """The launches of a catalogue kernel's problem, on its buffers."""
    return [
        Job(module[launch.kernel], launch.grid, launch.block, arguments(problem, launch.args), launch.shared_bytes)
        for launch in problem.launches
    ]


def in_order(jobs: Sequence[Job]) -> Iterator[Job]:
    """The launches one by one; each is executed before the next if a later one's counters may depend on its data."""
    dependent = any(job.kernel.counts_depend_on_memory for job in jobs[1:])
    for number, job in enumerate(jobs):
        yield job
        if dependent and number + 1 < len(jobs):
            job.launch()


def cache_of(number: int, cache: str) -> str:
    """What launch ``number`` of a problem finds: L2 is flushed before the first one alone."""
    return "hot" if number else cache


def following(found: Prediction, number: int, cache: str, model: Model) -> Prediction:
    """A prediction with what it costs the host to launch it beside the one before (see problem_milliseconds)."""
    if number == 0 or cache == "hot":
        return found
    return replace(found, milliseconds=found.milliseconds + model["overhead_next"] * 1e-3)


# -- sweeps --------------------------------------------------------------------------------------------------------


def sizes_of(text: str | None) -> list[int]:
    """The sizes of ``1024``, ``1000,1024``, ``256:4096:x2`` or ``256:1024:+256``; none for None.  Raises UsageError."""
    if text is None:
        return []
    wrong = UsageError(f"--size {text}: write a number, a list such as 1000,1024, or a range such as 256:4096:x2")
    try:
        if ":" not in text:
            found = [int(part) for part in text.split(",")]
        else:
            first, last, step = text.split(":")
            found = list(_range(int(first), int(last), step))
    except ValueError:
        raise wrong from None
    if not found or min(found) < 1 or len(found) > MOST_POINTS:
        raise wrong
    return list(dict.fromkeys(found))


def _range(first: int, last: int, step: str) -> Iterator[int]:
    sign, amount = step[:1], step[1:]
    factor = float(amount) if sign == "x" else int(amount)
    if sign not in ("x", "+") or factor <= (sign == "x") or first < 1:
        raise ValueError(step)
    value = float(first)
    for _ in range(MOST_POINTS + 1):
        if value > last:
            return
        yield round(value)
        value = value * factor if sign == "x" else value + factor


def macros_of(defines: Iterable[str]) -> list[dict[str, str | None]]:
    """Every combination of the values of ``NAME=V1,V2`` options: macros by name, None for one without a value."""
    choices: list[list[tuple[str, str | None]]] = []
    for text in defines:
        name, equals, values = text.partition("=")
        choices.append([(name, value) for value in values.split(",")] if equals else [(name, None)])
    found = [dict(combination) for combination in itertools.product(*choices)]
    if len(found) > MOST_POINTS:
        raise UsageError(f"-D gives {len(found)} combinations: leave at most {MOST_POINTS}")
    return found


def flags_of(macros: dict[str, str | None]) -> tuple[str, ...]:
    """The compiler's options for macros."""
    return tuple(f"-D{name}" if value is None else f"-D{name}={value}" for name, value in macros.items())
