"""Every arithmetic form on edge operands against an H200, bit for bit (recording ``data/h200_edges.npz.xz``)."""

from __future__ import annotations

import pytest

from tests.edges.case import Case
from tests.edges.cases import all_cases
from tests.edges.plan import digest
from tests.edges.recording import differences, header

CASES = [case for cases in all_cases().values() for case in cases]
# What differs, and why: measured, not resolved.
DIFFERENT: dict[str, str] = {}


def _parameter(case: Case) -> object:
    reason = DIFFERENT.get(case.name)
    marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
    return pytest.param(case, id=f"{case.family}-{case.name}", marks=marks)


@pytest.mark.parametrize("case", [_parameter(case) for case in CASES])
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
