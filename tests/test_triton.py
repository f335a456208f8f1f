"""Cubins that Triton made for sm_80, with no GPU: results against NumPy, and what their memory accesses cost.

The last two parameters of a Triton kernel are scratch buffers; kernels that need none take null pointers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpusim

DATA = Path(__file__).parent / "data" / "triton"
SCRATCH = [None, None]
THREADS = 128  # four warps, Triton's default
WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_"


def only_kernel(data: bytes | Path) -> gpusim.Kernel:
    module = gpusim.load(data)
    (name,) = module
    return module[name]


def run_vector_add(kernel: gpusim.Kernel) -> gpusim.Result:
    n = 3000
    x, y = (np.random.default_rng(k).random(n, np.float32) for k in (1, 2))
    out = np.full(n, np.nan, np.float32)
    result = kernel.launch(-(-n // 1024), THREADS, [x, y, out, np.int32(n), *SCRATCH])
    assert np.array_equal(out, x + y)
    return result


def run_softmax(kernel: gpusim.Kernel) -> gpusim.Result:
    rows, columns = 4, 1000
    x = np.random.default_rng(3).standard_normal((rows, columns)).astype(np.float32)
    out = np.full_like(x, np.nan)
    result = kernel.launch(rows, THREADS, [out, x, np.int32(columns), np.int32(columns), *SCRATCH], 16)
    weights = np.exp(x.astype(np.float64) - x.max(axis=1, keepdims=True))
    # exp is MUFU.EX2 of a product: a few units in the last place
    np.testing.assert_allclose(out, weights / weights.sum(axis=1, keepdims=True), rtol=3e-6)
    return result


def run_matmul(kernel: gpusim.Kernel, shared: int) -> gpusim.Result:
    m, n, k = 64, 128, 96
    random = np.random.default_rng(4)
    a, b = random.standard_normal((m, k)).astype(np.float16), random.standard_normal((k, n)).astype(np.float16)
    out = np.full((m, n), np.nan, np.float32)
    args = [a, b, out, np.int32(m), np.int32(n), np.int32(k), *SCRATCH]
    result = kernel.launch((m // 64, n // 64), THREADS, args, shared)
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.astype(np.float64), rtol=1e-5, atol=1e-5)
    return result


def test_vector_add_is_an_ideal_stream():
    result = run_vector_add(only_kernel(DATA / "vector_add.cubin"))
    accesses = [i for i in result.instructions if i.space == "global" and i.requests]
    assert accesses
    assert all(i.sectors == i.sectors_ideal for i in accesses)


def test_softmax_reduces_through_shared_memory_without_conflicts():
    result = run_softmax(only_kernel(DATA / "softmax.cubin"))
    assert result.metrics[f"{WAVES}st.sum"] > 0
    assert all(i.conflicts == 0 for i in result.instructions)


def test_matmul_uses_matrix_loads_and_tensor_cores():
    kernel = only_kernel(DATA / "matmul.cubin")
    result = run_matmul(kernel, 16384)
    assert any(i.sass.split()[0].startswith("HMMA") and i.executed for i in result.instructions)
    assert result.metrics[f"{WAVES}ldsm.sum"] > 0
    assert result.metrics["l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ldsm.sum"] == 0


def test_freshly_compiled_kernels():
    pytest.importorskip("triton", reason="Triton is not installed: pip install 'gpusim[triton]'")
    from tests.triton_kernels import compile_all

    made = compile_all()
    run_vector_add(only_kernel(made["vector_add"]))
    run_softmax(only_kernel(made["softmax"]))
    run_matmul(only_kernel(made["matmul"]), 16384)
