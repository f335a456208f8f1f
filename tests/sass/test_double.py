"""Double precision: single roundings in every mode, comparisons, conversions, and the functions made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from exact import converted, fused, product, to_integer

ARCHS = ["sm_75", "sm_120"]
LISTING = """
fma_rn: double -> double: fma(a, b, c)
fma_rz: double -> double: __fma_rz(a, b, c)
fma_rm: double -> double: __fma_rd(a, b, c)
fma_rp: double -> double: __fma_ru(a, b, c)
add_rn: double -> double: a + b
add_rz: double -> double: __dadd_rz(a, b)
add_rm: double -> double: __dadd_rd(a, b)
add_rp: double -> double: __dadd_ru(a, b)
mul_rn: double -> double: a * b
mul_rz: double -> double: __dmul_rz(a, b)
mul_rm: double -> double: __dmul_rd(a, b)
mul_rp: double -> double: __dmul_ru(a, b)
div: double -> double: a / b
div_rz: double -> double: __ddiv_rz(a, b)
reciprocal: double -> double: 1.0 / a
sqrt: double -> double: sqrt(a)
sqrt_rp: double -> double: __dsqrt_ru(a)
rsqrt: double -> double: rsqrt(a)
least: double -> double: fmin(a, b)
most: double -> double: fmax(a, b)
remainder: double -> double: fmod(a, b)
floor: double -> double: floor(a)
ceil: double -> double: ceil(a)
trunc: double -> double: trunc(a)
rint: double -> double: rint(a)
compare: double -> int: (a < b) + 2 * (a <= b) + 4 * (a == b) + 8 * (a != b) + 16 * !(a >= b) + 32 * !(a > b)
to_s32: double -> int: a
to_u32: double -> unsigned: a
to_s64: double -> long long: a
to_u64: double -> unsigned long long: a
to_s32_rn: double -> int: __double2int_rn(a)
to_s64_rm: double -> long long: __double2ll_rd(a)
to_s64_rp: double -> long long: __double2ll_ru(a)
to_f32: double -> float: a
to_f32_rz: double -> float: __double2float_rz(a)
to_f32_rm: double -> float: __double2float_rd(a)
to_f32_rp: double -> float: __double2float_ru(a)
exp: double -> double: exp(a)
log: double -> double: log(a)
sin: double -> double: sin(a)
cos: double -> double: cos(a)
tanh: double -> double: tanh(a)
erf: double -> double: erf(a)
pow: double -> double: pow(fabs(a), b)
cbrt: double -> double: cbrt(a)
hypot: double -> double: hypot(a, b)
atan2: double -> double: atan2(a, b)
from_s32: int -> double: a
from_u32: unsigned -> double: a
from_s64: long long -> double: a
from_u64: unsigned long long -> double: a
from_s64_rz: long long -> double: __ll2double_rz(a)
from_s64_rm: long long -> double: __ll2double_rd(a)
from_u64_rp: unsigned long long -> double: __ull2double_ru(a)
from_f32: float -> double: a
from_s8: signed char -> double: a
from_u16: unsigned short -> double: a
"""
EDGES = np.array(
    [
        0.0,
        1.0,
        1.5,
        1 / 3,
        2.0**-1074,
        3 * 2.0**-1074,
        2.0**-1022,
        np.nextafter(2.0**-1022, 0),
        2.0**-1021 / 3,
        1.7976931348623157e308,
        1e308,
        2.0**512,
        2.0**-537,
        2.0**-538 * 1.1,
        math.inf,
        math.nan,
        1 + 2.0**-52,
        2.0**53 - 1,
        2.0**31 - 0.5,
        2.0**32,
        2.0**63,
        2.0**64 - 2048,
        0.5,
        2.5,
        1e-320,
        3.4028235677973366e38,
        1e-46,
    ]
)
EDGES = np.concatenate([EDGES, -EDGES])


@pytest.fixture(scope="module", params=ARCHS)
def run(request, elementwise):
    return elementwise(LISTING, request.param)


def operands(seed: int, count: int = 900) -> tuple[np.ndarray, ...]:
    """Pairs of edge values with a third operand that often nearly cancels the product, and random ones."""
    random = np.random.default_rng(seed)
    a, b = (x.reshape(-1) for x in np.meshgrid(EDGES, EDGES))
    with np.errstate(all="ignore"):
        near = -(a * b) * (1 + random.integers(-2, 3, a.shape) * 2.0**-52)
    c = np.where(random.random(a.shape) < 0.5, random.choice(EDGES, a.shape), near)
    wide = np.ldexp(random.uniform(1, 2, (3, count)), random.integers(-1074, 1023, (3, count)))
    close = np.ldexp(random.uniform(-2, 2, (3, count)), random.integers(-30, 30, (3, count)))
    close[2, ::3] = -(close[0, ::3] * close[1, ::3])
    close[2, 1::3] = np.ldexp(close[0, 1::3] * close[1, 1::3], random.integers(-54, 54, count)[1::3])
    close[:2] = np.where(random.random((2, count)) < 0.3, np.round(close[:2] * 2**26) / 2**26, close[:2])
    return tuple(np.concatenate([x, y, z]) for x, y, z in zip((a, b, c), wide, close, strict=True))


def same(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal bits, any NaN standing for any other."""
    expected = np.asarray(expected, found.dtype)
    word = {8: np.uint64, 4: np.uint32, 2: np.uint16}[found.dtype.itemsize]
    wrong = (found.view(word) != expected.view(word)) & ~(np.isnan(found) & np.isnan(expected))
    assert not wrong.any(), [(i, found[i], expected[i]) for i in np.flatnonzero(wrong)[:5]]


@pytest.mark.parametrize("mode", ["RN", "RZ", "RM", "RP"])
def test_sums_products_and_fused_ones_are_rounded_once(run, mode):
    a, b, c = operands(1)
    triples = list(zip(a.tolist(), b.tolist(), c.tolist(), strict=True))
    low = mode.lower()
    same(run(f"fma_{low}", np.float64, a, b, c), [fused(x, y, z, "f64", mode) for x, y, z in triples])
    same(run(f"add_{low}", np.float64, a, b), [fused(x, 1.0, y, "f64", mode) for x, y, _ in triples])
    same(run(f"mul_{low}", np.float64, a, b), [product(x, y, "f64", mode) for x, y, _ in triples])


def test_division_and_roots_are_correctly_rounded(run):
    a, b, _ = operands(2)
    with np.errstate(all="ignore"):
        same(run("div", np.float64, a, b), a / b)
        same(run("reciprocal", np.float64, a), 1 / a)
        same(run("sqrt", np.float64, a), np.sqrt(a))
        rsqrt = run("rsqrt", np.float64, a)
        wanted = 1 / np.sqrt(a)
        assert np.array_equal(np.isnan(rsqrt), np.isnan(wanted))
        # the library states one unit in the last place
        assert ((np.abs(rsqrt - wanted) <= np.spacing(np.abs(wanted))) | (rsqrt == wanted) | np.isnan(wanted)).all()
        up = run("sqrt_rp", np.float64, np.abs(a))
        nearest = np.sqrt(np.abs(a))
        assert ((up == nearest) | (up == np.nextafter(nearest, np.inf)) | np.isnan(nearest)).all()
        toward = run("div_rz", np.float64, a, b)
        ordinary = np.isfinite(a / b) & np.isfinite(a) & np.isfinite(b) & (b != 0)
        assert (np.abs(toward) <= np.abs(a / b))[ordinary].all()
        assert (np.abs(toward) >= np.nextafter(np.abs(a / b), 0))[ordinary].all()


def test_minima_maxima_comparisons_and_remainders(run):
    a, b, _ = operands(3, 100)
    with np.errstate(all="ignore"):
        below = (a < b) | ((a == b) & np.signbit(a))
        least = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where(below, a, b)))
        most = np.where(np.isnan(a), b, np.where(np.isnan(b), a, np.where(below, b, a)))
        same(run("least", np.float64, a, b), least)
        same(run("most", np.float64, a, b), most)
        tests = [a < b, a <= b, a == b, a != b, ~(a >= b), ~(a > b)]
        assert (run("compare", np.int32, a, b) == sum(t.astype(int) << k for k, t in enumerate(tests))).all()
        few = np.abs(np.log2(np.abs(a)) - np.log2(np.abs(b))) < 100
        same(run("remainder", np.float64, a[few], b[few]), np.fmod(a[few], b[few]))


def test_rounding_to_integers(run):
    a = np.concatenate([operands(4)[0], np.arange(-40, 40) / 8, 2.0**52 + np.arange(-3, 3) / 2])
    for name, function in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "rint": np.rint}.items():
        same(run(name, np.float64, a), function(a))
    kinds = {
        "to_s32": (np.int32, "TRUNC"),
        "to_u32": (np.uint32, "TRUNC"),
        "to_s64": (np.int64, "TRUNC"),
        "to_u64": (np.uint64, "TRUNC"),
        "to_s32_rn": (np.int32, "RN"),
        "to_s64_rm": (np.int64, "FLOOR"),
        "to_s64_rp": (np.int64, "CEIL"),
    }
    for name, (kind, how) in kinds.items():
        bits, signed = np.dtype(kind).itemsize * 8, np.dtype(kind).kind == "i"
        nan = -(1 << (bits - 1)) if signed else 1 << (bits - 1)
        expected = [to_integer(x, how, bits, signed, nan) for x in a.tolist()]
        found = run(name, kind, a).tolist()
        assert found == expected, name


def test_conversions_between_precisions(run):
    a = operands(5)[0]
    a = np.concatenate([a, np.ldexp(np.random.default_rng(6).uniform(1, 2, 800), np.arange(800) % 300 - 160)])
    for mode, name in {"RN": "to_f32", "RZ": "to_f32_rz", "RM": "to_f32_rm", "RP": "to_f32_rp"}.items():
        with np.errstate(all="ignore"):
            same(run(name, np.float32, a), np.array([converted(x, "f32", mode) for x in a.tolist()]).astype(np.float32))
    with np.errstate(all="ignore"):
        single = a.astype(np.float32)
    same(run("from_f32", np.float64, single), single.astype(np.float64))


def test_conversions_from_integers(run):
    random = np.random.default_rng(7)
    bits = random.integers(0, 2**64, 600, dtype=np.uint64) >> random.integers(0, 64, 600, dtype=np.uint64)
    bits = np.concatenate(
        [bits, np.uint64(2**64 - 1) - np.arange(1000, dtype=np.uint64), 2**63 + np.arange(9, dtype=np.uint64)]
    )
    signed = bits.view(np.int64)
    cases = {
        "from_s64": (signed, "RN"),
        "from_u64": (bits, "RN"),
        "from_s64_rz": (signed, "RZ"),
        "from_s64_rm": (signed, "RM"),
        "from_u64_rp": (bits, "RP"),
        "from_s32": (signed.astype(np.int32), "RN"),
        "from_u32": (bits.astype(np.uint32), "RN"),
        "from_s8": (bits.astype(np.int8), "RN"),
        "from_u16": (bits.astype(np.uint16), "RN"),
    }
    for name, (values, mode) in cases.items():
        same(run(name, np.float64, values), [converted(x, "f64", mode) for x in values.tolist()])


@pytest.mark.filterwarnings("ignore")
def test_library_functions_are_as_close_as_the_library_says(run):
    """Bounds in units in the last place are those of the CUDA C++ programming guide (plus NumPy's own)."""
    random = np.random.default_rng(8)
    a, b = random.uniform(-20, 20, 300), random.uniform(-9, 9, 300)
    a[:4] = 0.0, -0.0, 1.0, 1e-300
    references = {
        "exp": (np.exp(a), 2),
        "log": (np.log(np.abs(a)), 2),
        "sin": (np.sin(a), 3),
        "cos": (np.cos(a), 3),
        "tanh": (np.tanh(a), 3),
        "erf": (np.array([math.erf(x) for x in a]), 3),
        "cbrt": (np.cbrt(a), 2),
        "hypot": (np.hypot(a, b), 3),
        "atan2": (np.arctan2(a, b), 3),
        "pow": (np.abs(a) ** b, 3),
    }
    for name, (wanted, ulps) in references.items():
        first = np.abs(a) if name == "log" else a
        found = run(name, np.float64, first, b)
        with np.errstate(all="ignore"):
            near = np.abs(found - wanted) <= ulps * np.spacing(np.abs(wanted))
        assert (near | (found == wanted)).all(), (name, first[~near], found[~near], wanted[~near])
