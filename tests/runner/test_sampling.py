"""Taking samples: statistics, taking turns, when to stop, what is dropped."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.runner import sampling
from gpusim.runner.sampling import Criterion, Timed, spread_of, summary_of, take_turns, throttled


class FakeWatch:
    """Gives out times that were laid down, on a clock of its own."""

    def __init__(self, times, clocks=None, step=1e-3):
        self.times, self.clocks, self.step = times, clocks, step
        self.seconds, self.order, self.read = 0.0, [], 0

    def now(self):
        return self.seconds

    def prepare(self, run):
        return 7, lambda: run()

    def cold(self, run, number):
        self.seconds += self.step
        name = run()
        self.order.append(name)
        return self.times[name](number)

    def hot(self, replay, repetitions):
        assert repetitions == 7
        return self.times[replay()](0) / 2

    def clock(self):
        self.read += 1
        return self.clocks(self.read) if self.clocks is not None else None


def steady(seconds):
    return lambda number: seconds * (1 + 0.001 * (number % 3))


def noisy(seconds):
    generator = np.random.default_rng(3)
    return lambda number: seconds * (1 + 2 * generator.random())


def items(*names):
    return [Timed(name, lambda name=name: name) for name in names]


def test_the_spread_is_half_of_the_medians_confidence_interval():
    samples = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert spread_of(samples) == pytest.approx(1.82 * 2 / math.sqrt(5) / 3)
    assert spread_of([1.0]) == math.inf and spread_of([0.0, 0.0]) == math.inf
    assert spread_of([2.0] * 10) == 0


@given(st.lists(st.floats(1e-6, 1), min_size=2, max_size=50), st.floats(0.5, 1000))
def test_summaries(samples, factor):
    found = summary_of(samples)
    low, high = found["quartiles"]
    assert found["least"] <= low <= found["median"] <= high and found["samples"] == len(samples)
    assert spread_of([s * factor for s in samples]) == pytest.approx(spread_of(samples), abs=1e-9)  # has no unit


def test_the_interval_holds_the_true_median_as_often_as_said():
    generator = np.random.default_rng(5)
    inside = 0
    for _ in range(400):
        samples = generator.lognormal(0, 0.1, 40)  # its median is 1
        inside += abs(float(np.median(samples)) - 1) <= spread_of(samples) * float(np.median(samples))
    assert inside >= 0.92 * 400


def test_variants_take_turns_until_each_is_known_well_enough():
    watch = FakeWatch({"a": steady(1e-4), "b": noisy(1e-4)})
    a, b = items("a", "b")
    take_turns([a, b], watch, Criterion(seconds=0.02, most_seconds=1), now=watch.now)
    assert watch.order[:6] == ["a", "b"] * 3
    assert a.settled and len(a.cold) >= 20  # its 0.02 s at a millisecond a sample
    assert len(b.cold) > 3 * len(a.cold)  # the noisy one needed more, and the other did not wait
    assert len(a.cold) == len(a.hot) and a.summary()["batch"] == 7
    assert b.settled == (max(spread_of(b.cold), spread_of(b.hot)) <= 0.01)


def test_sampling_ends_when_the_criterion_cannot_be_met():
    watch = FakeWatch({"a": noisy(1e-4)})
    (item,) = items("a")
    take_turns([item], watch, Criterion(seconds=0.01, spread=1e-6, most_seconds=0.1), now=watch.now)
    found = item.summary()
    assert not found["settled"] and found["cold"]["spread"] > 1e-6
    assert 0.1 <= watch.seconds < 0.12


def test_a_few_samples_are_taken_however_long_they_take():
    watch = FakeWatch({"a": steady(1)}, step=1.0)
    (item,) = items("a")
    take_turns([item], watch, Criterion(seconds=0.3), now=watch.now)
    assert len(item.cold) == 10 and item.settled
    watch = FakeWatch({"a": steady(1)}, step=1.0)
    take_turns(items("a"), watch, Criterion(seconds=0.3, most_seconds=4), now=watch.now)
    assert watch.seconds == 4  # but not longer than allowed


def test_samples_of_a_throttled_clock_are_dropped():
    watch = FakeWatch({"a": steady(1e-4)}, clocks=lambda read: (900, 0x4) if read == 2 else (1980, 0x1))
    (item,) = items("a")
    take_turns([item], watch, Criterion(seconds=0.03), now=watch.now)
    found = item.summary()
    assert found["dropped"] == 5 and found["dropped_for"] == "power limit"
    assert found["clock_mhz"] == [900, 1980] and found["settled"]
    assert len(item.cold) + item.dropped == len(watch.order)


def test_nothing_is_left_of_a_clock_that_is_always_throttled():
    watch = FakeWatch({"a": steady(1e-4)}, clocks=lambda read: (900, 0x20 | 0x40))
    (item,) = items("a")
    take_turns([item], watch, Criterion(seconds=0.01, most_seconds=0.05), now=watch.now)
    found = item.summary()
    assert "cold" not in found and found["dropped"] > 0 and not found["settled"]
    assert found["dropped_for"] == "temperature, hardware temperature"


def test_throttling():
    assert not throttled(None) and not throttled((1000, 0)) and not throttled((1000, 0x3))
    assert throttled((1000, 0x8)) and throttled((1000, 0x101))
    assert sampling.reasons(0x4000) == "reason 0x4000"


@pytest.mark.parametrize(("seconds", "most"), [(0.3, 15), (0.1, 5), (0.001, 0.05), (20, 20)])
def test_the_longest_time_goes_with_the_least(seconds, most):
    assert Criterion.of(seconds).most_seconds == pytest.approx(most)
    assert Criterion.of(seconds).seconds == seconds


def test_progress_is_told():
    heard = []
    watch = FakeWatch({"a": steady(1e-4), "b": steady(1e-4)})
    take_turns(
        items("a", "b"), watch, Criterion(seconds=0.01), now=watch.now, progress=lambda *about: heard.append(about)
    )
    assert heard[-1] == (2, 2) and heard[0][0] == 0
