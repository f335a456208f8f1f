"""Nsight Compute on this machine: finding it, running it on launches of a module, and reading what it counted.

``count`` writes a plan of the launches with the module's own cubin and the very contents of the buffers, runs
:mod:`gpusim.runner.replay` under ``ncu`` in a process of its own, and reads ncu's CSV pages with the functions of
:mod:`gpusim.runner.record`.  Clocks and caches of the GPU are left alone.  Everything that keeps the counters from
being read is a :class:`~gpusim.errors.NoGpuError` of one sentence that says what to do.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.errors import NoGpuError, UsageError
from gpusim.runner import record

OLDEST = (2022, 3)  # the first that knows sm_90; the pages are read as 2025.3 writes them
NEEDED = 3  # columns of the instruction table that are never left out: executed, thread executed, predicated-on
FOLDERS = (
    "/usr/local/cuda/bin",
    "/opt/nvidia/nsight-compute/*",
    "/usr/local/NVIDIA-Nsight-Compute*",
    "/usr/local/cuda/nsight-compute-*",
    "/usr/local/cuda-*/bin",
    "/usr/lib/nsight-compute",
    "C:/Program Files/NVIDIA Corporation/Nsight Compute *",
)
LIMIT_S = 900.0  # of one run of ncu, which replays every launch several times
FORBIDDEN = (
    "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): load the driver with the option "
    "NVreg_RestrictProfilingToAdminUsers=0 (in a file of /etc/modprobe.d: options nvidia "
    "NVreg_RestrictProfilingToAdminUsers=0), or run as administrator (sudo), or give a container the capability "
    "SYS_ADMIN (docker run --cap-add=SYS_ADMIN)"
)
_VERSION = re.compile(r"Version (\d+)\.(\d+)[\d.]*")
_UNKNOWN = re.compile(r"Failed to find metric[s]?:?\s+(.*)")


@dataclass(frozen=True)
class Tool:
    """A usable ncu: where it is and its version, such as "2025.3.1.0"."""

    path: str
    version: str


@dataclass(frozen=True)
class Planned:
    """One launch to be counted: mangled name, grid, block, dynamic shared memory in bytes, and arguments in order.

    Arguments are NumPy arrays (device buffers with these contents; the same array twice is the same buffer) and NumPy
    scalars.  All launches of one call share their buffers, as they do in the simulator.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    args: tuple[Any, ...]


@dataclass(frozen=True)
class Counted:
    """What ncu said of one launch: totals by its own names (those that it does not serve are absent), and columns.

    ``columns``: numbers by instruction in order of address, by short name (``record.COLUMNS``); empty without --source.
    ``count``: instructions in the table.
    """

    kernel: str
    metrics: dict[str, int]
    columns: dict[str, list[int]] = field(default_factory=dict)
    count: int = 0


@dataclass(frozen=True)
class Session:
    """What one run of ncu gave: one entry a launch, in order, and how it was made."""

    launches: list[Counted]
    command: str
    left_out: tuple[str, ...] = ()  # metrics that this ncu or GPU does not know


# -- the tool ------------------------------------------------------------------------------------------------------


def find(given: str | None = None) -> Tool:
    """The ncu to use: ``given``, else on PATH, else in the usual places.  Raises NoGpuError if there is none."""
    path = given or shutil.which("ncu") or _elsewhere()
    if path is None:
        raise NoGpuError(
            "Nsight Compute is needed to read a GPU's counters, and there is no ncu on the PATH or in the usual "
            "places: install it, or give its path with --ncu"
        )
    resolved = shutil.which(path)
    if resolved is None:
        raise NoGpuError(f"{path} is not a program that can be run: give the path of Nsight Compute's ncu with --ncu")
    try:
        done = _run([resolved, "--version"], 60.0)
    except OSError as error:
        raise NoGpuError(f"{path} cannot be run ({error.strerror}): give the path of ncu with --ncu") from None
    match = _VERSION.search(done.stdout)
    if match is None:
        raise NoGpuError(
            f"{path} does not say which version it is, so it is not Nsight Compute's ncu: give it with --ncu"
        )
    if (int(match[1]), int(match[2])) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise NoGpuError(
            f"{path} is Nsight Compute {match[1]}.{match[2]}, which is too old: install {oldest} or later, or give "
            "another with --ncu"
        )
    return Tool(resolved, match[0].removeprefix("Version "))


def _elsewhere() -> str | None:
    """The newest ncu in the places where installers put it."""
    found: list[Path] = []
    for pattern in FOLDERS:
        root = Path(pattern).anchor
        if root and Path(root).is_dir():
            found += Path(root).glob(f"{Path(pattern).relative_to(root).as_posix()}/ncu")
    usable = [path for path in found if os.access(path, os.X_OK) and path.is_file()]
    return str(max(usable, key=lambda path: [int(part) for part in re.findall(r"\d+", str(path))])) if usable else None


def device_facts(device: int = 0) -> dict[str, str]:
    """Name, driver and compute capability as nvidia-smi tells them; empty where it does not.  Loads nothing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    query = [tool, "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader", "-i", _physical(device)]
    try:
        done = _run(query, 20.0)
    except OSError:
        return {}
    parts = [part.strip() for part in done.stdout.strip().split("\n")[0].split(",")]
    if done.returncode or len(parts) != 3:
        return {}
    return dict(zip(("device", "driver", "compute_capability"), parts, strict=True))


def _physical(device: int) -> str:
    """What the device's number stands for where CUDA_VISIBLE_DEVICES shows only some."""
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is None:
        return str(device)
    visible = [part.strip() for part in setting.split(",") if part.strip()]
    if device >= len(visible):
        raise NoGpuError(f"there is no GPU {device}: CUDA_VISIBLE_DEVICES shows {len(visible) or 'none'}")
    return visible[device]


# -- running it ----------------------------------------------------------------------------------------------------


def count(
    tool: Tool,
    cubin: bytes,
    launches: Sequence[Planned],
    names: Iterable[str],
    *,
    source: bool = False,
    device: int = 0,
) -> Session:
    """Run the launches under ncu and return the counters ``names``, with ``source`` also those of each instruction.

    Raises NoGpuError if there is no GPU, no CuPy or no permission, or if ncu fails.
    """
    with tempfile.TemporaryDirectory(prefix="gpusim-") as scratch:
        folder = Path(scratch)
        plan = write_plan(folder, cubin, launches)
        replay = [sys.executable, str(Path(__file__).with_name("replay.py")), str(plan)]
        wanted = list(dict.fromkeys(names))
        left_out: list[str] = []
        while True:
            report = folder / "report"
            command = _command(tool, wanted, source)
            text = _profile([*command, "-f", "-o", str(report), *replay], device)
            said = _unknown(text)
            unknown = [name for name in wanted if {name, name.removesuffix(".sum")} & said]
            if not unknown:
                break
            left_out += unknown
            wanted = [name for name in wanted if name not in unknown]
        printing = [tool.path, "--import", f"{report}.ncu-rep", "--csv", "--print-units", "base"]
        totals = parse_totals(_page([*printing, "--page", "raw"]), wanted)
        if len(totals) != len(launches):
            raise NoGpuError(f"ncu counted {len(totals)} launches of {len(launches)}: try another version with --ncu")
        found = [Counted(kernel, metrics) for kernel, metrics in totals]
        if source:
            found = with_tables(found, _page([*printing, "--page", "source"]))
    shown = " ".join(["ncu", *command[1 : command.index("--metrics") + 1], "..."])
    return Session(found, shown, tuple(left_out))


def write_plan(folder: Path, cubin: bytes, launches: Sequence[Planned]) -> Path:
    """Write the plan of the launches, the cubin and the buffers' contents into a folder; returns the plan's path."""
    (folder / "kernel.cubin").write_bytes(cubin)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    names: dict[int, str] = {}
    planned = []
    for number, launch in enumerate(launches):
        args = []
        for argument in launch.args:
            if isinstance(argument, np.ndarray):
                name = names.setdefault(id(argument), f"buffer{len(names)}")
                arrays[name] = np.ascontiguousarray(argument)
                args.append({"buffer": name, "file": "arrays.npz", "array": name})
            else:
                args.append(_scalar(argument))
        planned.append(
            {
                "id": str(number),
                "group": "all",
                "cubin": "kernel",
                "kernel": launch.kernel,
                "grid": list(launch.grid),
                "block": list(launch.block),
                "shared": launch.shared,
                "args": args,
            }
        )
    np.savez(folder / "arrays.npz", **arrays)  # type: ignore[arg-type]  # numpy takes a mapping of names for a flag
    path = folder / "plan.json"
    path.write_text(json.dumps({"cubins": {"kernel": "kernel.cubin"}, "launches": planned}))
    return path


def _scalar(value: Any) -> dict[str, Any]:
    """A value for replay; what JSON or CuPy may not keep as it is goes as its bytes."""
    if value is None:
        return {"scalar": "uint64", "value": 0}
    if value.dtype.kind in "iu" or value.dtype in (np.float32, np.float64):
        return {"scalar": str(value.dtype), "value": value.item()}
    return {"bytes": value.tobytes().hex()}


def _command(tool: Tool, names: Sequence[str], source: bool) -> list[str]:
    sections = [
        "--section",
        "LaunchStats",
        "--section",
        "Occupancy",
        *(["--section", "SourceCounters"] if source else []),
    ]
    metrics = [name for name in names if not name.startswith("launch__")] + (record.SOURCE_METRICS if source else [])
    control = ["--clock-control", "none", "--cache-control", "none"]
    return [tool.path, *control, *sections, "--metrics", ",".join(metrics)]


def _profile(command: list[str], device: int) -> str:
    """Run ncu on the replay and return all it printed.  Raises NoGpuError if nothing can be counted."""
    try:
        done = _run(command, LIMIT_S, {**os.environ, "CUDA_VISIBLE_DEVICES": _physical(device)})
    except subprocess.TimeoutExpired:
        raise NoGpuError(
            f"ncu did not end in {LIMIT_S:.0f} s: the launch may wait for something that never comes, or be too large"
        ) from None
    except OSError as error:
        raise NoGpuError(f"{command[0]} cannot be run ({error.strerror}): give the path of ncu with --ncu") from None
    text = done.stdout + done.stderr
    why = explain(text, device)
    if why is not None:
        raise why
    if done.returncode and not _unknown(text):
        raise NoGpuError(f"ncu failed with exit code {done.returncode}: {_last_words(text)}")
    return text


def explain(text: str, device: int = 0) -> NoGpuError | UsageError | None:
    """The error that ncu's and the replay's output tells of, if it is a known one."""
    if "ERR_NVGPUCTRPERM" in text:
        return NoGpuError(FORBIDDEN)
    if "No module named 'cupy'" in text:
        return NoGpuError("CuPy is needed to launch kernels and is not installed: run pip install 'gpusim[gpu]'")
    if re.search(r"cudaErrorNoDevice|CUDA_ERROR_NO_DEVICE|cudaErrorInvalidDevice|no CUDA-capable device", text):
        return NoGpuError(f"CUDA finds no GPU {device}: counters can only be read on a machine with an NVIDIA GPU")
    if re.search(r"cudaErrorInsufficientDriver|libcuda\.so", text):
        return NoGpuError("there is no NVIDIA driver, or one older than CuPy's CUDA: install a current driver")
    if re.search(r"CUDA_ERROR_NO_BINARY_FOR_GPU|no kernel image is available", text):
        return UsageError("the machine code is not for this GPU: choose the GPU's own architecture with --arch")
    if re.search(r"OutOfMemoryError|cudaErrorMemoryAllocation", text):
        return NoGpuError("the GPU has too little free memory for the buffers: choose a smaller --size")
    error = re.search(r"CUDA(?:Runtime|Driver)Error: (.*)", text)
    if error:
        return NoGpuError(f"the launch failed on the GPU: {error[1].strip()}")
    error = re.search(r"^(?:\w+\.)*\w*(?:Error|Exception): (.*)", text, re.M)
    if error:
        return NoGpuError(f"the launch could not be made: {error[1].strip()}")
    if "LibraryNotLoaded" in text or "Failed to initialize the profiler" in text:
        return NoGpuError(
            "ncu cannot start the profiler on this machine: its driver or container offers no GPU counters"
        )
    if "not supported" in text and "==ERROR==" in text:
        return NoGpuError(f"this Nsight Compute does not support the GPU: {_last_words(text)}")
    if "No kernels were profiled" in text and not _unknown(text):
        return NoGpuError(f"ncu saw no kernel: {_last_words(text)}")
    return None


def _unknown(text: str) -> set[str]:
    """The metrics that ncu said it does not know."""
    return {word.strip("'\".:;") for line in _UNKNOWN.findall(text) for word in re.split(r"[\s,]+", line)}


def _last_words(text: str) -> str:
    """ncu's errors, else the last line that says something."""
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    errors = [line.removeprefix("==ERROR== ") for line in lines if line.startswith("==ERROR==")]
    return (errors or lines or ["it says nothing"])[-1].rstrip(".")


def _page(command: list[str]) -> str:
    done = _run(command, LIMIT_S)
    if done.returncode:
        raise NoGpuError(f"ncu cannot print its own report: {_last_words(done.stdout + done.stderr)}")
    return done.stdout


def _run(
    command: list[str], limit: float, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=limit,
        check=False,
        stdin=subprocess.DEVNULL,
        env=environment,
    )


# -- reading its pages ---------------------------------------------------------------------------------------------


def parse_totals(text: str, names: Sequence[str]) -> list[tuple[str, dict[str, int]]]:
    """The raw page: kernel and totals of each launch.  A metric that ncu leaves empty or calls n/a is left out."""
    rows = list(csv.DictReader(io.StringIO("\n".join(record.quoted(text)))))
    found = []
    for row in rows[1:]:  # the first row holds units
        metrics = {}
        for name in names:
            cell = row.get(name)
            if cell is not None and re.fullmatch(r"[\d,]+(\.0+)?", cell):
                metrics[name] = record.number(cell)
        found.append((row["Kernel Name"], metrics))
    return found


def with_tables(launches: Sequence[Counted], page: str) -> list[Counted]:
    """The launches with the instruction tables of the source page."""
    tables = record.parse_source(page)
    titles = list(record.COLUMNS)[:NEEDED]
    if not tables or not tables[0]["rows"] or any(title not in tables[0]["rows"][0] for title in titles):
        raise NoGpuError(
            "this ncu's source page has no table of instructions that gpusim understands: leave out --source"
        )
    try:
        paired = record.pair_tables(tables, [{"kernel": each.kernel, "metrics": each.metrics} for each in launches])
    except (SystemExit, KeyError) as error:
        raise NoGpuError(f"ncu's tables of instructions cannot be read ({error}): leave out --source") from None
    return [
        Counted(each.kernel, each.metrics, record.columns_of(table), len(table["rows"]))
        for each, table in zip(launches, paired, strict=True)
    ]
