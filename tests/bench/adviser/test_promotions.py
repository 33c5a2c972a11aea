"""The counts of a simulated day beside a holdback."""

from __future__ import annotations

from bench.adviser.promotions import LIVE, served
from bench.simulator.savings_coverage import UNCOUNTED, day_rows


def test_a_day_is_counted_by_arm_without_its_start() -> None:
    counts = served(LIVE, day_rows(1)[: UNCOUNTED + 700], 1)
    assert counts.policy + counts.rule == 700
    assert 30 <= counts.rule <= 110
    assert counts.enough == (counts.rule >= 100)
    assert 0 <= counts.policy_late <= counts.policy
