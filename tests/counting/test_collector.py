"""What is counted of accesses that come back does not depend on how they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpusim
from gpusim.counters.collect import Collector
from gpusim.machine.chunk import Chunk
from gpusim.machine.events import Access
from gpusim.machine.outer import by_block
from gpusim.sass.form import MemoryOp

SOURCE = """
extern "C" __global__ void both(const float *in, float *out) {
    __shared__ float s[1024];
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}
"""
BLOCKS, THREADS = 4, 64


@pytest.fixture(scope="module")
def program() -> Any:
    return gpusim.compile(SOURCE)["both"].program


def accesses(program: Any) -> dict[str, tuple[int, MemoryOp]]:
    found = {}
    for index, meaning in enumerate(program.meanings):
        if isinstance(meaning, MemoryOp):
            found[f"{meaning.space} {meaning.operation}"] = (index, meaning)
    return found


KINDS = ["global load", "global store", "shared load", "shared store"]
PATTERN = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from([4, 8, 128, 132]),  # bytes from a thread to the next
    st.sampled_from([0, 4, 256, 4096, 4100]),  # and from a block to the next
    st.sampled_from([0, 4, 128, 1280, 1284]),  # first
    st.sampled_from(["row", "read-only", "blocks", "sum"]),
    st.booleans(),  # all lanes
    st.integers(1, 3),
)


def event(program: Any, pattern: tuple[Any, ...], kept: dict[Any, Any]) -> Access:
    kind, thread, block, first, form, everyone, _ = pattern
    if form in ("row", "read-only"):
        block = 0  # all blocks alike
    index, op = accesses(program)[kind]
    columns = (first + thread * np.arange(THREADS))[None]
    rows = block * np.arange(BLOCKS)[:, None]
    places: Any
    if form == "row":
        places = columns
    elif form == "read-only":
        if pattern not in kept:
            columns.setflags(write=False)
            kept[pattern] = columns
        places = kept[pattern]
    elif form == "blocks" or block == 0:
        places = columns + rows
    else:
        places = by_block(rows) + columns
    mask = None if everyone else (np.arange(THREADS) % 3 > 0)[None]
    return Access(index, op, kind.split()[0], places, mask, None, 0, BLOCKS, THREADS)


@settings(max_examples=60, deadline=None)
@given(st.lists(PATTERN, min_size=1, max_size=12))
def test_repeats_count_as_often_as_they_happen(program: Any, patterns: list[tuple[Any, ...]]) -> None:
    kept: dict[Any, Any] = {}
    together = Collector(program)
    total = {name: np.zeros(len(program.meanings), np.int64) for name in together.fields}
    for pattern in patterns * 2:
        together.access(event(program, pattern, kept), pattern[-1])
        alone = Collector(program)
        again = event(program, pattern, {})
        again.places = np.broadcast_to(again.addresses, (BLOCKS, THREADS)).copy()
        alone.access(again)
        for name, column in alone.fields.items():
            total[name] += column * pattern[-1]
    for name, column in together.fields.items():
        assert column.tolist() == total[name].tolist(), name
    for name in total:
        assert sum(columns[name] for columns in together.by_space.values()).tolist() == total[name].tolist()


def test_addresses_by_block_are_not_those_by_thread(program: Any) -> None:
    """With as many blocks as threads they may be the same numbers, in two instructions or in one after the other."""
    index, op = accesses(program)["global load"]
    collector = Collector(program)
    numbers = 4 * np.arange(THREADS)
    for places in (numbers[:, None], numbers[None], numbers[:, None]):
        collector.access(Access(index, op, "global", places, None, None, 0, THREADS, THREADS))
    warps = THREADS * THREADS // 32
    assert collector.fields["requests"][index] == 3 * warps
    assert collector.fields["sectors"][index] == (1 + 4 + 1) * warps


def test_a_part_begins_from_zero_and_is_merged(program: Any) -> None:
    pattern = ("global load", 4, 256, 0, "row", True, 1)
    one, other = Collector(program), Collector(program)
    for collector in (one, other):
        collector.access(event(program, pattern, {}), 5)
    one.merge(other.part())
    index = accesses(program)["global load"][0]
    warps = BLOCKS * THREADS // 32
    assert one.fields["requests"][index] == 10 * warps
    one.begin_part()
    one.access(event(program, pattern, {}))
    assert one.fields["requests"][index] == warps
    assert one.by_space["global"]["requests"][index] == warps


def test_addresses_of_few_threads_are_arrays_and_of_many_sums() -> None:
    chunk = Chunk((1 << 12, 1, 1), (64, 1, 1), 0, 0)
    forms = []
    for blocks in (2, 1 << 12):
        chunk.start(np.arange(blocks))
        forms.append(isinstance(chunk.special["SR_CTAID.X"], np.ndarray))
    assert forms == [True, False]
