"""What zero-filling copies and vector reductions leave in memory, and how copies are counted where warps differ."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim

SOURCE = r"""
extern __shared__ __align__(128) unsigned char arena[];

#define COPY(name, through, condition, ...)                                                                     \
    extern "C" __global__ void name(const unsigned* flags, const uint4* in, uint4* out)                         \
    {                                                                                                           \
        unsigned t = threadIdx.x, b = blockIdx.x * blockDim.x + t;                                              \
        uint4* place = (uint4*)arena + t;                                                                       \
        *place = make_uint4(7, 7, 7, 7);                                                                        \
        asm volatile("{.reg .pred p; setp." condition ".u32 p, %2, 0;\n"                                        \
                     "cp.async." through ".shared.global [%0], [%1], 16" __VA_ARGS__ ";}"                       \
                     ::"r"((unsigned)__cvta_generic_to_shared(place)), "l"(in + b), "r"(flags[b]) : "memory");  \
        asm volatile("cp.async.wait_all;" ::: "memory");                                                        \
        out[b] = *place;                                                                                        \
    }
COPY(copy_all, "cg", "ne", "")
COPY(copy_unless, "ca", "ne", ", p")
COPY(copy_if, "cg", "eq", ", p")

extern "C" __global__ void add_vectors(const unsigned* index, float4* fours, float2* twos, unsigned* halves)
{
    unsigned t = threadIdx.x, i = index[t];
    float x = t + 0.5f;
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %1, %2};" ::"l"(fours + i), "f"(x), "f"(-x) : "memory");
    asm volatile("red.global.add.v2.f32 [%0], {%1, %2};" ::"l"(twos + i), "f"(x), "f"(2 * x) : "memory");
    asm volatile("red.global.add.noftz.f16x2 [%0], %1;" ::"l"(halves + i), "r"(0x3c004000u) : "memory");
}
"""
BLOCKS, THREADS = 3, 64


@pytest.fixture(scope="module")
def module():
    return gpusim.compile(SOURCE)


@pytest.mark.parametrize(
    ("kernel", "reads"),
    [("copy_all", lambda f: f >= 0), ("copy_unless", lambda f: f == 0), ("copy_if", lambda f: f != 0)],
)
def test_lanes_that_do_not_read_write_zeros(module, kernel, reads):
    random = np.random.default_rng(5)
    flags = random.integers(0, 2, BLOCKS * THREADS).astype(np.uint32)
    flags[:32], flags[32:64] = 0, 1
    given = random.integers(1, 2**32, (BLOCKS * THREADS, 4), dtype=np.uint32)
    found = np.zeros_like(given)
    result = module[kernel].launch(BLOCKS, THREADS, [flags, given, found], THREADS * 16)
    reading = reads(flags.astype(int))
    assert (found == np.where(reading[:, None], given, 0)).all()
    warps = reading.reshape(-1, 32).any(axis=1).sum()
    # a copy is a load request too, besides the one for the flags, which copy_all does not need
    loads = warps + (0 if kernel == "copy_all" else 2 * BLOCKS)
    assert result.metrics["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"] == loads
    assert result.metrics["l1tex__t_requests_pipe_lsu_mem_global_op_ldgsts.sum"] == warps
    waves = result.metrics["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"]
    assert waves == 4 * 2 * BLOCKS


def test_nothing_is_read_outside_a_buffer_by_lanes_that_do_not_read(module):
    flags = np.ones(64, np.uint32)
    flags[:3] = 0
    given, found = np.ones((3, 4), np.uint32), np.ones((64, 4), np.uint32)
    module["copy_unless"].launch(1, 64, [flags, given, found], 1024)
    assert found[:3].all() and not found[3:].any()
    with pytest.raises(gpusim.ExecutionError, match="outside every buffer"):
        module["copy_if"].launch(1, 64, [flags, given, found], 1024)


def test_vector_reductions_add_every_element(module):
    random = np.random.default_rng(6)
    index = random.integers(0, 8, 32).astype(np.uint32)
    fours, twos = np.ones((8, 4), np.float32), np.zeros((8, 2), np.float32)
    halves = np.zeros((8, 2), np.float16)
    module["add_vectors"].launch(1, 32, [index, fours, twos, halves.view(np.uint32)], 0)
    x = np.arange(32, dtype=np.float32) + np.float32(0.5)
    total = np.bincount(index, weights=x, minlength=8)
    lanes = np.bincount(index, minlength=8)
    assert (fours == 1 + np.stack([total, -total, total, -total], axis=1)).all()
    assert (twos == np.stack([total, 2 * total], axis=1)).all()
    assert (halves == np.stack([2 * lanes, lanes], axis=1)).all()


@pytest.mark.parametrize("operation", ["min", "max", "add"])
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_vectors_of_four_halves_are_refused(operation, kind):
    """How their sectors are counted is not known."""
    source = f"""extern "C" __global__ void k(unsigned *out) {{
        asm volatile("red.global.{operation}.noftz.v2.{kind}x2 [%0], {{%1, %2}};"
                     :: "l"(out + 2 * threadIdx.x), "r"(0x3c003c00), "r"(0x40004000) : "memory"); }}"""
    with pytest.raises(gpusim.UnsupportedError, match="F16x4"):
        gpusim.compile(source)["k"].launch(1, 32, [np.zeros(64, np.uint32)])
