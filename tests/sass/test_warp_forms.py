"""Elections, reductions and uniform arithmetic, on each architecture that has them; what is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim
from gpusim.errors import UnsupportedError

SOURCE = r"""
typedef unsigned u;
extern "C" __global__ void reductions(const int* A, u* O)
{
    int i = threadIdx.x, a = A[i];
    if (a % 3 == 0) return;
    u m = __activemask();
    O[i] = __reduce_add_sync(m, a);
    O[i + 32] = __reduce_min_sync(m, a);
    O[i + 64] = __reduce_max_sync(m, (u)a);
    O[i + 96] = __reduce_xor_sync(m, (u)a);
    O[i + 128] = __reduce_and_sync(m, (u)a);
}
extern "C" __global__ void uniform(int n, float f, float* O)
{
    float g = (float)(int)(blockIdx.x * n) * f + (float)n;
    O[threadIdx.x] = fminf(g, 100.f) + rintf(f) + (f > 2 ? f : -f) + (float)(int)f;
}
#if __CUDA_ARCH__ >= 900
extern "C" __global__ void election(const int* A, u* O)
{
    u lane, chosen;
    if (A[threadIdx.x] % 3 == 0) return;
    asm volatile("{.reg .pred p; elect.sync %0|p, %2; selp.u32 %1, 1, 0, p;}"
                 : "=r"(lane), "=r"(chosen) : "r"(__activemask()));
    O[threadIdx.x] = lane + 64 * chosen;
}
#endif
"""


@pytest.fixture(scope="module", params=["sm_80", "sm_90", "sm_100", "sm_120"])
def module(request):
    return gpusim.compile(SOURCE, request.param)


def test_reductions_see_the_active_lanes(module):
    values = np.random.default_rng(1).integers(-(2**31), 2**31, 32).astype(np.int32)
    found = np.zeros((5, 32), np.uint32)
    module["reductions"].launch(1, 32, [values, found])
    active = np.fmod(values, 3) != 0
    some, words = values[active], values[active].view(np.uint32)
    wanted = [int(some.sum()) & 0xFFFFFFFF, int(some.min()) & 0xFFFFFFFF, words.max(), np.bitwise_xor.reduce(words)]
    wanted.append(np.bitwise_and.reduce(words))
    assert (found == np.where(active, np.array(wanted, np.uint32)[:, None], 0)).all()


def test_uniform_floating_point(module):
    for n, f in ((7, 2.5), (-3, 1.5), (1000, -0.7)):
        found, f = np.zeros((3, 32), np.float32), np.float32(f)
        for block in range(3):
            g = np.float32(block * n) * f + np.float32(n)
            found[block] = np.minimum(g, np.float32(100)) + np.rint(f) + (f if f > 2 else -f) + np.float32(int(f))
        last = np.zeros(32, np.float32)
        module["uniform"].launch(3, 32, [np.int32(n), f, last])
        assert np.allclose(last, found[2], rtol=1e-6)


def test_elections(module):
    if "election" not in module:
        pytest.skip("not an instruction of this architecture")
    values = np.random.default_rng(2).integers(0, 30, 32).astype(np.int32)
    values[0] = 3
    found = np.zeros(32, np.uint32)
    module["election"].launch(1, 32, [values, found])
    active = values % 3 != 0
    leader = int(active.argmax())
    wanted = np.where(active, leader + 64 * (np.arange(32) == leader), 0)
    assert (found == wanted).all()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SYNCS.ARRIVE.TRANS64 R2, [UR4], R6", "mbarrier"),
        ("CALL.ABS 0x140", "absolute address"),
        ("ELECT P0, UR6, P1", "election"),
        ("ATOMG.E.CAS.STRONG.GPU P0, R0, [R2.64], R4, R5", "predicate result"),
        ("QSPC.E.S P0, R1, [R4]", "register result"),
    ],
)
def test_refusals_say_why(meaning, text, reason):
    with pytest.raises(UnsupportedError, match=reason):
        meaning(text)
