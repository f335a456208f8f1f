"""Cases of the catalogue on a real GPU: run once, compare with the reference, and only then measure.

The GPU gets the very cubin that the simulator analyses.  Buffers start as the case builds them, outputs poisoned; the
first run's results are compared.  Later runs, which are timed, find the buffers as the runs before left them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import gpusim
from gpusim.errors import GpuError, UsageError
from gpusim.kernels import Case, Check, Launch, Problem, check
from gpusim.machine.limits import check_shape
from gpusim.runner.device import Device, gib
from gpusim.runner.sampling import Criterion, Timed, take_turns

WHOLE = "whole"
"""In the place of a launch's number: all launches of a problem together."""
Array = np.ndarray[Any, Any]


@dataclass
class Ready:
    """A case at a size on the device, run once and checked."""

    case: Case
    size: int
    module: gpusim.Module
    launches: list[Launch]
    runs: list[Callable[[], None]]
    check: Check
    launch_bytes: list[int]
    buffers: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        """What its entries in a file of results begin with."""
        return f"{self.case.name}/{self.size}"

    def whole(self) -> None:
        """Start all launches."""
        for run in self.runs:
            run()

    def timed(self) -> list[Timed]:
        """What is to be timed: each launch, and if there are several all together."""
        found = [Timed(f"{self.name}/{number}", run) for number, run in enumerate(self.runs)]
        if len(found) > 1:
            found.append(Timed(f"{self.name}/{WHOLE}", self.whole))
        return found

    def facts(self) -> dict[str, Any]:
        """What a file of results says about the problem besides its times."""
        cubin = self.module.cubin
        return {
            "id": self.name,
            "case": self.case.name,
            "family": self.case.family,
            "size": self.size,
            "arch": f"sm_{cubin.arch}",
            "cubin_sha256": cubin.sha256,
            "nvrtc": self.module.nvrtc_version,
            "gpusim": gpusim.__version__,
            "check": asdict(self.check),
            "buffer_bytes": sum(self.launch_bytes),
            "launches": [
                {
                    "kernel": launch.kernel,
                    "grid": list(launch.grid),
                    "block": list(launch.block),
                    "shared_bytes": launch.shared_bytes,
                    "code_sha256": self.module[launch.kernel].function.code_sha256,
                    "buffer_bytes": moved,
                }
                for launch, moved in zip(self.launches, self.launch_bytes, strict=True)
            ],
        }


def prepare(device: Device, case: Case, size: int, module: gpusim.Module) -> Ready:
    """Build the case, run it once on the device and compare its result.

    Raises UsageError for a size that cannot be built, and GpuError.
    """
    what = f"{case.name} at size {size}"
    if case.hangs:
        raise UsageError(f"{case.name} is not run on a GPU, which it could keep waiting for ever: {case.wrong}")
    device.require(estimated_bytes(case, size), what)
    _require_main_memory(3 * estimated_bytes(case, size), what)  # contents, reference, and results or a step between
    problem = built(case, size)
    for launch in problem.launches:
        check_shape(launch.grid, launch.block)
    device.require(sum(array.nbytes for array in problem.buffers.values()), what)
    launch_bytes = moved_bytes(problem)
    with device.watch:
        buffers = {name: device.upload(array, what) for name, array in problem.buffers.items()}
        runs = [_runner(device, module, launch, buffers) for launch in problem.launches]
        device.run(runs, f"running {what}")
        for name in problem.expected:
            problem.buffers[name] = device.download(buffers[name], f"the results of {what}")
    checked = check(case, problem)
    return Ready(case, size, module, problem.launches, runs, checked, launch_bytes, buffers)


def _runner(device: Device, module: gpusim.Module, launch: Launch, buffers: Mapping[str, Any]) -> Callable[[], None]:
    function = device.kernel(module.cubin, module[launch.kernel].function.name, launch.shared_bytes)
    args = tuple(buffers[arg] if isinstance(arg, str) else arg for arg in launch.args)

    def run() -> None:
        function(launch.grid, launch.block, args, shared_mem=launch.shared_bytes)

    return run


def measure(
    device: Device,
    ready: Sequence[Ready],
    criterion: Criterion,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Time the problems, which take turns; one entry for each launch, and for the launches of a problem together."""
    items = [item for problem in ready for item in problem.timed()]
    names = ", ".join(problem.name for problem in ready)
    with device.guarded(f"measuring {names}"), device.watch:
        take_turns(items, device.watch, criterion, progress=progress)
    return [item.summary() for item in items]


# -- how much there is to move -------------------------------------------------------------------------------------


def moved_bytes(problem: Problem) -> list[int]:
    """For each launch the bytes of its buffers, once for reading and once for writing (call it before launching).

    A launch reads a buffer that has contents: from the beginning (neither NaN nor zero throughout), or from an earlier
    launch.  The first launch that gets a buffer which the reference gives contents to is taken to write it.  So this is
    what must be moved at least if every element is used, not the traffic that the kernel causes.
    """
    written = set(problem.expected)
    filled = {name for name, array in problem.buffers.items() if not _blank(array)}
    found = []
    for launch in problem.launches:
        names = {arg for arg in launch.args if isinstance(arg, str)}
        now_written = names & written
        found.append(sum(problem.buffers[name].nbytes * ((name in filled) + (name in now_written)) for name in names))
        filled |= now_written
        written -= now_written
    return found


def _blank(array: Array) -> bool:
    """Whether a buffer holds nothing but NaN or nothing but zeros."""
    flat = array.reshape(-1)
    for part in (flat[:1024], flat):  # most are decided by their beginning
        if part.any() and not (part.dtype.kind == "f" and np.isnan(part).all()):
            return False
    return True


def built(case: Case, size: int) -> Problem:
    """The problem of a size.  Raises UsageError if it is too large to be one."""
    try:
        return case.build(size)
    except (OverflowError, MemoryError, ValueError) as error:
        raise UsageError(f"{case.name} cannot be made at size {size} ({error}): choose a smaller --size") from error


def estimated_bytes(case: Case, size: int) -> float:
    """About how many bytes the buffers of a size have: extrapolated from two small sizes, without building it."""

    def total(n: int) -> int:
        return sum(array.nbytes for array in case.build(n).buffers.values())

    small = sorted(case.small_sizes)
    largest = small[-1]
    if size <= largest:
        return total(size)
    smaller = max((n for n in small if 2 * n <= largest), default=None)
    power = 1.0
    if smaller is not None:
        power = max(1.0, math.log(total(largest) / total(smaller)) / math.log(largest / smaller))
        if abs(power - round(power)) < 0.2:  # what does not grow with the size blurs it
            power = round(power)
    return float(total(largest) * (size / largest) ** power)


def _require_main_memory(size: float, what: str) -> None:
    """Raises UsageError unless that many bytes of main memory are available, where the system tells."""
    available = None
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                available = 1024 * int(line.split()[1])
    if available is not None and size > available:
        raise UsageError(
            f"{what} and its reference need about {gib(size)} of main memory, and {gib(available)} are available: "
            "choose a smaller --size"
        )


def batches(needs: Sequence[float], free: float) -> list[list[int]]:
    """Indices of problems, in order, in runs that fit the memory together; one that does not fit is alone."""
    found: list[list[int]] = []
    used = 0.0
    for index, need in enumerate(needs):
        if not found or used + need > free:
            found.append([])
            used = 0.0
        found[-1].append(index)
        used += need
    return found


def measure_all(
    device: Device,
    jobs: Sequence[tuple[Case, int, gpusim.Module]],
    criterion: Criterion,
    progress: Callable[[str, int, int], None] | None = None,
    errors: list[GpuError | UsageError] | None = None,
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Check and time problems, as many in turn as fit the device's memory: (facts, entries) of each, in order.

    A result that is wrong without purpose is not timed; a problem that cannot be run has ``failed`` in its facts
    and its error in ``errors``.  ``progress`` hears what is being done, how much of it and of how much.  After a launch
    that killed the device's context its problem is the last one, and the GpuError is raised.
    """

    def tell(what: str, done: int, total: int) -> None:
        if progress is not None:
            progress(what, done, total)

    def need(case: Case, size: int) -> float:
        try:
            return estimated_bytes(case, size)
        except UsageError:  # prepare() meets it again
            return 0.0

    needs = [need(case, size) for case, size, _ in jobs]
    for batch in batches(needs, device.free_bytes()):
        outcomes: list[Ready | dict[str, Any]] = []
        for number, index in enumerate(batch):
            case, size, module = jobs[index]
            tell(f"checking {case.name}", number, len(batch))
            try:
                outcomes.append(prepare(device, case, size, module))
            except (GpuError, UsageError) as error:
                outcomes.append(failed(case, size, module, error))
                if errors is not None:
                    errors.append(error)
                if isinstance(error, GpuError) and error.lost:
                    yield outcomes[-1], []  # type: ignore[misc]  # it was put in just now
                    raise
        ready = [o for o in outcomes if isinstance(o, Ready) and not o.check.failed]
        entries: list[dict[str, Any]] = []
        if ready:
            family = f"measuring {ready[0].case.family}"
            entries = measure(device, ready, criterion, lambda done, total, family=family: tell(family, done, total))  # type: ignore[misc]
        for outcome in outcomes:
            if isinstance(outcome, Ready):
                yield outcome.facts(), [entry for entry in entries if entry["id"].startswith(f"{outcome.name}/")]
            else:
                yield outcome, []
        del ready, outcome
        outcomes.clear()
        device.release()


def failed(case: Case, size: int, module: gpusim.Module, error: GpuError | UsageError) -> dict[str, Any]:
    """What a file of results says about a problem that could not be run."""
    return {
        "id": f"{case.name}/{size}",
        "case": case.name,
        "family": case.family,
        "size": size,
        "cubin_sha256": module.cubin.sha256,
        "failed": str(error),
        "final": isinstance(error, GpuError) and error.lost,
    }
