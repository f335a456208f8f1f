"""Registers that lanes which do not execute an instruction may still read are kept in those; others need not be."""

import re
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.machine import compiled
from gpusim.machine.codegen import settled

KERNELS = Path(__file__).parent / "kernels"
i32 = np.int32


def names(path: Path) -> list[str]:
    return re.findall(r"^KERNEL\((\w+)\)", path.read_text(), re.MULTILINE)


def outcome(kernel: gpusim.Kernel, seed: int) -> tuple[np.ndarray, dict[str, int]]:
    source = np.random.default_rng(seed).integers(0, 40, 4096).astype(i32)
    out = np.zeros(4096, i32)
    result = kernel.launch(5, 96, [source, out, i32(470)])
    return out, result.metrics


@pytest.mark.parametrize("name", names(KERNELS / "flow.cu") + names(KERNELS / "control.cu"))
def test_keeping_less_changes_nothing(monkeypatch, name):
    """Results and counters are those of an execution that keeps every register in every lane left out."""
    path = next(p for p in (KERNELS / "flow.cu", KERNELS / "control.cu") if name in names(p))
    try:
        usual = outcome(gpusim.compile(path, arch="sm_90")[name], 7)
    except gpusim.GpusimError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(compiled, "liveness_of", lambda program: None)
    kept = outcome(gpusim.compile(path, arch="sm_90")[name], 7)
    assert usual[1] == kept[1]
    assert (usual[0] == kept[0]).all()


def test_halves_that_nothing_reads_are_not_taken_apart():
    lines = ["R[8] = lo(r)", "R[9] = hi(r)", "qR8_1 = r", "x(qR8_1, R[9])", "R[8] = f(1)", "R[9] = f(2)"]
    assert settled(lines) == ["R[9] = hi(r)", "qR8 = r", "x(qR8, R[9])", "R[8] = f(1)", "R[9] = f(2)"]


def test_what_may_not_be_executed_does_not_end_a_value():
    lines = ["R[8] = lo(r)", "if n:", " R[8] = f(1)"]
    assert settled(lines) == lines


def test_names_that_are_read_once_are_dropped():
    lines = ["x((qR2_5 := pair(R[2], R[3])))", "y((qR4_6 := pair(R[4], R[5])), qR4_6)", "qR6_7 = r"]
    assert settled(lines) == ["x(pair(R[2], R[3]))", "y((qR4 := pair(R[4], R[5])), qR4)"]
