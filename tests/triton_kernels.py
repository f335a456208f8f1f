"""Three Triton kernels and how their cubins in ``data/triton`` are made, which needs Triton but no GPU.

``python tests/triton_kernels.py FOLDER`` (with the extra ``triton`` installed).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < n
    tl.store(o + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def softmax(o, x, stride, n, B: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, B)
    value = tl.load(x + row * stride + column, mask=column < n, other=-float("inf"))
    weight = tl.exp(value - tl.max(value, 0))
    tl.store(o + row * stride + column, weight / tl.sum(weight, 0), mask=column < n)


@triton.jit
def matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * K + (k + inner)[None, :])
        y = tl.load(b + (k + inner)[:, None] * N + columns[None, :])
        total += tl.dot(x, y)
    tl.store(c + rows[:, None] * N + columns[None, :], total)


def compile_all(arch: int = 80) -> dict[str, bytes]:
    """Cubins by name, for a named architecture."""
    target = GPUTarget("cuda", arch, 32)
    floats: dict[str, Any] = {"x": "*fp32", "n": "i32", "o": "*fp32", "B": "constexpr"}
    kinds = {
        "vector_add": (add, {"x": "*fp32", "y": "*fp32", "o": "*fp32", "n": "i32", "B": "constexpr"}, {"B": 1024}),
        "softmax": (
            softmax,
            {"o": "*fp32", "x": "*fp32", "stride": "i32", **{k: floats[k] for k in "nB"}},
            {"B": 1024},
        ),
        "matmul": (
            matmul,
            {"a": "*fp16", "b": "*fp16", "c": "*fp32"}
            | dict.fromkeys("MNK", "i32")
            | dict.fromkeys(("BM", "BN", "BK"), "constexpr"),
            {"BM": 64, "BN": 64, "BK": 32},
        ),
    }
    return {
        name: triton.compile(ASTSource(function, signature=signature, constexprs=constants), target=target).asm["cubin"]
        for name, (function, signature, constants) in kinds.items()
    }


if __name__ == "__main__":
    for name, cubin in compile_all().items():
        (Path(sys.argv[1]) / f"{name}.cubin").write_bytes(cubin)
