"""Unusual but legal kernels (kernels/strange.cu) on several architectures, against NumPy and plain Python."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim

SOURCE = Path(__file__).parent / "kernels" / "strange.cu"
NAMES = ("templated<float, 3>", "templated<long long, 5>", "templated<unsigned char, 7>", "inner::apply<inner::Scale>")
DEFAULT = ("sm_90", "sm_120")
OTHERS = ("sm_75", "sm_80", "sm_89", "sm_100")

i32, i64 = np.int32, np.int64
Random = np.random.Generator
REFERENCES: list[Callable[[gpusim.Module, Random], None]] = []


@cache
def module(arch: str) -> gpusim.Module:
    return gpusim.compile(SOURCE, arch=arch, names=NAMES, options=("--device-int128",))


def reference(function: Callable[[gpusim.Module, Random], None]) -> Callable[[gpusim.Module, Random], None]:
    """Register a function that launches kernels of the module and checks what they wrote."""
    REFERENCES.append(function)
    return function


def wrap(value: int, bits: int = 32) -> int:
    """An integer as a two's complement number of so many bits."""
    return (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def toward_zero(a: int, b: int) -> int:
    """C's integer quotient."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


# -- shapes -----------------------------------------------------------------------------------------------------------
@reference
def odd_shape(m, rng):
    out = np.zeros((30, 105), i32)
    result = m["odd_shape"].launch((3, 2, 5), (7, 5, 3), [out])
    block, thread = np.arange(30)[:, None], np.arange(105)
    expected = thread % 7 + 10 * (thread // 7 % 5) + 100 * (thread // 35)
    expected = expected + 1000 * (block % 3) + 10000 * (block // 3 % 2) + 100000 * (block // 6) + (5 << 20)
    assert (out == expected).all()
    assert result.metrics["launch__thread_count"] == 3150


@reference
def one_thread(m, rng):
    given, out = rng.random(1000).astype("f4"), np.zeros(1000, "f4")
    m["one_thread"].launch(1200, 1, [out, given, i32(1000)])
    assert (out == (given[::-1].astype("f8") * 2 + 1).astype("f4")).all()


@reference
def nothing_at_all(m, rng):
    result = m["nothing_at_all"].launch((2, 3, 4), (5, 6, 7), [])
    assert result.metrics["launch__thread_count"] == 24 * 210
    assert result.metrics["smsp__sass_inst_executed_op_global_ld.sum"] == 0


@reference
def transpose_planes(m, rng):
    given, out = rng.random((6, 21, 29)).astype("f4"), np.zeros((6, 29, 21), "f4")
    m["transpose_planes"].launch((4, 3, 2), (8, 8, 3), [out, given, i32(29), i32(21)])
    assert (out == given.transpose(0, 2, 1)).all()


# -- memory spaces ----------------------------------------------------------------------------------------------------
@reference
def dynamic_and_static(m, rng):
    n = 97
    given, out, t = rng.integers(-1000, 1000, n).astype(i32), np.zeros(n, i32), np.arange(n)
    m["dynamic_and_static"].launch(1, n, [out, given, i32(n)], shared_bytes=n * 6)
    assert (out == given[::-1] + given[t % 40] * 3 + (given ^ 0x55)[(t * 7) % n]).all()


@reference
def constants_by_lane(m, rng):
    out, sums, t = np.zeros(64, i32), np.zeros(64), np.arange(64)
    m["constants_by_lane"].launch(1, 64, [out, sums])
    words, data = np.array([5, 4, 3, 2, 1, 100, 200, -7, 0]), np.array([1, 2, 3, 250, 251, 252, 0])
    assert (out == words[t % 9] + data[t % 7] + np.array([-1, -2, 3, -30000])[t & 3]).all()
    a, b, c = np.array([[1, 4, 7], [2, 5, 8], [3, 6, 9]])
    assert (sums == c[t % 3] + b[(t + 1) % 3] + a[(t + 2) % 3]).all()


@reference
def change_globals(m, rng):
    """__device__ variables keep their values from launch to launch."""
    out, before, after = np.zeros(32, "f4"), np.zeros(2, i64), np.zeros(2, i64)
    m["read_globals"].launch(1, 32, [out, before])
    first = out.copy()
    for _ in range(2):
        m["change_globals"].launch(1, 32, [])
    m["change_globals"].count(1, 32, [])  # counting leaves everything as it is
    m["read_globals"].launch(1, 32, [out, after])
    assert (out - first == np.arange(32)).all()
    assert (after - before).tolist() == [2, 64]


@reference
def local_arrays(m, rng):
    threads, n = 48, 9
    index, out = rng.integers(0, 1000, (threads, n)).astype(i32), np.zeros(threads, i32)
    m["local_arrays"].launch(1, threads, [out, index, i32(n)])
    for t in range(threads):
        a, b = [i * t for i in range(24)], [(i * 31 + t) & 255 for i in range(10)]
        c, d = [-i * 1000 - t for i in range(6)], [i << 33 | t for i in range(5)]
        s = 0
        for k, j in enumerate(index[t].tolist()):
            a[j % 24] += k
            s += a[(j * 5) % 24] + b[j % 10] + c[j % 6] + (d[j % 5] >> 31)
            b[(j + 3) % 10] ^= j & 255
            c[j % 6] = wrap(s, 16)
        assert out[t] == s


@reference
def generic_pointers(m, rng):
    given, out = rng.integers(0, 99, 32).astype(i32), np.arange(128, dtype=i32)
    expected = out.copy()
    m["generic_pointers"].launch(1, 32, [out, given])
    for t in range(32):
        local = [t + i for i in range(4)]
        if t % 3 == 0:
            value = given[t]
        elif t % 3 == 1:
            local[given[t] & 3] += given[t]
            value = local[given[t] & 3]
        else:
            expected[64 + t] += given[t]
            value = expected[64 + t]
        expected[t] = value + local[given[t] & 3]
    assert (out == expected).all()


@reference
def volatile_words(m, rng):
    given, out = rng.integers(0, 99, 64).astype(i32), np.zeros(64, i32)
    m["volatile_words"].launch(1, 64, [out, given])
    halved = given.copy()
    halved[:32] += given[32:]
    expected = halved.copy()
    expected[:16] += halved[16:32]
    assert (out == expected + 1).all()


@reference
def pipeline(m, rng):
    n, t = 5, np.arange(64)
    given, out = rng.integers(0, 99, (n, 256)).astype("f4"), np.zeros((n, 64), "f4")
    m["pipeline"].launch(1, 64, [out, given, i32(n)])
    assert (out == sum(given[:, (t * 4 + j * 37) % 256] for j in range(4))).all()


# -- parameters -------------------------------------------------------------------------------------------------------
@reference
def struct_by_value(m, rng):
    kind = np.dtype({
        "names": ["c", "i", "s", "d", "q", "u"], "formats": ["i1", "i4", ("i2", 3), "f8", ("f4", 4), "u1"],
        "offsets": [0, 4, 8, 16, 32, 48], "itemsize": 64,
    })  # fmt: skip
    mixed, out = np.zeros((), kind), np.zeros(10, "f4")
    mixed[()] = (-5, 77, [1, -2, -3], 2.5, [9, 8, 7, 6], 200)
    m["struct_by_value"].launch(1, 32, [mixed[()], out, i32(1)])
    assert out.tolist() == [-5, 77, 1, -3, 2.5, 9, 6, 200, -2, 1]


@reference
def unaligned_fields(m, rng):
    kind = np.dtype([("c", "i1"), ("i", "<i4"), ("d", "<f8"), ("s", "<i2")])
    array, value, t = np.zeros(20, kind), np.zeros((), kind), np.arange(20)
    array["c"], array["i"], array["d"], array["s"] = t, t * 70000, t / 3, 5
    value[()] = (3, -9, 1.25, 0)
    expected = array.copy()
    expected["i"] -= 9
    expected["d"] *= 1.25
    expected["s"] -= t.astype("i2")
    expected["c"] ^= 3
    m["unaligned_fields"].launch(1, 32, [array, value[()], i32(20)])
    assert (array == expected).all()


@reference
def large_parameter(m, rng):
    large, out, t = np.zeros((), [("v", i32, 900)]), np.zeros(64, i32), np.arange(32)
    values = large["v"] = rng.integers(0, 10**6, 900)
    m["large_parameter"].launch(1, 32, [large[()], out, i32(37)])
    assert (out[:32] == values[t * 37 % 900] + values[899]).all()
    assert (out[32:] == values[:32]).all()


@reference
def parameter_pointer(m, rng):
    large, out = np.zeros((), [("v", i32, 900)]), np.zeros(32, i32)
    values = large["v"] = rng.integers(0, 10**6, 900)
    m["parameter_pointer"].launch(1, 32, [large[()], out, i32(37)])
    assert (out == values[np.arange(32) * 37 % 900]).all()


@reference
def templated(m, rng):
    for name, kind, n in zip(NAMES[:3], ("f4", "i8", "u1"), (3, 5, 7), strict=True):
        given, out = rng.integers(0, 50, (66, n)).astype(kind), np.zeros(66, kind)
        m[name].launch(2, 33, [out, given])
        assert (out == (given.astype(i64) * (np.arange(n) + 1)).sum(axis=1).astype(kind)).all()


@reference
def functor(m, rng):
    scale = np.zeros((), {"names": ["factor", "shift"], "formats": ["i4", "i2"], "offsets": [0, 4], "itemsize": 8})
    scale[()] = (7, -3)
    out = np.zeros(32, i32)
    m[NAMES[3]].launch(1, 32, [out, scale[()]])
    assert (out == np.arange(32) * 7 - 3).all()


# -- warps, barriers, control flow ------------------------------------------------------------------------------------
@reference
def partial_warp_shuffles(m, rng):
    n = 52  # the second warp has 20 lanes
    given, out = rng.integers(0, 50, n).astype(i32), np.zeros(2 * n, i32)
    m["partial_warp_shuffles"].launch(1, n, [out, given, i32(n)])
    for t in range(n):
        lane, first = t % 32, t // 32 * 32
        lanes = given[first : first + 32]
        if lane >= 20:
            assert out[t] == 0
        elif lane + 3 < 20:
            down = lanes[lane + 3] if lane % 16 + 3 < 16 else lanes[lane]
            assert out[t] == down + 100 * lanes[lane ^ 1] + (20 << 16)
        source = (lane & ~7) | ((lane + 1) & 7)
        if source < len(lanes):
            up = lanes[lane - 2] if lane % 4 >= 2 else lanes[lane]
            assert out[n + t] == lanes[source] + up


@reference
def half_warps_apart(m, rng):
    out, expected = np.zeros(32, i32), np.arange(32)
    m["half_warps_apart"].launch(1, 32, [out, i32(5)])
    for _ in range(5):
        expected = np.concatenate([np.roll(expected[:16], -1), np.roll(expected[16:], -3)])
    assert (out == expected).all()


@reference
def matches(m, rng):
    given, out = rng.integers(0, 6, 32).astype(i32), np.zeros((4, 32), i32)
    m["matches"].launch(1, 32, [out, given])
    same = [sum(1 << j for j in range(32) if given[j] == value) for value in given]
    assert out[0].view("u4").tolist() == same
    assert out[1].tolist() == [(word & (1 << t) - 1).bit_count() for t, word in enumerate(same)]
    assert (out[2] == 1 + 2 + 4 + 8 * (given == 3).any()).all()
    assert out[3].tolist() == [(word & -word).bit_length() + 100 * (32 - word.bit_length()) for word in same]


@reference
def exit_before_barrier(m, rng):
    n, t = 300, np.arange(128)
    given, out = rng.integers(1, 99, n).astype(i32), np.zeros(n, i32)
    m["exit_before_barrier"].launch(3, 128, [out, given, i32(n)])
    shared = np.pad(given, (0, 384 - n)).reshape(3, 128)
    expected = shared[:, t ^ 1] + np.where(t >= 5, shared[:, np.maximum(t - 5, 0)], 0)
    assert (out == expected.reshape(-1)[:n]).all()


@reference
def barrier_reductions(m, rng):
    n = 280
    given, out = rng.integers(0, 100, n).astype(i32), np.zeros((4, 75), i32)
    m["barrier_reductions"].launch(4, 75, [out, given, i32(n)])
    padded = np.pad(given, (0, 300 - n)).reshape(4, 75)
    expected = (padded > 50).sum(axis=1) * 4 + 2 * (np.arange(4) == 1) + (padded == 77).any(axis=1)
    assert (out == expected[:, None]).all()


@reference
def last_block(m, rng):
    given, total = rng.integers(0, 99, 640).astype(i32), np.zeros(1, i32)
    ticket, found = np.zeros(1, "u4"), np.zeros(641, i32)
    m["last_block"].launch(10, 64, [total, ticket, found, given])
    odd = np.flatnonzero(given & 1)
    assert found[0] == len(odd) and sorted(found[1 : 1 + len(odd)]) == odd.tolist()
    assert total[0] == odd.sum()


def _tangled(given: list[int], t: int) -> int:
    s = 0
    for i in range(len(given)):
        v = given[(t + i) % len(given)]
        if v < 10:
            s += 1 if v < 5 else 2
            if v < 2:
                return s
        elif v < 20:
            while v > 10:
                v -= t % 3 + 1
                s += 3
                if s > 200:
                    return s
        else:
            s ^= v
            while True:
                v //= 2
                if v == 3:
                    break
                s += 1
                if v <= 2:
                    break
    return s


@reference
def tangled_loops(m, rng):
    given, out = rng.integers(0, 40, 50).astype(i32), np.zeros(96, i32)
    m["tangled_loops"].launch(1, 96, [out, given, i32(50)])
    assert out.tolist() == [_tangled(given.tolist(), t) for t in range(96)]


def _collatz(x: int) -> int:
    n = 0
    while x != 1 and n < 200:
        x, n = (3 * x + 1 if x & 1 else x // 2), n + 1
    return n


@reference
def divergent_calls(m, rng):
    out = np.zeros(150, i32)
    m["divergent_calls"].launch(3, 50, [out])
    steps = [_collatz(i + 1) for i in range(151)]
    assert out.tolist() == [steps[i] + (steps[i + 1] if steps[i] > 10 else 0) for i in range(150)]


@reference
def switch_table(m, rng):
    n = 96
    given, out = rng.integers(-1, 14, n).astype(i32), np.zeros(n, i32)
    m["switch_table"].launch(1, n, [out, given, i32(n)])
    for t in range(n):
        cases = {
            0: t, 1: 2 * t, 2: given[(t + 1) % n], 3: -t, 4: t ^ 55, 5: 7 + t, 6: 7 + t, 7: t // 3, 8: t % 5,
            9: t << 3, 10: t**3, 11: t.bit_count(),
        }  # fmt: skip
        assert out[t] == cases.get(int(given[t]), -1)


@reference
def many_predicates(m, rng):
    n = 64
    given, out = rng.integers(0, 100, n).astype(i32), np.zeros(n, i32)
    m["many_predicates"].launch(2, 32, [out, given, i32(n)])
    for i in range(n):
        held = [given[(i + k) % n] > k * 10 for k in range(9)]
        s = sum(int(given[(i * 3 + k) % n]) for k in range(9) if held[k])
        for k in range(9):
            if held[8 - k]:
                s ^= k << s % 5
        assert out[i] == s


@reference
def tile_sums(m, rng):
    given, out = rng.integers(0, 100, 96).astype(i32), np.zeros(106, i32)
    m["tile_sums"].launch(2, 96, [out, given])
    assert out[:3].tolist() == [2 * (given & 1).sum(), given.sum(), given.sum()]
    expected = np.arange(12) * 100 + given.reshape(12, 8).sum(axis=1)
    assert (out[10:].reshape(12, 8) == expected[:, None]).all()


# -- atomics ----------------------------------------------------------------------------------------------------------
@reference
def atomics_that_return(m, rng):
    n = 40
    g, out = np.zeros(12, "u4"), np.zeros((n, 11), "u4")
    g[3] = 0xFFFFFFFF
    m["atomics_that_return"].launch(1, n, [out, g])
    assert sorted([*out[:, 0].tolist(), int(g[0])]) == list(range(n + 1))
    counted = lowered = 0
    for _ in range(n):
        counted = 0 if counted >= 10 else counted + 1
        lowered = 5 if lowered == 0 or lowered > 5 else lowered - 1
    total = n * (n - 1) // 2
    xor = int(np.bitwise_xor.reduce(np.arange(n)))
    assert g[1:10].tolist() == [32, 2**32 - 39, 0, 0xFFFFFFFF, xor, counted, lowered, n, 2**32 - 3 * n]
    assert g[10:].tolist() == [total, total]
    assert sorted(out[:, 9].tolist()) == sorted((-3 * k) % 2**32 for k in range(n))


@reference
def compare_and_swap_16(m, rng):
    given, out = rng.integers(0, 8, 64).astype("u2"), np.zeros(8, "u4")
    m["compare_and_swap_16"].launch(1, 64, [out, given])
    assert (out == np.bincount(given, minlength=8)).all()


@reference
def atomic_references(m, rng):
    out, flags = np.zeros(2, i32), np.zeros(2, i32)
    m["atomic_references"].launch(2, 40, [out, flags])
    assert out.tolist() == [160, 0] and flags[1] == 77 and 0 <= flags[0] < 40


# -- numbers ----------------------------------------------------------------------------------------------------------
@reference
def hashes_64(m, rng):
    n, stride = 77, 6
    given, out = rng.integers(0, 256, n * stride).astype("u1"), np.zeros(n, "u8")
    m["hashes_64"].launch(3, 32, [out, given, i64(stride), i64(n)])
    for i in range(n):
        h = 1469598103934665603
        for byte in given[i::n].tolist():
            h = (h ^ byte) * 1099511628211 % 2**64
        expected = h // (i + 1) + h % 7 if i % 3 == 0 else h
        if i % 5 == 0:
            expected = toward_zero(wrap(h, 64), i + 3)
        assert int(out[i]) == expected % 2**64


@reference
def integers_128(m, rng):
    edges = [0, 1, 2**64 - 1, 5, 2**63, 7, 0, 2**64 - 1, 2**64 - 2, 3]
    given = np.array([*edges, *rng.integers(0, 2**63, 23).tolist()], "u8")
    for n in (0, 1, 2**64 - 1, 12345678901234567890):
        out = np.zeros((32, 8), "u8")
        m["integers_128"].launch(1, 32, [out, given, np.uint64(n)])
        for t in range(32):
            x, y = int(given[t]), int(given[t + 1])
            p = y << 64 | n
            q = ((x << 64 | y) + p) % 2**128
            r = (p - q * 3) % 2**128
            assert out[t].tolist() == [v % 2**64 for v in (x - y, x + y + n, n - x, q, q >> 64, r, r >> 64, r > p)]


@reference
def divide(m, rng):
    n = 64
    given, out = rng.integers(-(2**31), 2**31, n + 1).astype(i32), np.zeros((n, 7), i32)
    given[::5] = rng.integers(1, 100, 13)
    given[2:5] = 2**31 - 1, -1, 1
    m["divide"].launch(1, n, [out, given, i32(-13)])
    for i in range(n):
        x, y = int(given[i]), int(given[i + 1])
        ux, uy = x % 2**32, y % 2**32
        quotient = toward_zero(x, y)
        expected = (quotient, x - y * quotient, ux // uy, ux % uy, toward_zero(x, 7), ux % 1000003, toward_zero(x, -13))
        assert out[i].tolist() == [wrap(v) for v in expected]


@reference
def divide_doubles(m, rng):
    given, out = (rng.random(32) - 0.5) * 6, np.zeros((3, 32))
    m["divide_doubles"].launch(1, 32, [out, given])
    assert (out == [given / 3.7, 1 / (given + 9), np.sqrt(np.abs(given))]).all()
    assert out[0, 0] == float(Fraction(float(given[0])) / Fraction(3.7))


@reference
def inline_ptx(m, rng):
    given, out = rng.integers(0, 2**32, 64, dtype="u8").astype("u4"), np.zeros((64, 10), "u4")
    given[:6] = 0, 1, 999, 1000, 2**32 - 1, 2**31
    m["inline_ptx"].launch(1, 64, [out, given])
    for t, x in enumerate(given.tolist()):
        lane, total = t % 32, x * 3 % 2**32 + 0xFFFFFFF0
        low, high = total % 2**32, (x + (total >> 32)) % 2**32
        picked = [x.to_bytes(4, "little"), low.to_bytes(4, "little")]
        data = picked[0] + picked[1]
        expected = [
            x if x < 1000 else 7,
            x >> 5 & 511,
            x & ~(0xFFF << 8) | lane << 8,
            low,
            high,
            int.from_bytes(bytes(data[k] for k in (1, 3, 5, 2)), "little"),
            x ^ low ^ high,
            ((low << 32 | x) >> (lane + 40 & 31)) % 2**32,
            (abs(x - low) + 5) % 2**32,
            sum(a * b for a, b in zip(*picked, strict=True)) + 9,
        ]
        assert out[t].tolist() == expected


@pytest.mark.parametrize("arch", [*DEFAULT, *(pytest.param(a, marks=pytest.mark.exhaustive) for a in OTHERS)])
@pytest.mark.parametrize("check", [pytest.param(f, id=f.__name__) for f in REFERENCES])
def test_results(check, arch):
    check(module(arch), np.random.default_rng(7))


@pytest.mark.parametrize("arch", DEFAULT)
def test_buffers_across_a_4_gib_boundary(arch):
    """Address arithmetic carries into the high word within one buffer."""
    n = 100_000
    placed = gpusim.compile(
        SOURCE, arch=arch, names=NAMES, options=("--device-int128",), memory_base=0x8_0000_0000 - 0x8000
    )
    given, out = np.random.default_rng(7).random(n).astype("f4"), np.zeros((2, n), "f4")
    placed["across_4_gib"].launch(-(-n // 128), 128, [out, given, i32(n)])
    assert (out[0] == given + np.roll(given, -1)).all()
    assert (out[1] == given[::-1]).all()
