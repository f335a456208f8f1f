"""The comparison with the hardware: what is equal, what fails, and what is only told."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.report import hardware
from gpusim.runner.replay import make_buffer

RECORDING: dict[str, Any] = json.loads(
    gzip.decompress((Path(__file__).parent / "data" / "h200_catalogue.json.gz").read_bytes())
)
NUMBERS = {launch["id"]: k for k, launch in enumerate(RECORDING["plan"]["launches"])}
CHOSEN = (
    "transpose_pad/97/0", "transpose_vec2/1000/0", "reduce_shuffle/1000/0", "hist_shared/4096/0", "diverge_2/1000/0",
    "local_array/1000/0", "ldmatrix_tile/5000/0", "bank_column/1000/0",
)  # fmt: skip
INST = "smsp__sass_inst_executed.sum"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum"


def counted(name: str, how: str = "count") -> tuple[gpusim.Result, dict[str, int], dict[str, list[int]], int]:
    """The simulator's result of a recorded launch; the hardware's totals, columns and number of instructions."""
    launch, answer = RECORDING["plan"]["launches"][NUMBERS[name]], RECORDING["launches"][NUMBERS[name]]
    module = gpusim.load(base64.b64decode(RECORDING["plan"]["cubins"][launch["cubin"]]))
    args = [
        np.dtype(spec["scalar"]).type(spec["value"]) if "scalar" in spec else make_buffer(spec)
        for spec in launch["args"]
    ]
    result = getattr(module[launch["kernel"]], how)(launch["grid"], launch["block"], args, launch["shared"])
    metrics = {}
    for key, value in answer["metrics"].items():
        digits = str(value).replace(",", "")
        if digits.isdigit():
            metrics[key] = int(digits)
    return result, metrics, answer["instructions"], answer["count"]


@pytest.fixture(scope="module")
def one():
    return counted("bank_column/1000/0")


@pytest.mark.parametrize("name", CHOSEN)
def test_recorded_launches_show_no_difference(name):
    found = hardware.compare(*counted(name))
    assert found.differences == []
    states = [row.state for row in found.rows]
    assert states.count("equal") > 40 and set(states) <= {"equal", "absent", "arbitration"}
    assert any(any(ours for ours, _ in each.counts.values()) for each in found.instructions)


def test_a_total_that_differs_is_named(one):
    result, metrics, columns, count = one
    found = hardware.compare(result, metrics | {INST: metrics[INST] + 1}, columns, count)
    assert found.differences == [f"{INST}: {metrics[INST]:,}, hardware {metrics[INST] + 1:,}"]
    assert hardware.compare(result, metrics | {"launch__grid_size": 99}).differences == [
        f"launch__grid_size: {metrics['launch__grid_size']}, hardware 99"
    ]


def test_a_number_of_an_instruction_that_differs_is_named_with_its_place(one):
    result, metrics, columns, count = one
    column = list(columns["wavefronts"])
    at = next(k for k, value in enumerate(column) if value)
    column[at] -= 1
    found = hardware.compare(result, metrics, columns | {"wavefronts": column}, count)
    (text,) = found.differences
    instruction = result.instructions[at]
    assert text.startswith(f"{instruction.address:#06x} {instruction.sass}: wavefronts {column[at] + 1:,}, hardware")
    assert [each.differs for each in found.instructions if each.differs] == [("wavefronts",)]


def test_a_column_that_is_absent_holds_zeros(one):
    result, metrics, columns, count = one
    rest = {name: column for name, column in columns.items() if name != "executed"}
    assert any("executed" in text for text in hardware.compare(result, metrics, rest, count).differences)


def test_another_number_of_instructions_is_a_difference(one):
    result, metrics, columns, count = one
    found = hardware.compare(result, metrics, columns, count + 1)
    assert found.differences == [f"the kernel has {count} instructions, on the hardware {count + 1}"]


def test_a_metric_that_is_not_served_is_no_difference(one):
    result, metrics, _, _ = one
    found = hardware.compare(result, {name: value for name, value in metrics.items() if name != INST})
    assert found.differences == [] and found.instructions is None
    assert next(row for row in found.rows if row.name == INST).state == "absent"


@pytest.mark.parametrize(
    ("more", "state"), [(0, "equal"), (3, "arbitration"), (-1, "differs"), (0.09, "arbitration"), (0.2, "differs")]
)
def test_the_plain_counter_of_conflicts_may_see_some_more(one, more, state):
    result, metrics, _, _ = one
    waves = result.metrics[f"{hardware.WAVEFRONTS}ld.sum"]
    assert waves > 100
    added = more if isinstance(more, int) else int(more * waves)
    found = hardware.compare(result, metrics | {CONFLICTS: result.metrics[CONFLICTS] + added})
    assert next(row for row in found.rows if row.name == CONFLICTS).state == state


def test_what_is_modelled_may_differ(one):
    result, metrics, columns, count = one
    modelled = replace(result, exactness="modelled", caveats=["not certain"])
    shifted = columns | {"executed": [value + 1 for value in columns["executed"]]}
    found = hardware.compare(modelled, metrics | {INST: 1}, shifted, count)
    assert found.differences == [] and found.caveats == ("not certain",)
    assert next(row for row in found.rows if row.name == INST).state == "modelled"
    assert hardware.compare(modelled, metrics | {"launch__grid_size": 99}).differences  # known all the same


@pytest.mark.parametrize("how", ["count", "launch"])
@pytest.mark.parametrize("size", [1, 5000, 100_001])
def test_a_guarded_copy_that_no_lane_makes_is_not_called_exact(size, how):
    """The hardware counts something there all the same."""
    result, metrics, columns, count = counted(f"async_copy/{size}/0", how)
    assert result.exactness == "modelled" and "LDGSTS.BYPASS" in result.caveats[0]
    found = hardware.compare(result, metrics, columns, count)
    assert found.differences == [] and any(row.state == "modelled" for row in found.rows)
    first = next(each for each in found.instructions if each.sass.startswith("LDGSTS"))
    assert first.differs == () and first.counts["sectors"][0] > 0  # a copy without a guard is certain
