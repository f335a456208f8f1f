"""Streams of warps are what the counters count: every instruction as often, every access at the same cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim import kernels
from gpusim.sass.form import MemoryOp
from gpusim.timing import tracing
from gpusim.timing.codes import Control

CASES = [
    case
    for family, cases in kernels.families().items()
    for case in cases
    if not case.hangs and family not in ("transfers", "calibrate") and case.name != "counter_race"
]


def modules() -> Any:
    cache: dict[Any, Any] = {}

    def module(case: kernels.Case) -> Any:
        if case.source not in cache:
            names = [n for c in CASES if c.source == case.source for n in c.names]
            cache[case.source] = gpusim.compile(str(case.source), arch="sm_90", names=names)
        return cache[case.source]

    return module


module_of = modules()


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_streams_are_what_is_counted(case: kernels.Case) -> None:
    problem = case.build(min(case.small_sizes, key=lambda n: abs(n - 500)))
    launch = problem.launches[0]
    args = [problem.buffers[a] if isinstance(a, str) else a for a in launch.args]
    kernel = module_of(case)[launch.kernel]
    counted = kernel.count(launch.grid, launch.block, args, launch.shared_bytes)
    ready = kernel.prepare(launch.grid, launch.block, args, launch.shared_bytes)
    total = int(np.prod(launch.grid))
    streams = tracing.follow(ready, np.arange(total))
    assert streams.complete
    rows = counted.instructions
    executed = np.bincount(streams.ops, minlength=len(rows))
    assert executed.tolist() == [row.executed for row in rows]
    used = streams.accesses >= 0
    record, op = streams.accesses[used], streams.ops[used]
    for index, meaning in enumerate(kernel.program.meanings):
        if not isinstance(meaning, MemoryOp) or meaning.operation == "async_copy":
            continue
        mine = record[op == index]
        spaces = set(streams.records.space[mine].tolist())
        if spaces == {0} and meaning.space == "shared":
            assert streams.records.wavefronts[mine].sum() == rows[index].wavefronts, rows[index].sass
        if spaces == {1} and meaning.space == "global":
            take = np.repeat(streams.records.first[mine], streams.records.count[mine])
            ends = np.cumsum(streams.records.count[mine])
            take = (
                take + np.arange(len(take)) - np.repeat(ends - streams.records.count[mine], streams.records.count[mine])
            )
            bits = streams.records.sectors[take].astype(int)
            sectors = sum(int((bits >> k & 1).sum()) for k in range(4))
            assert sectors == rows[index].sectors, rows[index].sass
            assert streams.records.count[mine].sum() == rows[index].tags, rows[index].sass


def test_blocks_are_apart() -> None:
    module = gpusim.compile(
        'extern "C" __global__ void k(int* x) { int i = blockIdx.x * 64 + threadIdx.x; if (blockIdx.x % 2) x[i] += 1; }'
    )
    x = np.zeros(64 * 8, np.int32)
    ready = module["k"].prepare(8, 64, [x])
    streams = tracing.follow(ready, np.array([1, 4, 7]))
    lengths = np.diff(streams.start)
    assert streams.block.tolist() == [0, 0, 1, 1, 2, 2]
    assert lengths[0] == lengths[1] == lengths[4] and lengths[2] < lengths[0]
    assert not x.any()  # nothing is written


def test_following_stops() -> None:
    module = gpusim.compile('extern "C" __global__ void k(float* x, int n) { for (int i = 0; i < n; ++i) x[i] = i; }')
    ready = module["k"].prepare(1, 32, [np.zeros(4096, np.float32), np.int32(4096)])
    whole = tracing.follow(ready, np.array([0]))
    part = tracing.follow(ready, np.array([0]), most=500)
    assert whole.complete and not part.complete
    assert part.issued < 1000 < whole.issued
    assert (part.ops == whole.ops[: len(part.ops)]).all()


def test_control_bits() -> None:
    """A consumer waits for the scoreboard that the load before it sets."""
    module = gpusim.compile(
        'extern "C" __global__ void k(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] * 2; }'
    )
    instructions = module["k"].program.instructions
    load = next(i for i in instructions if i.opcode == "LDG")
    board = Control.of(load.encoding).write_scoreboard
    assert 0 <= board <= 5
    register = load.operands[0]
    after = [i for i in instructions if i.address > load.address]
    user = next(i for i in after if register in i.operands[1:])
    waiting = [Control.of(i.encoding).wait >> board & 1 for i in after if i.address <= user.address]
    assert any(waiting)
    assert not any(Control.of(i.encoding).wait >> board & 1 for i in instructions if i.address <= load.address)
    assert all(0 <= Control.of(i.encoding).stall <= 15 for i in instructions)
