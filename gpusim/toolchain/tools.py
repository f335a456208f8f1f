"""Where NVIDIA's tools and headers are.

The pip wheels put everything under ``nvidia/cu<major>`` of a site-packages directory: programs in ``bin``, headers
in ``include``.  A toolkit installed otherwise is found through ``CUDA_HOME``, ``CUDA_PATH`` or ``PATH``.  The wheels
come first, because their version is the one that gpusim pins and tests.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from ..errors import GpusimError, InputError, UsageError

#: Wheels that hold CUDA's own headers, with the include directory that each one adds.
HEADER_WHEELS = ("nvidia-cuda-runtime", "nvidia-cuda-crt", "nvidia-cuda-cccl")

#: Longest time that one run of a tool may take, in seconds.
TOOL_TIMEOUT_S = 300.0


def wheel_version(distribution: str) -> str | None:
    """Version of an installed distribution, None if it is not installed."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _wheel_files(distribution: str) -> Iterator[Path]:
    """Files of an installed wheel, as absolute paths; empty if it is not installed or keeps no file list."""
    try:
        files = importlib.metadata.distribution(distribution).files
    except importlib.metadata.PackageNotFoundError:
        return
    for file in files or ():
        yield Path(str(file.locate()))


@cache
def find_tool(name: str) -> Path:
    """The program ``name`` ("nvdisasm" or "cuobjdump").

    Looks in the wheel ``nvidia-cuda-<name>``, then in $CUDA_HOME/bin and $CUDA_PATH/bin, then on PATH.
    Raises UsageError if it is nowhere.
    """
    for path in _wheel_files(f"nvidia-cuda-{name}"):
        if path.stem == name and path.parent.name == "bin" and path.is_file():
            return path.resolve()
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        home = os.environ.get(variable)
        found = shutil.which(name, path=os.path.join(home, "bin")) if home else None
        if found:
            return Path(found)
    found = shutil.which(name)
    if found:
        return Path(found)
    raise UsageError(f"NVIDIA's {name} is not installed: run 'pip install nvidia-cuda-{name}'")


def run_tool(name: str, arguments: list[str], *, cwd: str | None = None) -> str:
    """Standard output of one of NVIDIA's tools.

    Raises InputError with the tool's own first line if it fails, UsageError if it is missing.
    """
    path = find_tool(name)
    try:
        done = subprocess.run(
            [str(path), *arguments],
            capture_output=True,
            timeout=TOOL_TIMEOUT_S,
            check=False,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        raise InputError(f"{name} did not finish in {TOOL_TIMEOUT_S:.0f} s: the file may be damaged") from None
    except OSError as error:
        raise UsageError(f"{name} at {path} cannot be run ({error.strerror}): reinstall nvidia-cuda-{name}") from None
    if done.returncode != 0:
        said = (done.stderr + b"\n" + done.stdout).decode(errors="replace").strip().splitlines()
        why = said[0].strip() if said else f"exit status {done.returncode}"
        raise InputError(f"{name} cannot read this file: {why}")
    return done.stdout.decode(errors="replace")


@cache
def tool_version(name: str) -> str:
    """Version of a tool as "13.5.37", from its own ``--version``; "unknown" if it does not tell."""
    try:
        text = run_tool(name, ["--version"])
    except GpusimError:
        return "unknown"
    for line in text.splitlines():
        if ", V" in line:
            return line.rsplit(", V", 1)[1].strip()
    return "unknown"


@cache
def cuda_include_directories() -> tuple[Path, ...]:
    """Directories that hold CUDA's headers (cuda_fp16.h, cooperative_groups.h, cuda/barrier), best first.

    From the installed wheels; from $CUDA_HOME, $CUDA_PATH or /usr/local/cuda if no wheel has headers.  Empty if there
    are none: sources that include no CUDA header compile all the same.
    """
    found: list[Path] = []

    def add(directory: Path) -> None:
        if directory.is_dir() and directory not in found:
            found.append(directory)

    for wheel in HEADER_WHEELS:
        for path in _wheel_files(wheel):
            parts = path.parts
            if path.suffix != ".h" or "include" not in parts:
                continue
            # the last "include" of the path; the environment itself may lie below a directory of that name
            include = Path(*parts[: len(parts) - parts[::-1].index("include")])
            if (include / "cuda_fp16.h").is_file():
                add(include)
                break
    if not found:
        homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
        for include in [Path(home, "include") for home in homes if home]:
            if (include / "cuda_fp16.h").is_file():
                add(include)
                break
    for include in tuple(found):
        add(include / "cccl")
    return tuple(found)


@cache
def cuda_include_identity() -> str:
    """Text that changes when CUDA's headers do: their directories and the versions of their packages."""
    versions = [f"{wheel} {wheel_version(wheel)}" for wheel in HEADER_WHEELS]
    stamps = []
    for directory in cuda_include_directories():
        with suppress(OSError):
            stamps.append(f"{directory} {(directory / 'cuda_fp16.h').stat().st_mtime_ns}")
    return "; ".join(versions + stamps)
