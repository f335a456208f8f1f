"""A launch's time on a device, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpusim.errors import UnsupportedError, UsageError
from gpusim.timing import pipeline
from gpusim.timing.model import Model, model_of

CACHES = ("cold", "hot")
MODELS = ("auto", "pipeline", "bounds")

# what the core's units are called, and how many of them an SM has that work side by side
UNITS = {
    "issue": ("instruction issue", 4),
    "fma": ("FMA pipe", 4),
    "alu": ("ALU pipe", 4),
    "xu": ("special functions", 4),
    "fp64": ("FP64 pipe", 4),
    "tensor": ("tensor cores", 4),
    "uniform": ("uniform datapath", 4),
    "lsu": ("L1 and shared memory", 1),
    "barrier": ("barriers", 1),
    "constant": ("constant cache", 1),
    "l2_read": ("L2 reads", 1),
    "l2_write": ("L2 writes", 1),
    "dram": ("DRAM", 1),
    "atomic": ("atomics in L2", 1),
}
# what warps wait for, as Nsight Compute's stall reasons say it, with the core's names of it
STALLS = {
    "long scoreboard": ("long_scoreboard",),
    "short scoreboard": ("short_scoreboard",),
    "barrier": ("barrier",),
    "math pipe throttle": ("math_pipe",),
    "LSU queue throttle": ("lsu_queue",),
    "wait": ("fixed",),
    "branch resolving": ("branch",),
    "not selected": ("not_selected",),
    "selected": ("selected",),
}
ENOUGH = 0.75  # of the time: a unit that is busy for as much is what limits


@dataclass(frozen=True)
class Prediction:
    """Modelled time of one launch.

    ``milliseconds``: what CUDA events around it would say, ``cache`` "cold" (L2 flushed before) or "hot" (launched over
    and over in a graph).  ``breakdown``: milliseconds that each unit alone would need.  ``limiter``: the unit, or the
    latency, that the time is spent on.  ``stalls``: shares of warps' time by what they wait for.  ``confidence``: a
    sentence.  ``model``: "pipeline" or "bounds".  All of it is modelled, nothing exact.
    """

    milliseconds: float
    limiter: str
    breakdown: dict[str, float]
    stalls: dict[str, float]
    confidence: str
    model: str
    device: str
    cache: str
    cycles: float
    l1_hit_rate: float
    l2_bytes: float
    dram_bytes_read: float
    dram_bytes_written: float
    achieved_occupancy: float
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "milliseconds": self.milliseconds,
            "limiter": self.limiter,
            "breakdown_ms": self.breakdown,
            "stalls": self.stalls,
            "confidence": self.confidence,
            "model": self.model,
            "device": self.device,
            "cache": self.cache,
            "cycles": self.cycles,
            "l1_hit_rate": self.l1_hit_rate,
            "l2_bytes": self.l2_bytes,
            "dram_bytes_read": self.dram_bytes_read,
            "dram_bytes_written": self.dram_bytes_written,
            "achieved_occupancy": self.achieved_occupancy,
            "notes": list(self.notes),
        }


def predict(
    kernel: Any,
    grid: Any,
    block: Any,
    args: Sequence[Any],
    shared_bytes: int = 0,
    device: str = "h200",
    cache: str = "cold",
    model: str = "auto",
) -> Prediction:
    """Predict a launch; see :meth:`gpusim.api.Kernel.predict`."""
    if cache not in CACHES:
        raise UsageError(f"cache must be cold or hot, not {cache!r}")
    if model not in MODELS:
        raise UsageError(f"model must be one of {', '.join(MODELS)}, not {model!r}")
    profile = model_of(device)
    arch = kernel.module.cubin.arch
    notes = []
    known = profile.profile
    if arch != known.arch:
        notes.append(f"code for sm_{arch} is timed as if {known.device} (sm_{known.arch}) executed it as it is")
    broken = kernel.program.unsupported()
    if broken:
        raise UnsupportedError(str(broken[0]))
    from gpusim.timing import bounds

    if model == "pipeline" and not bounds.have_numba():
        raise UsageError(f"the pipeline model needs numba: {bounds.HINT}, or use the model bounds")
    if model == "auto" and not bounds.have_numba():
        notes.append(f"numba is not installed, so the model bounds was used; the pipeline model: {bounds.HINT}")
        model = "bounds"
    if model == "bounds":
        return bounds.bounded(kernel, grid, block, args, shared_bytes, profile, cache, tuple(notes))
    ready = kernel.prepare(grid, block, args, shared_bytes)
    seen = pipeline.follow_launch(ready, int(profile["sms"]))
    return from_followed(seen, profile, cache, tuple(notes))


def from_followed(seen: pipeline.Followed, profile: Model, cache: str, notes: tuple[str, ...] = ()) -> Prediction:
    """Predict a launch whose streams are known."""
    sim = pipeline.simulate(seen, profile, cache)
    clock = profile["sm_clock"] * 1e3  # cycles a millisecond
    overhead = profile[f"overhead_{cache}"] * 1e-3
    milliseconds = sim.cycles / clock + overhead
    whole = max(1.0, sim.share / sim.blocks)
    breakdown = {}
    for unit, (title, width) in UNITS.items():
        cycles = sim.busy[unit] / width * whole
        if cycles > 0:
            breakdown[title] = cycles / clock
    interval = profile["block_interval"] * (profile["block_interval_large"] if seen.threads > 512 else 1.0)
    breakdown["block launches"] = seen.blocks * interval / clock
    total = sum(sim.waits.values()) or 1.0
    stalls = {title: sum(sim.waits[n] for n in parts) / total for title, parts in STALLS.items()}
    active = min(int(profile["sms"]), seen.blocks)
    sectors = 32.0 * active * whole / seen.load
    loads = sim.counts["l1_hits"] + sim.counts["l2_reads"]
    resident = float((sim.end - sim.begin).sum()) * seen.warps / max(1.0, float(sim.end.max() - sim.begin.min()))
    breakdown = {title: float(value) for title, value in breakdown.items()}
    return Prediction(
        milliseconds=float(milliseconds),
        limiter=limiter_of(breakdown, stalls, milliseconds, overhead),
        breakdown=breakdown,
        stalls={title: float(share) for title, share in stalls.items()},
        confidence=confidence_of(seen, profile, breakdown, milliseconds),
        model="pipeline",
        device=profile.name,
        cache=cache,
        cycles=float(sim.cycles),
        l1_hit_rate=float(sim.counts["l1_hits"] / loads) if loads else 0.0,
        l2_bytes=float((sim.counts["l2_reads"] + sim.counts["l2_writes"]) * sectors),
        dram_bytes_read=float(sim.counts["dram_read"] * sectors),
        dram_bytes_written=float(sim.counts["dram_write"] * sectors),
        achieved_occupancy=float(resident / seen.occupancy.warps_possible),
        notes=notes,
    )


def problem_milliseconds(launches: Sequence[Mapping[str, float]], cache: str, model: Model) -> float:
    """Milliseconds of launches one after the other; each has its milliseconds "cold" and "hot".

    Cold: L2 is flushed before the first one alone; the others find what it left, and each costs what the host needs to
    launch it beside the one before (``overhead_next``).  Hot: all of them in one graph, over and over.
    """
    if cache == "hot":
        return sum(launch["hot"] for launch in launches)
    rest = sum(launch["hot"] + model["overhead_next"] * 1e-3 for launch in launches[1:])
    return launches[0]["cold"] + rest


def limiter_of(breakdown: dict[str, float], stalls: dict[str, float], milliseconds: float, overhead: float) -> str:
    """The busiest unit, if it is busy for most of the time, else what warps wait for most."""
    if overhead > 0.5 * milliseconds:
        return "launch overhead"
    unit = max(breakdown, key=lambda name: breakdown[name])
    if breakdown[unit] >= ENOUGH * (milliseconds - overhead):
        return unit
    waiting = {name: share for name, share in stalls.items() if name not in ("selected", "not selected")}
    reason = max(waiting, key=lambda name: waiting[name])
    return {
        "long scoreboard": "latency of L2 and DRAM",
        "short scoreboard": "latency of shared memory and shuffles",
        "barrier": "barriers",
        "math pipe throttle": unit,
        "LSU queue throttle": "L1 and shared memory",
        "wait": "latency of arithmetic",
        "branch resolving": "latency of branches",
    }[reason]


def confidence_of(seen: pipeline.Followed, profile: Model, breakdown: dict[str, float], milliseconds: float) -> str:
    """How far the number may be trusted."""
    if profile.name != "h200":
        return "low: the profile was not compared with recorded times"
    if breakdown.get("atomics in L2", 0.0) > 0.5 * milliseconds:
        return "low: how L2 spreads contended atomics is known only roughly"
    if seen.blocks < 2 * profile["sms"]:
        return "fair: the launch does not fill the device, 10 % is usual"
    return "good: 5 % is usual on recorded launches"


__all__ = ["Prediction", "from_followed", "predict", "problem_milliseconds"]
