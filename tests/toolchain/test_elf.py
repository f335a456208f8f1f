"""Facts read from cubins, held against what NVIDIA's own tools print about the same files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpusim.toolchain import Cubin, Param, compile_source, find_tool, parse_cubin

USAGE = re.compile(r"REG:(\d+) STACK:(\w+) SHARED:(\d+) LOCAL:\d+ (?:CONSTANT\[2\]:(\d+) )?CONSTANT\[0\]:(\d+)")
PARAM_BASE = {75: 0x160, 80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210, 100: 0x380, 103: 0x380, 120: 0x380}
MIXED = "_Z5mixedILi32EfEvPT0_iPKfs"


def tool(name: str, *arguments: str) -> str:
    done = subprocess.run([str(find_tool(name)), *arguments], capture_output=True, text=True, check=True)
    return done.stdout


def test_resources_equal_cuobjdump(zoo: dict[int, Cubin], tmp_path: Path) -> None:
    for arch, cubin in zoo.items():
        path = tmp_path / f"{arch}.cubin"
        path.write_bytes(cubin.data)
        text = tool("cuobjdump", "--dump-resource-usage", str(path))
        told = dict(re.findall(r"Function (\S+):\n\s*(.*)", text))
        assert set(told) == set(cubin.functions)
        for name, line in told.items():
            match = USAGE.search(line)
            assert match is not None, line
            function = cubin.functions[name]
            assert function.registers == int(match[1])
            assert str("UNKNOWN" if function.local_bytes is None else function.local_bytes) == match[2]
            assert function.shared_static + function.shared_reserved == int(match[3])
            assert len(function.constants.get(2, b"")) == int(match[4] or 0)
            assert len(function.constants[0]) == int(match[5])
        common = re.search(r"GLOBAL:(\d+) CONSTANT\[3\]:(\d+) CONSTANT\[4\]:(\d+)", text)
        assert common is not None
        assert len(cubin.constants[3]) == int(common[2]) and len(cubin.constants[4]) == int(common[3])


def test_kernel_facts(zoo: dict[int, Cubin]) -> None:
    for arch, cubin in zoo.items():
        mixed = cubin.kernels[MIXED]
        assert mixed.demangled == "mixed<32, float>"
        assert mixed.signature == "mixed<32, float>(float*, int, const float*, short)"
        assert mixed.params == (Param(0, 0, 8), Param(1, 8, 4), Param(2, 16, 8), Param(3, 24, 2))
        assert (mixed.param_base, mixed.param_bytes) == (PARAM_BASE[arch], 26)
        assert mixed.barriers == 1 and mixed.max_threads == 128
        assert mixed.shared_static >= 33 * 4 and mixed.shared_static % 16 == 0
        assert mixed.shared_reserved == (1024 if arch >= 90 else 0)
        assert cubin.data[mixed.section_offset :][: len(mixed.code)] == mixed.code
        branches = cubin.kernels["branches"]
        assert branches.local_bytes is not None and branches.local_bytes >= 200
        assert branches.barriers == 0 and branches.max_threads is None and branches.shared_static == 0
        assert cubin.kernels["_Z11shared_onlyPi"].shared_static == 4000
        assert cubin.kernels["_Z4deepPi"].local_bytes is None
        assert {sub.name.split("$")[-1] for sub in mixed.subroutines} >= {"_Z5twicef", "_Z4wavef"}
        assert all(0 < sub.address < len(mixed.code) for sub in mixed.subroutines)


def test_branch_targets_are_instructions(zoo: dict[int, Cubin]) -> None:
    branches = zoo[90].kernels["branches"]
    assert branches.branch_targets
    for branch, targets in branches.branch_targets.items():
        assert 0 < branch < len(branches.code)
        assert all(target % 16 == 0 and target < len(branches.code) for target in targets)


def test_launch_attributes() -> None:
    source = """
struct Large { int x[5000]; };
__global__ void large(Large b, int* o, char c) { o[threadIdx.x] = b.x[threadIdx.x] + c; }
__global__ void __cluster_dims__(2, 1, 1) clustered(int* p) { p[threadIdx.x] = 1; }
__global__ void __block_size__((64, 2, 1)) fixed(int* p) { p[0] = 1; }
"""
    kernels = parse_cubin(compile_source(source).cubin).kernels
    assert kernels["_Z5large5LargePic"].params == (Param(0, 0, 20000), Param(1, 20000, 8), Param(2, 20008, 1))
    assert kernels["_Z9clusteredPi"].cluster == (2, 1, 1)
    assert kernels["_Z5fixedPi"].required_block == (64, 2, 1)


def test_variables_and_their_values(zoo: dict[int, Cubin]) -> None:
    for cubin in zoo.values():
        weights = cubin.globals["weights"]
        assert (weights.space, weights.bank, weights.size) == ("constant", 3, 16)
        assert weights.data.hex() == "0000803f000000400000404000008040"
        assert cubin.constants[3][weights.offset : weights.offset + 16] == weights.data
        assert cubin.globals["zeroed"].data == bytes(4)
        counter = cubin.globals["counter"]
        assert (counter.space, counter.bank, counter.data) == ("global", None, b"\7\0\0\0")
        buffer = cubin.globals["buffer"]
        assert (buffer.section, buffer.size, buffer.data) == (".nv.global", 400, bytes(400))
        assert not {name for name in cubin.globals if name.startswith(".")}


def test_variables_of_one_translation_unit() -> None:
    source = "namespace n { static __device__ float hidden[3] = {1, 2, 3}; template <class T> __device__ T made; }\n"
    source += "__global__ void k(float* p) { n::hidden[p[1] > 0] += p[0]; n::made<int> = 3; p[2] = n::hidden[2]; }"
    names = {variable.demangled for variable in parse_cubin(compile_source(source).cubin).globals.values()}
    assert names >= {"n::hidden", "n::made<int>"}


def nvdisasm_lines(path: Path, cubin: Cubin, flag: str) -> dict[tuple[str, int], list[tuple[str, int]]]:
    """For every instruction, the (file, line) chain that nvdisasm prints in front of it, innermost first."""
    found: dict[tuple[str, int], list[tuple[str, int]]] = {}
    function, chain, pending = "", list[tuple[str, int]](), list[tuple[str, int]]()
    for line in tool("nvdisasm", flag, "-c", "-ndf", str(path)).splitlines():
        if match := re.match(r'\s*\.section\s+"?\.text\.([^",]+)', line):
            function, chain, pending = match[1], [], []
        elif match := re.match(r'\s*//## File "(.*?)", line (\d+)', line):
            pending.append((match[1], int(match[2])))
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/ ", line):
            chain, pending = pending or chain, []
            found[function, int(match[1], 16)] = chain
    assert len(found) == sum(function.instruction_count for function in cubin.functions.values())
    return found


@pytest.mark.parametrize("arch", [75, 90, 120])
@pytest.mark.parametrize("flag", ["-g", "-gi"])
def test_line_table_equals_nvdisasm(zoo: dict[int, Cubin], tmp_path: Path, arch: int, flag: str) -> None:
    cubin = zoo[arch]
    path = tmp_path / "zoo.cubin"
    path.write_bytes(cubin.data)
    for (name, address), chain in nvdisasm_lines(path, cubin, flag).items():
        entry = cubin.functions[name].line_at(address)
        assert entry is not None
        mine = [(entry.file, entry.line), *entry.inlined_at]
        assert (mine[:1] if flag == "-g" else mine) == (chain[:1] if flag == "-g" else chain), (name, hex(address))


def test_inlined_lines_keep_their_callers(zoo: dict[int, Cubin]) -> None:
    entries = zoo[90].kernels["_Z5linesPf"].lines
    assert max(len(entry.inlined_at) for entry in entries) == 2
    assert list(entries) == sorted(entries, key=lambda entry: entry.address)
    assert zoo[90].kernels["_Z5linesPf"].line_at(-16) is None


def test_code_digest_ignores_names_of_files() -> None:
    source = "__global__ void k(int* p) { p[0] = 1; }"
    first, second = (parse_cubin(compile_source(source, filename=name).cubin) for name in ("a.cu", "b.cu"))
    assert first.sha256 != second.sha256
    assert first.functions["_Z1kPi"].code_sha256 == second.functions["_Z1kPi"].code_sha256
