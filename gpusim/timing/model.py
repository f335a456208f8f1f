"""The numbers that the pipeline model runs on: a device profile's, in the model's units, and a few fitted ones.

What a profile has is measured or documented.  The fitted numbers are of mechanisms that no microbenchmark shows alone;
they are in ``fitted.json`` with what they were fitted on, and are those of an H200 on every device.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gpusim.errors import UsageError
from gpusim.timing.profiles import Profile, load

KIB = 1024
ASSUMED = "assumed as "  # how the source of a constant begins that is another device's
# bytes of L1 and shared memory together: CUDA C++ Programming Guide, "Compute Capabilities"
L1_BYTES = {75: 96, 80: 192, 86: 128, 87: 192, 88: 128, 89: 128, 90: 256, 100: 256, 103: 256, 110: 256, 120: 128}
SLOT_SIZES = (64, 128, 256, 512, 1024)  # threads of a block whose way to a free place was measured
SCHEDULERS = 4  # an SM, on all these architectures


def _scaled(p: Profile, name: str, by: str) -> float:
    """A constant; one that is another device's goes with ``by``, which is the device's own."""
    value, source = p[name], p.constants[name].source
    if not source.startswith(ASSUMED):
        return value
    other = load(source.removeprefix(ASSUMED))
    return value * p[by] / other[by]


# name in the model: from a profile
DERIVED: dict[str, Callable[[Profile], float]] = {
    "sm_clock": lambda p: p["clock"],
    "sms": lambda p: p["sms"],
    "schedulers": lambda p: SCHEDULERS,
    "l1_bytes": lambda p: L1_BYTES[p.arch] * KIB,
    "l2_bytes": lambda p: p["l2_bytes"],
    "latency_l1": lambda p: p["latency_l1_hit"],
    "latency_l2": lambda p: p["latency_l2_hit"],
    "latency_dram_all": lambda p: p["latency_dram"],
    "latency_shared": lambda p: p["latency_shared_32"],
    "latency_shared_atomic": lambda p: p["latency_shared_atomic"],
    "latency_global_atomic": lambda p: p["latency_global_atomic"],
    "latency_shuffle": lambda p: p["latency_shfl"],
    "latency_constant": lambda p: p["latency_constant_indexed"] - p["latency_iadd3"],
    "latency_xu": lambda p: p["latency_mufu"],
    "latency_fp64": lambda p: p["latency_dadd"],
    "latency_alu": lambda p: p["latency_ffma"],
    "latency_barrier": lambda p: p["barrier"],
    "latency_fence": lambda p: p["latency_fence_device"],
    "issue_fma": lambda p: SCHEDULERS / p["issue_fadd_fmul"],
    "issue_fma_heavy": lambda p: SCHEDULERS / p["issue_imad"],
    "issue_alu": lambda p: SCHEDULERS / p["issue_iadd3_lop3"],
    "issue_xu": lambda p: SCHEDULERS / p["issue_mufu"],
    "issue_fp64": lambda p: SCHEDULERS / p["issue_dadd"],
    "issue_half": lambda p: SCHEDULERS / p["issue_hadd2"],
    "issue_wide_multiply": lambda p: SCHEDULERS / p["issue_imad_hi"],
    "issue_shuffle": lambda p: 1 / p["issue_shfl"],
    "cost_tag": lambda p: p["l1_line"],
    # of megabytes: a few hundred KiB are faster, since SMs that want the same line at a time are served together
    "cost_l2_line": lambda p: p["sms"] * p["clock"] * 1e-3 / p["l2_random_sectors"],
    "cost_l2_write_line": lambda p: p["l2_store_sector_alone"],
    "cost_l2_sector_port": lambda p: 32 / p["l2_read_one_sm"],
    "cost_l2_write_sector_port": lambda p: 32 / p["l2_write_one_sm"],
    "l2_read_bandwidth": lambda p: _scaled(p, "l2_read", "sms") * p["clock"] * 1e6,
    "l2_write_bandwidth": lambda p: _scaled(p, "l2_write", "sms") * p["clock"] * 1e6,
    "dram_read_bandwidth": lambda p: _scaled(p, "dram_read", "dram_peak") * 1e9,
    # what writing costs where reads go on beside it
    "dram_write_bandwidth": lambda p: (
        1e9 / (2 / _scaled(p, "dram_copy", "dram_peak") - 1 / _scaled(p, "dram_read", "dram_peak"))
    ),
    "cost_dram_isolated": lambda p: p["dram_read_32_of_128"] / 64,
    # 64 bytes that nothing else nearby is read or written with
    "read_alone": lambda p: p["dram_read_32_of_256"] / 64,
    "write_alone": lambda p: p["dram_write_32_of_256"] / 64,
    "cost_barrier": lambda p: p["barrier_warp"],
    "block_interval": lambda p: p["block_interval_256"] * p["clock"] * 1e-3,
    "block_interval_large": lambda p: p["block_interval_1024"] / p["block_interval_512"],
    "cost_constant_word": lambda p: p["constant_load_word"],
    "dirty_read": lambda p: p["l2_dirty_read"],
    "atomic_pass": lambda p: 1 / p["atomic_one_address"],
    "atomic_places": lambda p: p["atomic_random"] / p["atomic_one_address"],
    "overhead_hot": lambda p: p["launch_graph"],
    "overhead_cold": lambda p: p["launch_event_flushed"],
}


@dataclass(frozen=True)
class Model:
    """Numbers by name, in cycles of the SM's clock, bytes and bytes a second."""

    profile: Profile
    values: dict[str, float]

    @property
    def name(self) -> str:
        """The device."""
        return self.profile.name

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def cycles(self, seconds: float) -> float:
        """Seconds in cycles of the SM's clock."""
        return seconds * self["sm_clock"] * 1e6


@cache
def fitted() -> dict[str, float]:
    """The fitted numbers."""
    content = json.loads((Path(__file__).parent / "fitted.json").read_text())
    return {name: float(entry["value"]) for name, entry in content["constants"].items()}


def model_of(device: str | Profile, **other: float) -> Model:
    """The model of a device; ``other``: numbers to use in place of its own.  Raises UsageError."""
    profile = load(device) if isinstance(device, str) else device
    if profile.arch not in L1_BYTES:
        raise UsageError(f"the profile {profile.name} is of sm_{profile.arch}, which the model does not know")
    values = {name: float(rule(profile)) for name, rule in DERIVED.items()}
    values |= {f"slot_gap_{size}": profile[f"slot_gap_{size}"] for size in SLOT_SIZES}
    values |= fitted()
    values |= other
    # what varies in DRAM's latency comes on top of the rest
    values["latency_dram"] = values["latency_dram_all"] - values["dram_jitter"]
    return Model(profile, values)
