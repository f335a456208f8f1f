"""Kernels of the catalogue written again for Numba's CUDA simulator, which runs every thread as Python code.

Import only with NUMBA_ENABLE_CUDASIM=1 in the environment.  That simulator runs some hundred to thousand threads a
second, so it gets a part of the grid: the first blocks of the same problem.  Each function makes ``(launch, correct,
threads)``: ``launch()`` executes these blocks, ``correct()`` then says whether what they computed is right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32, int32

Made = tuple[Callable[[], None], Callable[[], bool], int]
TILE = 32


@cuda.jit
def _transpose_naive(source: Any, target: Any, n: int) -> None:
    x = cuda.blockIdx.x * 16 + cuda.threadIdx.x
    y = cuda.blockIdx.y * 16 + cuda.threadIdx.y
    if x < n and y < n:
        target[x, y] = source[y, x]


@cuda.jit
def _transpose_pad(source: Any, target: Any, n: int) -> None:
    tile = cuda.shared.array((16, 33), float32)
    x = cuda.blockIdx.x * 32 + cuda.threadIdx.x
    y = cuda.blockIdx.y * 16 + cuda.threadIdx.y
    if x < n and y < n:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = source[y, x]
    cuda.syncthreads()
    place = cuda.threadIdx.y * 32 + cuda.threadIdx.x
    column, row = place // 16, place % 16
    out_x, out_y = cuda.blockIdx.y * 16 + row, cuda.blockIdx.x * 32 + column
    if out_x < n and out_y < n:
        target[out_y, out_x] = tile[row, column]


@cuda.jit
def _reduce_sequential(source: Any, sums: Any, n: int) -> None:
    values = cuda.shared.array(256, float32)
    thread = cuda.threadIdx.x
    i = cuda.blockIdx.x * 256 + thread
    values[thread] = source[i] if i < n else 0
    cuda.syncthreads()
    step = 128
    while step > 0:
        if thread < step:
            values[thread] += values[thread + step]
        cuda.syncthreads()
        step //= 2
    if thread == 0:
        sums[cuda.blockIdx.x] = values[0]


@cuda.jit
def _hist_shared(data: Any, counts: Any, n: int, stride: int) -> None:
    bins = cuda.shared.array(256, int32)
    bins[cuda.threadIdx.x] = 0
    cuda.syncthreads()
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    while i < n:
        cuda.atomic.add(bins, data[i], 1)
        i += stride
    cuda.syncthreads()
    cuda.atomic.add(counts, cuda.threadIdx.x, bins[cuda.threadIdx.x])


@cuda.jit
def _matmul_naive(a: Any, b: Any, c: Any, n: int) -> None:
    x = cuda.blockIdx.x * 16 + cuda.threadIdx.x
    y = cuda.blockIdx.y * 16 + cuda.threadIdx.y
    if x < n and y < n:
        total = np.float32(0)
        for k in range(n):
            total += a[y, k] * b[k, x]
        c[y, x] = total


def transpose_naive(n: int) -> Made:
    source, target = _square(n), np.zeros((n, n), np.float32)

    def launch() -> None:
        _transpose_naive[(4, 4), (16, 16)](source, target, n)

    return launch, lambda: bool((target[:64, :64] == source.T[:64, :64]).all()), 16 * 256


def transpose_pad(n: int) -> Made:
    source, target = _square(n), np.zeros((n, n), np.float32)

    def launch() -> None:
        _transpose_pad[(2, 2), (32, 16)](source, target, n)

    return launch, lambda: bool((target[:64, :32] == source.T[:64, :32]).all()), 4 * 512


def reduce_sequential(n: int) -> Made:
    source = np.random.default_rng(1).random(n, np.float32)
    sums = np.zeros(4, np.float32)

    def launch() -> None:
        _reduce_sequential[4, 256](source, sums, n)

    return launch, lambda: bool(np.allclose(sums, source[:1024].reshape(4, 256).sum(axis=1), rtol=1e-5)), 4 * 256


def hist_shared_random(n: int) -> Made:
    data = np.random.default_rng(1).integers(0, 256, n, np.uint8)
    counts = np.zeros(256, np.int32)
    stride = 256 * 256  # of the whole grid

    def launch() -> None:
        counts[:] = 0
        _hist_shared[2, 256](data, counts, n, stride)

    taken = data[: n // stride * stride].reshape(-1, stride)[:, :512]
    return launch, lambda: bool((counts == np.bincount(taken.reshape(-1), minlength=256)).all()), 2 * 256


def matmul_naive(n: int) -> Made:
    a, b, c = _square(n), _square(n), np.zeros((n, n), np.float32)

    def launch() -> None:
        _matmul_naive[(2, 2), (16, 16)](a, b, c, n)

    return launch, lambda: bool(np.allclose(c[:32, :32], (a @ b)[:32, :32], rtol=1e-3)), 4 * 256


def _square(n: int) -> np.ndarray:
    return np.random.default_rng(n).random((n, n), np.float32)


KERNELS: dict[str, Callable[[int], Made]] = {
    "transpose_naive": transpose_naive,
    "transpose_pad": transpose_pad,
    "reduce_sequential": reduce_sequential,
    "hist_shared_random": hist_shared_random,
    "matmul_naive": matmul_naive,
}
