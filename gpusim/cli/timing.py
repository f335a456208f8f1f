"""What ``gpusim analyze`` adds about time: a prediction a launch, or one sentence why there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from gpusim.cli.targets import Job, cache_of, following, in_order
from gpusim.errors import GpusimError, UsageError
from gpusim.report.prediction import slowest, total
from gpusim.result import Result
from gpusim.timing import bounds, profiles
from gpusim.timing.model import model_of
from gpusim.timing.predict import Prediction

PIPELINE_WORK = 100_000
"""Warp instructions of the blocks that one SM holds, up to which analyze lets the pipeline model follow them; beyond,
it uses the bounds, so that the prediction takes no longer than the count.  ``gpusim predict`` has no such limit."""


@dataclass
class Timing:
    """Predictions of an analysis's launches, or the sentence that says why there are none."""

    predictions: list[Prediction] = field(default_factory=list)
    why_not: str = ""

    def to_json(self) -> dict[str, object] | None:
        """As plain data; None if nothing was asked for."""
        if not self.predictions:
            return {"error": self.why_not} if self.why_not else None
        worst = slowest(self.predictions)
        return worst.to_json() | {
            "milliseconds": total(self.predictions),
            "launches": [p.to_json() for p in self.predictions],
        }


def profile_for(arch: int, device: str | None) -> profiles.Profile:
    """The profile asked for, else the first that runs code for ``arch``.  Raises UsageError if there is none."""
    if device is not None:
        return profiles.load(device)
    for name in sorted(profiles.names(), key=lambda name: name != "h200"):
        if profiles.load(name).arch == arch:
            return profiles.load(name)
    raise UsageError(
        f"no time is predicted: there is no profile of a device that runs sm_{arch} code; --device h200 times it as if "
        "an H200 executed it as it is"
    )


def predict_all(jobs: Sequence[Job], results: Sequence[Result], device: str | None) -> Timing:
    """Predict the launches of an analysis, whose counters are ``results``; whatever prevents it becomes a sentence."""
    try:
        chosen = profile_for(jobs[0].kernel.module.cubin.arch, device)
        steps = zip(in_order(jobs), results, strict=True)
        found = []
        for number, (job, result) in enumerate(steps):
            one = _predict(job, result, chosen, device or chosen.name, cache_of(number, "cold"))
            found.append(following(one, number, "cold", model_of(chosen)))
        return Timing(found)
    except GpusimError as error:
        text = str(error)
        return Timing(why_not=text if text.startswith("no time") else f"no time is predicted: {text}")


def _predict(job: Job, result: Result, chosen: profiles.Profile, device: str, cache: str) -> Prediction:
    blocks = math.prod(result.launch.grid)
    share = min(result.occupancy.blocks, math.ceil(blocks / chosen["sms"]))
    work = sum(i.executed for i in result.instructions) / blocks * share
    if bounds.have_numba() and work <= PIPELINE_WORK:
        found = job.kernel.predict(job.grid, job.block, job.args, job.shared_bytes, device=device, cache=cache)
        if math.isfinite(found.milliseconds):
            return found
    note = "throughput and latency bounds; 'gpusim predict' follows the launch warp by warp"
    if not bounds.have_numba():
        note = f"throughput and latency bounds; a closer model: {bounds.HINT}"
    notes = [note]
    arch = job.kernel.module.cubin.arch
    if arch != chosen.arch:
        notes.append(f"code for sm_{arch} is timed as if {chosen.device} executed it as it is")
    return bounds.bounded(
        job.kernel, job.grid, job.block, job.args, job.shared_bytes, model_of(chosen), cache, tuple(notes), result
    )
