from __future__ import annotations

import pytest

from simulator.percentile import percentile


@pytest.mark.parametrize(("percent", "expected"), [(0, 1.0), (50, 2.0), (99, 3.0), (100, 3.0)])
def test_percentiles_are_nearest_ranks(percent: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0], percent) == expected


def test_an_empty_list_has_no_percentile() -> None:
    assert percentile([], 50) is None
