"""CUDA C++ source to machine code, with NVRTC.

NVRTC is NVIDIA's run-time compiler, a pip wheel that needs no GPU and no driver.  It contains the same front end and
the same ptxas as nvcc of that version, so for equal options the machine code is that of nvcc.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import CompileError, InputError, UsageError
from .elf import SUPPORTED_ARCHS
from .options import Options, sort_options
from .shims import HEADERS, HEADERS_DIGEST
from .tools import cuda_include_directories

if TYPE_CHECKING:
    from .cache import Cache

DEFAULT_ARCH = "sm_90"

_ARCH = re.compile(r"(?:sm_|compute_)?(\d{2,3})([af]?)")
#: "file(line): error: text", also "catastrophic error" and numbered diagnostics ("error #20: text").
_ERROR = re.compile(
    r"^(?P<file>.*?)\((?P<line>\d+)\): (?:catastrophic |internal )?error(?: #[\w-]+)?: (?P<text>.*)$", re.M
)
_PTXAS_ERROR = re.compile(r"^ptxas (?:.*; )?(?:error|fatal)\s*: (?P<text>.*)$", re.M)
_NAME_PRAGMA = re.compile(r"^\s*#pragma nv_mangled_name (?P<name>.*)$", re.M)
_NAME_FILE = "__nv_name_map"


@dataclass(frozen=True)
class Compiled:
    """What the compiler made of one source.

    ``cubin`` is the ELF image; ``lowered`` gives the mangled name of every name expression that was asked for; ``log``
    is the compiler's text (warnings), empty if it had nothing to say; ``nvrtc_version`` is "major.minor"; ``arch`` is
    the architecture compiled for, as "sm_90"; ``cached`` tells whether it came from the cache.
    """

    cubin: bytes
    lowered: dict[str, str]
    log: str
    nvrtc_version: str
    arch: str = DEFAULT_ARCH
    cached: bool = False


@functools.cache
def _nvrtc() -> Any:
    """The binding module, after one call has shown that the library itself loads."""
    advice = "run 'pip install cuda-bindings nvidia-cuda-nvrtc'"
    try:
        from cuda.bindings import nvrtc
    except ImportError as error:
        raise UsageError(f"the CUDA compiler bindings cannot be imported ({_one_line(error)}): {advice}") from error
    try:
        nvrtc.nvrtcVersion()
    except Exception as error:  # the binding raises several types of its own when the library is missing
        raise UsageError(f"the CUDA compiler library NVRTC cannot be loaded ({_one_line(error)}): {advice}") from error
    return nvrtc


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].strip().rstrip(":.") if lines else type(error).__name__


def _checked(result: tuple[Any, ...], what: str) -> Any:
    """The value of a binding call; a failure that the source cannot cause becomes CompileError."""
    status, *values = result
    if int(status) != 0:
        name = getattr(status, "name", str(status))
        raise CompileError(f"the CUDA compiler failed to {what} ({name}): reinstall nvidia-cuda-nvrtc")
    return values[0] if values else None


@functools.cache
def nvrtc_version() -> str:
    """Version of the compiler as "major.minor", for example "13.5"."""
    status, major, minor = _nvrtc().nvrtcVersion()
    _checked((status,), "tell its version")
    return f"{major}.{minor}"


@functools.cache
def supported_archs() -> tuple[int, ...]:
    """Architecture numbers that this compiler makes machine code for and the simulator knows: (75, 80, 86, ...)."""
    numbers = (int(arch) for arch in _checked(_nvrtc().nvrtcGetSupportedArchs(), "list its architectures"))
    return tuple(number for number in numbers if number in SUPPORTED_ARCHS)


def normalize_arch(arch: str | int) -> str:
    """The architecture as "sm_90" or "sm_90a", from "sm_90", "compute_90", "90" or 90.

    Raises UsageError, which names the supported ones, if the compiler cannot target it.
    """
    match = _ARCH.fullmatch(str(arch).strip().lower())
    if match is None or int(match[1]) not in supported_archs():
        known = ", ".join(f"sm_{number}" for number in supported_archs())
        raise UsageError(f"architecture {arch!r} is not supported by NVRTC {nvrtc_version()}: choose one of {known}")
    return f"sm_{match[1]}{match[2]}"


def compile_source(
    source: str,
    *,
    arch: str | int | None = None,
    options: Sequence[str] = (),
    names: Sequence[str] = (),
    filename: str = "kernel.cu",
    cache: Cache | None = None,
) -> Compiled:
    """Compile CUDA C++ to a cubin, always with line information.

    ``arch`` is "sm_90", "sm_90a", "90" or 90 (default sm_90, or what ``-arch`` in ``options`` says).  ``options`` are
    written as for nvcc or NVRTC.  ``names`` are C++ name expressions such as ``"matmul<128, 8>"``, which are thereby
    instantiated.  ``filename`` names the source in errors and in the line table; its directory is searched for
    headers.  With ``cache`` an equal earlier compilation is returned without compiling.

    Raises CompileError (its ``log`` is the compiler's own text) if the source, a name or an option value is wrong, and
    UsageError for an unknown architecture or an option that cannot give one cubin.
    """
    if "\0" in source or "\0" in filename:
        raise InputError(f"{filename.split(chr(0))[0]} is not a source file: it holds a NUL character")
    if isinstance(names, str):
        raise UsageError(f"names must be a list of strings: give [{names!r}], not {names!r}")
    names = tuple(dict.fromkeys(names))
    sorted_options = sort_options(options)
    target = _choose_arch(arch, sorted_options.arch)
    path = os.path.abspath(filename) if os.path.exists(filename) else filename
    command = _command(sorted_options, target, path)

    compiler = f"{nvrtc_version()} {HEADERS_DIGEST}"
    key = cache.source_key(source, command, names, path, compiler) if cache is not None else None
    if cache is not None and key is not None:
        entry = cache.load_compiled(key)
        if entry is not None:
            return Compiled(entry.cubin, entry.lowered, entry.log, nvrtc_version(), target, cached=True)
    compiled = _compile(source, command, names, path, target)
    # a header that was edited meanwhile would be stored under the digest of its old text
    if cache is not None and key is not None and key == cache.source_key(source, command, names, path, compiler):
        cache.store_compiled(key, compiled.cubin, compiled.lowered, compiled.log)
    return compiled


def _choose_arch(arch: str | int | None, from_options: str | None) -> str:
    given = [normalize_arch(item) for item in (arch, from_options) if item is not None]
    if len(set(given)) > 1:
        raise UsageError(f"two architectures are given ({given[0]} and, in the options, {given[1]}): give one")
    return given[0] if given else DEFAULT_ARCH


def _command(options: Options, arch: str, path: str) -> tuple[str, ...]:
    """The options for NVRTC, in a fixed order: the user's directories are searched before CUDA's own."""
    include = [*options.include, os.path.dirname(os.path.abspath(path)), *map(str, cuda_include_directories())]
    directories = [f"-I{directory}" for directory in dict.fromkeys(include)]
    return (f"--gpu-architecture={arch}", "-lineinfo", *options.rest, *directories)


def _compile(source: str, command: Sequence[str], names: Sequence[str], path: str, arch: str) -> Compiled:
    nvrtc = _nvrtc()
    text = source.encode(errors="surrogateescape")
    headers = [content.encode() for content in HEADERS.values()]
    includes = [name.encode() for name in HEADERS]
    program = _checked(nvrtc.nvrtcCreateProgram(text, os.fsencode(path), len(headers), headers, includes), "start")
    try:
        for name in names:
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()), f"take the name {name!r}")
        encoded = [os.fsencode(option) for option in command]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        log = _text(nvrtc, program)
        if int(status) != 0:
            raise _compile_error(getattr(status, "name", str(status)), log, path)
        lowered = {
            name: _checked(nvrtc.nvrtcGetLoweredName(program, name.encode()), f"find the name {name!r}").decode()
            for name in names
        }
        size = _checked(nvrtc.nvrtcGetCUBINSize(program), "give the size of its output")
        cubin = bytearray(size)
        _checked(nvrtc.nvrtcGetCUBIN(program, cubin), "give its output")
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return Compiled(bytes(cubin), lowered, log, nvrtc_version(), arch)


def _text(nvrtc: Any, program: Any) -> str:
    size = _checked(nvrtc.nvrtcGetProgramLogSize(program), "give the size of its log")
    log = bytearray(size)
    _checked(nvrtc.nvrtcGetProgramLog(program, log), "give its log")
    return bytes(log).rstrip(b"\0").decode(errors="replace").strip()


def _compile_error(status: str, log: str, path: str) -> CompileError:
    """One sentence: where the first error is, how many there are, and what it says."""
    lines = log.splitlines()
    shown = os.path.basename(path) or path
    if status == "NVRTC_ERROR_INVALID_OPTION":
        said = lines[0].removeprefix("nvrtc: error: ") if lines else "invalid option"
        return CompileError(f"the compiler does not take this option: {said}", log)
    errors = list(_ERROR.finditer(log))
    in_names = [error for error in errors if error["file"] == _NAME_FILE]
    if errors and len(in_names) == len(errors):
        pragma = _NAME_PRAGMA.search(log)
        name = pragma["name"].strip() if pragma else "?"
        why = errors[0]["text"].strip()
        return CompileError(f"the name {name!r} does not select one kernel of {shown}: {why}", log)
    if errors:
        first = next(error for error in errors if error["file"] != _NAME_FILE)
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        where = f"line {first['line']}" if first["file"] == path else f"{first['file']}, line {first['line']}"
        message = f"{shown} does not compile, {count}, the first at {where}: {_advised(first['text'].strip())}"
        return CompileError(message, log)
    ptxas = _PTXAS_ERROR.search(log)
    said = ptxas["text"] if ptxas else (lines[0] if lines else status)
    return CompileError(f"{shown} does not compile: {said.strip()}", log)


def _advised(text: str) -> str:
    """The compiler's words, shortened and with advice where they are about host code."""
    if "is considered a host" in text:
        kind = "function" if "host function" in text else "variable"
        return f"this is a host {kind}, only device code is compiled: put it under '#ifndef __CUDACC_RTC__'"
    if "could not open source file" in text or "cannot open source file" in text:
        return f"{text} (host headers belong under '#ifndef __CUDACC_RTC__', other directories are given with -I)"
    return text
