from __future__ import annotations

import pytest

from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from simulator.regions.sovereignty_cost import MOST_ENGINES, CostQuestion, cost_of

NOTHING_LEAVES = SovereigntyRule("nothing leaves", allow=False)


def test_a_document_without_rules_costs_nothing() -> None:
    cost = cost_of(CostQuestion(SovereigntyDocument(), {"eu": 1, "us": 1}))
    assert cost.ruled == cost.free
    assert (cost.free.over_free, cost.without) == (1.0, {})
    assert cost.free.crossed_share > 0


def test_rules_that_keep_requests_at_home_cost_throughput_and_the_cause_is_named() -> None:
    # One way only: if half of the requests may leave in both directions, they make room for the others at no cost.
    harmless = SovereigntyRule("clinic may", tenants=("clinic",), to_regions=("eu",))
    cost = cost_of(CostQuestion(SovereigntyDocument(rules=(harmless, NOTHING_LEAVES)), {"eu": 1, "us": 1}))
    assert cost.ruled.over_free < 1.0
    assert cost.ruled.ttft_p90_s > 2 * cost.free.ttft_p90_s
    assert cost.without["nothing leaves"] == cost.free
    assert cost.without["clinic may"].over_free < cost.ruled.over_free


def test_a_large_fleet_is_scaled_down_in_proportion() -> None:
    cost = cost_of(CostQuestion(SovereigntyDocument(), {"a": 60, "b": 30, "c": 1, "empty": 0}))
    assert list(cost.engines) == ["a", "b", "c"]
    assert sum(cost.engines.values()) <= MOST_ENGINES + 1
    assert cost.engines["a"] > cost.engines["b"] > cost.engines["c"] == 1


@pytest.mark.parametrize("count", [1, 7])
def test_one_region_or_too_many_are_rejected(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} regions have engines"):
        cost_of(CostQuestion(SovereigntyDocument(), {f"r{number}": 1 for number in range(count)}))
