"""Lanes that wait for each other, and those that cannot: what the recordings of one architecture do not show."""

from pathlib import Path

import numpy as np
import pytest

import gpusim

KERNELS = Path(__file__).parent / "kernels"
i32 = np.int32


@pytest.fixture(scope="module")
def flow():
    return gpusim.compile(KERNELS / "flow.cu", arch="sm_90")


def launch(kernel: gpusim.Kernel, values: np.ndarray, seed: int = 0) -> tuple[np.ndarray, gpusim.Result]:
    """One warp with these values; returns its results."""
    table = np.random.default_rng(seed).integers(-(1 << 20), 1 << 20, 32)
    out = np.zeros(96, i32)
    result = kernel.launch(1, 32, [np.concatenate([values, table]).astype(i32), out, i32(32)])
    return out, result


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("setters", [1, 15, 16, 17, 31])
def test_lanes_that_spin_let_those_go_on_that_they_wait_for(arch, setters):
    """Whichever side of the branch is larger: the one that spins yields to the one that sets the flag."""
    kernel = gpusim.compile(KERNELS / "locks.cu", arch=arch)["lock_flag"]
    values = np.array([2] * (32 - setters) + [3] * setters)
    out, result = launch(kernel, values)
    assert out[0] == 1
    if arch not in ("sm_75", "sm_80"):  # of equal sides the one that falls through goes first: it spins
        assert (out[32 : 64 - setters] == (1 if setters >= 16 else 0)).all()
    assert not result.caveats or arch != "sm_90"


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_a_lock_that_lanes_of_a_warp_share(arch):
    kernel = gpusim.compile(KERNELS / "locks.cu", arch=arch)["lock_inside"]
    values = np.random.default_rng(3).integers(0, 4, 32)
    out, _ = launch(kernel, values)
    for lock in range(4):
        held = values == lock
        assert sorted(out[:32][held]) == list(range(held.sum()))  # each lane held it alone, at its own time
        assert sorted(out[32:64][held]) == list(range(1, held.sum() + 1))


@pytest.mark.parametrize("name", ["block_sides", "block_region"])
def test_two_sides_at_different_barriers_never_end(flow, name):
    """The H200 hung in these launches: before a block barrier all lanes of a warp must meet."""
    with pytest.raises(gpusim.GpusimError, match="deadlock"):
        launch(flow[name], np.arange(32))


def test_an_indirect_branch_counts_its_targets(flow):
    """A warp that splits into k groups: k targets, k - 1 of them divergent."""
    for groups in (1, 2, 3, 4):
        _, result = launch(flow["indirect_4"], np.arange(32) % groups)
        (branch,) = (i for i in result.instructions if i.sass.startswith("BRX"))
        assert (branch.executed, branch.divergent) == (1, groups - 1)
        assert not result.caveats


def test_recursion_keeps_the_barriers_of_waiting_lanes(flow):
    """Lanes at all depths at the same time: each returns to where it was called from."""
    depths = np.arange(32) % 16
    table = np.random.default_rng(0).integers(-(1 << 20), 1 << 20, 32).astype(i32)
    out, _ = launch(flow["recurse_one"], depths)
    assert out[32:64].tolist() == [int(table[0] + table[1 : d + 1].sum()) for d in depths]


def test_counts_in_doubt_say_so(flow):
    """A loop entered in the middle: whether waiting groups become one is not known."""
    _, result = launch(flow["loop_states"], np.random.default_rng(1).integers(0, 1024, 32))
    assert result.exactness == "modelled"
    assert "wait for their turn" in result.caveats[0]
