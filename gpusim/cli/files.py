"""A file on the command line: what it is, by its content, and the module or trace inside."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import gpusim
from gpusim.arguments import signature
from gpusim.errors import InputError, UsageError

Kind = Literal["source", "binary", "trace"]

_ZIP, _ELF, _FATBIN = b"PK\x03\x04", b"\x7fELF", b"\x50\xed\x55\xba"
_BINARY_SUFFIXES = (".cubin", ".fatbin", ".o", ".obj", ".so", ".a", ".exe", ".ptx")


@dataclass(frozen=True)
class CompileOptions:
    """What the compiler is given besides the source."""

    arch: str | None = None
    options: tuple[str, ...] = ()
    names: tuple[str, ...] = field(default=())


def kind_of(path: Path) -> Kind:
    """What a file is.  Raises InputError if it cannot be read or is a directory."""
    if path.is_dir():
        raise InputError(f"{path} is a directory: give a .cu, a .cubin or a trace")
    try:
        with path.open("rb") as file:
            start = file.read(4096)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if start.startswith(_ZIP) or path.suffix == ".gpusim-trace":
        return "trace"
    if start.startswith((_ELF, _FATBIN)) or path.suffix in _BINARY_SUFFIXES or b"\0" in start:
        return "binary"
    if not start.strip():
        raise InputError(f"{path} is empty: give a .cu, a .cubin or a trace")
    return "source"


def open_module(path: Path, kernel: str | None, chosen: CompileOptions) -> gpusim.Module:
    """The module in a source or binary file; ``kernel`` instantiates a template or picks among several modules."""
    if kind_of(path) == "source":
        # a name without template arguments is looked up afterwards, where the nearest names are known
        names = (kernel,) if kernel and "<" in kernel else chosen.names
        return gpusim.compile(path, arch=chosen.arch, options=chosen.options, names=names)
    if chosen.options:
        raise UsageError(f"{path} is compiled already: -D, -I and --option apply to sources only")
    return gpusim.load(path, arch=chosen.arch, kernel=kernel)


def pick_kernel(module: gpusim.Module, name: str | None, path: Path) -> gpusim.Kernel:
    """The kernel of that name, or the only one.  Raises UsageError that lists them if there are several."""
    if name is not None:
        return module[name]
    names = list(module)
    if len(names) == 1:
        return module[names[0]]
    raise UsageError(f"{path} has {len(names)} kernels, choose one with --kernel: {', '.join(names)}")


def check_arguments(kernel: gpusim.Kernel, given: Sequence[str]) -> None:
    """Raises UsageError with the kernel's signature unless there is one --arg for each parameter."""
    needed = len(kernel.function.params)
    if len(given) == needed:
        return
    problem = "missing" if len(given) < needed else "surplus"
    advice = ""
    if problem == "missing":
        advice = "; give one --arg for each parameter, for example --arg 'f32[1024]=random' --arg i32=1024"
    raise UsageError(f"{problem} arguments: {len(given)} --arg given, {needed} needed by {_signature(kernel)}{advice}")


def _signature(kernel: gpusim.Kernel) -> str:
    """The kernel's parameters: from its name, else as the source declares them, else by size."""
    plain = signature(kernel.function)
    if "(" not in kernel.function.signature:
        declaration = re.compile(rf"__global__[^;{{}}()]*\b{re.escape(kernel.name)}\s*\(([^{{}};]*?)\)\s*\{{")
        for text in kernel.module.sources.values():
            match = declaration.search(text)
            if match:
                return f"{kernel.name}({' '.join(match[1].split())})"
    return plain
