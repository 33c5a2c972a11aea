"""A minute of random kills in a grown installation; `make soak` runs ten of them."""

from __future__ import annotations

import pytest

from bench.soak import soak

pytestmark = [pytest.mark.processes, pytest.mark.long]


def test_a_minute_of_kills_loses_nothing_and_repeats_nothing() -> None:
    figures, wrong, _ = soak(1.0, seed=1)
    assert wrong == []
    assert figures["whole"] > 100
    assert sum(figures[f"killed_{kind}"] for kind in ("worker", "beat", "gateway", "engine", "web")) >= 5
    assert figures["effects"] >= 3
