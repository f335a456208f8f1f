"""Like instructions that are put off and computed together give what they give one by one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusim
from gpusim.machine import batches
from gpusim.machine.batches import Postponed, Waiting, outer, outer_products
from gpusim.sass.numeric import fused_bits

REGISTERS = 6
operation = st.tuples(
    st.sampled_from(["multiply", "add", "other", "guarded"]),
    *[st.integers(0, REGISTERS - 1) for _ in range(4)],
)


def multiply(a: Any, b: Any, c: Any) -> Any:
    return (a * b + c) % 8191


def add(a: Any, b: Any) -> Any:
    return (a + 3 * b) % 8191


def run(lines: list[str]) -> list[int]:
    names: dict[str, Any] = {"R": [7 * k + 1 for k in range(REGISTERS)], "multiply": multiply, "add": add}
    exec("\n".join(lines), names)
    return list(names["R"])


def one_by_one(program: list[tuple[str, int, int, int, int]]) -> list[str]:
    lines = []
    for kind, d, a, b, c in program:
        if kind == "multiply":
            lines.append(f"R[{d}] = multiply(R[{a}], R[{b}], R[{c}])")
        elif kind == "add":
            lines.append(f"R[{d}] = add(R[{a}], R[{b}])")
        elif kind == "other":
            lines.append(f"R[{d}] = R[{a}] * 5 % 8191 + R[{b}]")
        else:
            lines.append(f"R[{d}] = R[{a}] + 11 if R[{b}] % 2 else R[{d}]")
    return lines


def put_off(program: list[tuple[str, int, int, int, int]]) -> list[str]:
    later, lines = Postponed(), []

    def flush() -> None:
        for group in later.flush():
            names = [f"v{position}" for position in range(len(group))]
            calls = [f"{each.kind[0]}({', '.join(each.sources)})" for each in group]
            # all of a group are computed before any is stored, as in one call
            lines.append(f"{', '.join(names)}, = {', '.join(calls)},")
            lines.extend(line for name, each in zip(names, group, strict=True) if (line := each.stored(name)))

    for index, ((kind, d, a, b, c), text) in enumerate(zip(program, one_by_one(program), strict=True)):
        if kind in ("multiply", "add"):
            sources = [f"R[{k}]" for k in ((a, b, c) if kind == "multiply" else (a, b))]
            lines += later.add(index, (kind,), sources, f"R[{d}]")
            continue
        read = [f"R[{a}]", f"R[{b}]"]
        if later.needed([*read, f"R[{d}]"] if kind == "guarded" else read):
            flush()
        lines += later.written([f"R[{d}]"])
        lines.append(text)
    flush()
    return lines


@settings(max_examples=400, deadline=None)
@given(st.lists(operation, max_size=24))
def test_the_order_of_what_is_put_off_does_not_show(program: list[tuple[str, int, int, int, int]]) -> None:
    assert run(put_off(program)) == run(one_by_one(program))


def waiting(a: int, b: int, c: int) -> Waiting:
    return Waiting(0, ("FFMA",), 0, [f"a{a}", f"b{b}", f"R[{c}]"], f"R[{c}]", f"t{c}")


def test_outer_products_are_found_in_any_order() -> None:
    group = [waiting(a, b, 10 * a + b) for a in range(3) for b in range(4)]
    rest = [waiting(5, 7, 90)]
    random.Random(1).shuffle(group)
    for each in group[::2]:
        each.sources[:2] = each.sources[1::-1]
    products, left = outer_products([*group, *rest], {})
    assert left == rest and len(products) == 1
    rows = products[0]
    assert [len(row) for row in rows] in ([3] * 4, [4] * 3)
    for row in rows:
        assert len({each.sources[1] for each in row}) == 1
        assert [each.sources[0] for each in row] == [each.sources[0] for each in rows[0]]
    assert sorted(each.target for row in rows for each in row) == sorted(each.target for each in group)


@pytest.mark.parametrize("without", [0, 5, 11])
def test_with_a_pair_missing_it_is_no_outer_product(without: int) -> None:
    group = [waiting(a, b, 10 * a + b) for a in range(3) for b in range(4)]
    del group[without]
    assert outer_products(group, {}) == ([], group)


def test_the_order_of_results_is_that_of_the_next_addends() -> None:
    places: dict[str, int] = {}
    first, _ = outer_products([waiting(a, b, 10 * a + b) for a in range(3) for b in range(3)], places)
    order = [each.target for row in first[0] for each in row]
    again = [waiting(a, b, 10 * a + b) for b in range(3) for a in range(3)]
    second, _ = outer_products(again, places)
    assert [each.sources[2] for row in second[0] for each in row] == order


class Place:
    """Of a chunk, what outer() uses."""

    def __init__(self) -> None:
        self.rows: dict[int, Any] = {}
        self.scratch: Any = None


@pytest.mark.parametrize("shapes", [((2, 32), (2, 32), (2, 32)), ((1, 32), (2, 1), (1, 1)), ((1, 1), (1, 1), (2, 32))])
@pytest.mark.parametrize("pieces", [1, 1 << 16])
def test_an_outer_product_is_its_fused_products(shapes: Any, pieces: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PRODUCTS", pieces)
    random_bits = np.random.default_rng(3)
    counts = (3, 4, 12)
    special = np.array([0, 1 << 31, 1, 0x00800000, 0x7F800000, 0x7FC00001, 0x3F800000, 0x7F7FFFFF], np.uint32)

    def values(shape: tuple[int, int]) -> np.ndarray:
        bits = random_bits.integers(0, 1 << 32, shape, dtype=np.uint32)
        return np.where(random_bits.random(shape) < 0.3, special[bits % 8], bits)

    first, second, addends = ([values(shape) for _ in range(n)] for n, shape in zip(counts, shapes, strict=True))
    place: Any = Place()
    for _ in range(3):  # from the second time on, the addends are the rows of the result before
        with np.errstate(all="ignore"):
            found = outer(place, first, second, addends)
            expected = [
                fused_bits(x.view(np.float32), y.view(np.float32), addends[3 * j + i].view(np.float32))
                for j, y in enumerate(second)
                for i, x in enumerate(first)
            ]
        for one, other in zip(found, expected, strict=True):
            assert np.array_equal(np.broadcast_to(one, (2, 32)), np.broadcast_to(other, (2, 32)))
        addends = found


SOURCE = """
extern "C" __global__ void tile(const float *a, const float *b, float *c, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    __shared__ float s[64];
    float sum[ROWS][COLUMNS] = {};
    for (int k = 0; k < n; k++) {
        if (threadIdx.x < 64) s[threadIdx.x] = a[k * 64 + threadIdx.x];
        __syncthreads();
        float x[ROWS], y[COLUMNS];
        for (int i = 0; i < ROWS; i++) x[i] = s[(i + threadIdx.x) % 64];
        for (int j = 0; j < COLUMNS; j++) y[j] = b[(k * COLUMNS + j) % 96];
        for (int i = 0; i < ROWS; i++)
            for (int j = 0; j < COLUMNS; j++) sum[i][j] += x[i] * y[j];
        __syncthreads();
        if (k % 3 == 2) sum[1][0] = sum[0][1] * 0.5f + x[0];
    }
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) c[(t * ROWS + i) * COLUMNS + j] = sum[i][j];
}
"""


@pytest.mark.parametrize("rows,columns", [(2, 2), (4, 3), (4, 8)])
@pytest.mark.parametrize("block", [32, 100])
def test_tiles_of_few_threads_equal_those_of_many(
    rows: int, columns: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = gpusim.compile(SOURCE, options=(f"-DROWS={rows}", f"-DCOLUMNS={columns}"))["tile"]
    random_numbers = np.random.default_rng(5)
    a, b = (random_numbers.random(n, np.float32) for n in (64 * 7, 96))
    results = []
    for _ in range(2):
        c = np.zeros(3 * block * rows * columns, np.float32)
        result = kernel.launch(3, block, [a, b, c, np.int32(7)])
        results.append((c.view(np.uint32).tolist(), result.metrics))
        monkeypatch.setattr("gpusim.machine.engine.FEW", 0)
        monkeypatch.setattr("gpusim.machine.engine.FEW_WITH_PRODUCTS", 0)
    assert results[0] == results[1]
