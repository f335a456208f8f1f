"""Files that contain GPU code: cubins, fat binaries, and host programs, objects and libraries made by nvcc.

A fat binary lists its entries plainly; their content, which may be compressed in several ways, is unpacked by NVIDIA's
own cuobjdump.
"""

from __future__ import annotations

import re
import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import GpusimError, InputError, UsageError
from .elf import Cubin, parse_cubin
from .image import ELF_MAGIC, EM_CUDA
from .tools import run_tool

_EXTRACTED = re.compile(r"\.(?P<arch>sm_\d+[af]?)\.cubin$")
#: A fat binary: magic number, version 1, header of 16 bytes with the size of its entries at byte 8.  An entry: kind
#: (1: PTX, 2: machine code), version, size of its header, size of its content; at byte 28 the architecture.  Read off
#: files that nvcc made.
_FATBIN = b"\x50\xed\x55\xba\x01\x00\x10\x00"
_FATBIN_HEADER, _FATBIN_ENTRY = struct.Struct("<8sQ"), struct.Struct("<HHIQ")
_KIND_PTX, _KIND_ELF = 1, 2


@dataclass(frozen=True)
class ContainedImage:
    """One cubin of a file: its number in the file, architecture as "sm_90a", and kernels by readable name."""

    number: int
    arch: str
    kernels: tuple[str, ...]
    data: bytes = field(repr=False)


def list_images(source: str | Path | bytes) -> list[ContainedImage]:
    """All cubins with at least one kernel in a file (path or content), in file order.

    Raises InputError if the file cannot be read, holds no GPU code, or holds only PTX.
    """
    return _contained(*_read(source))


def load_image(source: str | Path | bytes, arch: str | None = None, kernel: str | None = None) -> bytes:
    """The one cubin of a file that fits.

    ``arch`` ("sm_90", "90") selects among several architectures, ``kernel`` (mangled name, readable name, or the
    latter's beginning up to "<" or "(") among several translation units.  Raises UsageError, which lists what is
    inside, unless exactly one cubin fits; InputError as :func:`list_images`.
    """
    data, name = _read(source)
    if _is_cubin(data):
        wanted = _arch_number(arch)
        cubin = parse_cubin(data)
        if wanted is not None and cubin.arch != wanted:
            raise UsageError(f"{name} is for sm_{cubin.arch}, not {arch}: leave --arch out")
        return data
    images = _contained(data, name, _arch_number(arch))
    fitting = _of_arch(images, arch)
    if not fitting:
        raise UsageError(f"{name} holds {_archs(images)}, not {arch}: choose one of these with --arch")
    if kernel is not None:
        fitting = [image for image in fitting if _has_kernel(image, kernel)] or fitting
    if len({image.arch for image in fitting}) > 1:
        raise UsageError(f"{name} holds {_archs(fitting)}: choose with --arch")
    if len(fitting) > 1:
        kernels = ", ".join(dict.fromkeys(k for image in fitting for k in image.kernels))
        raise UsageError(
            f"{name} holds {len(fitting)} modules for {fitting[0].arch}: choose a kernel with --kernel ({kernels})"
        )
    return fitting[0].data


def _read(source: str | Path | bytes) -> tuple[bytes, str]:
    if isinstance(source, bytes):
        return source, "this file"
    try:
        return Path(source).read_bytes(), str(source)
    except OSError as error:
        raise InputError(f"{source} cannot be read: {error.strerror}") from None


def _is_cubin(data: bytes) -> bool:
    return data[:4] == ELF_MAGIC and data[18:20] == EM_CUDA.to_bytes(2, "little")


def _contained(data: bytes, name: str, wanted: int | None = None) -> list[ContainedImage]:
    """The usable cubins of a file; only those of architecture ``wanted``, if there are any."""
    if _is_cubin(data):
        cubin = parse_cubin(data)
        return [ContainedImage(1, f"sm_{cubin.arch}", _kernel_names(cubin), data)]
    entries = _entries(data, name)
    if not entries:
        if re.match(rb"(?:\s|//[^\n]*\n)*\.version\s", data[:65536]):
            raise InputError(f"{name} is PTX, which has no machine code yet: compile it with 'ptxas -arch=sm_90'")
        if data[:4] == ELF_MAGIC:
            raise InputError(f"{name} contains no GPU code: give a cubin, or a program that nvcc made")
        raise InputError(f"{name} is not a cubin, and no file that nvcc makes: give a .cu, .cubin, .fatbin or program")
    modules = [entry for kind, entry in entries if kind == _KIND_ELF]
    modules = [entry for entry in modules if wanted is not None and _entry_arch(entry) == wanted] or modules
    found = [_extract(entry, name) for entry in modules]
    if not found:
        raise InputError(f"{name} holds only PTX, no machine code: compile it for one ('nvcc -arch=sm_90')")
    images = []
    problem: GpusimError | None = None
    for number, (arch, content) in enumerate(found, 1):
        try:
            kernels = _kernel_names(parse_cubin(content))
        except InputError as error:  # an old architecture or relocatable code beside what can be used
            problem = error
            continue
        if kernels:  # nvcc adds empty modules to every program
            images.append(ContainedImage(number, arch, kernels, content))
    if not images:
        raise problem or InputError(f"{name} holds GPU code without a kernel: give a file with a __global__ function")
    return images


def _entries(data: bytes, name: str) -> list[tuple[int, bytes]]:
    """(kind, bytes) of every entry of every fat binary in a file, wherever it lies: programs hold one a source file.

    Raises InputError if a fat binary is cut off.
    """
    found = []
    position = data.find(_FATBIN)
    while position >= 0:
        start = position + _FATBIN_HEADER.size
        end = start + _FATBIN_HEADER.unpack_from(data.ljust(start, b"\0"), position)[1]
        if end > len(data):
            raise InputError(f"{name} is truncated: it ends within a fat binary")
        while start + _FATBIN_ENTRY.size <= end:
            kind, _, header, content = _FATBIN_ENTRY.unpack_from(data, start)
            if header < _FATBIN_ENTRY.size or start + header + content > end:
                raise InputError(f"{name} is damaged: an entry of a fat binary does not fit into it")
            found.append((kind, data[start : start + header + content]))
            start += header + content
        position = data.find(_FATBIN, end)
    return found


def _entry_arch(entry: bytes) -> int:
    return int.from_bytes(entry[28:32], "little")


def _extract(entry: bytes, name: str) -> tuple[str, bytes]:
    """(architecture, cubin) of one entry.

    cuobjdump gets each entry as a fat binary of its own: of one with two sources of equal name it writes only one.
    """
    with tempfile.TemporaryDirectory(prefix="gpusim-") as directory:
        Path(directory, "input").write_bytes(_FATBIN_HEADER.pack(_FATBIN, len(entry)) + entry)
        try:
            run_tool("cuobjdump", ["-xelf", "all", "input"], cwd=directory)
        except InputError as error:
            why = re.sub(r"^.*: cuobjdump \w+\s*: ", "", str(error)).replace(f"'{directory}/input'", "it")
            raise InputError(f"{name} cannot be taken apart: {why}") from None
        for path in Path(directory).iterdir():
            match = _EXTRACTED.search(path.name)
            if match:
                return match["arch"], path.read_bytes()
    raise InputError(f"{name} is damaged: an entry of a fat binary holds no cubin")


def _kernel_names(cubin: Cubin) -> tuple[str, ...]:
    return tuple(function.demangled for function in cubin.kernels.values())


def _has_kernel(image: ContainedImage, kernel: str) -> bool:
    mangled = parse_cubin(image.data).kernels
    return kernel in mangled or any(
        kernel == name or name.startswith((f"{kernel}(", f"{kernel}<")) for name in image.kernels
    )


def _arch_number(arch: str | None) -> int | None:
    if arch is None:
        return None
    match = re.fullmatch(r"(?:sm_|compute_)?(\d+)[af]?", str(arch).strip().lower())
    if match is None:
        raise UsageError(f"architecture {arch!r} is not understood: write it as sm_90")
    return int(match[1])


def _of_arch(images: list[ContainedImage], arch: str | None) -> list[ContainedImage]:
    """Images of an architecture: those of exactly that name, or else of that number (sm_90a for sm_90)."""
    number = _arch_number(arch)
    if number is None:
        return images
    same = [image for image in images if _arch_number(image.arch) == number]
    name = re.sub(r"^(?:sm_|compute_)?", "sm_", str(arch).strip().lower())
    exact = [image for image in same if image.arch == name]
    return exact or same


def _archs(images: list[ContainedImage]) -> str:
    return ", ".join(sorted({image.arch for image in images}, key=lambda arch: (len(arch), arch)))
