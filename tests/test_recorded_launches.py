"""Whole kernels against an H200: results bit for bit, Nsight Compute's totals, and its counts of every instruction.

The recordings (``data/h200_*.json.gz``, written by ``gpusim.runner.record``) hold the cubins, the launches and the
answers, so the same machine code is executed here.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.machine import chunk
from gpusim.runner.replay import make_buffer

DATA = Path(__file__).parent / "data"
RECORDINGS = (
    "h200_catalogue", "h200_control", "h200_groups", "h200_flow", "h200_flow_more", "h200_flow_barriers",
    "h200_locks", "h200_calls", "h200_barriers", "h200_mbarrier", "h200_flow_held",
    "h200_transfers", "h200_calibrate", "h200_unseen", "h200_unseen_more", "h200_unseen_fourth", "h200_moves",
)  # fmt: skip

# The plain hardware counter of conflicts also sees arbitration between warps, a few events that change from run to run;
# the instrumented counters repeat exactly.
NOISY = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_"
# Not comparable bit by bit: the order in which float atomics of different blocks arrive is not fixed; an exchange with
# lanes that do not exist, and a word of shared memory that nobody wrote, give anything.
UNDEFINED = {
    "reduce_vec4/100000/0", "reduce_vec4/1048576/0", "half_shuffle/33", "syncwarp_loop/33",
    "swap_halves/33", "swap_halves/16", "dot4/262144/0",
}  # fmt: skip
CLOCKS = {"stamps", "ring"}  # buffers with clock readings, and with addresses
RACES = ("counter_race/",)  # what is lost depends on timing
# Which lanes hold two locks at the same time, and so share a store, differed from pass to pass of the profiler.
WINNERS = {"lock_inside/locks/4"}

# What the model of divergence does not decide; a result of such a launch says so itself.
UNDECIDED = {
    "and_or_nested", "async_copy", "call_loop", "indirect_loop", "loop_break", "loop_return", "loop_states",
    "or_and_loop", "recurse_bits", "recurse_mutual", "recursion_by_pointer", "switch_loop",
    "moves_95", "moves_105", "moves_132",
}  # fmt: skip
# Lanes that return from different depths of recursion together do so otherwise when the code is instrumented than when
# the plain hardware counters are read; the first is what is modelled.
PLAIN = "l1tex__t_requests_pipe_lsu_mem_global_op_"
DEPTHS = {
    "recursion", "recursion_twice", "recurse_one", "recurse_two", "recurse_tree", "recurse_bits", "recurse_loop",
}  # fmt: skip
# Loads of the module's own variables (tables of virtual functions): the lines depend on where the driver puts them.
PLACED = ("virtual_by_lane/",)

# Transaction counts of asynchronous barriers are not simulated.
REFUSED = {"k_expect"}

SPACES = {
    "tags": ("global", "generic"),
    "sectors": ("global", "generic"),
    "sectors_ideal": ("global", "generic"),
    "wavefronts": ("shared", "generic"),
    "wavefronts_ideal": ("shared", "generic"),
}


@cache
def recording(name: str) -> dict[str, Any]:
    with gzip.open(DATA / f"{name}.json.gz", "rt") as stream:
        return json.load(stream)


@cache
def module(name: str, cubin: str) -> gpusim.Module:
    return gpusim.load(base64.b64decode(recording(name)["plan"]["cubins"][cubin]))


def groups() -> Iterator[Any]:
    """Launches that share buffers, as test parameters."""
    for name in RECORDINGS:
        found: dict[str, list[int]] = {}
        for number, launch in enumerate(recording(name)["plan"]["launches"]):
            found.setdefault(launch.get("group", launch["id"]), []).append(number)
        for group, numbers in found.items():
            yield pytest.param(name, numbers, id=f"{name.removeprefix('h200_')}-{group}")


def compare_launch(result: gpusim.Result, answer: dict[str, Any]) -> list[str]:
    """What differs from the hardware; of some launches only results or totals were recorded."""
    wrong: list[str] = []
    if "metrics" not in answer:
        return wrong
    placed = answer["id"].startswith(PLACED)
    for name, hardware in answer["metrics"].items():
        simulated = result.metrics.get(name)
        if simulated is None or name.startswith("launch__") or (placed and "tags" in name):
            continue
        if simulated != hardware and not (name.startswith(NOISY) and hardware > simulated):
            wrong.append(f"{name}: {simulated}, hardware {hardware}")
    if answer["count"] != len(result.instructions):
        wrong.append(f"{len(result.instructions)} instructions, hardware {answer['count']}")
    columns = ("executed", "thread_executed", "predicated_on", "divergent", "sectors_local", *SPACES)
    for column in columns if "instructions" in answer else ():
        recorded = answer["instructions"].get(column, [0] * answer["count"])
        local = answer["instructions"].get("sectors_local", [0] * answer["count"])
        for instruction, hardware, inside in zip(result.instructions, recorded, local, strict=True):
            simulated = value_of(instruction, column)
            if instruction.space == "generic" and inside:  # one number here for what went to local and global memory
                if column.startswith("sectors_"):
                    continue
                hardware += inside if column == "sectors" else 0
            if placed and column == "tags":
                continue
            if simulated != hardware:
                at = f"{instruction.address:#06x} {instruction.sass}"
                wrong.append(f"{at} {column}: {simulated}, hardware {hardware}")
    return wrong


def value_of(instruction: gpusim.InstructionCounts, column: str) -> int:
    """The simulator's number for a column of Nsight Compute's source page."""
    if column == "sectors_local":
        return instruction.sectors if instruction.space == "local" else 0
    if column in SPACES and instruction.space not in SPACES[column]:
        return 0
    return int(getattr(instruction, column))


@pytest.mark.parametrize(("name", "numbers"), list(groups()))
def test_results_totals_and_instructions_equal_the_hardware(name, numbers):
    compare(name, numbers)


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "numbers"), list(groups()))
def test_the_same_with_addresses_kept_as_sums(name, numbers, monkeypatch):
    """As large launches keep them, a part by block and one by thread; only threads' number decides."""
    monkeypatch.setattr(chunk, "PLAIN", 0)
    compare(name, numbers)


def compare(name: str, numbers: list[int]) -> None:
    """Execute and count recorded launches that share buffers; fails where anything differs from the hardware."""
    record = recording(name)
    buffers: dict[str, np.ndarray] = {}
    wrong = []
    for number in numbers:
        launch, answer = record["plan"]["launches"][number], record["launches"][number]
        args: list[Any] = []
        for spec in launch["args"]:
            if "scalar" in spec:
                args.append(np.dtype(spec["scalar"]).type(spec["value"]))
            else:
                if spec["buffer"] not in buffers:
                    buffers[spec["buffer"]] = make_buffer(spec)
                args.append(buffers[spec["buffer"]])
        kernel = module(name, launch["cubin"])[launch["kernel"]]
        if launch["kernel"] in REFUSED:
            with pytest.raises(gpusim.UnsupportedError, match="expect_tx"):
                kernel.launch(launch["grid"], launch["block"], args, launch["shared"])
            return
        counted = kernel.count(launch["grid"], launch["block"], args, launch["shared"])
        result = kernel.launch(launch["grid"], launch["block"], args, launch["shared"])
        differences = compare_launch(result, answer)
        differences += [f"counting: {what}" for what in compare_launch(counted, answer)]
        if launch["kernel"] in DEPTHS and result.caveats:
            differences = [text for text in differences if not text.removeprefix("counting: ").startswith(PLAIN)]
        if launch["id"] in WINNERS:
            differences = [text for text in differences if " sectors: " not in text]
        wrong += differences
        if launch["id"] not in UNDEFINED and not launch["id"].startswith(RACES):
            for key, digest in answer["results"].items():
                if key in CLOCKS:
                    continue
                found = hashlib.sha256(buffers[key].tobytes()).hexdigest()[:32]
                assert found == digest, f"the contents of {key} differ from the hardware's"
    kernel_name = record["plan"]["launches"][numbers[0]]["kernel"]
    if wrong and kernel_name in UNDECIDED and result.caveats:
        pytest.xfail(result.caveats[0])
    assert not wrong, "\n".join(wrong[:20])


def test_recordings_say_where_they_come_from():
    for name in RECORDINGS:
        header = recording(name)["header"]
        assert header["device"] == "NVIDIA H200"
        assert header["driver"] and header["ncu"] and header["date"] and header["command"]


@pytest.mark.parametrize("family", sorted(kernels.families()))
def test_the_compiler_still_makes_the_recorded_code(family):
    """The committed sources compile to the recorded machine code, so the catalogue's counts are the hardware's."""
    for case in kernels.families()[family]:
        made = gpusim.compile(case.source, arch="sm_90", options=case.options, names=case.names)
        own = family in ("transfers", "calibrate")
        recorded = module(f"h200_{family}" if own else "h200_catalogue", case.source.stem)
        for kernel in case.names:
            function = made[kernel].function
            assert function.code_sha256 == recorded[function.name].function.code_sha256, f"{case.name}: {kernel}"


@pytest.mark.parametrize(("source", "name"), [("flow", "h200_flow"), ("locks", "h200_locks")])
def test_the_compiler_still_makes_the_recorded_kernels_that_diverge(source, name):
    made = gpusim.compile(Path(__file__).parent / "kernels" / f"{source}.cu", arch="sm_90")
    for launch in recording(name)["plan"]["launches"]:
        kernel = launch["kernel"]
        assert made[kernel].function.code_sha256 == module(name, source)[kernel].function.code_sha256, kernel
