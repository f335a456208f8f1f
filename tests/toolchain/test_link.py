"""Addresses for variables, tables and separately compiled code."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from gpusim.errors import InputError
from gpusim.toolchain import Cubin, compile_source, disassemble, find_tool, link, load_cubin, parse_cubin
from gpusim.toolchain.elf import SUPPORTED_ARCHS

needs_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")

#: Compiled for separate linking, this takes addresses of variables, functions and return points in its code.
SEPARATE = """\
#include <cstdio>
__device__ int first = 5;
__device__ int many[10];
__constant__ int fixed[4] = {9, 8, 7, 6};
__device__ int* inside = &many[3];
__device__ const int* to_constant = fixed;
typedef int (*Function)(int);
__device__ __noinline__ int multiply(int x) { return x * first + fixed[x & 3]; }
__device__ __noinline__ int subtract(int x) { return x - many[x]; }
__device__ Function table[2] = {multiply, subtract};
__constant__ Function fixed_table[2] = {multiply, subtract};
__global__ void k(int* p, int n, Function given) {
  p[n] = table[n](p[2]) + fixed_table[n](p[3]) + *inside + to_constant[n] + fixed[n] + given(n);
  Function chosen = n > 4 ? multiply : subtract;
  p[9] = chosen(n);
  *(Function*)(p + 10) = multiply;
  *(int**)(p + 20) = many + n;
  printf("%d", n);
}
"""


def test_pointers_between_variables(zoo: dict[int, Cubin]) -> None:
    for cubin in zoo.values():
        linked = link(cubin, global_base=0x10_0000_0000, constant_base=0x20_0000_0000, code_base=0x30_0000_0000)

        def word(name: str, linked=linked) -> int:
            start = linked.addresses[name] - linked.global_base
            return int(struct.unpack_from("<Q", linked.global_data, start)[0])

        assert word("counter_address") == linked.addresses["counter"]
        assert word("weights_address") == linked.addresses["weights"] + 4
        assert linked.addresses["weights"] == 0x20_0000_0000 + cubin.globals["weights"].offset
        counter = linked.addresses["counter"] - linked.global_base
        assert linked.global_data[counter : counter + 4] == b"\7\0\0\0"
        names = {address: name for name, address in linked.addresses.items()}
        pointers = struct.unpack(f"<{len(linked.constants[4]) // 8}Q", linked.constants[4])
        assert {names[pointer] for pointer in pointers} >= {"counter_address", "buffer", "table"}
        assert linked.addresses["_Z5linesPf"] % 256 == 0 and linked.addresses["_Z5linesPf"] >= 0x30_0000_0000
        banks = linked.banks("branches")
        assert banks[3] == cubin.constants[3] and banks[0] == cubin.functions["branches"].constants[0]
        assert all(not patched for patched in linked.patched.values())


def test_variables_do_not_overlap(zoo: dict[int, Cubin]) -> None:
    for cubin in zoo.values():
        linked = link(cubin)
        spans = sorted(
            (linked.addresses[variable.name], variable.size)
            for variable in cubin.globals.values()
            if variable.space == "global"
        )
        assert all(a + size <= b for (a, size), (b, _) in pairwise(spans))
        assert spans[-1][0] + spans[-1][1] <= linked.global_base + len(linked.global_data)


def separate(directory: Path, arch: int, *options: str) -> Cubin:
    (directory / "s.cu").write_text(SEPARATE)
    run = ["nvcc", f"-arch=sm_{arch}", *options, "-cubin", "-o", "s.cubin"]
    subprocess.run([*run, "s.cu"], cwd=directory, check=True, capture_output=True)
    if "-rdc=true" in options:
        with pytest.raises(InputError, match="relocatable"):
            load_cubin(directory / "s.cubin")
        dlink = ["nvcc", f"-arch=sm_{arch}", "-dlink", "-cubin", "-o", "linked.cubin", "s.cubin"]
        subprocess.run(dlink, cwd=directory, check=True, capture_output=True)
        return load_cubin(directory / "linked.cubin")
    return load_cubin(directory / "s.cubin")


def without_relocations(cubin: Cubin, code: dict[str, bytes]) -> bytes:
    """The cubin with its code replaced and its relocation sections made ordinary data."""
    data = bytearray(cubin.data)
    (table,) = struct.unpack_from("<Q", data, 40)
    for section in cubin.image.sections:
        if section.type in (4, 9):
            struct.pack_into("<I", data, table + 64 * section.index + 4, 1)
        if section.name.startswith(".text."):
            data[section.offset : section.offset + section.size] = code[section.name.removeprefix(".text.")]
    return bytes(data)


@needs_nvcc
@pytest.mark.parametrize("arch", [75, 90, 120])
@pytest.mark.parametrize("option", ["-rdc=true", "-G"])
def test_patched_code_disassembles_to_the_addresses(tmp_path: Path, arch: int, option: str) -> None:
    cubin = separate(tmp_path, arch, option)
    linked = link(cubin)
    listing = disassemble(cubin, linked)
    patched = {name: addresses for name, addresses in linked.patched.items() if addresses}
    assert set(patched) == {"_Z1kPiiPFiiE", "_Z8multiplyi", "_Z8subtracti"}
    path = tmp_path / "patched.cubin"
    path.write_bytes(without_relocations(cubin, linked.code))
    command = [str(find_tool("nvdisasm")), "-json", "-ndf", str(path)]
    told = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)[1]
    assert {function["function-name"] for function in told} == set(listing)
    for function in told:
        for raw, instruction in zip(listing[function["function-name"]], function["sass-instructions"], strict=True):
            if raw.address in linked.patched[function["function-name"]]:
                assert "32@" not in raw.operands
                mine, theirs = (text.rsplit(",", 1)[-1] for text in (raw.operands, instruction["operands"]))
                mask = (1 << 64) - 1 if raw.opcode.startswith("CALL") else 0xFFFFFFFF
                assert int(mine, 16) & mask == int(theirs, 16) & mask, raw
    called = {
        int(raw.operands, 16)
        for raw in listing["_Z1kPiiPFiiE"]
        if raw.opcode.startswith("CALL.ABS") and "0x" in raw.operands
    }
    assert called == {linked.externals["vprintf"]}
    values = set(linked.patched["_Z1kPiiPFiiE"].values())
    for name in ("table", "inside", "to_constant", "_Z8multiplyi", "_Z8subtracti"):
        assert linked.addresses[name] & 0xFFFFFFFF in values, name
    start = linked.addresses["table"] - linked.global_base
    pointers = struct.unpack_from("<QQ", linked.global_data, start)
    assert pointers == (linked.addresses["_Z8multiplyi"], linked.addresses["_Z8subtracti"])
    offset = cubin.globals["fixed_table"].offset
    assert struct.unpack_from("<QQ", linked.constants[3], offset) == pointers
    inside = linked.addresses["inside"] - linked.global_base
    assert struct.unpack_from("<Q", linked.global_data, inside)[0] == linked.addresses["many"] + 12


def test_unknown_relocation_is_named(zoo: dict[int, Cubin]) -> None:
    cubin = zoo[90]
    table = cubin.image.section(".rela.nv.constant4")
    assert table is not None
    data = bytearray(cubin.data)
    offset = table.offset + 24 * (len(table.data) // 24 - 1)  # the one that patches the first word of the bank
    struct.pack_into("<QI", data, offset, 0, 6)  # a texture header's index
    with pytest.raises(InputError, match="relocation of type 6"):
        link(parse_cubin(bytes(data)))


def test_constants_of_every_architecture_are_in_bank_3() -> None:
    source = "__constant__ int c = 4; __global__ void k(int* p) { p[0] = c; }"
    for arch in SUPPORTED_ARCHS:
        assert parse_cubin(compile_source(source, arch=arch).cubin).globals["c"].bank == 3
