"""Every arithmetic form on edge operands against an H200, bit for bit (recording ``data/h200_edges.npz.xz``)."""

from __future__ import annotations

import pytest

from tests.edges.cases import all_cases
from tests.edges.coverage import functions_never_reached
from tests.edges.plan import digest
from tests.edges.recording import differences, header

CASES = [case for cases in all_cases().values() for case in cases]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{case.family}-{case.name}") for case in CASES])
def test_results_equal_the_hardware_bit_for_bit(case):
    wrong = differences(case)
    assert not wrong, "\n".join(wrong)


def test_the_recording_is_of_these_cases():
    assert header()["plan"]["digest"] == digest()
    assert header()["failed"] == {}
    assert [launch["id"] for launch in header()["plan"]["launches"]] == [case.name for case in CASES]


def test_the_recording_says_where_it_comes_from():
    assert header()["device"] == "NVIDIA H200"
    assert all(header()[key] for key in ("driver", "date", "command"))
    assert header()["plan"]["nvrtc"]


def test_every_function_of_an_arithmetic_opcode_is_reached():
    """LEPC is refused. What U... opcodes and those of other architectures do is their reached namesake's function."""
    assert functions_never_reached() == {"LEPC"}
