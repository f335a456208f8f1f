"""Damaged and hostile files: one sentence, never a traceback of another kind."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from gpusim.errors import InputError
from gpusim.toolchain import Cubin, link, parse_cubin

FOREIGN = Path(__file__).parents[1] / "data" / "foreign"


def read_everything(data: bytes) -> bool:
    """Whether the cubin can be read; any other error than InputError goes through."""
    try:
        cubin = parse_cubin(data)
        for function in cubin.functions.values():
            function.line_at(0)
        if sum(variable.size for variable in cubin.globals.values()) < 1 << 20 and all(
            section.size < 1 << 20 for section in cubin.image.sections
        ):
            link(cubin)
        return True
    except InputError as error:
        assert "\n" not in str(error) and len(str(error)) > 20
        return False


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not an ELF file"),
        (b"\x7fELF", "truncated"),
        (b"hello, world" * 100, "not an ELF file"),
        (b"\x7fELF" + bytes(100), "64-bit"),
        (b"\x7fELF\x02\x01" + bytes(100), "another machine"),
    ],
)
def test_no_cubin(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words):
        parse_cubin(data)


def changed(cubin: Cubin, offset: int, form: str, value: int) -> bytes:
    data = bytearray(cubin.data)
    struct.pack_into(form, data, offset, value)
    return bytes(data)


def test_wrong_machine_and_architecture(zoo: dict[int, Cubin]) -> None:
    with pytest.raises(InputError, match="another machine"):
        parse_cubin(changed(zoo[90], 18, "<H", 62))
    with pytest.raises(InputError, match=r"is for sm_70, which gpusim does not know: compile for one of sm_75"):
        parse_cubin(changed(zoo[90], 48, "<I", zoo[90].image.flags & ~0xFF00 | 70 << 8))
    with pytest.raises(InputError, match="relocatable"):
        parse_cubin(changed(zoo[90], 16, "<H", 1))


def test_older_layout_of_the_flags(zoo: dict[int, Cubin]) -> None:
    """Up to ABI version 7 the architecture is in the lowest byte."""
    data = bytearray(zoo[80].data)
    data[8] = 7
    struct.pack_into("<I", data, 48, 0x00500550)
    assert parse_cubin(bytes(data)).arch == 80


def test_truncation(zoo: dict[int, Cubin]) -> None:
    data = zoo[90].data
    chance = random.Random(1)
    for length in [*range(0, 200, 7), *(chance.randrange(len(data)) for _ in range(150)), len(data) - 1]:
        # the section table is near the end: what is cut before it cannot be read
        if not read_everything(data[:length]):
            continue
        assert length > len(data) - 64 * 8  # only program headers follow


@pytest.mark.parametrize("name", ["zoo75", "zoo90", "zoo120", "nvcc"])
def test_bit_flips(zoo: dict[int, Cubin], name: str) -> None:
    data = (FOREIGN / "saxpy.sm_90.cubin").read_bytes() if name == "nvcc" else zoo[int(name[3:])].data
    chance = random.Random(name)
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    hot = [range(64), range(table, table + 64 * count)]
    cubin = parse_cubin(data)
    for section in cubin.image.sections:
        if section.name.startswith((".symtab", ".nv.info", ".debug_line", ".rel", ".strtab")):
            hot.append(range(section.offset, section.offset + len(section.data)))
    hot = [places for places in hot if len(places)]
    readable = 0
    for trial in range(400):
        damaged = bytearray(data)
        for _ in range(1 + trial % 4):
            places = chance.choice(hot)
            damaged[chance.choice(places)] ^= 1 << chance.randrange(8)
        readable += read_everything(bytes(damaged))
    assert readable > 20  # many flips do not matter; that all were refused would be suspicious


def test_random_bytes_behind_a_real_header(zoo: dict[int, Cubin]) -> None:
    chance = random.Random(3)
    head = zoo[90].data[:64]
    for _ in range(100):
        read_everything(head + chance.randbytes(chance.randrange(3000)))
