"""Bytes, hits and stalls of the pipeline model beside what Nsight Compute counted on an H200, caches flushed before.

``tests/data/h200_hardware.json.gz``: ``python runner/record.py PLAN OUT --hardware``, and ``--stalls``, on launches of
the catalogue that fill the chip.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import gpusim
from gpusim import kernels
from gpusim.timing import pipeline
from gpusim.timing.model import model_of

pytest.importorskip("numba")
DATA = json.loads(gzip.decompress((Path(__file__).parents[1] / "data" / "h200_hardware.json.gz").read_bytes()))
LEAST = 10e6  # bytes that are worth a comparison
QUICK = {"scale/33554432/0", "shuffle_down/33554432/0", "access_stride_4/33554432/0", "softmax_smem/65536/0"}
# what the model does not know of these: see docs/prediction.md
BLIND_READS = {
    "access_gather_permutation": "lines that are used again much later",
    "hist_global": "contended atomics", "hist_global_random": "contended atomics",
    "hist_global_constant": "contended atomics", "hist_signed_bug": "contended atomics",
    "matmul_naive": "reuse between waves", "matmul_smem": "reuse between waves",
    "matmul_thread_tile": "reuse between waves", "matmul_vec4": "reuse between waves",
    "matmul_double_buffer_naive": "reuse between waves", "matmul_double_buffer": "reuse between waves",
    "matmul_warp_tile": "reuse between waves", "matmul_naive_swapped": "reuse between waves",
    "softmax_naive": "conflicts of rows in L2", "softmax_naive_1024": "conflicts of rows in L2",
    "reduce_global": "an instruction's later turns in a loop count as its first",
    "softmax_online_1024": "hits in L1 of rows just read",
}  # fmt: skip

# a second pass over as many rows as just fit: the hardware finds almost none of them, least recently used a quarter
HITS = {"softmax_online_1024": 0.25}


def simulated(name: str) -> tuple[pipeline.Simulation, float]:
    """The simulation of a recorded launch, and what its counts are multiplied by for the whole grid, in bytes."""
    case_name, size, number = name.split("/")
    case = kernels.find(case_name)
    problem = case.build(int(size))
    launch = problem.launches[int(number)]
    args = [problem.buffers[a] if isinstance(a, str) else a for a in launch.args]
    kernel = gpusim.compile(str(case.source), arch="sm_90", names=case.names)[launch.kernel]
    model = model_of("h200")
    seen = pipeline.follow_launch(kernel.prepare(launch.grid, launch.block, args, launch.shared_bytes), 132)
    sim = pipeline.simulate(seen, model, "cold")
    return sim, 32.0 * min(132, seen.blocks) * max(1.0, sim.share / sim.blocks)


def marked(names: Any) -> list[Any]:
    return [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.exhaustive]) for n in sorted(names)]


@pytest.mark.parametrize("name", marked(n for n in DATA["memory"] if "/4096/" not in n))
def test_bytes(name: str) -> None:
    metrics = DATA["memory"][name]
    sim, scale = simulated(name)
    loads = sim.counts["l1_hits"] + sim.counts["l2_reads"]
    recorded = metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
    if recorded > 1e6 and not name.startswith("matmul"):
        hits = metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum"] / recorded
        assert sim.counts["l1_hits"] / loads == pytest.approx(hits, abs=HITS.get(name.split("/")[0], 0.2))
    reads = metrics["dram__bytes_read.sum"]
    if reads < LEAST:
        return
    if name.split("/")[0] in BLIND_READS:
        pytest.xfail(BLIND_READS[name.split("/")[0]])
    assert sim.counts["dram_read"] * scale == pytest.approx(reads, rel=0.07)
    # what is written stays in L2 in part, and is written back by whoever comes next
    writes = metrics["dram__bytes_write.sum"]
    if writes < LEAST:
        return
    assert writes * 0.9 <= sim.counts["dram_write"] * scale <= writes + 40e6


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(n for n in DATA["stalls"] if "/4096/" not in n and "naive" not in n))
def test_warps_wait_for_the_same(name: str) -> None:
    """The reason that warps wait for most is among the model's first three."""
    metrics = DATA["stalls"][name]
    prefix, suffix = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
    ours = {
        "long_scoreboard": "long_scoreboard", "short_scoreboard": "short_scoreboard", "barrier": "barrier",
        "wait": "fixed", "math_pipe_throttle": "math_pipe", "mio_throttle": "lsu_queue", "lg_throttle": "lsu_queue",
        "selected": "selected", "not_selected": "not_selected",
    }  # fmt: skip
    shares: dict[str, float] = {}
    for reason, mine in ours.items():
        shares[mine] = shares.get(mine, 0.0) + metrics[f"{prefix}{reason}{suffix}"]
    sim, _ = simulated(name)
    first = max(shares, key=lambda k: shares[k])
    # warps that could issue but were not selected are part of what the model says of a busy pipe
    found = sorted(sim.waits, key=lambda k: -sim.waits[k])[:3]
    assert first in found or (first == "not_selected" and "math_pipe" in found)
