"""What a cubin says about its kernels and variables."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from ..errors import InputError
from .attributes import Attribute, Param, attributes, branch_targets, parameter, words
from .demangle import demangle, signature
from .image import EM_CUDA, ET_REL, STO_CUDA_ENTRY, STT_FUNC, STT_SECTION, ElfImage, Section, Symbol
from .lines import LineEntry, parse_lines

__all__ = [
    "Cubin",
    "ElfRelocation",
    "FunctionInfo",
    "GlobalVariable",
    "LineEntry",
    "Param",
    "Subroutine",
    "load_cubin",
    "parse_cubin",
]

#: Architectures whose machine code is known; all have 128-bit instructions and the attributes read here.
SUPPORTED_ARCHS = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)
INSTRUCTION_BYTES = 16
#: From sm_90 on the first 1 KiB of every block's shared memory belongs to the system; it is counted in the section
#: ``.nv.shared.<kernel>`` and the kernel's own variables start behind it (``UMOV UR4, 0x400`` in the code).
RESERVED_SHARED_BYTES = 1024
FIRST_ARCH_WITH_RESERVED_SHARED = 90
#: Constant banks: kernel parameters, the compiler's own tables, ``__constant__`` variables, addresses of variables.
BANK_PARAM, BANK_COMPILER, BANK_USER, BANK_ADDRESS = 0, 2, 3, 4
#: A constant bank is addressed with 16 bits; the compiler's tables may be a little longer than what is read.
LARGEST_BANK_BYTES = 1 << 17

_CONSTANT = re.compile(r"\.nv\.constant(\d+)(?:\.(.+))?")
_UNKNOWN_STACK = 0xFFFFFFFF
_TOOL = re.compile(rb"[Rr]elease (\d+\.\d+), V([\d.]+)")


@dataclass(frozen=True)
class Subroutine:
    """A piece of a function's code that it calls: a ``__noinline__`` function, a slow path of division."""

    name: str
    address: int
    size: int


@dataclass(frozen=True)
class ElfRelocation:
    """A field that depends on where things are loaded: ``offset`` bytes into ``section``, of NVIDIA's type ``type``.

    Its value is the address of ``symbol``, which lies at ``target_offset`` in ``target_section`` ("" for a symbol that
    the cubin does not define), plus ``addend`` (None: the addend is what the field holds now).
    """

    section: str
    offset: int
    type: int
    symbol: str
    target_section: str
    target_offset: int
    addend: int | None


@dataclass(frozen=True)
class GlobalVariable:
    """A ``__device__`` or ``__constant__`` variable with its initial value.

    ``space`` is "global" or "constant"; ``bank`` is the constant bank (None for global); ``offset`` is in bytes within
    ``section``; ``stored`` is the initial value in the file, empty where it is all zero.
    """

    name: str
    demangled: str
    space: str
    section: str
    offset: int
    size: int
    alignment: int
    bank: int | None
    stored: bytes = field(repr=False)

    @property
    def data(self) -> bytes:
        """The initial value; pointers in it that depend on where things are loaded are zero, or hold an addend."""
        return self.stored or bytes(self.size)


@dataclass(frozen=True)
class FunctionInfo:
    """One kernel, or one separately linked device function.  Sizes are in bytes, addresses are offsets in ``code``.

    ``name`` is mangled, ``demangled`` like "transpose<32>", ``signature`` that with parameter types.
    ``shared_static`` is what the kernel itself declares, ``shared_reserved`` what the system keeps in front of it (the
    tools print the sum).  ``local_bytes`` is the stack of one thread, None where recursion leaves it unknown.
    ``max_threads`` is ``__launch_bounds__``' first argument, ``required_block`` a block shape that the kernel insists
    on, ``cluster`` its compile-time cluster shape (None: not stated).  ``params`` lie in constant bank 0 from
    ``param_base`` on.  ``constants`` holds the kernel's own constant banks as the file has them.
    """

    name: str
    demangled: str
    signature: str
    is_kernel: bool
    section: str
    section_offset: int
    registers: int
    shared_static: int
    shared_reserved: int
    local_bytes: int | None
    frame_bytes: int
    barriers: int
    max_threads: int | None
    required_block: tuple[int, int, int] | None
    cluster: tuple[int, int, int] | None
    params: tuple[Param, ...]
    param_base: int
    param_bytes: int
    code: bytes = field(repr=False)
    constants: dict[int, bytes] = field(repr=False)
    subroutines: tuple[Subroutine, ...] = field(repr=False)
    branch_targets: dict[int, tuple[int, ...]] = field(repr=False)
    lines: tuple[LineEntry, ...] = field(repr=False)

    @property
    def instruction_count(self) -> int:
        """Instructions in the function's section, with its subroutines and the padding at its end."""
        return len(self.code) // INSTRUCTION_BYTES

    @cached_property
    def code_sha256(self) -> str:
        """Digest of the machine code alone: equal for compilations that differ only in paths or line numbers."""
        return hashlib.sha256(self.code).hexdigest()

    def line_at(self, address: int) -> LineEntry | None:
        """The line entry that covers the instruction at ``address``, None where there is none."""
        low, high = 0, len(self.lines)
        while low < high:
            middle = (low + high) // 2
            if self.lines[middle].address <= address:
                low = middle + 1
            else:
                high = middle
        return self.lines[low - 1] if low else None


@dataclass(frozen=True)
class Cubin:
    """A parsed cubin.

    ``arch`` is the architecture number (90 for sm_90); ``toolkit`` the version of the tool that made it ("13.5.37"),
    None if it does not say; ``functions`` and ``globals`` go by mangled name; ``constants`` holds the module's constant
    banks (3: ``__constant__`` variables, 4: addresses of variables) before relocation.
    """

    data: bytes = field(repr=False)
    sha256: str
    arch: int
    toolkit: str | None
    functions: dict[str, FunctionInfo]
    globals: dict[str, GlobalVariable]
    constants: dict[int, bytes] = field(repr=False)
    relocations: tuple[ElfRelocation, ...] = field(repr=False)
    image: ElfImage = field(repr=False, compare=False)

    @property
    def kernels(self) -> dict[str, FunctionInfo]:
        """The functions that can be launched."""
        return {name: function for name, function in self.functions.items() if function.is_kernel}


def load_cubin(path: str | Path) -> Cubin:
    """Read and parse a cubin file.  Raises InputError if it cannot be read or is not a cubin."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    return parse_cubin(data)


def parse_cubin(data: bytes) -> Cubin:
    """Parse a cubin.

    Raises InputError, in one sentence, for a file that is no cubin, is truncated or damaged, is relocatable (not yet
    linked), or is for an architecture whose machine code is not known.
    """
    image = ElfImage(data)
    if image.machine != EM_CUDA:
        raise InputError("this ELF file holds no GPU code of its own (it is for another machine): give a cubin")
    arch = _arch(image)
    if image.type == ET_REL:
        raise InputError("this cubin is relocatable (nvcc -rdc=true): link it first with 'nvcc -dlink -cubin'")
    parser = _Parser(image, arch)
    functions = parser.functions()
    return Cubin(
        data=data,
        sha256=hashlib.sha256(data).hexdigest(),
        arch=arch,
        toolkit=_toolkit(image),
        functions=functions,
        globals=parser.variables(),
        constants=parser.module_constants,
        relocations=parser.relocations(),
        image=image,
    )


def _arch(image: ElfImage) -> int:
    """The architecture number: bits 8-15 of the flags since ABI version 8, bits 0-7 before."""
    arch = image.flags >> 8 & 0xFF if image.abi_version >= 8 else image.flags & 0xFF
    if arch not in SUPPORTED_ARCHS:
        known = ", ".join(f"sm_{number}" for number in SUPPORTED_ARCHS)
        raise InputError(f"this cubin is for sm_{arch}, which gpusim does not know: compile for one of {known}")
    return arch


def _toolkit(image: ElfImage) -> str | None:
    section = image.section(".note.nv.tkinfo")
    match = _TOOL.search(section.data) if section else None
    return match[2].decode() if match else None


class _Parser:
    """Gathers the parts of one image, section by section."""

    def __init__(self, image: ElfImage, arch: int) -> None:
        self.image, self.arch = image, arch
        self.own_constants: dict[str, dict[int, bytes]] = {}
        self.module_constants: dict[int, bytes] = {}
        for section in image.sections:
            match = _CONSTANT.fullmatch(section.name)
            if match and section.size > LARGEST_BANK_BYTES:
                raise InputError(f"this cubin is damaged: its constant bank {match[1]} has {section.size} bytes")
            if match and match[2]:
                self.own_constants.setdefault(match[2], {})[int(match[1])] = section.loaded
            elif match:
                self.module_constants[int(match[1])] = section.loaded
        self.registers: dict[int, int] = {}
        self.frame: dict[int, int] = {}
        self.stack: dict[int, int] = {}
        common = image.section(".nv.info")
        for code, _, payload in attributes(common.data if common else b""):
            table = {
                Attribute.REGCOUNT: self.registers,
                Attribute.FRAME_SIZE: self.frame,
                Attribute.MIN_STACK_SIZE: self.stack,
            }.get(code)  # type: ignore[call-overload]
            if table is not None and len(payload) >= 8:
                symbol, value = words(payload)[:2]
                table[symbol] = value

    def functions(self) -> dict[str, FunctionInfo]:
        lines = self._lines()
        found = {}
        by_section: dict[int, list[Symbol]] = {}
        for symbol in self.image.symbols:
            if symbol.type == STT_FUNC and symbol.section:
                by_section.setdefault(symbol.section, []).append(symbol)
        for section in self.image.sections:
            if section.name.startswith(".text."):
                name = section.name.removeprefix(".text.")
                found[name] = self._function(name, section, by_section.get(section.index, []), lines.get(name, ()))
        return found

    def _function(
        self, name: str, section: Section, symbols: list[Symbol], lines: tuple[LineEntry, ...]
    ) -> FunctionInfo:
        entry = next((symbol for symbol in symbols if symbol.name == name), None)
        if entry is None or len(section.data) % INSTRUCTION_BYTES:
            raise InputError(f"this cubin is damaged: the code of {name} is incomplete")
        info = self.image.section(f".nv.info.{name}")
        params: list[Param] = []
        values: dict[int, int] = {}
        payloads: dict[int, bytes] = {}
        for code, value, payload in attributes(info.data if info else b""):
            if code in (Attribute.KPARAM_INFO, Attribute.KPARAM_INFO_V2):
                params.append(parameter(code, payload))
            values[code], payloads[code] = value, payload
        base = words(payloads.get(Attribute.PARAM_CBANK, b""))[1:2]
        stack = self.stack.get(entry.index, self.frame.get(entry.index, 0))
        shared = self.image.section(f".nv.shared.{name}")
        shared_bytes = shared.size if shared else 0
        reserved = RESERVED_SHARED_BYTES if self.arch >= FIRST_ARCH_WITH_RESERVED_SHARED else 0
        threads = _triple(payloads.get(Attribute.MAX_THREADS))
        return FunctionInfo(
            name=name,
            demangled=demangle(name),
            signature=signature(name),
            is_kernel=bool(entry.other & STO_CUDA_ENTRY),
            section=section.name,
            section_offset=section.offset,
            registers=self.registers.get(entry.index, section.info >> 24),
            shared_static=max(shared_bytes - reserved, 0),
            shared_reserved=reserved,
            local_bytes=None if stack == _UNKNOWN_STACK else stack,
            frame_bytes=self.frame.get(entry.index, 0),
            barriers=values.get(Attribute.NUM_BARRIERS, 0),
            max_threads=threads[0] * threads[1] * threads[2] if threads else None,
            required_block=_triple(payloads.get(Attribute.REQNTID)),
            cluster=_triple(payloads.get(Attribute.CTA_PER_CLUSTER)),
            params=tuple(sorted(params, key=lambda param: param.ordinal)),
            param_base=base[0] & 0xFFFF if base else 0,
            param_bytes=values.get(Attribute.CBANK_PARAM_SIZE, 0),
            code=section.data,
            constants=self.own_constants.get(name, {}),
            subroutines=tuple(
                Subroutine(symbol.name, symbol.value, symbol.size)
                for symbol in sorted(symbols, key=lambda symbol: symbol.value)
                if symbol is not entry
            ),
            branch_targets=branch_targets(payloads.get(Attribute.INDIRECT_BRANCH_TARGETS, b"")),
            lines=lines,
        )

    def _lines(self) -> dict[str, tuple[LineEntry, ...]]:
        section = self.image.section(".debug_line")
        if section is None:
            return {}
        starts = {}
        for entry in self.image.relocations:
            if entry.section == section.index:
                symbol = self._symbol(entry.symbol)
                if symbol.section < len(self.image.sections):
                    name = self.image.sections[symbol.section].name.removeprefix(".text.")
                    starts[entry.offset] = (name, symbol.value + (entry.addend or 0))
        return parse_lines(section.data, starts)

    def _symbol(self, index: int) -> Symbol:
        if index >= len(self.image.symbols):
            raise InputError("this cubin is damaged: a relocation names a symbol that does not exist")
        return self.image.symbols[index]

    def variables(self) -> dict[str, GlobalVariable]:
        found = {}
        for symbol in self.image.symbols:
            if symbol.type in (STT_FUNC, STT_SECTION) or not 0 < symbol.section < len(self.image.sections):
                continue
            section = self.image.sections[symbol.section]
            match = _CONSTANT.fullmatch(section.name)
            if match and match[2] is None:
                space, bank = "constant", int(match[1])
            elif section.name in (".nv.global", ".nv.global.init"):
                space, bank = "global", None
            else:
                continue
            if symbol.value + symbol.size > section.size:
                raise InputError(f"this cubin is damaged: the variable {symbol.name} is not within its section")
            name = symbol.name if symbol.name not in found else f"{symbol.name}#{symbol.index}"
            found[name] = GlobalVariable(
                name=name,
                demangled=demangle(symbol.name),
                space=space,
                section=section.name,
                offset=symbol.value,
                size=symbol.size,
                alignment=section.alignment,
                bank=bank,
                stored=section.data[symbol.value : symbol.value + symbol.size],
            )
        return found

    def relocations(self) -> tuple[ElfRelocation, ...]:
        """Relocations of code, constants and variables; those of debugging sections concern nobody else."""
        found = []
        for entry in self.image.relocations:
            if not 0 < entry.section < len(self.image.sections):
                raise InputError("this cubin is damaged: a relocation patches a section that does not exist")
            section = self.image.sections[entry.section].name
            if section.startswith((".text.", ".nv.constant", ".nv.global")):
                symbol = self._symbol(entry.symbol)
                defined = 0 < symbol.section < len(self.image.sections)
                target = self.image.sections[symbol.section].name if defined else ""
                found.append(
                    ElfRelocation(
                        section, entry.offset, entry.type, symbol.name or target, target, symbol.value, entry.addend
                    )
                )
        return tuple(found)


def _triple(payload: bytes | None) -> tuple[int, int, int] | None:
    values = words(payload or b"")
    return (values[0], values[1], values[2]) if len(values) >= 3 else None
