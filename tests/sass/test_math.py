"""Single precision: roundings, minima, conversions, special functions and the library made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact import converted, fused, product, to_integer

ARCHS = ["sm_75", "sm_90", "sm_100"]
FUNCTIONS = {  # name: (expression, reference in double precision, units in the last place, range)
    "exp": ("expf(a)", np.exp, 2, (-90, 90)),
    "exp2": ("exp2f(a)", np.exp2, 2, (-130, 130)),
    "exp10": ("exp10f(a)", lambda x: 10.0**x, 2, (-39, 39)),
    "expm1": ("expm1f(a)", np.expm1, 2, (-5, 5)),
    "log": ("logf(a)", np.log, 2, (1e-30, 1e30)),
    "log2": ("log2f(a)", np.log2, 2, (1e-38, 1e38)),
    "log10": ("log10f(a)", np.log10, 2, (1e-30, 1e30)),
    "log1p": ("log1pf(a)", np.log1p, 2, (-0.9, 9)),
    "sin": ("sinf(a)", np.sin, 2, (-1e6, 1e6)),
    "cos": ("cosf(a)", np.cos, 2, (-300, 300)),
    "tan": ("tanf(a)", np.tan, 4, (-300, 300)),
    "atan": ("atanf(a)", np.arctan, 2, (-9, 9)),
    "asin": ("asinf(a)", np.arcsin, 2, (-1, 1)),
    "acos": ("acosf(a)", np.arccos, 2, (-1, 1)),
    "sinh": ("sinhf(a)", np.sinh, 3, (-80, 80)),
    "cosh": ("coshf(a)", np.cosh, 2, (-80, 80)),
    "tanh": ("tanhf(a)", np.tanh, 2, (-9, 9)),
    "sqrt": ("sqrtf(a)", np.sqrt, 0, (0, 1e38)),
    "rsqrt": ("rsqrtf(a)", lambda x: 1 / np.sqrt(x), 2, (1e-38, 1e38)),
    "cbrt": ("cbrtf(a)", np.cbrt, 1, (-1e9, 1e9)),
    "erf": ("erff(a)", np.vectorize(math.erf), 2, (-4, 4)),
    "erfc": ("erfcf(a)", np.vectorize(math.erfc), 4, (-3, 9)),
    "gamma": ("tgammaf(a)", np.vectorize(math.gamma), 5, (0.5, 30)),
    "lgamma": ("lgammaf(a)", np.vectorize(math.lgamma), 6, (3, 1000)),
    "sinpi": ("sinpif(a)", lambda x: np.sin(np.pi * (x - 2 * np.rint(x / 2))), 2, (-9, 9)),
}
PAIRS = {
    "pow": ("powf(fabsf(a), b)", lambda a, b: np.abs(a) ** b, 4),
    "atan2": ("atan2f(a, b)", np.arctan2, 3),
    "hypot": ("hypotf(a, b)", np.hypot, 3),
    "fmod": ("fmodf(a, b)", np.fmod, 0),
    "div": ("a / b", np.divide, 0),
}
LISTING = (
    "".join(f"{name}: float -> float: {f[0]}\n" for name, f in {**FUNCTIONS, **PAIRS}.items())
    + """
reciprocal: float -> float: __frcp_rn(a)
fma_rz: float -> float: __fmaf_rz(a, b, c)
fma_rm: float -> float: __fmaf_rd(a, b, c)
fma_rp: float -> float: __fmaf_ru(a, b, c)
fma_rn: float -> float: __fmaf_rn(a, b, c)
add_rm: float -> float: __fadd_rd(a, b)
mul_rp: float -> float: __fmul_ru(a, b)
least: float -> float: fminf(a, b)
most3: float -> float: fmaxf(a, fmaxf(b, c))
least3: float -> float: fminf(fminf(a, b), c)
fast_exp: float -> float: __expf(a)
fast_log: float -> float: __logf(a)
fast_sin: float -> float: __sinf(a)
fast_cos: float -> float: __cosf(a)
fast_pow: float -> float: __powf(fabsf(a), b)
to_s64: float -> long long: a
to_u64: float -> unsigned long long: a
to_s32: float -> int: a
to_u32_rn: float -> unsigned: __float2uint_rn(a)
to_s32_rp: float -> int: __float2int_ru(a)
to_u8: float -> unsigned char: (int)a
from_s64: long long -> float: a
from_u64: unsigned long long -> float: a
from_u64_rp: unsigned long long -> float: __ull2float_ru(a)
from_s64_rz: long long -> float: __ll2float_rz(a)
from_s32_rz: int -> float: __int2float_rz(a)
from_u32_rm: unsigned -> float: __uint2float_rd(a)
from_bytes: unsigned -> float: (float)(a & 255) + (float)(a >> 24) * 2 + (float)(signed char)(a >> 8) * 4
from_halves: unsigned -> float: (float)(short)(a >> 16) + (float)(unsigned short)a * 2
"""
)


@pytest.fixture(scope="module", params=ARCHS)
def run(request, elementwise):
    return elementwise(LISTING, request.param)


def distance(found, wanted):
    """Units in the last place between float32 results and float64 references (0 for equal ones and for two NaN)."""
    near = wanted.astype(np.float32)
    unit = np.maximum(np.spacing(np.abs(near)).astype(np.float64), 2.0**-149)
    apart = np.abs(found.astype(np.float64) - wanted) / unit
    return np.where((found == near) | (np.isnan(found) & np.isnan(near)), 0, np.where(np.isfinite(apart), apart, 1e9))


def test_library_functions(run):
    random = np.random.default_rng(1)
    for name, (_, reference, ulps, (low, high)) in FUNCTIONS.items():
        a = random.uniform(low, high, 400).astype(np.float32)
        apart = distance(run(name, np.float32, a), reference(a.astype(np.float64)))
        assert apart.max() <= ulps + 0.6, (name, a[apart.argmax()], apart.max())
    a, b = (random.uniform(-8, 8, 600).astype(np.float32) for _ in range(2))
    for name, (_, two, ulps) in PAIRS.items():
        apart = distance(run(name, np.float32, a, b), two(a.astype(np.float64), b.astype(np.float64)))
        assert apart.max() <= ulps + 0.6, (name, apart.max())


def test_library_functions_at_the_ends(run):
    inf, nan = np.inf, np.nan
    cases = {
        "exp": [(0, 1), (-0.0, 1), (inf, inf), (-inf, 0), (100, inf), (-110, 0), (nan, nan)],
        "log": [(0, -inf), (-0.0, -inf), (1, 0), (inf, inf), (-1, nan), (nan, nan), (1e-45, -103.27893)],
        "sin": [(0, 0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)],
        "cos": [(0, 1), (inf, nan), (nan, nan)],
        "sqrt": [(0, 0), (-0.0, -0.0), (inf, inf), (-1, nan), (1e-45, np.sqrt(np.float32(1e-45)))],
        "rsqrt": [(0, inf), (-0.0, -inf), (inf, 0), (-1, nan), (2.0**-140, 2.0**70)],
        "reciprocal": [
            (0, inf),
            (-0.0, -inf),
            (inf, 0),
            (-inf, -0.0),
            (2.0**127, 2.0**-127),
            (2.0**-130, inf),
            (nan, nan),
        ],
        "tanh": [(0, 0), (-0.0, -0.0), (inf, 1), (-inf, -1), (nan, nan), (1e-40, 1e-40)],
        "erf": [(0, 0), (inf, 1), (-inf, -1), (nan, nan)],
        "fast_exp": [(0, 1), (inf, inf), (-inf, 0), (nan, nan), (200, inf), (-200, 0)],
        "fast_log": [(0, -inf), (1, 0), (inf, inf), (-1, nan), (2.0**-149, -103.27893)],
        "fast_sin": [(0, 0), (inf, nan), (nan, nan)],
        "fast_cos": [(0, 1), (inf, nan)],
    }
    for name, values in cases.items():
        a, wanted = (np.array(column).astype(np.float32) for column in zip(*values, strict=True))
        found = run(name, np.float32, a)
        close = np.isclose(found, wanted, rtol=1e-6, atol=0, equal_nan=True)
        assert (close & ((np.signbit(found) == np.signbit(wanted)) | np.isnan(wanted))).all(), (name, a, found)


def test_fast_functions(run):
    """__sinf and __cosf have an absolute error of 2**-21 or so in [-pi, pi], __expf a relative one."""
    random = np.random.default_rng(2)
    a = random.uniform(-np.pi, np.pi, 500).astype(np.float32)
    wide = a.astype(np.float64)
    assert np.abs(run("fast_sin", np.float32, a) - np.sin(wide)).max() < 2.0**-21
    assert np.abs(run("fast_cos", np.float32, a) - np.cos(wide)).max() < 2.0**-21
    assert np.abs(run("fast_exp", np.float32, a) / np.exp(wide) - 1).max() < 2.0**-21
    assert np.abs(run("fast_log", np.float32, np.abs(a)) - np.log(np.abs(wide))).max() < 2.0**-21
    assert np.abs(run("fast_pow", np.float32, a, a[::-1]) / np.abs(wide) ** wide[::-1] - 1).max() < 2.0**-19


EDGES = [
    0.0,
    1.0,
    1.5,
    2.0**-149,
    2.0**-126,
    2.0**-127 * 1.1,
    3.4028234663852886e38,
    1e30,
    np.inf,
    np.nan,
    0.1,
    2.0**24 - 1,
]


def triples():
    random = np.random.default_rng(3)
    edges = np.array(EDGES + [-e for e in EDGES]).astype(np.float32)
    values = [
        np.concatenate(
            [random.choice(edges, 1500), np.ldexp(random.uniform(-2, 2, 1500), random.integers(-90, 90, 1500))]
        )
        for _ in range(3)
    ]
    a, b, c = (v.astype(np.float32) for v in values)
    c[::5] = -(a[::5] * b[::5])
    return a, b, c


def test_roundings_of_single_precision(run):
    a, b, c = triples()
    lists = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))

    def check(name, values):
        found, wanted = run(name, np.float32, a, b, c), np.array(values).astype(np.float32)
        good = (found.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(found) & np.isnan(wanted))
        assert good.all(), (name, [(lists[i], found[i], wanted[i]) for i in np.flatnonzero(~good)[:4]])

    for mode in ("RN", "RZ", "RM", "RP"):
        check(f"fma_{mode.lower()}", [fused(*t, "f32", mode) for t in lists])
    check("add_rm", [fused(x, 1.0, y, "f32", "RM") for x, y, _ in lists])
    check("mul_rp", [product(x, y, "f32", "RP") for x, y, _ in lists])


def test_minima_of_three(run):
    a, b, c = triples()

    def least(x, y):
        below = (x < y) | ((x == y) & np.signbit(x))
        return np.where(np.isnan(x), y, np.where(np.isnan(y), x, np.where(below, x, y)))

    for name, wanted in {
        "least": least(a, b),
        "least3": least(least(a, b), c),
        "most3": -least(-a, least(-b, -c)),
    }.items():
        found = run(name, np.float32, a, b, c)
        good = (found.view(np.uint32) == wanted.astype(np.float32).view(np.uint32)) | (
            np.isnan(found) & np.isnan(wanted)
        )
        assert good.all(), name


def test_conversions_to_integers(run):
    random = np.random.default_rng(4)
    a = np.concatenate(
        [np.ldexp(random.uniform(-2, 2, 1500), random.integers(-3, 66, 1500)), np.arange(-20, 20) / 4, EDGES]
    )
    a = a.astype(np.float32)
    cases = {
        "to_s64": (np.int64, "TRUNC", -(2**63)),
        "to_u64": (np.uint64, "TRUNC", 2**63),
        "to_s32": (np.int32, "TRUNC", 0),
        "to_u32_rn": (np.uint32, "RN", 0),
        "to_s32_rp": (np.int32, "CEIL", 0),
    }
    for name, (kind, how, nan) in cases.items():
        bits, signed = np.dtype(kind).itemsize * 8, np.dtype(kind).kind == "i"
        assert run(name, kind, a).tolist() == [to_integer(x, how, bits, signed, nan) for x in a.tolist()], name
    assert run("to_u8", np.uint8, a).tolist() == [to_integer(x, "TRUNC", 32, True, 0) & 255 for x in a.tolist()]


def test_conversions_from_integers(run):
    random = np.random.default_rng(5)
    bits = random.integers(0, 2**64, 2000, dtype=np.uint64) >> random.integers(0, 64, 2000, dtype=np.uint64)
    tie = (np.uint64(1) << np.uint64(50)) + (np.arange(9, dtype=np.uint64) << np.uint64(26))
    bits = np.concatenate([bits, tie, tie + np.uint64(1), tie - np.uint64(1)])
    signed = bits.view(np.int64)
    cases = {
        "from_s64": (signed, "RN"),
        "from_u64": (bits, "RN"),
        "from_u64_rp": (bits, "RP"),
        "from_s64_rz": (signed, "RZ"),
        "from_s32_rz": (signed.astype(np.int32), "RZ"),
        "from_u32_rm": (bits.astype(np.uint32), "RM"),
    }
    for name, (values, mode) in cases.items():
        assert run(name, np.float32, values).tolist() == [converted(x, "f32", mode) for x in values.tolist()], name
    words = bits.astype(np.uint32)
    parts = words.view(np.uint8).reshape(-1, 4).astype(float)
    middle = words.view(np.int8).reshape(-1, 4)[:, 1].astype(float)
    assert (run("from_bytes", np.float32, words) == parts[:, 0] + parts[:, 3] * 2 + middle * 4).all()
    halves = words.view(np.int16).reshape(-1, 2)[:, 1].astype(float) + (words & 0xFFFF) * 2.0
    assert (run("from_halves", np.float32, words) == halves).all()


def test_special_functions_flush_and_reduce(evaluate):
    tiny = np.float32(2.0**-130)

    def one(text, value):
        return evaluate(text, np.array([value], np.float32)).view(np.float32)[0, 0]

    assert one("MUFU.RCP R0, R1", -tiny) == -np.inf
    assert one("MUFU.RCP R0, R1", np.float32(2.0**127)) == 0
    assert one("MUFU.RSQ R0, R1", -tiny) == -np.inf
    assert one("MUFU.SQRT R0, R1", tiny) == 0
    assert one("MUFU.EX2 R0, R1", np.float32(-130)) == 0
    assert one("MUFU.EX2 R0, R1", tiny) == 1
    assert one("MUFU.LG2 R0, R1", tiny) == -np.inf
    assert np.isnan(one("MUFU.LG2 R0, R1", np.float32(-1)))
    assert one("MUFU.TANH R0, R1", tiny) == tiny
    # angles are in revolutions
    for angle, sine, cosine in ((0.25, 1, 0), (0.5, 0, -1), (1e9, 0, 1), (-0.75, 1, 0), (1 / 12, 0.5, np.sqrt(0.75))):
        assert one("MUFU.SIN R0, R1", np.float32(angle)) == pytest.approx(sine, abs=1e-7)
        assert one("MUFU.COS R0, R1", np.float32(angle)) == pytest.approx(cosine, abs=1e-7)
    assert np.isnan(one("MUFU.SIN R0, R1", np.float32(np.inf)))


def test_reciprocals_of_doubles_have_a_high_word_only(evaluate):
    def one(text, value):
        high = np.array([value]).view(np.uint64) >> np.uint64(32)
        word = evaluate(text, high.astype(np.uint32))
        return (word.astype(np.uint64) << np.uint64(32)).view(np.float64)[0, 0]

    for value in (3.0, -7.5, 1e300, 2.0**-1000):
        assert one("MUFU.RCP64H R0, R1", value) == pytest.approx(1 / value, rel=2.0**-20)
        assert one("MUFU.RSQ64H R0, R1", abs(value)) == pytest.approx(abs(value) ** -0.5, rel=2.0**-20)
    assert one("MUFU.RCP64H R0, R1", -1e-310) == -np.inf
    assert one("MUFU.RCP64H R0, R1", np.inf) == 0
    assert np.isnan(one("MUFU.RSQ64H R0, R1", -1.0))


def test_flushing_conversions(evaluate):
    tiny = np.array([-(2.0**-140)], np.float32)
    assert evaluate("F2I.FLOOR.NTZ R0, R1", tiny)[0, 0] == 0xFFFFFFFF
    assert evaluate("F2I.FTZ.FLOOR.NTZ R0, R1", tiny)[0, 0] == 0
    assert evaluate("FRND.FLOOR R0, R1", tiny).view(np.float32)[0, 0] == -1
    assert evaluate("FRND.FTZ.FLOOR R0, R1", tiny)[0, 0] == 0x80000000
    assert evaluate("F2I.S8.NTZ R0, R1", np.array([-300.0], np.float32))[0, 0] == 0xFFFFFF80


def test_minima_with_modifiers(evaluate):
    a, b, p = np.array([1.0], np.float32), np.array([-2.0], np.float32), np.array([True])
    nan = np.array([np.nan], np.float32)
    assert evaluate("FMNMX.NAN R0, R1, R2, PT", a, nan, p)[0, 0] == 0x7FFFFFFF
    assert evaluate("FMNMX R0, R1, R2, PT", a, nan, p).view(np.float32)[0, 0] == 1
    assert evaluate("FMNMX.XORSIGN R0, |R1|, |R2|, !PT", a, b, ~p).view(np.float32)[0, 0] == -2
