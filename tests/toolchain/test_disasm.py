"""Disassembly, held against nvdisasm's text listing and the instruction words in the file."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from gpusim.errors import UsageError
from gpusim.toolchain import Cache, Cubin, RawInstruction, compile_source, disasm, disassemble, find_tool, tools

LISTED = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*/\* 0x([0-9a-f]{16}) \*/")
SECOND_HALF = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")


@pytest.fixture(scope="module")
def listings(zoo: dict[int, Cubin]) -> dict[int, dict[str, list[RawInstruction]]]:
    return {arch: disassemble(cubin) for arch, cubin in zoo.items()}


def test_every_byte_of_code_is_listed(
    zoo: dict[int, Cubin], listings: dict[int, dict[str, list[RawInstruction]]]
) -> None:
    for arch, cubin in zoo.items():
        assert listings[arch].keys() == cubin.functions.keys()
        for name, instructions in listings[arch].items():
            assert len(instructions) * 16 == len(cubin.functions[name].code)
            assert [raw.address for raw in instructions] == list(range(0, 16 * len(instructions), 16))
            assert b"".join(raw.encoding.to_bytes(16, "little") for raw in instructions) == cubin.functions[name].code


def test_targets_are_addresses(zoo: dict[int, Cubin], listings: dict[int, dict[str, list[RawInstruction]]]) -> None:
    jumps = ("BRA", "CALL.REL", "RET.REL", "BSSY")
    for arch, functions in listings.items():
        kinds = set()
        for name, instructions in functions.items():
            for raw in instructions:
                if raw.opcode.startswith(jumps):
                    target = raw.operands.rsplit(",", 1)[-1]
                    assert int(target, 16) < len(zoo[arch].functions[name].code), raw
                    kinds.add(raw.opcode.split(".")[0])
        assert kinds == {"BRA", "CALL", "RET", "BSSY"}
    calls = [raw for raw in listings[90]["branches"] if raw.opcode == "CALL.REL.NOINC"]
    twice = next(sub for sub in zoo[90].functions["branches"].subroutines if sub.name.endswith("_Z5twicef"))
    assert calls and {int(call.operands, 16) for call in calls} == {twice.address}
    assert any(raw.opcode == "BRX" for raw in listings[90]["branches"])


@pytest.mark.parametrize("arch", [80, 90, 103])
def test_equals_text_listing(
    zoo: dict[int, Cubin], listings: dict[int, dict[str, list[RawInstruction]]], tmp_path: Path, arch: int
) -> None:
    path = tmp_path / "zoo.cubin"
    path.write_bytes(zoo[arch].data)
    command = [str(find_tool("nvdisasm")), "-c", "-hex", "-ndf", str(path)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    name, compared = "", 0
    for index, line in enumerate(lines):
        if match := re.match(r'\s*\.section\s+"?\.text\.([^",]+)', line):
            name = match[1]
        elif match := LISTED.match(line):
            raw = listings[arch][name][int(match[1], 16) // 16]
            rest = SECOND_HALF.match(lines[index + 1])
            assert rest is not None and raw.encoding == int(rest[1] + match[3], 16)
            words = match[2].split(None, 1)
            if words[0].startswith("@"):
                assert raw.predicate == words[0]
                words = words[1].split(None, 1)
            assert raw.opcode == words[0]
            if "`" not in match[2] and "(*" not in match[2]:  # labels and comments are the text listing's own
                told = re.sub(r"[,\s]+", "", words[1] if len(words) > 1 else "")
                assert re.sub(r"[,\s]+", "", raw.operands) == told
            compared += 1
    assert compared == sum(map(len, listings[arch].values()))


@pytest.mark.parametrize(
    ("given", "meant"),
    [  # as nvdisasm 13.5 gives them: opcode, guard, operands
        (("P2R", "PR", "R16,RZ,0x2"), ("", "R16,PR,RZ,0x2")),
        (("P2R.B1", "PR", "R16,@!P0,R16,0x2"), ("@!P0", "R16,PR,R16,0x2")),
        (("R2P", "", "RZ,0x2"), ("", "PR,RZ,0x2")),
        (("R2P", "@P0", "PR,R3,0x7e"), ("@P0", "PR,R3,0x7e")),
        (("ISETP.EQ.AND", "@P0", "P1,PT,R3,RZ,PT"), ("@P0", "P1,PT,R3,RZ,PT")),
    ],
)
def test_sets_of_predicates(given: tuple[str, str, str], meant: tuple[str, str]) -> None:
    assert disasm._predicate_set(*given) == meant


@pytest.mark.parametrize("arch", [75, 90, 120])
def test_sets_of_predicates_equal_the_text_listing(tmp_path: Path, arch: int) -> None:
    source = """extern "C" __global__ void k(float* out, const float* in, int n) {
#pragma unroll
      for (int k = 0; k < 16; k++) {
        int i = threadIdx.x + k * 64;
        if (i < n) { float v = in[i]; __syncthreads(); out[i] = v; }
      }
    }"""
    made = compile_source(source, arch=f"sm_{arch}")
    path = tmp_path / "k.cubin"
    path.write_bytes(made.cubin)
    command = [str(find_tool("nvdisasm")), "-c", "-ndf", str(path)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    listed = re.findall(r"P2R\S* .*?(?= ;)", text)
    assert listed and listed == [r.text for r in disassemble(made.cubin)["k"] if r.opcode.startswith("P2R")]


def test_readable_text() -> None:
    raw = RawInstruction(0x30, "@!P0", "BRA", "0x120", 0)
    assert raw.text == "@!P0 BRA 0x120"
    assert RawInstruction(0, "", "EXIT", "", 0).text == "EXIT"
    assert RawInstruction(0, "", "LDG.E.64", "R2,desc[UR4][R2.64]", 0).text == "LDG.E.64 R2, desc[UR4][R2.64]"


def test_bytes_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = compile_source("__global__ void k(int* p) { p[0] = 1; }").cubin
    cache = Cache(tmp_path)
    fresh = disassemble(data, cache=cache)
    monkeypatch.setattr(disasm, "_run", None)  # would fail if it were called again
    assert disassemble(data, cache=cache) == fresh
    assert fresh["_Z1kPi"][-1].opcode == "NOP"


def test_missing_disassembler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = compile_source("__global__ void k(int* p) { p[0] = 1; }").cubin
    monkeypatch.setattr(tools, "_wheel_files", lambda distribution: iter(()))
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    tools.find_tool.cache_clear()
    try:
        with pytest.raises(UsageError, match="pip install nvidia-cuda-nvdisasm"):
            disassemble(data)
        program = tmp_path / "bin" / "nvdisasm"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        monkeypatch.setenv("CUDA_HOME", str(tmp_path))
        assert find_tool("nvdisasm") == program
    finally:
        tools.find_tool.cache_clear()
