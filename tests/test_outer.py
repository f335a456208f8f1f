"""Sums of a part a block and a part a thread behave as the arrays that they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusim
from gpusim.machine.outer import Numbers, Outer, by_block, outer, pair, plain
from gpusim.sass import numeric

BLOCKS, THREADS = 6, 64
EDGES = (0, 1, 3, 4, 31, 32, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1)
OPERATIONS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "or": lambda a, b: a | b,
    "and": lambda a, b: a & b,
    "xor": lambda a, b: a ^ b,
    "left": lambda a, b: a << (b & np.uint32(31)),
    "right": lambda a, b: a >> (b & np.uint32(31)),
    "less": lambda a, b: a < b,
    "equal": lambda a, b: a == b,
    "signed less": lambda a, b: a.view(np.int32) < b.view(np.int32),
    "signed right": lambda a, b: (a.view(np.int32) >> np.int32(3)).view(np.uint32),
    "wide product": lambda a, b: a.astype(np.uint64) * b + np.uint64(0x7F0010000000),
    "wide signed product": lambda a, b: (a.view(np.int32).astype(np.int64) * b.view(np.int32)).view(np.uint64),
    "high word": lambda a, b: numeric.high_word(a.astype(np.uint64) + b.astype(np.uint64)),
    "pair": lambda a, b: pair(a, b),
    "invert": lambda a, b: ~a,
    "negate": lambda a, b: np.uint32(0) - a,
    "select": lambda a, b: np.where(np.arange(THREADS)[None] < 10, a, b),
    "select one": lambda a, b: numeric.select(np.ones((1, 1), bool), a, b),
    "float": lambda a, b: a.view(np.float32) + b.view(np.float32),
}


@st.composite
def words(draw: st.DrawFn) -> Any:
    """A uint32 value of some shape: a sum, a number a block, a number a thread, or one number."""
    steps = st.sampled_from((0, 1, 2, 4, 16, 64, 4096, 2**24, 2**30))
    start = draw(st.sampled_from(EDGES) | st.integers(0, 2**32 - 1))
    row = np.arange(BLOCKS, dtype=np.int64) * draw(steps)
    column = np.arange(THREADS, dtype=np.int64) // draw(st.sampled_from((1, 4, 32))) * draw(steps)
    kind = draw(st.sampled_from(("sum", "sum", "block", "thread", "one")))
    if kind == "one":
        return np.array([[start]], np.uint32)
    if kind == "thread":
        return ((start + column) & 0xFFFFFFFF).astype(np.uint32)[None]
    if kind == "block":
        return by_block(((start + row) & 0xFFFFFFFF).astype(np.uint32)[:, None])
    return outer(np.dtype(np.uint32), start, Numbers(row), Numbers(column))


@settings(max_examples=400, deadline=None)
@given(words(), words(), st.lists(st.sampled_from(sorted(OPERATIONS)), min_size=1, max_size=4))
def test_arithmetic(a: Any, b: Any, names: list[str]) -> None:
    with np.errstate(all="ignore"):
        x, y = plain(a), plain(b)
        for name in names:
            found, expected = OPERATIONS[name](a, b), OPERATIONS[name](x, y)
            shown = plain(found)
            shape = np.broadcast_shapes(shown.shape, expected.shape)
            assert shown.dtype == expected.dtype and shape == expected.shape
            assert np.ascontiguousarray(np.broadcast_to(shown, shape)).tobytes() == expected.tobytes()
            if expected.dtype == np.uint32:
                a, x = found, expected


@settings(max_examples=200, deadline=None)
@given(words(), st.sampled_from((1, 2, 4, 8, 16)), st.booleans())
def test_gather_and_scatter(a: Any, width: int, even: bool) -> None:
    scaled = (a & np.uint32(0xFF)) * np.uint32(width if even else width * 3)
    scaled = outer(np.dtype(np.uint32), 0, Numbers(plain(scaled)[:, 0].astype(np.int64)), None) + (
        np.arange(THREADS, dtype=np.uint32)[None] * np.uint32(width)
    )
    if not isinstance(scaled, Outer):
        return
    kind: Any = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(width, "V16")
    table = np.random.default_rng(width).integers(0, 256, 1 << 16, np.uint8).view(kind)
    assert scaled.aligned(width)
    spread, first = scaled.spread(THREADS, width, 0)
    places = scaled.full // width
    assert spread.take(table, first).tobytes() == table[places].tobytes()
    if width <= 4:
        values = np.arange(places.size).astype(kind).reshape(places.shape)
        one, other = table.copy(), table.copy()
        spread.put(one, first, values)
        other[places] = values
        assert one.tobytes() == other.tobytes()


SOURCE = """
extern "C" __global__ void ways(const float *in, float *out, const double2 *wide, int n, int stride)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 5; ++k)
        sum += in[(i * stride + k * 7) % n] + in[threadIdx.x / 16 + blockIdx.x] + in[blockIdx.x];
    double2 pair = wide[i];
    if (i < n && threadIdx.x % 3)
        out[i] = sum + (float)pair.x - (float)pair.y;
    else
        out[i] = -sum;
}
"""


@pytest.mark.parametrize("block", [32, 96, 128])
@pytest.mark.parametrize("stride", [1, 2, 33])
def test_a_kernel(block: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same results and counters as where nothing is kept as a sum."""
    monkeypatch.setattr("gpusim.machine.chunk.PLAIN", 0)  # few threads are enough to be kept
    kernel = gpusim.compile(SOURCE)["ways"]
    grid, found = 7, []
    for kept in (True, False):
        if not kept:
            monkeypatch.setattr("gpusim.machine.chunk.by_block", lambda words: words)
        rng = np.random.default_rng(1)
        out = np.zeros(grid * block, np.float32)
        args = [
            rng.random(grid * block, np.float32),
            out,
            rng.random(2 * grid * block),
            np.int32(500),
            np.int32(stride),
        ]
        args[0] = rng.random(max(500, grid * block), np.float32)
        found.append((kernel.launch(grid, block, args), out))
    assert found[0][0] == found[1][0]
    assert found[0][1].tobytes() == found[1][1].tobytes()
    assert found[0][1].any()


@pytest.mark.parametrize("plain", [0, 1 << 16])
def test_of_threads_that_store_to_one_place_the_last_wins(plain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.machine.chunk.PLAIN", plain)
    source = """extern "C" __global__ void one(int *out, short *half) {
        out[blockIdx.x] = threadIdx.x + blockIdx.x; half[3 * blockIdx.x] = threadIdx.x; }"""
    out, half = np.zeros(6, np.int32), np.zeros(18, np.int16)
    gpusim.compile(source)["one"].launch(6, 64, [out, half])
    assert out.tolist() == [63 + block for block in range(6)]
    assert half.tolist() == [63, 0, 0] * 6


@pytest.mark.parametrize("offset", [100, 2_000_000, 2**40])
def test_shifts_of_unsigned_numbers_beyond_int64(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpusim.machine.chunk.PLAIN", 0)
    source = """extern "C" __global__ void shift(unsigned long long *out, long long offset) {
        long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
        unsigned long long below = 4 * i - offset, page = blockIdx.x * 64ll - offset;
        out[3 * i] = below >> 2; out[3 * i + 1] = page >> 5; out[3 * i + 2] = (below * 3) >> 1 | 1; }"""
    grid, block = 20, 64
    out = np.zeros(3 * grid * block, np.uint64)
    gpusim.compile(source)["shift"].launch(grid, block, [out, np.int64(offset)])
    below = [(4 * i - offset) % 2**64 for i in range(grid * block)]
    pages = [(i // block * 64 - offset) % 2**64 for i in range(grid * block)]
    expected = [[a >> 2, b >> 5, a * 3 % 2**64 >> 1 | 1] for a, b in zip(below, pages, strict=True)]
    assert out.reshape(-1, 3).tolist() == expected
