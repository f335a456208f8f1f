"""Atomics in global and shared memory, of every width and type, with and without the old contents."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim

SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#define HEAD(name, T) extern "C" __global__ void name(T* A, const T* B, T* O)
#define FOUR(name, T, call)                           \
    HEAD(global_##name, T)                            \
    {                                                 \
        int i = threadIdx.x;                          \
        T b = B[i], *p = A + i % 4;                   \
        O[i] = call;                                  \
    }                                                 \
    HEAD(reduce_##name, T)                            \
    {                                                 \
        int i = threadIdx.x;                          \
        T b = B[i], *p = A + i % 4;                   \
        call;                                         \
    }                                                 \
    HEAD(shared_##name, T)                            \
    {                                                 \
        __shared__ T s[4];                            \
        int i = threadIdx.x;                          \
        if (i < 4) s[i] = A[i];                       \
        __syncthreads();                              \
        T b = B[i], *p = s + i % 4;                   \
        O[i] = call;                                  \
        __syncthreads();                              \
        if (i < 4) A[i] = s[i];                       \
    }
FOUR(add_s32, int, atomicAdd(p, b))
FOUR(add_u64, unsigned long long, atomicAdd(p, b))
FOUR(add_f32, float, atomicAdd(p, b))
FOUR(add_f64, double, atomicAdd(p, b))
FOUR(add_f16x2, __half2, atomicAdd(p, b))
FOUR(min_s32, int, atomicMin(p, b))
FOUR(max_u32, unsigned, atomicMax(p, b))
FOUR(min_s64, long long, atomicMin(p, b))
FOUR(max_s64, long long, atomicMax(p, b))
FOUR(min_u64, unsigned long long, atomicMin(p, b))
FOUR(max_u64, unsigned long long, atomicMax(p, b))
FOUR(and_u64, unsigned long long, atomicAnd(p, b))
FOUR(or_u32, unsigned, atomicOr(p, b))
FOUR(xor_u64, unsigned long long, atomicXor(p, b))
FOUR(inc_u32, unsigned, atomicInc(p, 100u))
FOUR(dec_u32, unsigned, atomicDec(p, 100u))
FOUR(exch_u64, unsigned long long, atomicExch(p, b))
FOUR(cas_u64, unsigned long long, atomicCAS(p, (unsigned long long)(i / 4), b))
FOUR(cas_u16, unsigned short, atomicCAS(p, (unsigned short)(i / 4), b))
FOUR(add_f16, __half, atomicAdd(p, b))
#if __CUDA_ARCH__ >= 800
FOUR(add_bf16x2, __nv_bfloat162, atomicAdd(p, b))
#endif
"""
THREADS = 64
TYPES = {
    "s32": np.int32, "u32": np.uint32, "s64": np.int64, "u64": np.uint64, "f32": np.float32, "f64": np.float64,
    "u16": np.uint16, "f16": np.uint16, "f16x2": np.uint32, "bf16x2": np.uint32,
}  # fmt: skip
NAMES = [
    "add_s32", "add_u64", "add_f32", "add_f64", "add_f16x2", "min_s32", "max_u32", "min_s64", "max_s64", "min_u64",
    "max_u64", "and_u64", "or_u32", "xor_u64", "inc_u32", "dec_u32", "exch_u64", "cas_u64", "cas_u16", "add_f16",
    "add_bf16x2",
]  # fmt: skip
ARCHS = ["sm_75", "sm_90", "sm_100", "sm_120"]


@pytest.fixture(scope="module", params=ARCHS)
def module(request):
    return gpusim.compile(SOURCE, request.param)


def widen(values, name):
    """Numbers, one a half where there are two."""
    if "bf16" in name:
        return (values.view(np.uint16).astype(np.uint32) << 16).view(np.float32).astype(float)
    return values.view(np.float16).astype(float) if "f16" in name else values


def operands(name):
    random = np.random.default_rng(len(name))
    kind = TYPES[name.split("_")[1]]
    if "f16" in name:
        small = random.integers(-4, 5, (THREADS + 4) * (np.dtype(kind).itemsize // 2)).astype(np.float32)
        raw = small.view(np.uint32) >> 16 if "bf16" in name else small.astype(np.float16).view(np.uint16)
        values = raw.astype(np.uint16).view(kind)
    elif kind in (np.float32, np.float64):
        values = random.integers(-50, 50, THREADS + 4).astype(kind) / 4
    else:
        info = np.iinfo(kind)
        values = random.integers(info.min, info.max, THREADS + 4, dtype=kind, endpoint=True)
    if name.startswith("cas"):
        values = random.integers(0, 16, THREADS + 4).astype(kind)
    if name.startswith(("inc", "dec")):
        values = random.integers(0, 120, THREADS + 4).astype(kind)
    return values[:4].copy(), values[4:].copy()


def step(name, old, b, lane):
    """New contents of one place."""
    operation = name.split("_")[0]
    with np.errstate(all="ignore"):
        if operation == "add":
            return old + b
        if operation in ("min", "max"):
            return min(old, b) if operation == "min" else max(old, b)
        if operation in ("and", "or", "xor"):
            return {"and": old & b, "or": old | b, "xor": old ^ b}[operation]
        if operation == "inc":
            return type(old)(0 if old >= 100 else old + 1)
        if operation == "dec":
            return type(old)(100 if old == 0 or old > 100 else old - 1)
        return b if operation == "exch" or old == lane // 4 else old


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["global", "reduce", "shared"])
def test_atomics(module, where, name):
    """Contents in the end, and each lane's old contents where lanes go in order."""
    if f"{where}_{name}" not in module:
        pytest.skip("not an instruction of this architecture")
    start, values = operands(name)
    memory, old = start.copy(), np.zeros(THREADS, start.dtype)
    module[f"{where}_{name}"].launch(1, THREADS, [memory, values, old])
    contents, b = widen(start, name).copy().reshape(4, -1), widen(values, name).reshape(THREADS, -1)
    seen = np.zeros_like(b)
    for lane in range(THREADS):
        for part in range(b.shape[1]):
            seen[lane, part] = contents[lane % 4, part]
            contents[lane % 4, part] = step(name, contents[lane % 4, part], b[lane, part], lane)
    assert (widen(memory, name).reshape(4, -1) == contents).all()
    if where == "global" and name not in ("add_f16", "cas_u16"):  # those two are loops, whose lanes overtake each other
        assert (widen(old, name).reshape(THREADS, -1) == seen).all()


def test_packed_additions_round_each_half(module):
    start, values = np.array([0x3C007BFF, 0, 0, 0], np.uint32), np.zeros(THREADS, np.uint32)
    values[0] = 0x14005000  # 32 + 65504 overflows, 1 + 2**-10 is exact
    old = np.zeros(THREADS, np.uint32)
    module["global_add_f16x2"].launch(1, THREADS, [start, values, old])
    assert start[0] == 0x3C017C00 and old[0] == 0x3C007BFF
