"""Predicted against measured order: pairs, ties, Kendall's tau."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.runner.order import Agreement, Pair, agreement, measured_order, pairs_of, predicted_order
from gpusim.runner.times import Time


def at(median, half=0.001):
    return Time(median, median * (1 - half), median * (1 + half), 10)


def test_pairs_agree_disagree_or_are_ties():
    measured = {"a": at(10), "b": at(20), "c": at(20.2), "d": at(40)}
    predicted = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 3.1, "e": 9.0}
    found = {(p.first, p.second): p.verdict for p in pairs_of(predicted, measured)}
    assert found == {
        ("a", "b"): "agree",
        ("a", "c"): "agree",
        ("a", "d"): "agree",
        ("b", "c"): "tie",  # measured within 2 %
        ("b", "d"): "disagree",
        ("c", "d"): "tie",  # predicted within 5 %
    }
    counted = agreement(pairs_of(predicted, measured))
    assert (counted.agree, counted.disagree, counted.tie, counted.decided) == (3, 1, 2, 4)
    assert counted.tau == pytest.approx((3 - 1) / math.sqrt(5 * 5))


def test_ties():
    assert predicted_order(1, 1.04) == 0 and predicted_order(1.06, 1) == 1 and predicted_order(1, 1.06) == -1
    assert measured_order(at(100), at(102)) == 0 and measured_order(at(100), at(103)) == -1
    assert measured_order(at(100, 0.1), at(115, 0.1)) == 0  # the ranges overlap
    assert measured_order(at(100, 0.001), at(99, 0.001)) == 0


def test_nothing_to_say():
    assert agreement([]) == Agreement(0, 0, 0, None)
    assert pairs_of({}, {"a": at(1), "b": at(2)}) == []
    assert agreement([Pair("a", "b", 0, 1)]).tau is None


def tau_b(x, y):
    """scipy's definition: concordant minus discordant over the root of the pairs untied in x times those in y."""
    pairs = list(combinations(range(len(x)), 2))
    c = sum((x[i] - x[j]) * (y[i] - y[j]) > 0 for i, j in pairs)
    d = sum((x[i] - x[j]) * (y[i] - y[j]) < 0 for i, j in pairs)
    tx = sum(x[i] == x[j] and y[i] != y[j] for i, j in pairs)
    ty = sum(x[i] != x[j] and y[i] == y[j] for i, j in pairs)
    return (c - d) / math.sqrt((c + d + tx) * (c + d + ty)) if (c + d + tx) * (c + d + ty) else None


# powers of two: no two that differ are within a tie
ranks = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=2, max_size=9)


@given(ranks)
def test_tau_is_kendalls(ranked):
    predicted = {str(k): 2.0**p for k, (p, _) in enumerate(ranked)}
    measured = {str(k): at(2.0**m) for k, (_, m) in enumerate(ranked)}
    found = agreement(pairs_of(predicted, measured))
    expected = tau_b([p for p, _ in ranked], [m for _, m in ranked])
    assert found.tau == (expected if expected is None else pytest.approx(expected))
    assert found.agree + found.disagree + found.tie == len(ranked) * (len(ranked) - 1) // 2
    backwards = agreement(pairs_of({k: 1 / v for k, v in predicted.items()}, measured))
    assert (backwards.agree, backwards.disagree) == (found.disagree, found.agree)


def test_tau_of_a_known_example():
    # x = 1 2 3 4 5, y = 1 3 2 4 5 in doublings: one pair of ten the wrong way round
    predicted = {str(k): 2.0**k for k in range(5)}
    measured = {str(k): at(2.0**m) for k, m in enumerate((0, 2, 1, 3, 4))}
    assert agreement(pairs_of(predicted, measured)) == Agreement(9, 1, 0, pytest.approx(0.8))
