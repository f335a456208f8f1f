"""Compiled loops give what the NumPy code gives (only with Numba: ``pip install 'gpusim[fast]'``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import gpusim
from gpusim import native
from gpusim.counters import rules_shared
from gpusim.kernels import find
from gpusim.sass import numeric


@pytest.fixture
def loops() -> Iterator[None]:
    """With the loops in use; afterwards as before."""
    before = native.Loops.fused
    if not native.load():
        pytest.skip("Numba is not installed")
    yield
    if before is None:
        native.unload()


def test_fused(loops: None) -> None:
    rng = np.random.default_rng(3)
    special = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2**-126, 2**-149, 3e38], np.float32)
    for shape in ((1, 1), (3, 32), (64, 64)):
        numbers = [rng.integers(0, 2**32, shape, np.uint32).view(np.float32) for _ in range(3)]
        near = [(1 + rng.integers(0, 8, shape) * 2.0**-23).astype(np.float32) for _ in range(2)]
        ties = (rng.choice([-1.0, 1.0], shape) * 2.0 ** rng.integers(-60, 2, shape)).astype(np.float32)
        mixed = [rng.choice(special, shape) for _ in range(3)]
        with np.errstate(all="ignore"):
            for a, b, c in (numbers, (*near, ties), mixed, (numbers[0], near[0][:1], ties[:, :1])):
                assert (numeric.fused_bits(a, b, c) == numeric.canonical(numeric.fma32(a, b, c))).all()


@pytest.mark.parametrize("span", [8, 256, 1 << 20, 1 << 50])
@pytest.mark.parametrize("banks", [8, 16, 32])
def test_degrees(span: int, banks: int, loops: None, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(span)
    units = rng.integers(0, span, (50, 32)).astype(np.uint64)
    active = rng.random((50, 32)) < rng.random((50, 1)) * 1.2
    found = rules_shared._degrees(units, active, banks)
    monkeypatch.setattr(native.Loops, "degrees", None)
    assert (found == rules_shared._degrees(units, active, banks)).all()


@pytest.mark.parametrize("name", ["matmul_smem", "matmul_warp_tile", "hist_shared_random", "softmax_smem"])
def test_kernels(name: str, loops: None) -> None:
    case = find(name)
    module = gpusim.compile(case.source, options=case.options, names=case.names)
    found = []
    for compiled in (True, False):
        if not compiled:
            native.unload()
        problem = case.build(case.small_sizes[-1])
        launch = problem.launches[0]
        args = [problem.buffers[arg] if isinstance(arg, str) else arg for arg in launch.args]
        result = module[launch.kernel].launch(launch.grid, launch.block, args, launch.shared_bytes)
        found.append((result, [buffer.tobytes() for buffer in problem.buffers.values()]))
    assert found[0] == found[1]
