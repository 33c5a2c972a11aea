"""After failed starts, a pause that doubles, then one engine at a time, with the cause as the first reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planning.facts.fleet_facts import PoolFacts
from planning.scaling.scaling import plan_scaling
from planning.scaling.scaling_plan import ScalingPlan
from planning.scaling.start_pause import LONGEST_PAUSE_S, pause_left_s
from tests.planning.pools import engine, engines, pool, windows
from tests.planning.scaling.test_scaling import DOCUMENT, NOTHING, NOW

SAID = "vllm-3 has no address"


def overloaded(failed: int, ago_s: float) -> PoolFacts:
    load = windows(NOW, demand=4.5, on_time=0.4, queued_s=80, growth=0.5)
    facts = pool(NOW, engines(4, NOW), windows=load)
    return replace(facts, failed_starts=failed, start_failed_s=NOW - ago_s, start_failure=SAID)


def planned(facts: PoolFacts, override: int | None = None) -> ScalingPlan:
    return plan_scaling(facts, [], NOTHING, DOCUMENT, override=override)[0]


@pytest.mark.parametrize("override", [None, 9])
def test_no_engine_is_started_in_the_pause_after_a_failed_start(override: int | None) -> None:
    result = planned(overloaded(1, 59.0), override)
    assert (result.action, result.reasons[0].code) == ("none", "starts_fail")
    assert SAID in result.reasons[0].text


@pytest.mark.parametrize("override", [None, 9])
def test_after_the_pause_one_engine_is_started_at_a_time(override: int | None) -> None:
    facts = overloaded(1, 61.0)
    assert len(planned(facts, override).add) == 1
    starting = replace(facts, engines=(*facts.engines, engine("new", NOW, lifecycle="starting")))
    result = planned(starting, override)
    assert (result.add, result.reasons[0].code) == ((), "starts_fail")


def test_the_pause_doubles_with_each_failed_start_up_to_an_hour() -> None:
    left = [pause_left_s(overloaded(failed, 0.0)) for failed in (1, 2, 3, 12)]
    assert left == [60.0, 120.0, 240.0, LONGEST_PAUSE_S]


def test_without_failed_starts_several_engines_are_started_at_once() -> None:
    assert len(planned(overloaded(0, 0.0)).add) == 4
