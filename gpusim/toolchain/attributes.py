"""The attributes of a kernel in the ``.nv.info`` sections of a cubin.

An attribute is a format byte, a code byte and a 16-bit field; format 4 is followed by as many bytes as that field
says.  Codes and layouts were read off ``cuobjdump -elf``, which prints the names used here, side by side with the
bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from ..errors import InputError


class Attribute(IntEnum):
    """Codes of the attributes that gpusim reads (EIATTR_...)."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    EXIT_INSTR_OFFSETS = 0x1C
    MAX_STACK_SIZE = 0x23
    REGCOUNT = 0x2F
    INDIRECT_BRANCH_TARGETS = 0x34
    CTA_PER_CLUSTER = 0x3D
    EXPLICIT_CLUSTER = 0x3E
    KPARAM_INFO_V2 = 0x45
    NUM_BARRIERS = 0x4C


@dataclass(frozen=True)
class Param:
    """One kernel parameter: position, byte offset within the parameter block, size in bytes."""

    ordinal: int
    offset: int
    size: int


def attributes(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """(code, 16-bit field, payload) of every attribute.  Raises InputError where the section is cut off."""
    position = 0
    while position + 4 <= len(data):
        form, code, value = struct.unpack_from("<BBH", data, position)
        position += 4
        if form not in (1, 2, 3, 4):
            raise InputError("this cubin is damaged: a kernel attribute has an unknown format")
        payload = b""
        if form == 4:
            payload = data[position : position + value]
            position += value
            if position > len(data):
                raise InputError("this cubin is damaged: a kernel attribute is cut off")
        yield code, value & 0xFF if form == 2 else value, payload


def words(payload: bytes) -> tuple[int, ...]:
    """The payload as 32-bit words."""
    return struct.unpack(f"<{len(payload) // 4}I", payload[: len(payload) // 4 * 4])


def parameter(code: int, payload: bytes) -> Param:
    """A KPARAM_INFO or KPARAM_INFO_V2 attribute.  Raises InputError if it is too short."""
    if len(payload) < 12:
        raise InputError("this cubin is damaged: a kernel parameter is cut off")
    if code == Attribute.KPARAM_INFO_V2:
        _, ordinal, offset, size = struct.unpack_from("<IHHH", payload)
        return Param(ordinal, offset, size)
    _, ordinal, offset, packed = struct.unpack_from("<IHHI", payload)
    return Param(ordinal, offset, packed >> 18)


def branch_targets(payload: bytes) -> dict[int, tuple[int, ...]]:
    """Code offsets that each indirect branch (key: its own offset) can jump to."""
    found: dict[int, tuple[int, ...]] = {}
    position = 0
    while position + 12 <= len(payload):
        offset, _, count = struct.unpack_from("<III", payload, position)
        position += 12
        found[offset] = words(payload[position : position + 4 * count])
        position += 4 * count
    return found
