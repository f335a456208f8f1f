"""``gpusim doctor``: what is installed, what it can do, and which instructions of a file are not supported."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np

from gpusim import __version__, toolchain
from gpusim.cli import files
from gpusim.errors import GpusimError, InputError, UsageError
from gpusim.machine.limits import limits_of
from gpusim.report.terminal import Style, Terminal, make_console

EXIT_CHECK_FAILED = 1
NO_GPU = "none found (not needed: kernels are executed on the CPU)"


@click.command()
@click.option(
    "--coverage",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Say instead which instructions of a .cu, .cubin or program cannot be executed; exit code 1 if there are any.",
)
@click.option("--kernel", metavar="NAME", help="With --coverage: this kernel only, or a template's instance.")
@click.option("--arch", metavar="sm_90", help="With --coverage: architecture to compile for or to pick.")
@click.option("-D", "defines", multiple=True, metavar="NAME[=VALUE]", help="With --coverage: macro for the compiler.")
@click.option("-I", "includes", multiple=True, metavar="DIR", help="With --coverage: directory of headers.")
@click.option("--option", "compiler", multiple=True, metavar="OPTION", help="With --coverage: compiler option.")
def doctor(
    coverage: Path | None,
    kernel: str | None,
    arch: str | None,
    defines: tuple[str, ...],
    includes: tuple[str, ...],
    compiler: tuple[str, ...],
) -> int:
    """Say what is installed, which architectures are supported, and whether there is a GPU."""
    terminal = Terminal(make_console(), Style(None))
    passed = (*(f"-D{d}" for d in defines), *(f"-I{d}" for d in includes), *compiler)
    if coverage is not None:
        return _coverage(terminal, coverage, kernel, files.CompileOptions(arch, passed))
    if kernel is not None or arch is not None or passed:
        raise UsageError("--kernel, --arch and compiler options belong to 'gpusim doctor --coverage FILE'")
    return _installation(terminal)


def _installation(terminal: Terminal) -> int:
    problems: list[str] = []

    def told(how: Callable[[], str]) -> str:
        try:
            return how()
        except GpusimError as error:
            problems.append(str(error))
            return "missing"

    facts = [
        ("gpusim", __version__),
        ("Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("NumPy", np.__version__),
        ("NVRTC", told(_nvrtc)),
        ("nvdisasm", told(lambda: _tool("nvdisasm"))),
        ("cuobjdump", told(lambda: _tool("cuobjdump"))),
        ("CUDA headers", _headers()),
        ("architectures", told(_architectures)),
        ("cache", _cache()),
        ("GPU", _gpu()),
        ("CuPy", _package("cupy", ("cupy-cuda13x", "cupy-cuda12x", "cupy"), "pip install gpusim[gpu]")),
        ("Nsight Compute", shutil.which("ncu") or "no ncu on the PATH (needed only to measure on a GPU)"),
    ]
    terminal.facts(facts, indent=0)
    for problem in problems:
        terminal.text(f"problem: {problem}", "bold red", 0)
    return EXIT_CHECK_FAILED if problems else 0


def _nvrtc() -> str:
    release = toolchain.nvrtc_version()
    return toolchain.wheel_version("nvidia-cuda-nvrtc") or release


def _tool(name: str) -> str:
    toolchain.find_tool(name)
    return toolchain.tool_version(name)


def _headers() -> str:
    found = toolchain.cuda_include_directories()
    return str(found[0]) if found else "none (only sources that include no CUDA header compile)"


def _architectures() -> str:
    usable = []
    for number in toolchain.supported_archs():
        try:
            limits_of(number)
        except InputError:
            continue
        usable.append(f"sm_{number}")
    return ", ".join(usable)


def _cache() -> str:
    directory = toolchain.default_cache().directory
    if directory is None:
        return "none (set GPUSIM_CACHE_DIR to a directory)"
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file()) if directory.is_dir() else 0
    state = f"writable, {size / 2**20:,.1f} MiB used" if _writable(directory) else "not writable: nothing is kept"
    return f"{directory} ({state})"


def _writable(directory: Path) -> bool:
    """Whether files can be made in a directory, or in the nearest one above it that exists."""
    while not directory.exists() and directory != directory.parent:
        directory = directory.parent
    try:
        with tempfile.TemporaryFile(dir=directory):
            return True
    except OSError:
        return False


def _gpu() -> str:
    """The GPUs that the driver's own tool lists; nothing is loaded for it."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return "a device, but no nvidia-smi" if os.path.exists("/dev/nvidia0") else NO_GPU
    query = [tool, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired):
        return NO_GPU
    lines = [" ".join(line.split()) for line in done.stdout.splitlines() if line.strip()]
    return "; ".join(lines) if done.returncode == 0 and lines else NO_GPU


def _package(module: str, distributions: tuple[str, ...], install: str) -> str:
    """A package's version, without importing it."""
    if importlib.util.find_spec(module) is None:
        return f"not installed (needed only to measure on a GPU: {install})"
    for name in distributions:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return "installed"


def _coverage(terminal: Terminal, path: Path, name: str | None, chosen: files.CompileOptions) -> int:
    if files.kind_of(path) == "trace":
        raise UsageError(f"{path} is a trace: give a .cu, a .cubin or a program")
    module = files.open_module(path, name, chosen)
    names = [name] if name is not None else list(module)
    rows, problems = [], []
    for each in names:
        kernel = module[each]
        refused = kernel.program.unsupported()
        rows.append((kernel.name, len(kernel.program.instructions), len(refused)))
        problems += [f"{kernel.name}: {error}" for error in refused]
    problems += [
        f"{name}: a function of the device runtime that is not simulated, called by a kernel of this file"
        for name in module.unknown_functions()
    ]
    total, bad = sum(row[1] for row in rows), sum(row[2] for row in rows)
    found = (
        f"{bad:,} of {total:,} instructions are not supported" if bad else f"all {total:,} instructions are supported"
    )
    terminal.text(f"{path} for sm_{module.cubin.arch}: {found}", "bold red" if problems else "bold green", 0)
    terminal.coverage(rows)
    if problems:
        terminal.heading("Not supported")
        for problem in problems:
            terminal.text(problem)
    return EXIT_CHECK_FAILED if problems else 0
