"""Whether predicted and measured times put the variants of a family in the same order.

Pure functions: nothing here knows where times come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

from gpusim.runner.times import Time, tied

PREDICTED_TIE = 0.05
"""Predictions closer than this, relative to the smaller, are no statement about the order."""

Verdict = Literal["agree", "disagree", "tie"]


def sign(a: float, b: float) -> int:
    """-1 if a is less than b, 1 if it is more, 0 if they are equal."""
    return int(a > b) - int(a < b)


@dataclass(frozen=True)
class Pair:
    """Two variants.  ``predicted``, ``measured``: -1 if the first is faster, 1 if the second is, 0 for a tie."""

    first: str
    second: str
    predicted: int
    measured: int

    @property
    def verdict(self) -> Verdict:
        """Whether both say the same; "tie" if one of them does not say."""
        if not self.predicted or not self.measured:
            return "tie"
        return "agree" if self.predicted == self.measured else "disagree"


def predicted_order(a: float, b: float) -> int:
    """Which of two predicted times is less (see Pair)."""
    return 0 if abs(a - b) <= PREDICTED_TIE * min(a, b) else sign(a, b)


def measured_order(a: Time, b: Time) -> int:
    """Which of two measured times is less: a tie if their ranges overlap or their medians are within 2 %."""
    return 0 if tied(a, b) else sign(a.median, b.median)


def pairs_of(predicted: Mapping[str, float], measured: Mapping[str, Time]) -> list[Pair]:
    """All pairs of the variants that have both times, in the order of ``measured``."""
    names = [name for name in measured if name in predicted]
    return [
        Pair(a, b, predicted_order(predicted[a], predicted[b]), measured_order(measured[a], measured[b]))
        for a, b in combinations(names, 2)
    ]


@dataclass(frozen=True)
class Agreement:
    """How many pairs agree, disagree and are ties; Kendall's tau-b of the two orders (None if it has no meaning)."""

    agree: int
    disagree: int
    tie: int
    tau: float | None

    @property
    def decided(self) -> int:
        """Pairs that are no ties."""
        return self.agree + self.disagree


def agreement(pairs: Sequence[Pair]) -> Agreement:
    """Count the pairs.

    tau-b (M. G. Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945) is (agree - disagree) over
    the geometric mean of how many pairs each of the two orders decides: 1 for the same order, -1 for the opposite.
    """
    verdicts = [pair.verdict for pair in pairs]
    agree, disagree = verdicts.count("agree"), verdicts.count("disagree")
    by_prediction = sum(pair.predicted != 0 for pair in pairs)
    by_measurement = sum(pair.measured != 0 for pair in pairs)
    tau = (agree - disagree) / math.sqrt(by_prediction * by_measurement) if by_prediction and by_measurement else None
    return Agreement(agree, disagree, verdicts.count("tie"), tau)
