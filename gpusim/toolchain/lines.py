"""The line table of a cubin: which source line each instruction came from.

``.debug_line`` holds DWARF line programs (versions 2 to 4 as NVIDIA's compilers write them), one sequence a function.
The start of a sequence is a relocated address: the relocation's symbol names the function.  NVIDIA adds two extended
opcodes, as ``cuobjdump -elf`` shows them: 0x90, "set context and function offset", which says that the following rows
were inlined at the call in row number ``context`` (counted from 1 within the sequence, 0 for none), and 0x91, "set
function name".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import InputError

_EXTENDED_CONTEXT = 0x90
#: Longest chain of inlined calls that is followed: a damaged table can hold a circle.
_MAX_INLINE_DEPTH = 64


@dataclass(frozen=True)
class LineEntry:
    """From code offset ``address`` (bytes, within the function's section) on, the code came from ``file``:``line``.

    ``inlined_at`` lists the calls that this line was inlined through, innermost first, each (file, line).
    """

    address: int
    file: str
    line: int
    inlined_at: tuple[tuple[str, int], ...] = ()


class _Reader:
    """A cursor over bytes; reading beyond the end raises InputError."""

    def __init__(self, data: bytes, position: int, end: int) -> None:
        self.data, self.position, self.end = data, position, min(end, len(data))

    def take(self, count: int) -> bytes:
        start, self.position = self.position, self.position + count
        if self.position > self.end:
            raise InputError("this cubin is damaged: its line table is cut off")
        return self.data[start : self.position]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def unsigned(self) -> int:
        """An unsigned LEB128 number."""
        value = shift = 0
        while shift < 70:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
        raise InputError("this cubin is damaged: its line table holds a number that is too long")

    def signed(self) -> int:
        """A signed LEB128 number."""
        start = self.position
        value = self.unsigned()
        bits = 7 * (self.position - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def string(self) -> str:
        end = self.data.find(b"\0", self.position, self.end)
        if end < 0:
            raise InputError("this cubin is damaged: its line table holds an unfinished name")
        text = self.data[self.position : end]
        self.position = end + 1
        return text.decode(errors="replace")


@dataclass
class _Row:
    address: int
    file: str
    line: int
    context: int


def parse_lines(data: bytes, functions: Mapping[int, tuple[str, int]]) -> dict[str, tuple[LineEntry, ...]]:
    """Line entries by function, sorted by address, one an address (the innermost where several share it).

    ``data`` is the section ``.debug_line``; ``functions`` maps the offset in it of every relocated address to the
    function and the start within that function.  Raises InputError if the section is damaged.
    """
    found: dict[str, dict[int, LineEntry]] = {}
    position = 0
    while position + 4 <= len(data):
        (length,) = struct.unpack_from("<I", data, position)
        if length == 0 or length >= 0xFFFFFFF0:
            break
        _parse_program(_Reader(data, position + 4, position + 4 + length), functions, found)
        position += 4 + length
    return {name: tuple(entries[a] for a in sorted(entries)) for name, entries in found.items()}


def _parse_program(
    reader: _Reader, functions: Mapping[int, tuple[str, int]], found: dict[str, dict[int, LineEntry]]
) -> None:
    version = reader.number(2)
    if not 2 <= version <= 4:
        return  # a version that no compiler of the supported toolkits writes: the code is usable without lines
    header_end = reader.number(4) + reader.position
    minimum = reader.number(1)
    if version >= 4:
        reader.number(1)
    reader.number(1)
    line_base, line_range, opcode_base = struct.unpack("<bBB", reader.take(3))
    lengths = reader.take(max(opcode_base - 1, 0))
    files = _file_names(reader)
    reader.position = header_end

    name, rows = "", list[_Row]()
    address, file, line, context = 0, 1, 1, 0

    def emit() -> None:
        rows.append(_Row(address, files.get(file, "?"), line, context))

    while reader.position < reader.end:
        opcode = reader.number(1)
        if opcode >= opcode_base:
            if line_range == 0:
                raise InputError("this cubin is damaged: its line table has a line range of zero")
            address += (opcode - opcode_base) // line_range * minimum
            line += line_base + (opcode - opcode_base) % line_range
            emit()
        elif opcode == 0:
            end = reader.unsigned() + reader.position
            kind = reader.number(1)
            if kind == 1:  # end of sequence
                _store(found.setdefault(name, {}) if name else {}, rows)
                name, rows = "", []
                address, file, line, context = 0, 1, 1, 0
            elif kind == 2:  # set address
                name, address = functions.get(reader.position, ("", 0))
            elif kind == _EXTENDED_CONTEXT:
                context = reader.unsigned()
            if end > reader.end:
                raise InputError("this cubin is damaged: its line table is cut off")
            reader.position = end
        elif opcode == 1:
            emit()
        elif opcode == 2:
            address += reader.unsigned() * minimum
        elif opcode == 3:
            line += reader.signed()
        elif opcode == 4:
            file = reader.unsigned()
        elif opcode == 8 and line_range:
            address += (255 - opcode_base) // line_range * minimum
        elif opcode == 9:
            address += reader.number(2)
        else:
            for _ in range(lengths[opcode - 1]):
                reader.unsigned()


def _file_names(reader: _Reader) -> dict[int, str]:
    """File number to path; directory 0 is the unknown directory of the compilation, so such a name stays as it is."""
    directories = [""]
    while text := reader.string():
        directories.append(text)
    files: dict[int, str] = {}
    while text := reader.string():
        directory = reader.unsigned()
        reader.unsigned()
        reader.unsigned()
        prefix = directories[directory] if directory < len(directories) else ""
        files[len(files) + 1] = f"{prefix.rstrip('/')}/{text}" if prefix else text
    return files


def _store(entries: dict[int, LineEntry], rows: list[_Row]) -> None:
    """Add the rows of one sequence; rows are numbered from 1, a context refers to one of them."""
    for row in rows:
        calls: list[tuple[str, int]] = []
        context = row.context
        while 0 < context <= len(rows) and len(calls) < _MAX_INLINE_DEPTH:
            call = rows[context - 1]
            calls.append((call.file, call.line))
            context = call.context
        entries[row.address] = LineEntry(row.address, row.file, row.line, tuple(calls))
