"""Findings: each kind on a kernel that shows it, with numbers that follow from the access pattern."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.explain.findings import Finding, find
from gpusim.explain.names import accessed_array
from gpusim.explain.padding import best_padding
from gpusim.explain.patterns import Pattern

SOURCE = """\
struct Particle { float x, y, z, mass; };
extern "C" __global__ void aos(float *out, const Particle *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i].mass;
}
extern "C" __global__ void shifted(float *out, const float *in) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i + 1];
}
extern "C" __global__ void gather(float *out, const float *in, const int *where) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[where[i]];
}
extern "C" __global__ void local_array(int *out, const int *in) {
    int a[64];
    for (int k = 0; k < 64; k++) a[k] = k;
    for (int k = 0; k < in[500]; k++) a[in[k] & 63] += in[k + 1];
    out[threadIdx.x] = a[in[threadIdx.x] & 63];
}
extern "C" __global__ void diverge(float *out, const float *in) {
    int i = threadIdx.x;
    float v = in[i];
    if (i & 1) { for (int k = 0; k < 20; k++) v = v * in[k] + out[k]; }
    else { for (int k = 0; k < 30; k++) v = v * out[k] - in[k]; }
    out[i + 64] = v;
}
extern "C" __global__ void plain(float *out) { out[blockIdx.x * blockDim.x + threadIdx.x] = 1; }
extern "C" __global__ void bins(int *out, const int *in) {
    __shared__ int counts[64];
    counts[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&counts[in[threadIdx.x]], in[threadIdx.x]);
    __syncthreads();
    atomicMax(&out[in[threadIdx.x]], counts[threadIdx.x]);
}
extern "C" __global__ void large(float *out) {
    __shared__ float tile[12000];
    tile[threadIdx.x] = out[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[threadIdx.x ^ 1];
}
extern "C" __global__ void columns(double *out) {
    __shared__ double tile[32][32];
    tile[threadIdx.y][threadIdx.x] = out[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


@pytest.fixture(scope="module")
def module() -> gpusim.Module:
    return gpusim.compile(SOURCE, filename="findings.cu")


def found(module: gpusim.Module, kernel: str, grid: Any, block: Any, *args: Any) -> dict[str, Finding]:
    """The findings of a launch by kind."""
    result = module[kernel].launch(grid, block, args)
    findings = find(result)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)
    assert all(0 < severity <= 1 for severity in severities)
    assert [finding["title"] for finding in result.findings] == [finding.title for finding in findings]
    return {finding.id: finding for finding in findings}


def floats(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


def test_array_of_structures(module):
    finding = found(module, "aos", 2, 64, floats(128), floats(512))["uncoalesced"]
    assert finding.title == "Global loads of in touch 16 sectors a request where 4 would do"
    assert (finding.line, finding.cost["excess"]) == (4, 4 * 12)
    assert finding.severity == pytest.approx(12 / 20)
    assert "each lane lies 16 bytes from the one before" in finding.detail
    assert "a lane takes 4 of every 16" in finding.advice


def test_misaligned(module):
    finding = found(module, "shifted", 2, 64, floats(128), floats(129))["misaligned"]
    assert finding.title == (
        "Global loads of in touch 5 sectors a request where 4 would do: they do not start at a sector boundary"
    )
    assert "start 4 bytes into a sector" in finding.detail
    assert finding.severity == pytest.approx(1 / 9)


def test_gather(module):
    where = np.random.default_rng(1).permutation(4096).astype(np.int32)[:128]
    finding = found(module, "gather", 2, 64, floats(128), floats(4096), where)["uncoalesced"]
    assert finding.title.startswith("Global loads touch 3") and finding.cost["requests"] == 4
    assert "follow no fixed step" in finding.advice


def test_local_memory(module):
    numbers = np.full(512, 6, np.int32)
    finding = found(module, "local_array", 1, 32, np.zeros(32, np.int32), numbers)["local_memory"]
    assert "a thread keeps 256 bytes there" in finding.detail
    assert "Local memory takes" in finding.title
    assert finding.advice.startswith("Registers cannot be indexed")
    assert finding.cost["indexed"] == 13  # six times a load and a store, and the load at the end


def test_divergence_and_idle_lanes(module):
    findings = found(module, "diverge", 1, 64, floats(128), floats(64))
    branch = findings["divergent_branch"]
    assert branch.title == "A branch splits 100 % of the warps that reach it"
    assert branch.line is not None and "if (i & 1)" in SOURCE.splitlines()[branch.line - 1]
    idle = findings["idle_lanes"]
    assert "executions of branches split a warp" in idle.detail
    assert 0.3 < idle.severity < 0.5


def test_block_that_is_no_multiple_of_a_warp(module):
    finding = found(module, "plain", 4, 40, floats(160))["idle_lanes"]
    assert finding.title == "Warps run with 20 of 32 lanes on average"
    assert "A block of 40 threads leaves 24 lanes of its last warp empty." in finding.detail
    assert finding.advice == "Use a multiple of 32 threads a block, for example 64."


def test_half_occupancy_is_not_low(module):
    assert module["plain"].launch(4, 32, [floats(128)]).occupancy.percent == 50
    assert found(module, "plain", 4, 32, floats(128)) == {}


def test_low_occupancy_by_shared_memory(module):
    finding = found(module, "large", 1, 64, floats(64))["low_occupancy"]
    assert finding.title.endswith("can be resident on a multiprocessor, limited by shared memory")
    assert finding.advice.startswith("Use less shared memory a block")


def test_conflicts_of_wide_elements(module):
    finding = found(module, "columns", 1, (32, 32), np.ones(1024))["bank_conflict"]
    assert finding.title == "Shared loads of tile take 32 wavefronts where 2 would do (16-way bank conflict)"
    assert "rows of 66 words would take 2 wavefronts" in finding.advice


def test_clean_kernel_has_no_finding(module):
    assert found(module, "plain", 2, 128, floats(256)) == {}


def test_atomics_on_one_address(module):
    result = module["bins"].launch(1, 64, [np.zeros(64, np.int32), np.full(64, 5, np.int32)])
    findings = [finding for finding in find(result) if finding.id == "atomic_contention"]
    for finding in findings:
        assert "32 lanes name 1 address." in finding.detail and finding.advice.startswith("Combine before the atomic")
    assert [f.title for f in findings if f.title.startswith("Shared")] == [
        "Shared atomics of counts take 32 wavefronts a request where 1 would do"
    ]


# ---- padding --------------------------------------------------------------------------------------------------------


def column(pitch: int, rows: int = 32, columns: int = 1) -> Pattern:
    words = [lane % rows * pitch + lane // rows for lane in range(rows * columns)]
    return Pattern("shared", 4, 1024, tuple(4 * word for word in words))


@pytest.mark.parametrize(
    ("pattern", "better", "tried"),
    [
        (column(32), 33, {}),
        (column(64), 65, {}),
        (column(48), 49, {}),
        (column(32, 16, 2), 34, {33: 2}),
        (column(33, 16, 2), 34, {}),
    ],
)
def test_least_padding(pattern, better, tried):
    padding = best_padding(pattern, "load")
    assert padding is not None
    assert (padding.better, padding.better_wavefronts, padding.tried) == (better, 1, tried)


def test_swizzle_is_offered_where_it_works():
    whole, halves = best_padding(column(32), "load"), best_padding(column(32, 16, 2), "load")
    assert whole is not None and whole.swizzled == 1
    assert halves is not None and halves.swizzled == 2


def test_no_padding_where_it_cannot_help():
    assert best_padding(column(33), "load") is None  # no conflict
    assert best_padding(column(2), "load") is None  # a stride, not a row
    scattered = Pattern("shared", 4, 0, tuple(4 * ((lane * lane * 7) % 97) for lane in range(32)))
    assert best_padding(scattered, "load") is None
    assert best_padding(column(32), "atomic") is None


# ---- names ----------------------------------------------------------------------------------------------------------

LINES = """\
__global__ void k(float *out, const float *__restrict__ in, int n) {
    __shared__ float As[32], Bs[32];
    extern __shared__ int dynamic[];
    out[x * n + y] = in[y * n + x];  // in[0]
    As[x] = in[x];
    out[x] = As[x] * Bs[y];
    out[x] += 1;
    dynamic[x] = dynamic[y];
}""".splitlines()


@pytest.mark.parametrize(
    ("line", "space", "operation", "name"),
    [
        (4, "global", "store", "out"),
        (4, "global", "load", "in"),
        (4, "shared", "load", None),
        (5, "shared", "store", "As"),
        (5, "global", "load", "in"),
        (6, "global", "store", "out"),
        (7, "global", "load", "out"),
        (8, "shared", "load", "dynamic"),
        (8, "global", "load", None),
        (99, "global", "load", None),
        (None, "global", "load", None),
    ],
)
def test_names_of_arrays(line, space, operation, name):
    assert accessed_array(LINES, line, space, operation) == name
