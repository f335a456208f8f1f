"""Taking samples of times until they can be trusted: used by ``gpusim run``, ``gpusim validate`` and ``measure.py``.

Only NumPy is needed, and CuPy where it is handed in, so that ``measure.py`` runs as a plain file beside this one.

What is timed is timed in two ways.  *Cold*: alone, after a write that is larger than the L2 cache and lies outside the
timed interval.  *Hot*: in a CUDA graph of repetitions back to back, so that the cost of launching does not drown a
short kernel.  Several things to be timed take turns, so that a drift of the clock meets all of them alike.

Sampling of each ends when there are at least ``least`` samples over at least ``seconds`` and the medians of both ways
are known to ``spread``, and in any case after ``most_seconds``.  How well a median of n samples is known is taken to be
half the width of its 95 % confidence interval, relative to it: 1.82 * (q75 - q25) / sqrt(n).  (That is 1.96 standard
errors; that of a median is 1.2533 s / sqrt(n), and the standard deviation s is taken as (q75 - q25) / 1.349, which
samples far off do not change.)

Samples between two readings of the clock, the second of which says that the GPU is throttled, are dropped and counted.
The GPU's clocks and settings are left alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

FLUSH_BYTES = 256 << 20
"""Written before a cold sample, or four times the L2 cache if that is more."""
HOT_SECONDS = 2e-3
"""A graph of repetitions holds about this much work."""
MOST_REPETITIONS = 100
"""Repetitions in a graph at most."""
READ_EVERY_SECONDS = 5e-3
"""The clock is read this often while samples are taken."""
COPY_BYTES = 1 << 30
"""Size of the buffers between which the copy bandwidth is measured, if a quarter of the free memory is not less."""
HALF_WIDTH = 1.82

HARMLESS = 0x1 | 0x2
"""Bits of NVML's reasons for a low clock that are no throttling: idle, and a clock that the user has set."""
REASONS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x10: "clock of a group of GPUs",
    0x20: "temperature",
    0x40: "hardware temperature",
    0x80: "power brake",
    0x100: "display clock",
}

Clock = tuple[int, int]
"""SM clock in MHz and NVML's reasons for it, as bits."""


def throttled(clock: Clock | None) -> bool:
    """Whether a reading says that the GPU runs slower than it could."""
    return clock is not None and bool(clock[1] & ~HARMLESS)


def reasons(bits: int) -> str:
    """NVML's reasons in words."""
    known = [words for bit, words in REASONS.items() if bits & bit]
    return ", ".join(known) or f"reason {bits:#x}"


@dataclass(frozen=True)
class Criterion:
    """When there are enough samples; seconds are of the wall clock, for each thing that is timed."""

    seconds: float = 0.3
    least: int = 10
    spread: float = 0.01
    most_seconds: float = 15.0

    @classmethod
    def of(cls, seconds: float) -> Criterion:
        """The criterion that takes at least ``seconds``: at most 50 times as long, and never over 15 s or that time."""
        return cls(seconds=seconds, most_seconds=max(seconds, min(cls.most_seconds, 50 * seconds)))


def spread_of(samples: Sequence[float]) -> float:
    """How well the median of the samples is known, relative to it (see the module); infinite below two samples."""
    if len(samples) < 2:
        return math.inf
    low, middle, high = np.percentile(samples, (25, 50, 75))
    return float(HALF_WIDTH * (high - low) / math.sqrt(len(samples)) / middle) if middle > 0 else math.inf


def summary_of(samples: Sequence[float]) -> dict[str, Any]:
    """Seconds in, microseconds out: median, quartiles, minimum, number, and how well the median is known."""
    values = np.array(samples) * 1e6
    low, middle, high = np.percentile(values, (25, 50, 75))
    return {
        "median": round(float(middle), 3),
        "quartiles": [round(float(low), 3), round(float(high), 3)],
        "least": round(float(values.min()), 3),
        "samples": len(values),
        "spread": round(spread_of(samples), 5) if len(values) > 1 else None,
    }


class Watch(Protocol):
    """What takes the time on a device."""

    def prepare(self, run: Callable[[], None]) -> tuple[int, Callable[[], None]]:
        """Warm up; (repetitions in a graph, what launches that graph)."""

    def cold(self, run: Callable[[], None], number: int) -> float:
        """Seconds that it takes after the L2 cache was flushed; ``number`` counts the samples."""

    def hot(self, replay: Callable[[], None], repetitions: int) -> float:
        """Seconds that one of the repetitions of a graph takes."""

    def clock(self) -> Clock | None:
        """The clock now, None if it cannot be read."""


@dataclass
class Timed:
    """Something to be timed: ``run`` starts it once on the current stream.  Times are in seconds."""

    name: str
    run: Callable[[], None]
    cold: list[float] = field(default_factory=list)
    hot: list[float] = field(default_factory=list)
    repetitions: int = 1
    dropped: int = 0
    dropped_for: int = 0
    spent: float = 0.0
    clocks: list[int] = field(default_factory=list)
    settled: bool = False
    _replay: Callable[[], None] | None = None

    def prepare(self, watch: Watch) -> None:
        """Warm up and make the graph of repetitions."""
        self.repetitions, self._replay = watch.prepare(self.run)

    def sample(self, watch: Watch, number: int) -> tuple[float, float]:
        """One sample of each way."""
        assert self._replay is not None, "prepare() comes first"
        return watch.cold(self.run, number), watch.hot(self._replay, self.repetitions)

    def finished(self, criterion: Criterion) -> bool:
        """Whether there are enough samples, or no more may be taken; ``settled`` tells which."""
        self.settled = (
            len(self.cold) >= criterion.least
            and self.spent >= criterion.seconds
            and max(spread_of(self.cold), spread_of(self.hot)) <= criterion.spread
        )
        return self.settled or self.spent >= criterion.most_seconds

    def summary(self) -> dict[str, Any]:
        """Microseconds of both ways (neither, if all samples were dropped), and how they were come by."""
        found: dict[str, Any] = {
            "id": self.name,
            "batch": self.repetitions,
            "dropped": self.dropped,
            "settled": self.settled,
            "clock_mhz": [min(self.clocks), max(self.clocks)] if self.clocks else None,
        }
        if self.dropped:
            found["dropped_for"] = reasons(self.dropped_for)
        if self.cold:
            found |= {"cold": summary_of(self.cold), "hot": summary_of(self.hot)}
        return found


def take_turns(
    items: Sequence[Timed],
    watch: Watch,
    criterion: Criterion,
    *,
    now: Callable[[], float] = time.perf_counter,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Sample all items in turn until each is finished; ``progress`` hears how many are."""
    for item in items:
        item.prepare(watch)
    waiting, number = list(items), 0
    pending: list[tuple[Timed, float, float]] = []
    read_at = now()
    while waiting:
        for item in waiting:
            begun = now()
            pending.append((item, *item.sample(watch, number)))
            item.spent += now() - begun
        number += 1
        exhausted = any(item.spent >= criterion.most_seconds for item in waiting)
        if not exhausted and now() - read_at < READ_EVERY_SECONDS:
            continue
        _keep(pending, watch.clock())
        pending, read_at = [], now()
        waiting = [item for item in waiting if not item.finished(criterion)]
        if progress is not None:
            progress(len(items) - len(waiting), len(items))


def _keep(pending: Sequence[tuple[Timed, float, float]], clock: Clock | None) -> None:
    """Give the samples to their items, or drop them."""
    slow = throttled(clock)
    for item, cold, hot in pending:
        if slow and clock is not None:
            item.dropped += 1
            item.dropped_for |= clock[1] & ~HARMLESS
        else:
            item.cold.append(cold)
            item.hot.append(hot)
        if clock is not None and (not item.clocks or item.clocks[-1] != clock[0]):
            item.clocks.append(clock[0])


class CupyWatch:
    """Takes times with CUDA events on a stream of its own; use it as a context (``with watch:``)."""

    def __init__(self, cupy: Any, l2_bytes: int, clock: Callable[[], Clock | None]) -> None:
        self.cupy, self.clock = cupy, clock
        self.stream = cupy.cuda.Stream(non_blocking=True)
        self._start, self._end = cupy.cuda.Event(), cupy.cuda.Event()
        self._flush = cupy.empty(flush_bytes(l2_bytes), np.uint8)

    def __enter__(self) -> CupyWatch:
        self.stream.__enter__()
        return self

    def __exit__(self, *about: Any) -> None:
        self.stream.__exit__(*about)

    def _time(self, job: Callable[[], None]) -> float:
        self._start.record(self.stream)
        job()
        self._end.record(self.stream)
        self._end.synchronize()
        return float(self.cupy.cuda.get_elapsed_time(self._start, self._end)) * 1e-3

    def prepare(self, run: Callable[[], None]) -> tuple[int, Callable[[], None]]:
        for _ in range(3):
            run()
        self.stream.synchronize()
        seconds = self._time(run)
        repetitions = max(1, min(MOST_REPETITIONS, int(HOT_SECONDS / max(seconds, 1e-7))))
        self.stream.begin_capture()
        try:
            for _ in range(repetitions):
                run()
        finally:
            graph = self.stream.end_capture()

        def replay() -> None:
            graph.launch(self.stream)

        replay()
        self.stream.synchronize()
        return repetitions, replay

    def cold(self, run: Callable[[], None], number: int) -> float:
        self._flush.data.memset_async(number & 0xFF, self._flush.nbytes, self.stream)
        return self._time(run)

    def hot(self, replay: Callable[[], None], repetitions: int) -> float:
        if repetitions > 1:  # keeps the GPU busy until the timed graph has been handed over
            replay()
        return self._time(replay) / repetitions

    def copy_bandwidth(self) -> float:
        """Bytes a second, read and written, of a large copy between buffers on the device: median of 15."""
        size = min(COPY_BYTES, int(self.cupy.cuda.runtime.memGetInfo()[0]) // 4)
        source, target = self.cupy.empty(size, np.uint8), self.cupy.empty(size, np.uint8)
        source.data.memset_async(1, size, self.stream)

        def copy() -> None:
            target.data.copy_from_device_async(source.data, size, self.stream)

        times = [self._time(copy) for _ in range(20)]
        return 2 * size / float(np.median(times[5:]))


def flush_bytes(l2_bytes: int) -> int:
    """How much is written before a cold sample."""
    return max(FLUSH_BYTES, 4 * l2_bytes)
