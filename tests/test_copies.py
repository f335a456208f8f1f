"""Asynchronous copies with a source size, around L1 and through it (kernels/copies.cu), against an H200 and NumPy."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.counters import rules
from gpusim.runner.replay import make_buffer

HERE = Path(__file__).parent
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldgsts.sum"  # modelled, see docs/what-is-modelled.md
WAVEFRONTS = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"


@cache
def recording() -> dict[str, Any]:
    with gzip.open(HERE / "data" / "h200_copies.json.gz", "rt") as stream:
        return json.load(stream)


@cache
def recorded_module() -> gpusim.Module:
    return gpusim.load(base64.b64decode(recording()["plan"]["cubins"]["copies"]))


@cache
def module(arch: str) -> gpusim.Module:
    return gpusim.compile(HERE / "kernels" / "copies.cu", arch=arch)


KERNELS = sorted({launch["kernel"] for launch in recording()["plan"]["launches"]})


def overlaps(buffers: dict[str, np.ndarray]) -> bool:
    """Whether the second copy of two_cg16 writes where the first one does: which of them is last is open."""
    place = (buffers["where"] & 0xFFFF).astype(np.int64)
    second = (place ^ 512)[buffers["sizes"] > 0]
    return bool((abs(place[:, None] - second[None]) < 16).any())


@pytest.mark.parametrize("kernel", KERNELS)
def test_contents_and_counters_equal_the_hardware(kernel):
    certain = 0
    for launch, answer in zip(recording()["plan"]["launches"], recording()["launches"], strict=True):
        if launch["kernel"] != kernel:
            continue
        buffers = {spec["buffer"]: make_buffer(spec) for spec in launch["args"]}
        result = recorded_module()[kernel].launch(
            launch["grid"], launch["block"], list(buffers.values()), launch["shared"]
        )
        if kernel != "two_cg16" or not overlaps(buffers):
            digest = hashlib.sha256(buffers["result"].tobytes()).hexdigest()[:32]
            assert digest == answer["results"]["result"], launch["id"]
        for name, hardware in answer["metrics"].items():
            simulated = result.metrics.get(name, hardware)
            if name == CONFLICTS or (name == WAVEFRONTS and result.caveats):
                continue
            assert simulated == hardware, (launch["id"], name)
        if result.caveats and "guard" not in kernel and kernel not in ("two_cg16", "gsize_cg16"):
            assert result.metrics[WAVEFRONTS] <= answer["metrics"][WAVEFRONTS]
        certain += not result.caveats
    without = ("guard_cg16", "two_cg16", "gsize_cg16", "plain_ca8", "plain_ca4")
    assert (certain > 0) == (kernel not in without)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("kernel", "width"), [("size_cg16", 16), ("size_ca16", 16), ("size_ca8", 8), ("size_ca4", 4)])
def test_bytes_beyond_the_source_size_are_zeros(kernel, width, arch):
    rng = np.random.default_rng(width)
    source = rng.integers(0, 256, 4096, np.uint8)
    for _ in range(4):
        target, origin = rng.permutation(1024 // width)[:32] * width, rng.integers(0, 4096 // width, 32) * width
        sizes = rng.integers(0, width + 1, 32).astype(np.uint32)
        sizes[:2] = 0, width
        shared = np.full(2048, 0xAA, np.uint8)
        for at, start, size in zip(target, origin, sizes, strict=True):
            shared[at : at + width] = 0
            shared[at : at + size] = source[start : start + size]
        out = np.zeros(256, np.uint32)
        where = (target | origin << 16).astype(np.uint32)
        module(arch)[kernel].launch(1, 32, [where, sizes, source, out], 2048)
        assert out.tobytes() == shared[:1024].tobytes()


def test_what_is_not_read_need_not_exist():
    """The last bytes of a buffer that ends between two multiples of 16."""
    kernel = module("sm_90")["size_cg16"]
    source, out = np.arange(100, dtype=np.uint8), np.zeros(256, np.uint32)
    where, sizes = np.arange(32, dtype=np.uint32) * 16, np.zeros(32, np.uint32)
    where[0] |= 96 << 16
    sizes[0] = 4
    kernel.launch(1, 32, [where, sizes, source, out], 2048)
    assert out[0] == int.from_bytes(bytes([96, 97, 98, 99]), "little") and not out[1:4].any()
    sizes[0] = 5
    with pytest.raises(gpusim.ExecutionError, match="outside every buffer"):
        kernel.launch(1, 32, [where, sizes, source, out], 2048)


def plainly(target: np.ndarray, origin: np.ndarray, active: np.ndarray) -> tuple[int, int]:
    """The rule of rules_copy for one warp, in plain Python: (wavefronts, sectors)."""
    units: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for to, source, on in zip(target.tolist(), origin.tolist(), active, strict=True):
        if on:
            units.setdefault((source // 32, to // 32), set()).add((source // 16 % 2, to // 16 % 2))
    sectors, segments = [unit[0] for unit in units], [unit[1] for unit in units]
    if len(set(sectors)) < len(units) or len(set(segments)) < len(units):
        return int(active.sum()), int(active.sum())
    together = set()
    for (sector, segment), halves in units.items():
        reads, writes = frozenset(h[0] for h in halves), frozenset(h[1] for h in halves)
        together.add((sector // 4, segment // 4, reads, writes))
    return len(together), len(units)


def test_the_rule_around_l1_is_the_plain_one():
    rng = np.random.default_rng(7)
    lane = np.arange(32)
    for trial in range(400):
        spread = int(rng.integers(1, 9))
        target = (lane + rng.integers(0, 3)) * 16 if trial % 2 else rng.permutation(32 * spread)[:32] * 16
        origin = (lane ^ int(rng.integers(0, 32))) * 16 + 16 * int(rng.integers(0, 4)) + (1 << 40)
        if trial % 3 == 0:
            origin = rng.integers(0, 32 * spread, 32) * 16
        active = rng.random(32) < (1.0 if trial % 5 else 0.6)
        rows = target[None], origin[None], active[None]
        found = int(rules.bypass_wavefronts(*rows)[0]), int(rules.bypass_sectors(*rows)[0])
        assert found == plainly(target, origin, active)


def test_blocks_that_copy_alike_are_counted_alike():
    """Many blocks at once and one after the other: the same wavefronts."""
    source = """
    extern "C" __global__ void tiles(const float4 *in, float4 *out)
    {
        __shared__ float4 tile[64];
        unsigned to = (unsigned)__cvta_generic_to_shared(tile + (threadIdx.x * 5) % 64);
        const float4 *from = in + blockIdx.x * 65 + threadIdx.x;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncthreads();
        out[blockIdx.x * 64 + threadIdx.x] = tile[threadIdx.x];
    }"""
    kernel = gpusim.compile(source)["tiles"]
    given, out = np.random.default_rng(0).random((20, 65, 4), np.float32), np.zeros((20, 64, 4), np.float32)
    result = kernel.launch(20, 64, [given, out])
    lane = np.arange(64)
    expected = 0
    for block in range(20):
        for first in (0, 32):
            t = lane[first : first + 32]
            expected += plainly(t * 5 % 64 * 16, (block * 65 + t) * 16, np.ones(32, bool))[0]
    assert result.metrics[WAVEFRONTS] == expected and not result.caveats
    assert (out[:, lane * 5 % 64] == given[:, :64]).all()
