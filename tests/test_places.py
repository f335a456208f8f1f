"""Loads from shared memory that are carried out in one go give, and count as, what they do one after the other."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.machine import chunk, places
from gpusim.machine.codegen import BlockWriter
from gpusim.machine.engine import Engine
from gpusim.machine.together import Together
from gpusim.sass.slices import liveness_of

HEAD = """
extern "C" __global__ void kernel(const float *in, const int *where, float *out, int n) {
    __shared__ __align__(16) float s[256];
    __shared__ int next[128];
    int t = threadIdx.x, place = (blockIdx.x * 4 + t) & 31;
    for (int i = t; i < 256; i += blockDim.x) s[i] = in[i];
    for (int i = t; i < 128; i += blockDim.x) next[i] = where[i];
    __syncthreads();
    float a = 1, b = 2, c = 3, d = 4;
    for (int k = 0; k < n; k++) {
        BODY
        __syncthreads();
    }
    float4 *result = (float4 *)out + blockIdx.x * blockDim.x + t;
    *result = make_float4(a, b, c, d);
}
"""
SUMS = "a += x * 1.5f; b += y * x; c += z * 0.5f; d += w * y;"
BODIES = {
    # neighbours of one address, as words, pairs and quads
    "near": f"int p = (t + k) & 63; float x = s[p], y = s[p + 16], z = s[p + 64], w = s[p + 128]; {SUMS}",
    "pairs": "int p = 2 * ((t + k) & 31); float2 v = *(float2 *)&s[p], u = *(float2 *)&s[p + 64];"
    f"float x = v.x, y = v.y, z = u.x, w = u.y; {SUMS}",
    "quads": "int p = 4 * ((t + k) & 15); float4 v = *(float4 *)&s[p], u = *(float4 *)&s[p + 128];"
    f"float x = v.x, y = u.y, z = v.z, w = u.w; {SUMS}",
    # each address comes from the load before
    "chased": f"int p = next[(t + k) & 127]; int q = next[p]; float x = s[p], y = s[q], z = s[p + q],"
    f"w = s[q + 1]; {SUMS}",
    # what is stored lies between the loads of one place
    "stored": "int p = (t + k) & 63; float x = s[p], y = s[p + 16]; __syncthreads(); s[p] = y + 1;"
    f"__syncthreads(); float z = s[p], w = s[p + 64]; {SUMS}",
    # blocks differ in their addresses
    "by_block": f"int p = place + k; float x = s[p], y = s[p + 8], z = s[p + 128], w = s[p + 192]; {SUMS}",
}


def source(body: str) -> str:
    return HEAD.replace("BODY", body)


def groups_of(kernel: Any) -> list[str]:
    """The generated statements that load a group."""
    program = kernel._compiled.program
    text = BlockWriter(program, None, liveness_of(program)).text()
    return [line for line in text.splitlines() if "M.load_group(" in line]


def inputs(blocks: int, threads: int) -> list[Any]:
    rng = np.random.default_rng(9)
    numbers = rng.random(256, np.float32)
    return [
        numbers,
        rng.integers(0, 100, 128).astype(np.int32),
        np.zeros(4 * blocks * threads, np.float32),
        np.int32(7),
    ]


def outcome(kernel: Any, blocks: int, threads: int) -> Any:
    args = inputs(blocks, threads)
    result = kernel.launch(blocks, threads, args)
    return args[2].view(np.uint32).tolist(), result.metrics, [vars_of(each) for each in result.instructions]


def vars_of(each: Any) -> dict[str, Any]:
    return {
        name: getattr(each, name) for name in ("sass", "executed", "thread_executed", "wavefronts", "wavefronts_ideal")
    }


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("threads", [64, 100])
@pytest.mark.parametrize("words", [0, places.MOST_WORDS])
def test_groups_change_nothing(name: str, threads: int, words: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST_WORDS", words)
    kernel = gpusim.compile(source(BODIES[name]))["kernel"]
    assert groups_of(kernel)
    found = outcome(kernel, 3, threads)
    monkeypatch.setattr(Together, "_load_groups", lambda self: [])
    alone = gpusim.compile(source(BODIES[name]))["kernel"]
    assert not groups_of(alone)
    assert found == outcome(alone, 3, threads)


def reference(name: str, blocks: int, threads: int) -> np.ndarray:
    """NumPy's result of the bodies whose addresses come from data or differ by block (nothing is stored there)."""
    numbers, where, _, n = inputs(blocks, threads)
    t, place = np.arange(threads), (4 * np.arange(blocks)[:, None] + np.arange(threads)) & 31
    a, b, c, d = (np.full((blocks, threads), value, np.float32) for value in (1, 2, 3, 4))
    for k in range(int(n)):
        if name == "chased":
            p = np.broadcast_to(where[(t + k) & 127], place.shape)
            q = where[p]
            x, y, z, w = numbers[p], numbers[q], numbers[p + q], numbers[q + 1]
        else:
            x, y, z, w = (numbers[place + k + more] for more in (0, 8, 128, 192))
        a = (a + x.astype(float) * 1.5).astype(np.float32)
        b = (b + y.astype(float) * x).astype(np.float32)
        c = (c + z.astype(float) * 0.5).astype(np.float32)
        d = (d + w.astype(float) * y).astype(np.float32)
    return np.stack([a, b, c, d], axis=2)


@pytest.mark.parametrize("name", ["chased", "by_block"])
def test_results_are_those_of_numpy(name: str) -> None:
    args = inputs(3, 64)
    gpusim.compile(source(BODIES[name]))["kernel"].launch(3, 64, args)
    assert np.allclose(args[2].reshape(3, 64, 4), reference(name, 3, 64), rtol=1e-6)


def test_a_load_outside_of_shared_memory_is_named_as_without_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"int p = 40 * t; float x = s[t], y = s[t + 1], z = s[p], w = s[p + 1]; {SUMS}"
    messages = []
    for _ in range(2):
        kernel = gpusim.compile(source(body))["kernel"]
        with pytest.raises(gpusim.ExecutionError) as error:
            kernel.launch(1, 64, inputs(1, 64))
        messages.append(str(error.value))
        monkeypatch.setattr(Together, "_load_groups", lambda self: [])
    assert messages[0] == messages[1]
    assert "outside the block's shared memory" in messages[0]


@pytest.mark.parametrize("name", BODIES)
def test_addresses_kept_as_sums_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = gpusim.compile(source(BODIES[name]))["kernel"]
    found = outcome(kernel, 6, 96)
    monkeypatch.setattr(chunk, "PLAIN", 0)
    assert found == outcome(kernel, 6, 96)


def test_nothing_keeps_an_engine_when_its_launch_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the memory of its registers can be used again at once."""
    kept: list[weakref.ref[Any]] = []
    begin = Engine.__init__

    def note(self: Engine, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        kept.extend(weakref.ref(each) for each in (self, self.chunk, self.memory))

    monkeypatch.setattr(Engine, "__init__", note)
    kernel = gpusim.compile(source(BODIES["near"]))["kernel"]
    gc.collect()
    gc.disable()
    try:
        kernel.launch(3, 64, inputs(3, 64))
        assert len(kept) == 3 and not any(each() for each in kept)
    finally:
        gc.enable()
