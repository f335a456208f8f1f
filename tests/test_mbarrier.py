"""Asynchronous barriers and pipelines (kernels/mbarrier.cu) on several architectures, against NumPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.machine import mbarrier

SOURCE = Path(__file__).parent / "kernels" / "mbarrier.cu"
ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
SHAPES = ((3, 96, 270), (1, 33, 33), (2, 256, 500), (1, 16, 16))
i32, i64, u64 = np.int32, np.int64, np.uint64


@cache
def module(arch: str) -> gpusim.Module:
    return gpusim.compile(SOURCE, arch=arch)


def wrap(values: np.ndarray) -> np.ndarray:
    return values.astype(i64).astype(u64).astype(np.uint32).view(i32)


def tokens(given, first, threads):
    t, n = np.arange(threads), len(given)
    return sum(given[(first + (t + 1) % threads + k) % n] * (k + 1) for k in range(3))


def parities(given, first, threads):
    t, n, half = np.arange(threads), len(given), threads // 2
    total = sum(given[(first + (t - half) % half + k) % n] * (k + 1) for k in range(4))
    return np.where(t < half, 0, total)


def drop_and_count(given, first, threads):
    return given[(np.arange(threads) + 5) % threads % len(given)] + 1


def copies_arrive(given, first, threads):
    t, n = np.arange(threads), len(given)
    return given[(t + 3) % threads % n] + 3 * given[((t + 4) % threads + 1) % n]


def library_barrier(given, first, threads):
    t, n = np.arange(threads), len(given)
    total = np.zeros(threads, i64)
    for k in range(3):
        total = (total + given[((t + 1) % threads + k) % n]) * 3 % (1 << 32)
    return total


def library_pipeline(given, first, threads):
    t, count = np.arange(threads), min(len(given) // 4, 16)
    return sum(given[(k - 1) * count + (t + k) % count] for k in range(1, 5))


def thread_pipeline(given, first, threads):
    t, n = np.arange(threads), len(given)
    return sum(given[(first + (t + 1) % threads + k * threads) % n] for k in range(4))


def group_copy(given, first, threads):
    return given[(np.arange(threads) + 7) % min(threads, len(given))]


REFERENCES = {
    f.__name__: f
    for f in (
        tokens,
        parities,
        drop_and_count,
        copies_arrive,
        library_barrier,
        library_pipeline,
        thread_pipeline,
        group_copy,
    )
}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", REFERENCES)
def test_results_are_those_of_threads_that_wait_for_each_other(name, arch):
    for grid, block, n in SHAPES:
        if name == "parities" and arch in ("sm_80", "sm_86", "sm_89") and block % 64:
            continue  # lanes of one warp that poll for each other there: right, but slow
        given = np.random.default_rng(n).integers(-(2**31), 2**31, n, i32)
        out = np.full(2 * n + 64, 77, i32)
        result = module(arch)[name].launch(grid, block, [given, out, i32(n)])
        expected = np.full_like(out, 77)
        for b in range(grid):
            last = min(n, (b + 1) * block)
            found = wrap(REFERENCES[name](given.astype(i64), b * block, block))
            expected[b * block : last] = found[: max(0, last - b * block)]
        assert out.tolist() == expected.tolist(), (grid, block)
        waits = any("not counted" in caveat for caveat in result.caveats)
        assert waits == (name not in ("thread_pipeline", "group_copy"))
        if arch in ("sm_90", "sm_100", "sm_120") and name in ("tokens", "library_barrier"):
            assert result.exactness == "modelled" and any("mbarrier" in caveat for caveat in result.caveats)


def test_every_kernel_of_the_file_has_a_reference():
    assert set(module("sm_90")) == set(REFERENCES)


@pytest.mark.parametrize("layout", [mbarrier.RECENT, mbarrier.FIRST])
def test_arriving_is_counting_one_by_one(layout):
    """Many lanes at once against a counter of pending arrivals and a phase in plain Python."""
    rng = np.random.default_rng(4)
    for trial in range(60):
        barriers = int(rng.integers(1, 4))
        expected = rng.integers(1, 9, barriers).tolist()
        memory = np.zeros(barriers, u64)
        for k, count in enumerate(expected):
            word = layout.write(np.zeros(1, u64), layout.expected, np.array([count]))
            memory[k] = layout.write(word, layout.pending, np.array([count]))[0]
        pending, phase = list(expected), [0] * barriers
        for _ in range(5):
            place = rng.integers(0, barriers, 20)
            count = rng.integers(1, 3, 20)
            drop = bool(trial % 2) and min(expected) > 40
            found = mbarrier.arrive(memory, place, layout, count, drop)
            for where, times, word in zip(place.tolist(), count.tolist(), found, strict=True):
                assert int(word) >> 63 == phase[where]
                assert layout.read(np.array([word]), layout.pending)[0] == pending[where]
                for _ in range(times):
                    pending[where] -= 1
                    if not pending[where]:
                        pending[where], phase[where] = expected[where], 1 - phase[where]
            assert (memory >> u64(63)).tolist() == phase
            assert layout.read(memory, layout.pending).tolist() == pending


def test_words_are_those_of_the_hardware():
    """Tokens of an H200 for a barrier of 3: set up, three arrivals, and on into the next phase."""
    memory = np.array([0x7FFFE800001FFFFA], u64)
    found = [
        int(mbarrier.arrive(memory, np.zeros(1, i64), mbarrier.RECENT, np.ones(1, i64), False)[0]) for _ in range(6)
    ]
    upper = [word >> 32 for word in found]
    assert upper == [0x7FFFE800, 0x7FFFF000, 0x7FFFF800, 0xFFFFE800, 0xFFFFF000, 0xFFFFF800]


def test_a_warp_gets_the_words_that_an_h200_gives():
    """All lanes of a warp get the upper word from before them all; the lower register stays as it was."""
    body = """
    unsigned long long st = t + 5, *words = (unsigned long long *)out;
    if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(BAR), "r"(48) : "memory");
    __syncwarp();
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(st) : "r"(BAR) : "memory");
    words[t] = st >> 32; __syncwarp(); st = 0;
    if (t & 1) asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(st) : "r"(BAR) : "memory");
    words[32 + t] = st;"""
    first, second = launch(body, 32, words=128).view(u64).reshape(2, 32)
    assert set(first.tolist()) == {0x7FFE8000}
    assert second.tolist() == [0, 0x7FFF800000000000] * 16


def launch(body: str, block: int, arch: str = "sm_90", words: int = 0) -> np.ndarray:
    source = f"""
    #define BAR (unsigned)__cvta_generic_to_shared(&bar)
    extern "C" __global__ void k(int *out)
    {{ __shared__ unsigned long long bar; int t = threadIdx.x, done = 0; {body} }}"""
    out = np.zeros(words or block, i32)
    gpusim.compile(source, arch=arch)["k"].launch(1, block, [out])
    return out


INIT = 'if (t == 0) asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(BAR), "r"({count})); __syncthreads();'
ARRIVE = 'asm volatile("{.reg .b64 s; mbarrier.arrive.shared.b64 s, [%0];}" ::"r"(BAR) : "memory");'
LOOK = """asm volatile("{.reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], 0; selp.b32 %0, 1, 0, p;}"
    : "=r"(done) : "r"(BAR) : "memory");"""


def test_a_phase_that_never_completes_is_a_deadlock():
    with pytest.raises(gpusim.ExecutionError, match=r"deadlock.* 64 at an asynchronous barrier \(mbarrier\)"):
        launch(INIT.format(count=65) + ARRIVE + f"while (!done) {LOOK} out[t] = 1;", 64)


def test_a_look_that_others_do_not_wait_for_may_fail():
    body = INIT.format(count=64) + f"if (t < 32) {{ {LOOK} out[t] = 5 + done; }} __syncthreads(); {ARRIVE}"
    assert launch(body + f"while (!done) {LOOK} if (t >= 32) out[t] = done;", 64).tolist() == [5] * 32 + [1] * 32


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_120"])
def test_one_half_of_a_warp_may_wait_for_the_other(arch):
    body = INIT.format(count=16) + f"if (t < 16) {{ while (!done) {LOOK} out[t] = 1; }} else {{ out[t] = 2; {ARRIVE} }}"
    assert launch(body, 32, arch).tolist() == [1] * 16 + [2] * 16


def test_transactions_are_refused_by_name():
    body = (
        INIT.format(count=32)
        + """
        asm volatile("{.reg .b64 s; mbarrier.arrive.expect_tx.shared.b64 s, [%0], 16;}" ::"r"(BAR) : "memory");
        out[t] = 1;"""
    )
    with pytest.raises(gpusim.UnsupportedError, match=r"expect_tx.*not simulated"):
        launch(body, 32)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90"])
def test_warps_that_wait_in_a_loop_let_others_run(arch):
    body = """
        __shared__ volatile int turn;
        if (t == 0) turn = 0;
        __syncthreads();
        for (int k = 0; k < 3; k++) {
            while (turn != 2 * k + t / 32) {}
            __syncwarp();
            if (t % 32 == 0) turn = turn + 1;
            __syncwarp();
        }
        out[t] = turn;"""
    assert launch(body, 64, arch)[32:].tolist() == [6] * 32
