"""CUDA C++ to machine code, and machine code to text and facts; nothing here needs a GPU or a driver.

``compile_source`` makes a cubin, ``load_image`` takes one from a file; ``parse_cubin`` reads its facts,
``disassemble`` its instructions, and ``link`` gives its variables addresses.
"""

from __future__ import annotations

from .cache import Cache, default_cache
from .container import ContainedImage, list_images, load_image
from .demangle import demangle, signature
from .disasm import RawInstruction, disassemble, disassembler_version, relocate
from .elf import (
    Cubin,
    ElfRelocation,
    FunctionInfo,
    GlobalVariable,
    LineEntry,
    Param,
    Subroutine,
    load_cubin,
    parse_cubin,
)
from .link import LinkedImage, link
from .nvrtc import DEFAULT_ARCH, Compiled, compile_source, normalize_arch, nvrtc_version, supported_archs
from .tools import cuda_include_directories, find_tool, tool_version, wheel_version

__all__ = [
    "DEFAULT_ARCH",
    "Cache",
    "Compiled",
    "ContainedImage",
    "Cubin",
    "ElfRelocation",
    "FunctionInfo",
    "GlobalVariable",
    "LineEntry",
    "LinkedImage",
    "Param",
    "RawInstruction",
    "Subroutine",
    "compile_source",
    "cuda_include_directories",
    "default_cache",
    "demangle",
    "disassemble",
    "disassembler_version",
    "find_tool",
    "link",
    "list_images",
    "load_cubin",
    "load_image",
    "normalize_arch",
    "nvrtc_version",
    "parse_cubin",
    "relocate",
    "signature",
    "supported_archs",
    "tool_version",
    "wheel_version",
]
