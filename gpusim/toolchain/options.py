"""Compiler options as users of nvcc write them, made into what NVRTC takes.

NVRTC compiles device code only.  Options that speak to nvcc's host compiler or driver and cannot change the machine
code are dropped, options that would give something other than one complete cubin are refused, and all others are
handed to NVRTC, which refuses what it does not know.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UsageError

#: Options of nvcc without a value that do not reach device code.
_DROPPED = frozenset(
    {"-lineinfo", "--generate-line-info", "-g", "--debug", "-c", "--compile", "-cubin", "--cubin", "-v", "--verbose"}
    | {"-O", "-O0", "-O1", "-O2", "-O3", "-Os", "-Ofast", "-expt-relaxed-constexpr", "--expt-relaxed-constexpr"}
    | {"-extended-lambda", "--extended-lambda", "-expt-extended-lambda", "--expt-extended-lambda"}
)
#: Options of nvcc with a value that do not reach device code.
_DROPPED_WITH_VALUE = frozenset(
    {"-Xcompiler", "--compiler-options", "-ccbin", "--compiler-bindir", "-Xlinker", "--linker-options"}
    | {"-o", "--output-file", "-O", "--optimize", "-j", "--threads", "-t"}
)
#: Options that take their value from the next word if it is not joined by "=".
_TWO_WORDS = frozenset(
    {"-I", "--include-path", "-D", "--define-macro", "-U", "--undefine-macro", "-include", "--pre-include", "-std"}
    | {"--std", "-maxrregcount", "--maxrregcount", "-Xptxas", "--ptxas-options", "-arch", "--gpu-architecture"}
    | {"-gencode", "--generate-code", "-code", "--gpu-code", "-diag-suppress", "--diag-suppress", "-diag-error"}
    | {"--diag-error", "-diag-warn", "--diag-warn"}
)
#: Options that make something else than one complete cubin.
_REFUSED = {
    **dict.fromkeys(("-dc", "--device-c", "-rdc", "--relocatable-device-code"), "relocatable device code"),
    **dict.fromkeys(("-dlto", "--dlink-time-opt"), "link-time intermediate code"),
    **dict.fromkeys(("-gencode", "--generate-code", "-code", "--gpu-code"), "code for several architectures"),
    **dict.fromkeys(("-ptx", "--ptx", "-fatbin", "--fatbin", "-dlink", "--device-link"), "no cubin"),
}


@dataclass(frozen=True)
class Options:
    """Options after sorting: ``arch`` as written (None if not given), ``include`` directories, ``rest`` for NVRTC."""

    arch: str | None
    include: tuple[str, ...]
    rest: tuple[str, ...]


def _join(options: Sequence[str]) -> list[tuple[str, str | None]]:
    """(name, value) of every option; two-word, "=" and glued forms (-DX, -Idir) are one."""
    found: list[tuple[str, str | None]] = []
    words = iter(options)
    for word in words:
        if not isinstance(word, str) or not word:
            raise UsageError(f"compiler option {word!r} is not a non-empty string: give each option as one string")
        if "\0" in word:
            raise UsageError("a compiler option holds a NUL character: remove it")
        name, equals, value = word.partition("=")
        if word[:2] in ("-I", "-D", "-U") and word[1] != "-" and len(word) > 2:
            found.append((word[:2], word[2:]))
        elif equals:
            found.append((name, value))
        elif word in _TWO_WORDS or (word in _DROPPED_WITH_VALUE and word != "-O"):
            following = next(words, None)
            if following is None:
                raise UsageError(f"compiler option {word} needs a value")
            found.append((word, following))
        else:
            found.append((word, None))
    return found


def sort_options(options: Sequence[str]) -> Options:
    """Sort options written for nvcc or NVRTC.  Raises UsageError on what cannot give one complete cubin."""
    if isinstance(options, str):
        raise UsageError(f"compiler options must be a list of strings: give [{options!r}], not {options!r}")
    arch: str | None = None
    include: list[str] = []
    rest: list[str] = []
    for name, value in _join(options):
        if name in ("-rdc", "--relocatable-device-code") and value == "false":
            continue
        if name in _REFUSED:
            raise UsageError(f"compiler option {name} makes {_REFUSED[name]}, gpusim needs one cubin: leave it out")
        if name in ("-arch", "--gpu-architecture"):
            if arch not in (None, value):
                raise UsageError(f"two architectures are given ({arch} and {value}): give one")
            arch = value
        elif name in ("-I", "--include-path"):
            include.append(os.path.abspath(value or ""))
        elif name in _DROPPED or name in _DROPPED_WITH_VALUE:
            continue
        elif value is None:
            rest.append(name)
        elif name in ("-D", "-U"):
            rest.append(name + value)
        else:
            rest.append(f"{name}={value}")
    return Options(arch, tuple(include), tuple(rest))
