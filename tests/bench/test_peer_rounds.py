"""The comparison of two products uses the quietest of several alternating rounds for both sides."""

import pytest

from bench.peers.rounds import LEAST_ROUNDS, quietest_and_median, ratios

ROUNDS = [
    {"ours": ours, "theirs": theirs} for ours, theirs in ((2.0, 43.0), (9.0, 7.6), (2.5, 8.0), (2.2, 30.0), (2.1, 9.0))
]


def test_quietest_round_of_each_side_counts_and_the_median_is_reported() -> None:
    figures = quietest_and_median(ROUNDS)
    assert figures == {"ours": 2.0, "ours_median": 2.2, "theirs": 7.6, "theirs_median": 9.0}
    assert ratios(figures, "ours", "theirs", "ratio") == pytest.approx({"ratio": 2.0 / 7.6, "ratio_median": 2.2 / 9.0})


def test_too_few_rounds_are_rejected() -> None:
    with pytest.raises(ValueError, match=f"fewer than the {LEAST_ROUNDS}"):
        quietest_and_median(ROUNDS[:-1])
