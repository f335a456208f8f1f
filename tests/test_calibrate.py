"""Calibration without a GPU: its kernels' machine code, the constants derived from rows, the profiles, the command."""

from __future__ import annotations

import copy
import gzip
import json
import math
import re
import sys
import types
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.errors import InputError, UsageError
from gpusim.machine.limits import limits_of
from gpusim.runner import calibrate, constants, plan, sweeps
from gpusim.timing import profiles

RECORDED = Path(__file__).parent / "data" / "sweeps_h200.json.gz"
FOLDER = Path(kernels.__file__).parent / "calibrate"


@cache
def module(source: str) -> gpusim.Module:
    return gpusim.compile(FOLDER / f"{source}.cu", arch="sm_90", names=sweeps.KERNELS[source])


@cache
def recorded() -> dict:
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


def innermost_loop(source: str, name: str) -> Counter[str]:
    """Opcodes of the longest loop without another one inside."""
    instructions = list(module(source)[name].program.instructions)
    loops = []
    for at, instruction in enumerate(instructions):
        if target := re.search(r"\bBRA\S* .*?0x([0-9a-f]+)", instruction.text):
            start = int(target[1], 16) // 16
            if start < at:
                loops.append((start, at))
    inner = [a for a in loops if not any(b != a and a[0] <= b[0] and b[1] <= a[1] for b in loops)]
    start, end = max(inner, key=lambda loop: loop[1] - loop[0])
    return Counter(instruction.opcode for instruction in instructions[start : end + 1])


# ---- machine code: what is timed is there, and little else ----------------------------------------------------------

OPCODES = {
    "FADD": "FADD", "FMUL": "FMUL", "FFMA": "FFMA", "IADD": "IADD3", "IMAD": "IMAD", "IMAD_HI": "IMAD", "LOP3": "LOP3",
    "SHF": "SHF", "IMNMX": "VIMNMX", "FMNMX": "FMNMX", "PRMT": "PRMT", "POPC": "POPC", "FLO": "FLO", "EX2": "MUFU",
    "LG2": "MUFU", "RSQ": "MUFU", "I2F": "I2FP", "F2I": "F2I", "DADD": "DADD", "DMUL": "DMUL", "DFMA": "DFMA",
    "SHFL": "SHFL", "LDS": "LDS", "DP4A": "IDP", "MATCH": "MATCH",
}  # fmt: skip


@pytest.mark.parametrize("chains", [1, 8])
@pytest.mark.parametrize("operation", OPCODES)
def test_a_loop_holds_128_of_its_operation_and_little_else(operation, chains):
    loop = innermost_loop("issue", f"issue<{operation}, {chains}>")
    assert loop[OPCODES[operation]] == 128
    doubles = operation.startswith("D") and operation != "DP4A"
    assert loop.total() - 128 <= (25 if doubles else 3), loop  # ptxas copies some operands of doubles


@pytest.mark.parametrize("mixture", sweeps.MIXTURES)
def test_a_mixture_holds_as_many_of_both(mixture):
    loop = innermost_loop("issue", f"issue<{mixture}, 8>")
    first, second = mixture.split("_")
    assert loop[OPCODES[first]] == loop[OPCODES[second]] == 128
    assert loop.total() <= 259


@pytest.mark.parametrize(
    ("source", "kernel", "opcode", "count"),
    [
        *(("latency", f"chase<{kind}>", "LDG", 16) for kind in ("CA64", "CG64", "CA32", "CA128", "NC64")),
        *(("latency", f"shared_chase<{width}>", "LDS", 16) for width in (4, 8, 16)),
        *(("latency", f"access_chain<{kind}>", "ATOMS", 16) for kind in ("SHARED_ADD", "SHARED_CAS", "SHARED_EXCH")),
        *(("latency", f"access_chain<{kind}>", "ATOMG", 16) for kind in ("GLOBAL_ADD", "GLOBAL_CAS", "GLOBAL_EXCH")),
        ("latency", "line_latency", "LDG", 1),
        ("latency", "constant_chase", "LDC", 16),
        *(("shared", f"shared_load<{width}>", "LDS", 8) for width in (4, 8, 16)),
        *(("shared", f"shared_store<{width}>", "STS", 8) for width in (4, 8, 16)),
        *(("shared", f"shared_atomic<{kind}>", "ATOMS", 8) for kind in ("ADD", "INCREMENT", "ADD_RETURN")),
        *(("shared", f"pattern_load<{kind}, 4>", "LDG", 8) for kind in ("CA", "CG", "NC")),
        *(("shared", f"pattern_store<{width}>", "STG", 8) for width in (4, 8, 16)),
        ("shared", "local_access", "LDL", 8),
        ("shared", "constant_load", "LDC", 8),
        *(("stream", f"stream_read<4, {flight}>", "LDG", flight) for flight in (1, 2, 4, 8)),
        *(("stream", f"stream_write<1, {flight}>", "STG", flight) for flight in (1, 2, 4, 8)),
        ("stream", "stream_read<4, 4, 1>", "LDG", 4),
        ("stream", "stream_random<0, 8>", "LDG", 8),
    ],
)
def test_accesses_stay_where_they_are_timed(source, kernel, opcode, count):
    assert innermost_loop(source, kernel)[opcode] == count


def test_the_clock_is_read_after_what_was_loaded_arrived():
    text = [i.text.split()[0] for i in module("latency")["line_latency"].program.instructions]
    load = text.index("LDG.E.STRONG.GPU")
    before = len(text[:load]) - 1 - text[:load][::-1].index("CS2R.32")
    after = load + text[load:].index("CS2R.32")
    assert before < load < load + text[load:].index("STS") < after


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("calibrate_shared_load_32_1", "wavefronts", 1), ("calibrate_shared_load_32_2", "wavefronts", 2),
        ("calibrate_shared_load_32_32", "wavefronts", 32), ("calibrate_shared_load_64_4", "wavefronts", 8),
        ("calibrate_shared_load_128_1", "wavefronts", 4), ("calibrate_shared_load_128_8", "wavefronts", 32),
        ("calibrate_shared_atomic_4", "wavefronts", 1), ("calibrate_shared_atomic_128", "wavefronts", 32),
        ("calibrate_lines_1", "tags", 1), ("calibrate_lines_4", "tags", 4), ("calibrate_lines_32", "tags", 32),
        ("calibrate_random", "sectors", 32), ("calibrate_read_128_4", "sectors", 16),
    ],
)  # fmt: skip
def test_patterns_are_what_they_are_called(name, field, value):
    case = kernels.find(name)
    launch = (problem := case.build(1000)).launches[0]
    args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
    result = gpusim.compile(case.source, names=case.names)[launch.kernel].count(launch.grid, launch.block, args)
    timed = max(
        (i for i in result.instructions if i.operation in ("load", "atomic") and i.requests), key=lambda i: i.requests
    )
    expected = value * timed.requests
    assert getattr(timed, field) == (expected if name != "calibrate_random" else pytest.approx(expected, rel=0.05))


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("lines", [1, 2, 4, 8, 16, 32])
def test_lanes_touch_so_many_lines_and_sectors(lines, width):
    for sectors in range(1, min(4, 32 // lines) + 1):
        arguments = [np.int32(lines), np.int32(sectors), np.int64(0), np.int32(0), np.int32(3)]
        buffers = [np.zeros(64, np.uint32), np.zeros(64, np.int64), np.zeros(33 * 1024, np.uint8)]
        for name in (f"pattern_load<CA, {width}>", f"pattern_store<{width}>"):
            result = module("shared")[name].count(1, 32, [*buffers, *arguments])
            timed = [i for i in result.instructions if i.space == "global" and i.requests >= 3]
            assert len(timed) == 8 and {i.width for i in timed} == {width}
            for i in timed:
                assert (i.tags, i.sectors) == (lines * i.requests, lines * sectors * i.requests), name


# ---- from rows to constants -----------------------------------------------------------------------------------------


def test_the_profile_of_the_h200_is_what_its_rows_say():
    profile = constants.profile_of(recorded(), "h200")
    shipped = json.loads((profiles.FOLDER / "h200.json").read_text())
    assert shipped == {k: v for k, v in profile.items() if k not in ("sweeps", "failed", "hardware")}


def test_every_constant_is_found_and_none_is_out_of_the_way():
    found = profiles.load("h200")
    assert all(math.isfinite(c.value) and c.value >= 0 for c in found.constants.values())
    assert all(c.source.startswith(("documented: ", "measured ")) for c in found.constants.values())
    expected = {name for name, *_ in constants.everything()}
    assert expected <= set(found)
    for name, low, high in (
        ("sms", 132, 132), ("clock", 1900, 1980), ("latency_ffma", 4, 4.2), ("latency_shared_32", 22, 24),
        ("latency_shfl", 23, 25), ("latency_mufu", 16, 18), ("issue_ffma", 3.7, 4), ("issue_mufu", 0.49, 0.51),
        ("shared_load_wavefront", 0.99, 1.01), ("l1_line", 0.99, 1.02), ("dram_read", 4300, 4800),
        ("latency_l2_hit", 200, 320), ("latency_dram", 500, 900), ("barrier_warp", 1.9, 2.1),
    ):  # fmt: skip
        assert low <= found[name] <= high, name


def test_a_missing_sweep_leaves_its_constants_out_only():
    content = copy.copy(recorded())
    content["sweeps"] = {name: rows for name, rows in content["sweeps"].items() if name not in ("dram", "chains")}
    found = constants.profile_of(content, "part")["constants"]
    full = constants.profile_of(recorded(), "full")["constants"]
    lacking = set(full) - set(found)
    assert {"dram_read", "latency_shared_32"} <= lacking
    assert all(name.startswith(("dram", "latency", "l2_dirty")) for name in lacking)
    assert all(found[name] == full[name] for name in found)


def test_lines_and_picks():
    assert constants.line([(1, 3), (2, 5), (4, 9)]) == pytest.approx((1, 2))
    rows = [{"a": 1, "b": 2, "cycles": 10, "steps": 5}, {"a": 1, "b": 3, "cycles": 12, "steps": 4}]
    assert constants.pick(rows, a=1, b={2, 4}) == rows[:1]
    assert constants.step(rows, b=3) == 3
    with pytest.raises(constants.Missing):
        constants.pick(rows, a=2)
    with pytest.raises(constants.Missing):
        constants.line([(1, 1)])


# ---- profiles --------------------------------------------------------------------------------------------------------

PUBLISHED = {"t4": 75, "a100": 80, "rtx3090": 86, "rtx4090": 89, "h100": 90, "b200": 100, "rtx5090": 120}


def test_profiles_that_are_there():
    assert profiles.names() == sorted([*PUBLISHED, "h200"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_profile_has_its_own_figures_and_says_what_is_assumed(name):
    profile, base = profiles.load(name), profiles.load("h200")
    own = json.loads((profiles.FOLDER / f"{name}.json").read_text())["constants"]
    assert profile.arch == PUBLISHED[name] and set(profile) >= set(base) and set(own) <= set(profile)
    for key, constant in profile.constants.items():
        assert constant.source.startswith("published: " if key in own else "assumed as h200"), key
        assert key not in base or constant.unit == base.constants[key].unit, key
    limits = limits_of(profile.arch)
    assert profile["warps_per_sm"] == limits.warps and profile["blocks_per_sm"] == limits.blocks
    assert profile["registers_per_sm"] == limits.registers and profile["shared_per_sm"] == limits.shared_per_sm
    assert {"sms", "clock", "dram_peak", "issue_ffma", "issue_dfma", "issue_mufu"} <= set(own)
    assert profile["issue_ffma"] <= 4 and profile["issue_ffma"] >= profile["issue_dfma"]


def test_what_a_profile_is_not(tmp_path):
    with pytest.raises(UsageError, match=r"no device profile 'h3000'.*h100, h200"):
        profiles.load("h3000")
    with pytest.raises(UsageError, match="gpusim calibrate --out"):
        profiles.load(tmp_path / "none.json")
    for number, text in enumerate(("", "[]", '{"name": "x", "device": "y", "arch": 90, "constants": {"a": 1}}',
                                   '{"name": "x", "device": "y", "arch": 90, "constants": {"a": {"value": "1", '
                                   '"unit": "", "source": ""}}}')):  # fmt: skip
        path = tmp_path / f"{number}.json"
        path.write_text(text)
        with pytest.raises(InputError, match=str(number)):
            profiles.load(path)
    with pytest.raises(UsageError, match=r"'h200' has no constant 'nothing'.*gpusim calibrate"):
        profiles.load("h200")["nothing"]


def test_a_written_profile_is_read_again(tmp_path):
    content = constants.profile_of(recorded(), "mine")
    for name in ("mine.json", "mine.json.gz"):
        calibrate.write_json(tmp_path / name, content)
    assert json.loads((tmp_path / "mine.json").read_text()) == content
    assert json.loads(gzip.decompress((tmp_path / "mine.json.gz").read_bytes())) == content
    again = profiles.load(tmp_path / "mine.json")
    assert dict(again) == dict(profiles.load("h200")) and again.name == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.json", "mine.json.gz"]


# ---- the command -----------------------------------------------------------------------------------------------------


def run(words, capsys):
    from gpusim.cli import main

    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code, capsys.readouterr()


class CudaError(Exception):
    pass


def fake_cupy(devices, monkeypatch):
    """As much of CuPy as is asked before measuring; ``devices`` is a number or an error."""

    def count():
        if isinstance(devices, Exception):
            raise devices
        return devices

    runtime = types.SimpleNamespace(
        getDeviceCount=count, CUDARuntimeError=CudaError, getDeviceProperties=lambda number: {"name": b"NVIDIA Made Up"}
    )
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=types.SimpleNamespace(runtime=runtime)))


def test_calibrating_without_a_gpu_is_exit_code_3(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cupy", None)
    code, said = run(["calibrate"], capsys)
    assert code == 3 and "pip install 'gpusim[gpu]'" in said.err and said.err.count("\n") == 1
    for devices in (0, CudaError("no device")):
        fake_cupy(devices, monkeypatch)
        code, said = run(["calibrate"], capsys)
        assert code == 3 and "needs an NVIDIA GPU" in said.err and said.err.count("\n") == 1


def test_wrong_use_of_calibrate(monkeypatch, capsys, tmp_path):
    fake_cupy(2, monkeypatch)
    code, said = run(["calibrate", "--device", "2"], capsys)
    assert code == 2 and "--device takes 0 to 1" in said.err
    code, said = run(["calibrate", "--out", str(tmp_path / "none" / "x.json")], capsys)
    assert code == 2 and "is no directory" in said.err


def test_a_sweep_that_fails_leaves_the_others(monkeypatch):
    def broken(gpu):
        yield {"a": 1}
        raise ValueError("no such luck")

    device = types.SimpleNamespace(id=0, attributes={"MultiProcessorCount": 2, "PciBusId": 6})
    runtime = types.SimpleNamespace(getDeviceProperties=lambda number: {"name": b"Made Up", "uuid": b"x"},
                                    runtimeGetVersion=lambda: 13000)  # fmt: skip
    cupy = types.SimpleNamespace(
        __version__="0",
        cuda=types.SimpleNamespace(Device=lambda: device, runtime=runtime),
        get_default_memory_pool=lambda: types.SimpleNamespace(free_all_blocks=lambda: None),
    )
    monkeypatch.setattr(sweeps, "Gpu", lambda *args: None)
    monkeypatch.setattr(calibrate, "SWEEPS", {"broken": broken, "whole": lambda gpu: iter([{"b": 2}])})
    monkeypatch.setattr(calibrate, "clocks_now", lambda cupy: {})
    saved, told = [], []
    content = calibrate.measure(cupy, None, {}, lambda c: saved.append(len(c["sweeps"])), lambda *a: told.append(a[:2]))
    assert content["sweeps"] == {"broken": [{"a": 1}], "whole": [{"b": 2}]}
    assert "no such luck" in content["failed"]["broken"] and "whole" not in content["failed"]
    assert saved == [1, 2, 2] and told == [("broken", 1), ("whole", 1)]
    assert content["hardware"] == {
        "name": "Made Up", "attributes": {"MultiProcessorCount": 2}, "properties": {"name": "Made Up"},
    }  # fmt: skip


def test_plans_for_a_machine_without_gpusim(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(sweeps, "KERNELS", {"launch": ("empty", "empty_registers<32>")})
    assert plan.main(["calibrate", str(tmp_path / "all")]) == 0
    content = json.loads((tmp_path / "all" / "plan.json").read_text())
    cubin = gpusim.load(tmp_path / "all" / content["cubins"]["launch"])
    assert cubin[content["lowered"]["empty_registers<32>"]].function.registers > 32 and cubin["empty"]
    assert plan.main(["catalogue", str(tmp_path / "banks"), "--family", "banks"]) == 0
    content = json.loads((tmp_path / "banks" / "plan.json").read_text())
    assert {launch["family"] for launch in content["launches"]} == {"banks"} and set(content["cubins"]) == {"banks"}
    with pytest.raises(SystemExit):
        plan.main(["catalogue", str(tmp_path), "--family", "bank"])
    assert "no family is called bank" in capsys.readouterr().err


@pytest.mark.gpu
def test_the_gpu_is_measured(tmp_path, capsys):
    pytest.importorskip("cupy")
    code, said = run(["calibrate", "--out", str(tmp_path / "here.json")], capsys)
    assert code == 0 and "latency_l1_hit" in said.out
    found = profiles.load(tmp_path / "here.json")
    assert {name for name, *_ in constants.everything()} <= set(found)
