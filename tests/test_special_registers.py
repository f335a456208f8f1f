"""Special registers, sleeping and stopping: defined or clearly refused on every architecture."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim

ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
i32, u32 = np.int32, np.uint32


def read(names: str, arch: str, grid: int = 3, block: int = 96) -> np.ndarray:
    """Special registers by thread: (names, grid * block)."""
    registers = names.split()
    moves = "".join(
        f'asm volatile("mov.u32 %0, %%{name};" : "=r"(v)); out[{k} * gridDim.x * blockDim.x + i] = v;'
        for k, name in enumerate(registers)
    )
    source = f"""extern "C" __global__ void k(unsigned *out)
    {{ unsigned v; int i = blockIdx.x * blockDim.x + threadIdx.x; __nanosleep(50); {moves} }}"""
    out = np.zeros((len(registers), grid * block), u32)
    gpusim.compile(source, arch=arch)["k"].launch(grid, block, [out])
    return out


@pytest.mark.parametrize("arch", ARCHS)
def test_lanes_and_masks(arch):
    lane = np.arange(3 * 96) % 32
    found = read("laneid lanemask_eq lanemask_lt lanemask_le lanemask_gt lanemask_ge", arch)
    bit = (1 << lane.astype(np.int64)).astype(np.int64)
    below = bit - 1
    expected = [lane, bit, below, below | bit, ~(below | bit) & 0xFFFFFFFF, ~below & 0xFFFFFFFF]
    assert (found == np.array(expected)).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_places_are_those_of_blocks_and_warps(arch):
    warp, multiprocessor = read("warpid smid", arch)
    thread = np.arange(3 * 96)
    assert (warp == thread % 96 // 32).all() and (multiprocessor == thread // 96).all()
    assert (read("nwarpid", arch) >= 32).all()


@pytest.mark.parametrize("arch", ARCHS)
def test_clocks_do_not_go_back(arch):
    source = """extern "C" __global__ void k(long long *out)
    { long long a = clock64(), c = clock(), t, u;
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
      __syncthreads();
      asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(u));
      long long b = clock64(); out[0] = b - a; out[1] = u - t; out[2] = b - c; }"""
    out = np.full(3, -1, np.int64)
    gpusim.compile(source, arch=arch)["k"].launch(1, 32, [out])
    assert (out >= 0).all() and out[0] > 0


def test_a_register_without_a_meaning_is_named():
    with pytest.raises(gpusim.UnsupportedError, match="SR_SMEMSZ"):
        read("total_smem_size", "sm_90")


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("call", ["__trap()", "__brkpt()"])
def test_a_trap_names_its_first_thread(call, arch):
    source = f"""extern "C" __global__ void stop(int *out)
    {{ int i = blockIdx.x * blockDim.x + threadIdx.x;
       if (i >= 40) {call};
       out[i] = i; }}"""
    with pytest.raises(gpusim.ExecutionError) as caught:
        gpusim.compile(source, arch=arch, filename="stop.cu")["stop"].launch(2, 32, [np.zeros(64, i32)])
    message = str(caught.value)
    assert "stopped itself with a trap, first thread (8, 0, 0) of block (1, 0, 0), instruction" in message
    assert "BPT.TRAP" in message and "stop.cu:3" in message and caught.value.exit_code == 2


@pytest.mark.parametrize("arch", ARCHS)
def test_how_many_multiprocessors_there_are_and_which_launch_this_is(arch):
    multiprocessors, smid = read("nsmid smid", arch)
    assert (multiprocessors == 132).all() and (smid < multiprocessors).all()
    source = """extern "C" __global__ void k(unsigned long long *out)
    { unsigned long long v; asm volatile("mov.u64 %0, %%gridid;" : "=l"(v)); out[threadIdx.x] = v; }"""
    out = np.zeros(3, np.uint64)
    gpusim.compile(source, arch=arch)["k"].launch(1, 3, [out])
    assert (out == 1).all()
