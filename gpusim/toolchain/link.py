"""Giving a cubin addresses: what the driver does when it loads a module.

Variables, constant tables and (in separately compiled code) instructions hold addresses that are known only at load
time; the cubin lists them as relocations.  :func:`link` chooses addresses and fills every one in.

Relocation types and their numbers are those that ``cuobjdump -elf`` prints (R_CUDA_...).  In the names the last number
is the bit of the field where the value goes; ABS47_34 and the like hold a code address divided by 4, those with
``_16_34`` keep its low 8 bits at bit 16 and the rest at bit 34 of the 128-bit instruction.  That was checked by
disassembling patched instructions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import InputError
from .elf import INSTRUCTION_BYTES, Cubin, ElfRelocation

#: Alignment of sections within the memory given to a module, in bytes: that of a device allocation.
SECTION_ALIGNMENT = 256
DEFAULT_GLOBAL_BASE = 0x7F20_0000_0000
DEFAULT_CONSTANT_BASE = 0x7F28_0000_0000
DEFAULT_CODE_BASE = 0x7F30_0000_0000
#: Undefined functions (the runtime's vprintf, malloc, free, __assertfail) get addresses from here on, one every 256
#: bytes, so that a call of one can be told by its target.
EXTERNAL_BASE = 0x7F3F_0000_0000

# type number: (size in bytes, right shift of the value) of a plain field
_DATA = {1: (4, 0), 2: (8, 0), 3: (4, 0), 4: (8, 0), 34: (4, 0), 35: (8, 0), 70: (4, 0), 71: (4, 32)}
_DATA |= {102: (8, 0), 103: (4, 0)}
_DATA |= {first + i: (1, 8 * i) for first in (76, 84, 92, 104) for i in range(8)}
# type number: right shift of the value that goes into bits 32 to 63 of an instruction
_IMMEDIATE = {55: 0, 56: 0, 57: 32, 61: 0, 62: 0, 63: 32, 112: 0, 113: 32}
# type number: (bits at bit 16, bits at bit 34) of a code address divided by 4
_JUMP = {58: (0, 47), 75: (8, 47), 114: (8, 48)}


@dataclass(frozen=True)
class LinkedImage:
    """A cubin with addresses.

    ``global_data`` is the initial content of the module's global memory, to be placed at ``global_base``;
    ``constants`` the module's constant banks; bank 3 can also be read through pointers, at ``constant_base``.
    ``addresses`` gives the absolute address of every variable and function by mangled name, ``externals`` those of
    functions that the cubin only refers to.  ``code`` is each function's code, to be thought of at
    ``addresses[name]``; ``patched`` holds, by function and instruction address, the value put into an instruction.
    """

    global_base: int
    constant_base: int
    code_base: int
    global_data: bytes = field(repr=False)
    constants: dict[int, bytes] = field(repr=False)
    own_constants: dict[str, dict[int, bytes]] = field(repr=False)
    addresses: dict[str, int] = field(repr=False)
    externals: dict[str, int] = field(repr=False)
    code: dict[str, bytes] = field(repr=False)
    patched: dict[str, dict[int, int]] = field(repr=False)

    def banks(self, function: str) -> dict[int, bytes]:
        """All constant banks that a function sees; in bank 0 the parameters are still zero."""
        return self.constants | self.own_constants.get(function, {})


def link(
    cubin: Cubin,
    *,
    global_base: int = DEFAULT_GLOBAL_BASE,
    constant_base: int = DEFAULT_CONSTANT_BASE,
    code_base: int = DEFAULT_CODE_BASE,
) -> LinkedImage:
    """Place a cubin's variables, constants and code at the given addresses (bytes) and apply its relocations.

    Raises InputError for a relocation that needs what only a driver has (textures, surfaces) or is out of bounds.
    """
    return _Linker(cubin, global_base, constant_base, code_base).run()


class _Linker:
    def __init__(self, cubin: Cubin, global_base: int, constant_base: int, code_base: int) -> None:
        self.cubin = cubin
        self.global_base, self.constant_base, self.code_base = global_base, constant_base, code_base
        self.content: dict[str, bytearray] = {}
        self.base: dict[str, int] = {}
        self.externals: dict[str, int] = {}
        self.patched: dict[str, dict[int, int]] = {name: {} for name in cubin.functions}
        place = {"global": global_base, "code": code_base}
        for section in cubin.image.sections:
            name = section.name
            if name in (".nv.global.init", ".nv.global"):
                kind = "global"
            elif name.startswith(".text."):
                kind = "code"
            elif name.startswith(".nv.constant"):
                self.content[name] = bytearray(section.loaded)
                continue
            else:
                continue
            start = _round_up(place[kind], max(section.alignment, SECTION_ALIGNMENT))
            self.content[name], self.base[name] = bytearray(section.data), start  # without file content: all zero
            place[kind] = start + section.size
        self.global_end = place["global"]

    def run(self) -> LinkedImage:
        for entry in self.cubin.relocations:
            self._apply(entry)
        memory = bytearray(self.global_end - self.global_base)
        for name in (".nv.global.init", ".nv.global"):
            if name in self.content:
                start = self.base[name] - self.global_base
                memory[start : start + len(self.content[name])] = self.content[name]
        functions = self.cubin.functions.values()
        addresses = {function.name: self.base[function.section] for function in functions}
        for variable in self.cubin.globals.values():
            addresses[variable.name] = self._address(variable.section, variable.offset, variable.name)
        return LinkedImage(
            global_base=self.global_base,
            constant_base=self.constant_base,
            code_base=self.code_base,
            global_data=bytes(memory),
            constants={bank: self._bank(f".nv.constant{bank}") for bank in self.cubin.constants},
            own_constants={
                function.name: {bank: self._bank(f".nv.constant{bank}.{function.name}") for bank in function.constants}
                for function in functions
            },
            addresses=addresses,
            externals=self.externals,
            code={function.name: bytes(self.content[function.section]) for function in functions},
            patched=self.patched,
        )

    def _bank(self, section: str) -> bytes:
        return bytes(self.content[section])

    def _address(self, section: str, offset: int, name: str) -> int:
        """Absolute address of something in a section; "" is the section of what the cubin does not contain."""
        if section in self.base:
            return self.base[section] + offset
        if section == ".nv.constant3":
            return self.constant_base + offset
        if section.startswith(".nv.shared"):
            return offset
        if not section and name:
            return self.externals.setdefault(name, EXTERNAL_BASE + SECTION_ALIGNMENT * len(self.externals))
        if section.startswith(".nv.constant"):
            return offset
        raise InputError(f"this cubin takes the address of {name}, in {section}, which gpusim cannot give")

    def _apply(self, entry: ElfRelocation) -> None:
        content = self.content.get(entry.section)
        if content is None:
            raise InputError(f"this cubin is damaged: a relocation patches {entry.section}, which has no content")
        address = self._address(entry.target_section, entry.target_offset, entry.symbol)
        if entry.type in _DATA:
            size, shift = _DATA[entry.type]
            old = _field(content, entry.offset, size)
            addend = entry.addend if entry.addend is not None else old << shift
            value = (address + addend) >> shift & ((1 << 8 * size) - 1)
            content[entry.offset : entry.offset + size] = value.to_bytes(size, "little")
            return
        word = _field(content, entry.offset, INSTRUCTION_BYTES)
        if entry.type in _IMMEDIATE:
            shift = _IMMEDIATE[entry.type]
            addend = entry.addend if entry.addend is not None else (0 if shift else word >> 32 & 0xFFFFFFFF)
            value = (address + addend) >> shift & 0xFFFFFFFF
            word = word & ~(0xFFFFFFFF << 32) | value << 32
        elif entry.type in _JUMP:
            low, high = _JUMP[entry.type]
            value = address + (entry.addend or 0)
            quarter = value >> 2
            word &= ~(((1 << low) - 1) << 16 | ((1 << high) - 1) << 34)
            word |= (quarter & ((1 << low) - 1)) << 16 | (quarter >> low & ((1 << high) - 1)) << 34
        else:
            raise InputError(f"this cubin has a relocation of type {entry.type} for {entry.symbol}: not supported")
        content[entry.offset : entry.offset + INSTRUCTION_BYTES] = word.to_bytes(INSTRUCTION_BYTES, "little")
        self.patched.setdefault(entry.section.removeprefix(".text."), {})[entry.offset] = value


def _field(content: bytearray, offset: int, size: int) -> int:
    if offset + size > len(content):
        raise InputError("this cubin is damaged: a relocation lies beyond the end of its section")
    return int.from_bytes(content[offset : offset + size], "little")


def _round_up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment
