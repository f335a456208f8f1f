"""Warp-level matrix products against NumPy, fragments laid out as the PTX ISA's figures say."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim
from gpusim.errors import UnsupportedError

SOURCE = r"""
typedef unsigned u;
#define F4(p) p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]
#define R4(c, p) c(p[4 * i]), c(p[4 * i + 1]), c(p[4 * i + 2]), c(p[4 * i + 3])
#define R2(c, p) c(p[2 * i]), c(p[2 * i + 1])
#define R1(c, p) c(p[i])
#define D4(c) "=" c(O[4 * i]), "=" c(O[4 * i + 1]), "=" c(O[4 * i + 2]), "=" c(O[4 * i + 3])
#define D2(c) "=" c(O[2 * i]), "=" c(O[2 * i + 1])
#define MMA(name, T, text, D, A_, B_, C_)                                                            \
    extern "C" __global__ void name(const u* A, const u* B, const T* C, T* O)                        \
    {                                                                                                \
        int i = threadIdx.x;                                                                         \
        asm volatile("mma.sync.aligned." text ";" : D : A_, B_, C_);                                 \
    }
#define N421 " {%0,%1,%2,%3},{%4,%5},{%6},{%7,%8,%9,%10}"
#define N442 " {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13}"
MMA(f16_1688, float, "m16n8k8.row.col.f32.f16.f16.f32" N421, D4("f"), R2("r", A), R1("r", B), R4("f", C))
#define N212 " {%0,%1},{%2,%3},{%4},{%5,%6}"
#define N242 " {%0,%1},{%2,%3,%4,%5},{%6,%7},{%8,%9}"
#define N211 " {%0,%1},{%2},{%3},{%4,%5}"
MMA(f16_1688_h, u, "m16n8k8.row.col.f16.f16.f16.f16" N212, D2("r"), R2("r", A), R1("r", B), R2("r", C))
MMA(s8_8816, int, "m8n8k16.row.col.satfinite.s32.s8.u8.s32" N211, D2("r"), R1("r", A), R1("r", B), R2("r", C))
extern "C" __global__ void transpose(const u* A, u* O)
{
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(O[threadIdx.x]) : "r"(A[threadIdx.x]));
}
#if __CUDA_ARCH__ >= 800
MMA(f16_16816, float, "m16n8k16.row.col.f32.f16.f16.f32" N442, D4("f"), R4("r", A), R2("r", B), R4("f", C))
MMA(f16_16816_h, u, "m16n8k16.row.col.f16.f16.f16.f16" N242, D2("r"), R4("r", A), R2("r", B), R2("r", C))
MMA(bf16_16816, float, "m16n8k16.row.col.f32.bf16.bf16.f32" N442, D4("f"), R4("r", A), R2("r", B), R4("f", C))
MMA(bf16_1688, float, "m16n8k8.row.col.f32.bf16.bf16.f32" N421, D4("f"), R2("r", A), R1("r", B), R4("f", C))
MMA(tf32_1688, float, "m16n8k8.row.col.f32.tf32.tf32.f32" N442, D4("f"), R4("r", A), R2("r", B), R4("f", C))
MMA(tf32_1684, float, "m16n8k4.row.col.f32.tf32.tf32.f32" N421, D4("f"), R2("r", A), R1("r", B), R4("f", C))
MMA(s8_16832, int, "m16n8k32.row.col.s32.s8.s8.s32" N442, D4("r"), R4("r", A), R2("r", B), R4("r", C))
MMA(u8s8_16832, int, "m16n8k32.row.col.satfinite.s32.u8.s8.s32" N442, D4("r"), R4("r", A), R2("r", B), R4("r", C))
MMA(s8_16816, int, "m16n8k16.row.col.s32.s8.s8.s32" N421, D4("r"), R2("r", A), R1("r", B), R4("r", C))
extern "C" __global__ void f64_884(const double* A, const double* B, const double* C, double* O)
{
    int i = threadIdx.x;
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%4,%5};"
                 : D2("d") : "d"(A[i]), "d"(B[i]), R2("d", C));
}
#endif
#if __CUDA_ARCH__ == 800
MMA(s4_16864, int, "m16n8k64.row.col.s32.s4.u4.s32" N442, D4("r"), R4("r", A), R2("r", B), R4("r", C))
MMA(b1_and, int, "m16n8k256.row.col.s32.b1.b1.s32.and.popc" N442, D4("r"), R4("r", A), R2("r", B), R4("r", C))
MMA(b1_xor, int, "m16n8k256.row.col.s32.b1.b1.s32.xor.popc" N442, D4("r"), R4("r", A), R2("r", B), R4("r", C))
#endif
"""
ARCHS = ["sm_75", "sm_80", "sm_90", "sm_120"]
# name: (m, k, bits of an element of a and b, what turns their bits into numbers)
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


@pytest.fixture(scope="module", params=ARCHS)
def module(request):
    return gpusim.compile(SOURCE, request.param)


def place_a(lane, register, element, each, m):
    """(row, k) of an element of a."""
    tall = m // 8
    return lane // 4 + 8 * (register % tall), each * (lane % 4) + element + 4 * each * (register // tall)


def fragments(matrix, registers, each, m):
    """Bit patterns of a matrix (rows, k) as 32 lanes of registers."""
    words = np.zeros((32, registers), np.uint32)
    for lane in range(32):
        for register in range(registers):
            for element in range(each):
                row, k = place_a(lane, register, element, each, m)
                words[lane, register] |= np.uint32(int(matrix[row, k]) << (32 // each * element))
    return words.reshape(-1)


def accumulator(matrix):
    """(m, 8) as each lane's registers."""
    m = matrix.shape[0]
    lanes = np.zeros((32, m // 4), matrix.dtype)
    for lane in range(32):
        for number in range(m // 4):
            lanes[lane, number] = matrix[lane // 4 + 8 * (number // 2), 2 * (lane % 4) + number % 2]
    return lanes.reshape(-1)


def numbers(bits, kind):
    if kind == "f16":
        return bits.astype(np.uint16).view(np.float16).astype(float)
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).astype(float)
    if kind == "tf32":
        return (bits.astype(np.uint32) & 0xFFFFE000).view(np.float32).astype(float)
    width = BITS[kind]
    return np.where((kind[0] == "s") & (bits >> (width - 1) > 0), bits.astype(int) - (1 << width), bits.astype(int))


def random_bits(random, shape, kind):
    if kind in ("f16", "bf16", "tf32"):
        value = (random.integers(-64, 65, shape) / 8).astype(np.float32)
        if kind == "f16":
            return value.astype(np.float16).view(np.uint16).astype(np.uint32)
        return value.view(np.uint32) >> 16 if kind == "bf16" else value.view(np.uint32) | 0xFFF
    return random.integers(0, 1 << BITS[kind], shape).astype(np.uint32)


CASES = {
    "f16_1688": (16, 8, "f16", "f16", "f32"),
    "f16_1688_h": (16, 8, "f16", "f16", "f16"),
    "s8_8816": (8, 16, "s8", "u8", "clamped"),
    "f16_16816": (16, 16, "f16", "f16", "f32"),
    "f16_16816_h": (16, 16, "f16", "f16", "f16"),
    "bf16_16816": (16, 16, "bf16", "bf16", "f32"),
    "bf16_1688": (16, 8, "bf16", "bf16", "f32"),
    "tf32_1688": (16, 8, "tf32", "tf32", "f32"),
    "tf32_1684": (16, 4, "tf32", "tf32", "f32"),
    "s8_16832": (16, 32, "s8", "s8", "s32"),
    "u8s8_16832": (16, 32, "u8", "s8", "clamped"),
    "s8_16816": (16, 16, "s8", "s8", "s32"),
    "s4_16864": (16, 64, "s4", "u4", "s32"),
    "b1_and": (16, 256, "b1", "b1", "s32"),
    "b1_xor": (16, 256, "b1", "b1", "s32"),
}


@pytest.mark.parametrize("name", CASES)
def test_products(module, name):
    if name not in module:
        pytest.skip("not an instruction of this architecture")
    m, k, kind_a, kind_b, total = CASES[name]
    random = np.random.default_rng(1)
    a, b = random_bits(random, (m, k), kind_a), random_bits(random, (k, 8), kind_b)
    each = 32 // BITS[kind_a]
    words_a, words_b = fragments(a, m * k // (32 * each), each, m), fragments(b.T, k // (4 * each), each, 8)
    product = numbers(a, kind_a) @ numbers(b, kind_b)
    if name == "b1_xor":
        product = (a[:, :, None] ^ b[None]).sum(axis=1)
    if total in ("f32", "f16"):
        c = (random.integers(-80, 80, (m, 8)) / 4).astype(np.float32)
        given = accumulator(c)
        expected = accumulator((product + c).astype(np.float32))
    else:
        c = random.integers(-(2**31), 2**31, (m, 8))
        c[0] = 2**31 - 1
        given = accumulator(c.astype(np.int32))
        exact = product.astype(np.int64) + c
        expected = accumulator((np.clip(exact, -(2**31), 2**31 - 1) if total == "clamped" else exact).astype(np.int32))
    if total == "f16":
        given, expected = (v.astype(np.float16).view(np.uint32) for v in (given, expected))
    found = np.zeros_like(given)
    module[name].launch(1, 32, [words_a, words_b, given, found])
    assert (found == expected).all()


def test_double_products(module):
    if "f64_884" not in module:
        pytest.skip("not an instruction of this architecture")
    random = np.random.default_rng(2)
    a, b, c = (
        random.integers(-9, 9, (8, 4)) / 8,
        random.integers(-9, 9, (4, 8)) / 4,
        random.integers(-9, 9, (8, 8)) * 0.5,
    )
    found = np.zeros(64)
    module["f64_884"].launch(1, 32, [a.reshape(-1), b.T.reshape(-1).copy(), accumulator(c), found])
    assert (found == accumulator(a @ b + c)).all()


def test_every_warp_has_its_own_matrices(module):
    random = np.random.default_rng(3)
    halves = random.integers(0, 2**16, (2, 3, 8, 8)).astype(np.uint16)
    found = np.zeros_like(halves)
    source = SOURCE[SOURCE.index('extern "C" __global__ void transpose') : SOURCE.index("#if")]
    source = "typedef unsigned u;\n" + source.replace("threadIdx.x", "blockIdx.x * blockDim.x + threadIdx.x")
    several = gpusim.compile(source, "sm_" + str(module.cubin.arch))
    several["transpose"].launch(2, 96, [halves.view(np.uint32), found.view(np.uint32)])
    assert (found == np.swapaxes(halves, 2, 3)).all()


@pytest.mark.parametrize(
    "text",
    ["HMMA.SP.16832.F32 R0, R4, R8, R0", "HMMA.16816.F32 R0, -R4, R8, R0", "HMMA.884.F32 R0, R4, R8, R0",
     "IMMA.16832.S8.S8 R0, R4.COL, R8.COL, R0", "IMMA.16832.S8.S4 R0, R4.ROW, R8.COL, R0", "MOVM.U4TO8.M832 R0, R1"],
)  # fmt: skip
def test_unknown_forms_are_refused(meaning, text):
    with pytest.raises(UnsupportedError):
        meaning(text)
