"""Reading of ELF64 images as NVIDIA's tools write them: sections, symbols, relocations; every access checked.

A cubin is an ordinary little-endian ELF64 file with machine number 190 (EM_CUDA) and vendor sections.  What a general
ELF library hides is needed here (the vendor bits of ``st_other``, unknown relocation types, files that may be damaged),
so the three tables are read directly.  Layouts: System V ABI, chapters 4 and 5.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import InputError

ELF_MAGIC = b"\x7fELF"
EM_CUDA = 190
ET_REL = 1
SHT_SYMTAB, SHT_RELA, SHT_NOBITS, SHT_REL = 2, 4, 8, 9
STT_FUNC, STT_SECTION = 2, 3
STO_CUDA_ENTRY = 0x10  # bit of st_other: the function is a kernel ("STO_CUDA_ENTRY" in nvdisasm's text)

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_REL, _RELA = struct.Struct("<QQ"), struct.Struct("<QQq")
#: Largest section without file space (variables without initial value), in bytes; a damaged field can claim anything.
_LARGEST_NOBITS = 1 << 32
_LARGEST_ALIGNMENT = 1 << 24


@dataclass(frozen=True)
class Section:
    """One section; ``data`` is empty for one that takes no file space (NOBITS), whose length is ``size`` bytes."""

    index: int
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    data: bytes = field(repr=False)

    @property
    def loaded(self) -> bytes:
        """The content as it is loaded: zeros where the section takes no file space."""
        return bytes(self.size) if self.type == SHT_NOBITS else self.data


@dataclass(frozen=True)
class Symbol:
    """One symbol; ``section`` is a section index (0: undefined), ``value`` an offset within that section."""

    index: int
    name: str
    type: int
    other: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class RelocationEntry:
    """One relocation: what to patch (``section`` index, ``offset``), how (``type``), with which symbol (index).

    ``addend`` is None where it is stored in the patched field itself (sections of type REL).
    """

    section: int
    offset: int
    type: int
    symbol: int
    addend: int | None


class ElfImage:
    """The tables of an ELF64 little-endian file.  Raises InputError for anything that is not one, or is damaged."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if data[:4] != ELF_MAGIC:
            raise InputError("this is not an ELF file: give a cubin, or a program or library that contains one")
        if len(data) < _HEADER.size:
            raise InputError("this ELF file is truncated within its header: make it again")
        (ident, self.type, self.machine, _, _, _, section_offset, self.flags, _, _, _, entry_size, count, names) = (
            _HEADER.unpack_from(data)
        )
        if ident[4] != 2 or ident[5] != 1:
            raise InputError("this is not a 64-bit little-endian ELF file: give a cubin for a 64-bit program")
        self.os_abi, self.abi_version = ident[7], ident[8]
        if count and (entry_size != _SECTION.size or section_offset + count * entry_size > len(data)):
            raise InputError("this ELF file is truncated: its section table lies beyond its end")
        headers = [_SECTION.unpack_from(data, section_offset + i * _SECTION.size) for i in range(count)]
        if count and names >= count:
            raise InputError("this ELF file is damaged: it has no section names")
        if any(header[8] & (header[8] - 1) or header[8] > _LARGEST_ALIGNMENT for header in headers):
            raise InputError("this ELF file is damaged: a section has an impossible alignment")
        strings = self._content(headers[names]) if count else b""
        self.sections = [
            Section(i, _string(strings, h[0]), h[1], h[2], h[4], h[5], h[6], h[7], max(h[8], 1), self._content(h))
            for i, h in enumerate(headers)
        ]

    def _content(self, header: tuple[int, ...]) -> bytes:
        kind, offset, size = header[1], header[4], header[5]
        if kind in (0, SHT_NOBITS):
            if size > _LARGEST_NOBITS:
                raise InputError(f"this ELF file has a section of {size} bytes: it is damaged or cannot be simulated")
            return b""
        if offset + size > len(self.data):
            raise InputError("this ELF file is truncated: a section lies beyond its end")
        return self.data[offset : offset + size]

    def section(self, name: str) -> Section | None:
        """The first section of that name, None if there is none."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Section]:
        return {section.name: section for section in reversed(self.sections)}

    @cached_property
    def symbols(self) -> list[Symbol]:
        """The symbol table ``.symtab``, empty if there is none."""
        table = next((section for section in self.sections if section.type == SHT_SYMTAB), None)
        if table is None:
            return []
        if table.link >= len(self.sections):
            raise InputError("this ELF file is damaged: its symbols have no names")
        strings = self.sections[table.link].data
        found = []
        for index in range(len(table.data) // _SYMBOL.size):
            name, info, other, section, value, size = _SYMBOL.unpack_from(table.data, index * _SYMBOL.size)
            found.append(Symbol(index, _string(strings, name), info & 15, other, section, value, size))
        return found

    @cached_property
    def relocations(self) -> list[RelocationEntry]:
        """All relocations of the REL and RELA sections, in file order."""
        found = []
        for table in self.sections:
            if table.type not in (SHT_REL, SHT_RELA):
                continue
            entry = _RELA if table.type == SHT_RELA else _REL
            for start in range(0, len(table.data) - entry.size + 1, entry.size):
                offset, info, *addend = entry.unpack_from(table.data, start)
                kind, symbol = info & 0xFFFFFFFF, info >> 32
                found.append(RelocationEntry(table.info, offset, kind, symbol, addend[0] if addend else None))
        return found


def _string(table: bytes, offset: int) -> str:
    end = table.find(b"\0", offset)
    return table[offset : end if end >= 0 else len(table)].decode(errors="replace")
