"""Choosing by a mask: by bits where arrays are large, whatever the shapes and types."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.machine.chunk import by_warp, lanes_by_warp, to_lanes
from gpusim.sass import numeric
from gpusim.sass.numeric import either, select

KINDS = (np.bool_, np.int8, np.uint8, np.int16, np.int32, np.uint32, np.float32, np.int64, np.uint64, np.float64)
SHAPES = ((1, 1), (1, 64), (7, 1), (7, 64))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KINDS), *[st.sampled_from(SHAPES)] * 3, st.integers(0, 2**32), st.booleans())
def test_either_is_where(
    kind: type, mask_shape: tuple, yes_shape: tuple, no_shape: tuple, seed: int, few: bool
) -> None:
    rng = np.random.default_rng(seed)

    def numbers(shape: tuple) -> np.ndarray:
        if kind is np.bool_:
            return rng.random(shape) < 0.5
        size = np.dtype(kind).itemsize
        return rng.integers(0, 256, (*shape, size), np.uint8).view(kind)[..., 0]  # any bits, also those of NaN

    mask = rng.random(mask_shape) < rng.random()
    yes, no = numbers(yes_shape), numbers(no_shape)
    copies = mask.copy(), yes.copy(), no.copy()
    for one, other in ((yes, no), (yes, no[0, 0]), (yes[0, 0], no), (yes[0, 0], no[0, 0])):
        least, numeric.FEW = numeric.FEW, numeric.FEW if few else 0
        try:
            found = [either(mask, one, other)]
            if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
                found.append(select(mask, one, other))
        finally:
            numeric.FEW = least
        expected = np.where(mask, one, other)
        for each in found:
            shape = np.broadcast_shapes(each.shape, expected.shape)
            assert shape == expected.shape and each.dtype == expected.dtype
            assert np.broadcast_to(each, shape).tobytes() == expected.tobytes()
        assert not any(np.shares_memory(found[0], array) for array in (mask, yes, no))
    for before, after in zip(copies, (mask, yes, no), strict=True):
        assert before.tobytes() == after.tobytes()


@pytest.mark.parametrize("share", [0, 0.01, 0.5, 1])
@pytest.mark.parametrize("rows", [1, 5])
def test_lanes_and_warps(share: float, rows: int) -> None:
    lanes = np.random.default_rng(int(share * 100)).random((rows, 96)) < share
    warps = lanes.reshape(rows, 3, 32)
    assert by_warp(lanes).tolist() == warps.any(axis=2).tolist()
    assert lanes_by_warp(lanes).tolist() == warps.sum(axis=2).tolist()
    assert to_lanes(by_warp(lanes)).tolist() == np.repeat(warps.any(axis=2), 32, axis=1).tolist()
    wide = np.broadcast_to(lanes[:1, :1], (rows, 96))
    assert by_warp(wide).tolist() == [[bool(lanes[0, 0])] * 3] * rows
