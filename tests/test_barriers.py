"""Block barriers with numbers and thread counts (kernels/barriers.cu) on several architectures, against NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim

SOURCE = Path(__file__).parent / "kernels" / "barriers.cu"
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SHAPES = ((3, 96, 270), (1, 33, 33), (2, 256, 500), (1, 16, 16), (2, 192, 300))
i32 = np.int32
Shared = np.ndarray


@cache
def module(arch: str) -> gpusim.Module:
    return gpusim.compile(SOURCE, arch=arch)


def wrap(values: np.ndarray) -> np.ndarray:
    return values.astype(np.int64).astype(np.uint64).astype(np.uint32).view(i32)


def padded(given: np.ndarray, first: int, threads: int, other: int) -> np.ndarray:
    """What a block's threads loaded: in[i], or another number beyond the end."""
    at = first + np.arange(threads)
    return np.where(at < len(given), given[np.minimum(at, len(given) - 1)], other).astype(np.int64)


def pairs_of_warps(given, first, threads):
    t, n = np.arange(threads), len(given)
    partner = t ^ 32
    exists = partner < threads
    total = np.zeros(threads, np.int64)
    for k in range(3):
        total += np.where(exists, given[(first + partner + k) % n].astype(np.int64) * (k + 1), 1)
    return total


def producer_and_consumers(given, first, threads):
    t, n = np.arange(threads), len(given)
    total = sum(given[(k * 32 + (t + k) % 32) % n].astype(np.int64) + k for k in range(4))
    return np.where(t < 32, 0, total)


def fixed_numbers(given, first, threads):
    t = np.arange(threads)
    shared = np.zeros(threads + 32, np.int64)
    shared[:threads] = padded(given, first, threads, 0)
    return np.where(t < 32, shared[(t + 1) % 32], 0) + shared[(t + 5) % threads]


def numbered_reductions(given, first, threads):
    x = padded(given, first, threads, 0)
    return np.full(threads, int((x & 1).sum()) * 4 + int((x & 4).any()) * 2 + 1)


def not_aligned(given, first, threads):
    return padded(given, first, threads, 3)[(np.arange(threads) * 7 + 1) % threads]


def halves_at_their_own_pace(given, first, threads):
    t, warps = np.arange(threads), -(-threads // 32)
    half = t // 32 >= warps // 2
    shared = padded(given, first, threads, 1)
    total = np.zeros(threads, np.int64)
    for k in range(5):
        total += np.where(k < 2 + 3 * half, shared[(t + k) % threads], 0)
    return total


REFERENCES = {
    f.__name__: f
    for f in (
        pairs_of_warps,
        producer_and_consumers,
        fixed_numbers,
        numbered_reductions,
        not_aligned,
        halves_at_their_own_pace,
    )
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", REFERENCES)
def test_results_are_those_of_threads_that_wait_for_each_other(name, arch):
    for grid, block, n in SHAPES:
        given = np.random.default_rng(n).integers(-(2**31), 2**31, n, i32)
        out = np.full(2 * n + 64, 77, i32)
        module(arch)[name].launch(grid, block, [given, out, i32(n)])
        expected = np.full_like(out, 77)
        for b in range(grid):
            found = wrap(REFERENCES[name](given, b * block, block))
            last = min(n, (b + 1) * block)
            expected[b * block : last] = found[: max(0, last - b * block)]
        if name == "fixed_numbers" and block < 32:
            lanes = np.arange(block)
            assert (out[:block][lanes + 1 < block] == expected[:block][lanes + 1 < block]).all()
            continue  # lane 15 reads a word that nobody wrote
        assert out.tolist() == expected.tolist(), (grid, block)


def test_every_kernel_of_the_file_has_a_reference():
    assert set(module("sm_90")) == set(REFERENCES)


def launch(body: str, block: int, arch: str = "sm_90", grid: int = 1) -> np.ndarray:
    """Run a kernel (int *out, int a, int b) with b = 64; a is 2."""
    source = f'extern "C" __global__ void k(int *out, int a, int b) {{ int t = threadIdx.x, warp = t / 32; {body} }}'
    out = np.zeros(grid * block, i32)
    gpusim.compile(source, arch=arch)["k"].launch(grid, block, [out, i32(2), i32(64)])
    return out


@pytest.mark.parametrize("arch", ARCHS)
def test_every_kind_of_operand(arch):
    body = """
        int r, s = 0;
        asm volatile("bar.sync %0;" ::"r"(a)); asm volatile("bar.sync %0, 64;" ::"r"(a));
        asm volatile("bar.sync 1, %0;" ::"r"(b)); asm volatile("bar.sync %0, %1;" ::"r"(a), "r"(b));
        asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 7; bar.red.popc.u32 %0, %2, %3, p;}"
            : "=r"(r) : "r"(t), "r"(a), "r"(b));
        s += r;
        asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 40; bar.red.popc.u32 %0, %2, p;}" : "=r"(r) : "r"(t), "r"(a));
        s += 100 * r;
        asm volatile("{.reg .pred p; setp.lt.s32 p, %1, 33; barrier.cta.red.popc.u32 %0, 2, 64, p;}"
            : "=r"(r) : "r"(t));
        s += 10000 * r;
        if (warp) { asm volatile("bar.arrive %0, %1;" ::"r"(a), "r"(b)); asm volatile("barrier.cta.arrive 5, 64;"); }
        else { asm volatile("barrier.cta.sync 2, 64;"); asm volatile("bar.sync 5, 64;"); }
        asm volatile("barrier.cta.sync 9;");
        out[t] = s;"""
    assert (launch(body, 64, arch) == 7 + 4000 + 330000).all()


def test_more_warps_than_a_barrier_needs_go_on_in_turns():
    assert (launch('asm volatile("bar.sync 1, 64;"); out[t] = 1;', 256) == 1).all()
    with pytest.raises(gpusim.ExecutionError, match=r"32 at barrier 1 for 64 threads, of which 32 have come"):
        launch('asm volatile("bar.sync 1, 64;"); out[t] = 1;', 160)


def test_a_barrier_may_be_reused_with_another_count():
    body = 'if (warp < 2) asm volatile("bar.sync 1, 64;"); asm volatile("bar.sync 1, 96;"); out[t] = 1;'
    assert (launch(body, 96) == 1).all()


def test_a_deadlock_names_the_barrier_and_who_is_missing():
    with pytest.raises(
        gpusim.ExecutionError, match=r"deadlock.*in that block wait 32 at barrier 3 for 96 threads, of "
    ):
        launch('if (warp == 1) asm volatile("bar.sync 3, 96;"); out[t] = 1;', 96)
    with pytest.raises(gpusim.ExecutionError, match=r"32 at barrier 1 for all 64 .*, 32 at barrier 2 for all 64 thr"):
        launch('if (warp) asm volatile("bar.sync 1;"); else asm volatile("bar.sync 2;"); out[t] = 1;', 64)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('asm volatile("bar.sync 1, %0;" ::"r"(b + 1));', "a barrier for 65 threads, which is no multiple"),
        ('asm volatile("bar.sync %0;" ::"r"(b));', "no barrier 64, only 0 to 15"),
        ('asm volatile("bar.sync 1, %0;" ::"r"(64 + 32 * warp));', "do not agree on how many"),
    ],
)
def test_impossible_barriers_are_named(body, reason):
    with pytest.raises(gpusim.ExecutionError, match=reason) as caught:
        launch(body + " out[t] = 1;", 64)
    assert "BAR.SYNC" in str(caught.value)


def test_blocks_do_not_see_each_others_barriers():
    body = """
        if ((blockIdx.x + warp) % 2) { asm volatile("bar.arrive 1, 64;"); }
        else asm volatile("bar.sync 1, 64;");
        out[blockIdx.x * 64 + t] = blockIdx.x;"""
    assert launch(body, 64, grid=5).tolist() == np.repeat(np.arange(5), 64).tolist()
