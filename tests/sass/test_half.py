"""Half precision and bfloat16: single roundings, comparisons, minima and maxima, packs and conversions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact import converted, fused, product, to_integer

from gpusim.errors import UnsupportedError

HEAD = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
LISTING = """
add: {2} -> {2}: __hadd2(a, b)
sub: {2} -> {2}: __hsub2(a, b)
mul: {2} -> {2}: __hmul2(a, b)
fma: {2} -> {2}: __hfma2(a, b, c)
fma_relu: {2} -> {2}: __hfma2_relu(a, b, c)
add_sat: {2} -> {2}: __hadd2_sat(a, b)
fma_sat: {2} -> {2}: __hfma2_sat(a, b, c)
neg: {2} -> {2}: __hneg2(a)
abs: {2} -> {2}: __habs2(a)
least: {2} -> {2}: __hmin2(a, b)
most: {2} -> {2}: __hmax2(a, b)
least_nan: {2} -> {2}: __hmin2_nan(a, b)
eq: {2} -> {2}: __heq2(a, b)
gtu: {2} -> {2}: __hgtu2(a, b)
ge_mask: {2} -> unsigned: __hge2_mask(a, b)
all_less: {2} -> int: __hblt2(a, b)
swap: {2} -> {2}: __hfma2(__lowhigh(a), b, __low(c))
scale: {2} -> {2}: __hmul2(__hadd2(a, __two(-2.25f)), __two(3.0f))
complex: {2} -> {2}: __hcmadd(a, b, c)
one_add: {1} -> {1}: __hadd(a, b)
one_fma: {1} -> {1}: __hfma(a, b, c)
one_less: {1} -> int: __hlt(a, b)
one_geu: {1} -> int: __hgeu(a, b)
div: {1} -> {1}: __hdiv(a, b)
floor: {1} -> {1}: hfloor(a)
rint: {1} -> {1}: hrint(a)
to_float: {1} -> float: (float)a
from_float: float -> {1}: __make(a)
from_float_rz: float -> {1}: __make_rz(a)
from_float_rm: float -> {1}: __make_rd(a)
from_float_rp: float -> {1}: __make_ru(a)
from_double: double -> {1}: __from_double(a)
pair: float -> {2}: __pair(a, b)
to_s32: {1} -> int: __to_int_rz(a)
to_s64: {1} -> long long: __to_ll_rz(a)
to_s16: {1} -> short: __to_short_rz(a)
from_s32: int -> {1}: __from_int(a)
from_u32_rz: unsigned -> {1}: __from_uint_rz(a)
from_s64: long long -> {1}: __from_ll(a)
"""
NAMES = {
    "f16": (
        "__half",
        "__half2",
        {
            "__lowhigh": "__lowhigh2highlow",
            "__low": "__low2half2",
            "__two": "__float2half2_rn",
            "__make": "__float2half",
            "__make_rz": "__float2half_rz",
            "__make_rd": "__float2half_rd",
            "__make_ru": "__float2half_ru",
            "__from_double": "__double2half",
            "__pair": "__floats2half2_rn",
            "__to_int_rz": "__half2int_rz",
            "__to_ll_rz": "__half2ll_rz",
            "__to_short_rz": "__half2short_rz",
            "__from_int": "__int2half_rn",
            "__from_uint_rz": "__uint2half_rz",
            "__from_ll": "__ll2half_rn",
        },
    ),
    "bf16": (
        "__nv_bfloat16",
        "__nv_bfloat162",
        {
            "__lowhigh": "__lowhigh2highlow",
            "__low": "__low2bfloat162",
            "__two": "__float2bfloat162_rn",
            "__make": "__float2bfloat16_rn",
            "__make_rz": "__float2bfloat16_rz",
            "__make_rd": "__float2bfloat16_rd",
            "__make_ru": "__float2bfloat16_ru",
            "__from_double": "__double2bfloat16",
            "__pair": "__floats2bfloat162_rn",
            "__to_int_rz": "__bfloat162int_rz",
            "__to_ll_rz": "__bfloat162ll_rz",
            "__to_short_rz": "__bfloat162short_rz",
            "__from_int": "__int2bfloat16_rn",
            "__from_uint_rz": "__uint2bfloat16_rz",
            "__from_ll": "__ll2bfloat16_rn",
        },
    ),
}
CASES = [("f16", "sm_75"), ("f16", "sm_80"), ("f16", "sm_100"), ("bf16", "sm_80"), ("bf16", "sm_90")]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request, elementwise):
    kind, arch = request.param
    one, two, names = NAMES[kind]
    head = HEAD + "".join(f"#define {k} {v}\n" for k, v in names.items())
    listing = LISTING.replace("{1}", one).replace("{2}", two)
    return kind, arch, elementwise(listing, arch, head)


def widen(bits, kind):
    bits = np.asarray(bits).astype(np.uint16)
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def same_halves(found, expected, kind):
    """``found`` 16-bit patterns, ``expected`` floats; NaN must be the canonical 0x7fff."""
    found = np.asarray(found).astype(np.uint16)
    value, expected = widen(found, kind), np.asarray(expected, np.float64)
    good = (value == expected) & (np.signbit(value) == np.signbit(expected))
    good |= (found == 0x7FFF) & np.isnan(expected)
    assert good.all(), [(i, value[i], expected[i]) for i in np.flatnonzero(~good)[:5]]


def halves(words):
    return np.stack([words & 0xFFFF, words >> 16], axis=1).reshape(-1)


def operands(kind, seed=1, count=1000):
    random = np.random.default_rng(seed)
    edges = [0, 1, 2, 0x3FF, 0x400, 0x401, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7E00, 0x3555, 0x1400, 0x4000, 0x6400]
    if kind == "bf16":
        edges = [0, 1, 2, 0x7F, 0x80, 0x81, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7FC0, 0x3EAB, 0x2000, 0x4000, 0x5F00]
    edges = np.array(edges + [e | 0x8000 for e in edges], np.uint32)
    values = []
    for _ in range(3):
        some = random.integers(0, 2**16, count).astype(np.uint32)
        values.append(np.concatenate([random.choice(edges, 500), some]))
    a, b, c = values
    centre = 0x3F80 if kind == "bf16" else 0x3C00
    close = np.arange(len(a)) % 3 == 0  # of ordinary size, so that sums and products keep all their bits
    a, b, c = (
        np.where(close, (centre + random.integers(-900, 900, len(v))) & 0x7FFF, v).astype(np.uint32) for v in (a, b, c)
    )
    order = random.permutation(len(a))
    return tuple(v | v[order] << np.uint32(16) for v in (a, b, c))


def test_arithmetic_is_rounded_once(case):
    kind, arch, run = case
    a, b, c = operands(kind)
    numbers = [widen(halves(v), kind).tolist() for v in (a, b, c)]
    triples = list(zip(*numbers, strict=True))

    def check(name, expected):
        same_halves(halves(run(name, np.uint32, a, b, c)), expected, kind)

    check("add", [fused(x, 1.0, y, kind) for x, y, _ in triples])
    check("sub", [fused(-y, 1.0, x, kind) if y == y else math.nan for x, y, _ in triples])
    check("mul", [product(x, y, kind) for x, y, _ in triples])
    full = [fused(x, y, z, kind) for x, y, z in triples]
    check("fma", full)

    def clamp(value):
        return 0.0 if not value > 0 else min(value, 1.0)

    check("add_sat", [clamp(fused(x, 1.0, y, kind)) for x, y, _ in triples])
    check("fma_sat", [clamp(v) for v in full])
    if arch != "sm_75":
        check("fma_relu", [v if math.isnan(v) else max(v, 0.0) if v > 0 else 0.0 for v in full])
    two = [converted(x - 2.25, kind) if not math.isinf(x) else x for x in numbers[0]]
    check("scale", [product(x, 3.0, kind) for x in two])
    swapped = halves(a >> np.uint32(16) | a << np.uint32(16))
    low = halves((c & np.uint32(0xFFFF)) * np.uint32(0x10001))
    check(
        "swap",
        [
            fused(x, y, z, kind)
            for x, y, z in zip(widen(swapped, kind).tolist(), numbers[1], widen(low, kind).tolist(), strict=True)
        ],
    )


def test_complex_products_swap_and_negate_halves(case):
    kind, _, run = case
    a, b, c = operands(kind, 6, 400)
    (ax, ay), (bx, by), (cx, cy) = (widen(halves(v), kind).reshape(-1, 2).T.tolist() for v in (a, b, c))
    expected = []
    for k in range(len(a)):
        real, imaginary = fused(ax[k], bx[k], cx[k], kind), fused(ax[k], by[k], cy[k], kind)
        expected += [fused(-ay[k], by[k], real, kind), fused(ay[k], bx[k], imaginary, kind)]
    same_halves(halves(run("complex", np.uint32, a, b, c)), expected, kind)


def test_minima_and_comparisons(case):
    kind, _, run = case
    a, b, _ = operands(kind, 2)
    x, y = widen(halves(a), kind), widen(halves(b), kind)
    nan = np.isnan(x) | np.isnan(y)
    below = (x < y) | ((x == y) & np.signbit(x))
    least = np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.where(below, x, y)))
    most = np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.where(below, y, x)))
    same_halves(halves(run("least", np.uint32, a, b)), least, kind)
    same_halves(halves(run("most", np.uint32, a, b)), most, kind)
    same_halves(halves(run("least_nan", np.uint32, a, b)), np.where(nan, np.nan, least), kind)
    same_halves(halves(run("eq", np.uint32, a, b)), (x == y).astype(float), kind)
    same_halves(halves(run("gtu", np.uint32, a, b)), (~(x <= y)).astype(float), kind)
    assert (halves(run("ge_mask", np.uint32, a, b)) == np.where(x >= y, 0xFFFF, 0)).all()
    assert (run("all_less", np.int32, a, b) == (x < y).reshape(-1, 2).all(axis=1)).all()


def test_single_numbers(case):
    kind, _, run = case
    a, b, c = (halves(v).astype(np.uint16) for v in operands(kind, 3, 500))
    x, y, z = (widen(v, kind) for v in (a, b, c))
    triples = list(zip(x.tolist(), y.tolist(), z.tolist(), strict=True))
    same_halves(run("one_add", np.uint16, a, b), [fused(p, 1.0, q, kind) for p, q, _ in triples], kind)
    same_halves(run("one_fma", np.uint16, a, b, c), [fused(*t, kind) for t in triples], kind)
    assert (run("one_less", np.int32, a, b) == (x < y)).all()
    assert (run("one_geu", np.int32, a, b) == ~(x < y)).all()
    same_halves(run("floor", np.uint16, a), np.floor(x), kind)
    same_halves(run("rint", np.uint16, a), np.rint(x), kind)
    with np.errstate(all="ignore"):
        quotient = x / y
        found = widen(run("div", np.uint16, a, b), kind)
        exact = np.array([converted(v, kind) for v in quotient.tolist()])
        wrong = ~((found == exact) | (np.isnan(found) & np.isnan(exact)))
        # the library's division is within one unit of the last place
        spacing = {"f16": 2.0**-10, "bf16": 2.0**-7}[kind]
        assert (np.abs(found - exact) <= spacing * np.abs(exact) + 2.0**-133)[wrong].all()


def test_conversions(case):
    kind, _, run = case
    random = np.random.default_rng(4)
    floats = random.integers(0, 2**32, 1000, dtype=np.uint32).view(np.float32)
    small = np.ldexp(random.uniform(-2, 2, 1000), random.integers(-30, 20, 1000)).astype(np.float32)
    halfway = ((random.integers(0x3000, 0x5000, 500, dtype=np.uint32) << 16) | 0x8000).view(np.float32)
    floats = np.concatenate(
        [floats, small, halfway, [0.0, -0.0, np.inf, -np.inf, np.nan, 65504, 65519.99, 65520, 1e-45]]
    )
    floats = floats.astype(np.float32)
    with np.errstate(all="ignore"):
        wide = floats.astype(np.float64).tolist()
    for name, mode in {"from_float": "RN", "from_float_rz": "RZ", "from_float_rm": "RM", "from_float_rp": "RP"}.items():
        same_halves(run(name, np.uint16, floats), [converted(x, kind, mode) for x in wide], kind)
    packed = run("pair", np.uint32, floats, floats[::-1])
    same_halves(packed & 0xFFFF, [converted(x, kind) for x in wide], kind)
    same_halves(packed >> 16, [converted(x, kind) for x in wide[::-1]], kind)
    doubles = np.ldexp(random.uniform(-2, 2, 1000), random.integers(-140, 130, 1000))
    doubles[:500] = np.nextafter(halfway.astype(np.float64), np.inf)  # only one rounding keeps these from a tie
    same_halves(run("from_double", np.uint16, doubles), [converted(x, kind) for x in doubles.tolist()], kind)
    every = np.arange(65536).astype(np.uint16)
    back = run("to_float", np.float32, every)
    value = widen(every, kind)
    assert ((back == value) | (np.isnan(back) & np.isnan(value))).all()
    for name, bits in {"to_s32": 32, "to_s16": 16}.items():
        found = run(name, np.int32 if bits == 32 else np.int16, every)
        assert found.tolist() == [to_integer(x, "TRUNC", bits, True, 0) for x in value.tolist()]
    found = run("to_s64", np.int64, every).tolist()
    assert found == [to_integer(x, "TRUNC", 64, True, -(2**63)) for x in value.tolist()]


def test_conversions_from_integers(case):
    kind, _, run = case
    random = np.random.default_rng(5)
    bits = random.integers(0, 2**64, 600, dtype=np.uint64) >> random.integers(0, 64, 600, dtype=np.uint64)
    bits = np.concatenate(
        [bits, np.arange(2000, 2100, dtype=np.uint64) * 33, (1 << 17) - np.arange(70, dtype=np.uint64)]
    )
    signed = bits.view(np.int64)
    ints, words = signed.astype(np.int32), bits.astype(np.uint32)
    same_halves(run("from_s32", np.uint16, ints), [converted(x, kind) for x in ints.tolist()], kind)
    same_halves(run("from_u32_rz", np.uint16, words), [converted(x, kind, "RZ") for x in words.tolist()], kind)
    same_halves(run("from_s64", np.uint16, signed), [converted(x, kind) for x in signed.tolist()], kind)


def test_literals_are_taken_from_the_encoding(meaning):
    """The text rounds nothing, but NaN payloads and the order of both halves are only in the bits."""
    whole = meaning("HFMA2.MMA R0, -RZ, RZ, 15, 0", encoding=0x4B800000 << 32)
    assert int(whole.compute()[0, 0]) == 0x4B800000
    assert int(meaning("HFMA2 R0, -RZ, RZ, 15, -2").compute()[0, 0]) == 0x4B80C000
    assert int(meaning("HFMA2.BF16_V2 R0, -RZ, RZ, 1, -2").compute()[0, 0]) == 0x3F80C000


def test_the_sign_of_a_product_is_given_to_minima(evaluate):
    a, b = np.array([0xBC003C00], np.uint32), np.array([0x4000C000], np.uint32)
    pair = evaluate("HMNMX2.XORSIGN R0, |R1|, |R2|, PT", a, b, np.array([True]))
    assert int(pair[0, 0]) == 0xBC00BC00
    nan = evaluate("HMNMX2.NAN.XORSIGN R0, |R1|, |R2|, PT", a | np.uint32(0x7FFF), b, np.array([True]))
    assert int(nan[0, 0]) == 0xBC007FFF


@pytest.mark.parametrize(
    "text",
    [
        "HADD2.FOO R0, R1, R2",
        "HADD2 R0, R1.H2_H2, R2",
        "HFMA2 R0, ~R1, R2, R3",
        "HSETP2.H_AND.LT.AND P0, PT, R1, R2, PT",
        "HMNMX2.XORSIGN R0, R1, R2, PT",
        "F2FP.F16.F32.MERGE_C R0, R1, R2",
        "HADD2.F32.SAT R0, R1.H0_H0, R2.H0_H0",
        "MUFU.SIN.F16 R0, R1",
    ],
)
def test_unknown_forms_are_refused(meaning, text):
    with pytest.raises(UnsupportedError):
        meaning(text)
