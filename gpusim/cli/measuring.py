"""What ``gpusim run``, ``gpusim compare --gpu`` and ``gpusim validate`` share: options, the document, and its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click

from gpusim import Module, kernels
from gpusim.cli.catalogue import compile_case
from gpusim.errors import GpuError, UsageError
from gpusim.kernels import Case
from gpusim.runner.cases import WHOLE, measure_all
from gpusim.runner.device import Device, check_arch
from gpusim.runner.results import Results, header_of
from gpusim.runner.sampling import Criterion
from gpusim.toolchain import normalize_arch

EXIT_WRONG_RESULT = 1
SECONDS = 0.3

device_option = click.option(
    "--device", "number", type=click.IntRange(min=0), default=0, show_default=True, metavar="N", help="Which GPU."
)
seconds_option = click.option(
    "--seconds",
    type=click.FloatRange(min=0.001, max=3600),
    default=SECONDS,
    show_default=True,
    metavar="S",
    help="Time of sampling that each launch gets at least; 50 times as much (15 s) at most.",
)


def default_size(cases: Sequence[Case]) -> int:
    """Of a family the smaller of the first variant's first two sizes, which fills the chip; of one case its default."""
    return min(cases[0].sizes[:2]) if len(cases) > 1 else cases[0].sizes[0]


def chosen_cases(target: str) -> tuple[Case, ...]:
    """The cases of a family, or the one case of that name.  Raises UsageError with the nearest names."""
    families = kernels.families()
    return families[target] if target in families else (kernels.find(target),)


def chosen_arch(device: Device, arch: str | None) -> str:
    """The architecture to compile for: the device's own, or the one given.  Raises GpuError if that cannot run."""
    if arch is None:
        return device.arch
    name = normalize_arch(arch)
    check_arch(int(name.removeprefix("sm_").rstrip("af")), device.facts.arch, device.facts.name)
    return name


def measure_cases(
    device: Device, cases: Sequence[Case], size: int, arch: str, criterion: Criterion, command: str
) -> Results:
    """Check and time cases at one size; what cannot be run of several is in ``left_out``.

    Raises the error of the only case, or of the first if there is nothing that could be run.
    """
    results = Results(header_of(device, arch, criterion, command))
    runnable = [case for case in cases if not case.hangs]
    if not runnable:
        raise UsageError(
            f"{cases[0].name} is not run on a GPU, which might wait for ever: {cases[0].wrong}; "
            f"'gpusim analyze {cases[0].name}' executes it without one"
        )
    jobs: list[tuple[Case, int, Module]] = []
    errors: list[GpuError | UsageError] = []
    with progress_bars() as bars:
        for number, case in enumerate(runnable):
            bars(f"compiling {case.name}", number, len(runnable))
            try:
                jobs.append((case, size, compile_case(case, arch)))
            except UsageError as unfit:  # it needs a later architecture
                errors.append(unfit)
        for problem, entries in measure_all(device, jobs, criterion, bars, errors):
            results.add(problem, entries)
    if all("failed" in problem for problem in results.problems.values()):
        raise errors[0]
    return results


@contextmanager
def progress_bars() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr, where somebody can see it: call it with what is being done, how much of it, and of how much."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda what, done, total: None
        return
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


# -- rows ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """What was measured of one problem; times in microseconds as in the file, bytes a second from the cold time."""

    name: str
    size: int
    check: dict[str, Any] | None
    failed: str | None
    entry: dict[str, Any] | None
    launches: tuple[dict[str, Any], ...]
    bytes_per_second: float | None
    share_of_copy: float | None

    @property
    def cold(self) -> float | None:
        """The median after a flush of L2."""
        return None if self.entry is None or "cold" not in self.entry else self.entry["cold"]["median"]


def rows_of(results: Results) -> list[Row]:
    """The problems, the slowest first; those without a time at the end."""
    rows = []
    for name, problem in results.problems.items():
        entries = [e for key, e in results.times.items() if key.startswith(f"{name}/")]
        whole = next((e for e in entries if e["id"].endswith(f"/{WHOLE}")), entries[0] if entries else None)
        rate = problem["buffer_bytes"] / (1e-6 * whole["cold"]["median"]) if whole and "cold" in whole else None
        copy = results.header.get("copy_bytes_per_second")
        rows.append(
            Row(
                problem["case"],
                problem["size"],
                problem.get("check"),
                problem.get("failed"),
                whole,
                tuple(e for e in entries if e is not whole),
                rate,
                rate / copy if rate is not None and copy else None,
            )
        )
    return sorted(rows, key=lambda row: (row.cold is None, -(row.cold or 0)))


def remarks(results: Results) -> list[str]:
    """What must be said about the times: results that are wrong, criteria that were not met, samples dropped."""
    said = []
    for problem in results.problems.values():
        if "failed" in problem:
            said.append(f"{problem['case']}: not run: {problem['failed']}")
            continue
        found = problem["check"]
        if not found["equal"] and not found["expected_to_differ"]:
            said.append(f"{problem['case']}: WRONG, and therefore not timed: {'; '.join(found['differences'])}")
        elif found["expected_to_differ"]:
            said.append(f"{problem['case']} is wrong on purpose; its result: {found['text']}")
    most = results.header["criterion"]
    for entry in results.times.values():
        if entry["dropped"]:
            left = "none is left" if "cold" not in entry else "the others are kept"
            said.append(
                f"{entry['id']}: {entry['dropped']} samples were dropped, since the GPU was throttled "
                f"({entry['dropped_for']}): {left}"
            )
        if not entry["settled"] and "cold" in entry:
            worst = max(entry[how]["spread"] or 0 for how in ("cold", "hot"))
            said.append(
                f"{entry['id']}: the median is known to {100 * worst:.1f} % only, not {100 * most['spread']:g} %, "
                f"after {entry['cold']['samples']} samples in {most['most_seconds']:g} s"
            )
    return said


def wrong(results: Results) -> bool:
    """Whether a result differs from its reference and should not."""
    checks = [problem["check"] for problem in results.problems.values() if "check" in problem]
    return any(not check["equal"] and not check["expected_to_differ"] for check in checks)


def source_of(header: dict[str, Any]) -> str:
    """What measured, in words."""
    return (
        f"{header['device']} ({header['device_arch']}), driver {header['driver']} (CUDA {header['driver_cuda']}), "
        f"CuPy {header['cupy']}, NVRTC {header['nvrtc']}, {header['date']}"
    )
