import math
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planning.documents.scaling_document import ScalingDocument
from planning.facts.fleet_facts import EngineObservation, PoolFacts, PoolWindow
from planning.scaling.remap import Remap, remap_of
from planning.scaling.scaling import plan_scaling
from planning.scaling.scaling_plan import ScalingMemory, ScalingPlan
from tests.planning.pools import engine, engines, history, pool, windows

NOW = 10_000.0
NOTHING = ScalingMemory()
DOCUMENT = ScalingDocument(min_engines=2, max_engines=12, forecast=False)


def plan(
    demand: float,
    count: int,
    *,
    document: ScalingDocument = DOCUMENT,
    memory: ScalingMemory = NOTHING,
    now_s: float = NOW,
    override: int | None = None,
    rings: int = 0,
    **window: float,
) -> tuple[ScalingPlan, ScalingMemory]:
    facts = pool(now_s, engines(count, now_s), windows=windows(now_s, demand=demand, **window))
    return plan_scaling(facts, history(now_s, demand), memory, document, override=override, rings=rings)


def codes(scaling: ScalingPlan) -> list[str]:
    return [reason.code for reason in scaling.reasons]


def calm(now_s: float) -> ScalingMemory:
    return ScalingMemory(calm_since_s=now_s - 1000)


def test_widespread_violation_adds_several_engines_at_once() -> None:
    planned, _ = plan(4.5, 4, on_time=0.4, queued_s=80, growth=0.5)
    assert (planned.action, len(planned.add), planned.target) == ("add", 4, 8)
    assert codes(planned)[:2] == ["violation", "queue_growth"]


def test_a_right_sized_pool_changes_nothing_and_states_why() -> None:
    planned, _ = plan(3.0, 6)
    assert (planned.action, codes(planned)) == ("none", ["right_size"])
    assert planned.reasons[0].text == "load is 3.0 of 6 engines (50 %); adds above 4.3, removes below 2.4"


@pytest.mark.parametrize(("demand", "action"), [(4.35, "add"), (4.29, "none"), (2.45, "none"), (2.35, "drain")])
def test_the_planner_acts_at_the_loads_that_it_names(demand: float, action: str) -> None:
    assert plan(demand, 6, memory=calm(NOW))[0].action == action


def test_late_requests_on_idle_engines_add_no_engine() -> None:
    planned, _ = plan(1.0, 4, on_time=0.5)
    assert (planned.action, codes(planned)) == ("none", ["late_not_busy"])


def test_a_calm_pool_drains_the_engine_with_the_least_work() -> None:
    members = (*engines(5, NOW, in_flight_s=3.0), engine("e-06", NOW, in_flight_s=0.5))
    facts = pool(NOW, members, windows=windows(NOW, demand=1.0))
    planned, _ = plan_scaling(facts, (), calm(NOW), DOCUMENT)
    assert (planned.action, planned.drain, planned.target) == ("drain", ("e-06",), 5)


def test_a_quarantined_engine_is_replaced_and_drained_first() -> None:
    members = (*engines(4, NOW), engine("sick", NOW, load_share=0.0))
    busy = pool(NOW, members, windows=windows(NOW, demand=3.0))
    assert plan_scaling(busy, (), ScalingMemory(), DOCUMENT)[0].target == 6
    idle = pool(NOW, members, windows=windows(NOW, demand=0.5))
    assert plan_scaling(idle, (), calm(NOW), DOCUMENT)[0].drain == ("sick",)


def test_an_engine_that_does_not_answer_is_not_drained() -> None:
    members = (*engines(4, NOW), engine("lost", NOW, load_share=0.0, reachable=False))
    idle = pool(NOW, members, windows=windows(NOW, demand=0.5))
    planned, _ = plan_scaling(idle, (), calm(NOW), DOCUMENT)
    assert planned.action == "drain"
    assert "lost" not in planned.drain


def test_a_plan_states_the_demand_between_which_nothing_changes() -> None:
    planned, _ = plan(2.0, 4)
    assert planned.adds_above == pytest.approx(4 * DOCUMENT.utilisation * (1 + DOCUMENT.hysteresis))
    assert planned.drains_below == pytest.approx(3 * DOCUMENT.utilisation * (1 - DOCUMENT.hysteresis))


def test_draining_starts_only_after_a_calm_period() -> None:
    planned, memory = plan(1.0, 6)
    assert (planned.action, codes(planned)) == ("none", ["idle", "cool_down"])
    later, _ = plan(1.0, 6, memory=memory, now_s=NOW + DOCUMENT.down_cool_down_s)
    assert later.action == "drain"


def test_an_addition_is_followed_by_a_pause() -> None:
    first, memory = plan(4.0, 4, on_time=0.5)
    assert first.action == "add"
    again, _ = plan(8.0, 8, on_time=0.5, memory=memory, now_s=NOW + 10)
    assert (again.action, codes(again)[-1]) == ("none", "cool_down")


def test_no_engine_is_drained_while_another_still_drains() -> None:
    members = (*engines(5, NOW), engine("e-06", NOW, lifecycle="draining"))
    facts = pool(NOW, members, windows=windows(NOW, demand=0.5))
    planned, _ = plan_scaling(facts, (), calm(NOW), DOCUMENT)
    assert (planned.action, codes(planned)) == ("none", ["idle", "draining"])


def test_a_forecast_adds_engines_before_the_load_arrives() -> None:
    document = replace(DOCUMENT, forecast=True)
    rising = tuple(replace(point, engines=3.0 - 0.012 * (NOW - point.at_s)) for point in history(NOW, 3.0))
    facts = pool(NOW, engines(4, NOW), windows=windows(NOW, demand=2.8))
    planned, _ = plan_scaling(facts, rising, ScalingMemory(), document)
    assert (planned.action, codes(planned)[0]) == ("add", "forecast")
    assert planned.forecast is not None
    assert planned.forecast.basis == "trend"


def test_a_size_that_was_too_small_is_not_tried_again_at_the_same_demand() -> None:
    _, memory = plan(2.0, 4, on_time=0.5, queued_s=20)
    assert (memory.too_few, memory.added_s) == (4, NOW)
    later = replace(memory, calm_since_s=NOW)
    planned, _ = plan(1.8, 5, memory=later, now_s=NOW + 600)
    assert (planned.action, codes(planned)) == ("none", ["right_size"])
    gone, _ = plan(1.0, 5, memory=later, now_s=NOW + 600)
    assert gone.action == "drain"


@pytest.mark.parametrize(
    "budget", [{"budget_engine_h": 8.5}, {"budget_cost": 17.0, "engine_h_cost": 2.0}], ids=["hours", "cost"]
)
def test_the_budget_limits_added_engines(budget: dict) -> None:
    memory = ScalingMemory(hours=((int(NOW // 3600), 3 * 3600.0),), metered_s=NOW)
    planned, _ = plan(8.0, 4, on_time=0.2, document=replace(DOCUMENT, **budget), memory=memory)
    assert (len(planned.add), codes(planned)[-1]) == (1, "budget")


def test_an_operators_override_is_followed_within_the_bounds() -> None:
    assert plan(1.0, 4, override=9)[0].target == 9
    assert plan(6.0, 8, override=3)[0].target == 3
    planned, _ = plan(1.0, 4, override=50)
    assert planned.target == DOCUMENT.max_engines
    assert "the bounds make it 12" in planned.reasons[0].text


def test_the_bounds_are_enforced_without_any_load() -> None:
    assert plan(0.0, 1)[0].target == DOCUMENT.min_engines
    assert plan(5.0, 14)[0].target == 13
    planned, _ = plan(12.0, 12, on_time=0.1)
    assert (planned.action, codes(planned)[-1]) == ("none", "at_max")


def test_a_change_states_the_share_that_rings_will_move() -> None:
    planned, _ = plan(4.0, 4, on_time=0.4, rings=2)
    assert planned.remap is not None
    assert planned.remap.share == pytest.approx(planned.remap.ideal, rel=0.1)
    assert plan(4.0, 4, on_time=0.4)[0].remap is None


def test_plan_and_memory_round_trip() -> None:
    planned, memory = plan(4.0, 4, on_time=0.4, rings=2)
    assert msgspec.json.decode(msgspec.json.encode(planned), type=ScalingPlan) == planned
    assert msgspec.json.decode(msgspec.json.encode(memory), type=ScalingMemory) == memory


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_impossible_facts_change_nothing_and_state_why(value: float) -> None:
    bad = PoolWindow(from_s=NOW - 10, span_s=10.0, requests=100, on_time=1, work_s=value, queued_s=value)
    facts = pool(NOW, engines(4, NOW, in_flight_s=value), windows=(bad,))
    planned, _ = plan_scaling(facts, (), ScalingMemory(), DOCUMENT)
    assert (planned.action, codes(planned)) == ("none", ["no_facts"])


demands = st.lists(st.floats(0, 20), min_size=1, max_size=30)


def follow(demand_of_tick: list[float], start: int, document: ScalingDocument) -> list[ScalingPlan]:
    """Let the planner control a pool whose engines start and drain instantly."""
    memory, members, plans = ScalingMemory(), list(engines(start)), []
    serial = start
    for tick, demand in enumerate(demand_of_tick):
        now_s = NOW + 30 * tick
        late = 1.0 if demand <= 0.9 * len(members) else 0.3
        seen = windows(now_s, demand=demand, on_time=late, queued_s=0 if late == 1.0 else 10 * demand)
        facts = PoolFacts(pool_id="p", now_s=now_s, engines=tuple(members), windows=seen)
        planned, memory = plan_scaling(facts, history(now_s, demand), memory, document)
        members = [member for member in members if member.engine_id not in planned.drain]
        for _ in planned.add:
            serial += 1
            members.append(EngineObservation(engine_id=f"e-{serial:02}", since_s=now_s))
        plans.append(planned)
    return plans


@settings(max_examples=30, deadline=None)
@given(demands, st.integers(2, 12), st.booleans())
def test_plans_stay_within_bounds_and_steps_for_any_input(demand: list[float], start: int, forecast: bool) -> None:
    document = replace(DOCUMENT, forecast=forecast)
    for planned in follow(demand, start, document):
        assert DOCUMENT.min_engines <= planned.target <= DOCUMENT.max_engines
        assert len(planned.add) <= DOCUMENT.max_up
        assert len(planned.drain) <= DOCUMENT.max_down
        assert not (planned.add and planned.drain)
        assert planned.reasons


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 12), st.integers(2, 12), st.booleans())
def test_constant_load_does_not_cause_oscillation(demand: float, start: int, forecast: bool) -> None:
    actions = [item.action for item in follow([demand] * 80, start, replace(DOCUMENT, forecast=forecast))]
    moves = [action for action in actions if action != "none"]
    assert sum(a != b for a, b in pairwise(moves)) <= 1
    assert set(actions[-20:]) == {"none"}


@settings(max_examples=10, deadline=None)
@given(demands)
def test_the_same_facts_produce_the_same_plans(demand: list[float]) -> None:
    assert follow(demand, 4, DOCUMENT) == follow(demand, 4, DOCUMENT)


def names(count: int) -> list[str]:
    return [f"e-{number:03}" for number in range(1, count + 1)]


@pytest.mark.parametrize(("before", "after"), [(4, 8), (8, 4), (8, 7), (8, 9), (16, 17), (32, 40)])
def test_rings_move_a_share_within_a_tenth_of_the_ideal(before: int, after: int) -> None:
    remap = remap_of(names(before), names(after))
    assert remap.share == pytest.approx(remap.ideal, rel=0.1)


def test_modulo_moves_nearly_everything_when_one_engine_is_removed() -> None:
    remap = remap_of(names(8), names(7))
    assert remap.modulo > 5 * remap.share


def test_nothing_moves_when_nothing_changes() -> None:
    assert remap_of(names(5), list(reversed(names(5)))) == Remap(0.0, 0.0, 0.0)
    assert remap_of([], names(3)) == Remap(0.0, 0.0, 0.0)


ZERO = replace(DOCUMENT, min_engines=0)


def test_an_idle_pool_drains_to_zero_where_the_minimum_allows_it() -> None:
    quiet = windows(NOW, demand=0.0, requests=0)
    last = pool(NOW, engines(1, NOW), windows=quiet)
    planned, _ = plan_scaling(last, (), calm(NOW), ZERO)
    assert (planned.action, planned.drain, planned.target) == ("drain", ("e-01",), 0)
    planned, _ = plan_scaling(last, (), calm(NOW), replace(DOCUMENT, min_engines=1))
    assert (planned.action, codes(planned)) == ("none", ["right_size"])


def test_a_pool_with_recent_requests_keeps_its_last_engine() -> None:
    planned, _ = plan_scaling(
        pool(NOW, engines(1, NOW), windows=windows(NOW, demand=0.001, requests=1)), (), calm(NOW), ZERO
    )
    assert (planned.action, planned.target) == ("none", 1)


def test_a_pool_with_roles_never_scales_to_zero() -> None:
    members = (engine("p", NOW, role="prefill"), engine("d", NOW, role="decode"))
    quiet = windows(NOW, demand=0.0, requests=0)
    for now_s in (NOW, NOW + 1000, NOW + 2000):
        planned, _ = plan_scaling(pool(now_s, members, windows=quiet), (), calm(now_s), ZERO, imbalance=1.0)
        members = tuple(item for item in members if item.engine_id not in planned.drain)
    assert members


def test_a_waiting_request_starts_an_engine_at_once_even_after_a_recent_change() -> None:
    memory = ScalingMemory(added_s=NOW - 1, drained_s=NOW - 1)
    planned, after = plan_scaling(pool(NOW, (), unserved=3), (), memory, ZERO)
    assert (planned.action, planned.target, codes(planned)) == ("add", 1, ["unserved"])
    assert planned.reasons[0].text == "3 requests wait and no engine runs"
    starting = pool(NOW + 1, engines(1, NOW + 1, lifecycle="starting"), unserved=3, windows=windows(NOW, demand=0.0))
    assert plan_scaling(starting, (), after, ZERO)[0].action == "none"


def test_an_empty_pool_without_requests_stays_empty() -> None:
    planned, _ = plan_scaling(pool(NOW, (), windows=windows(NOW, demand=0.0, requests=0)), (), ScalingMemory(), ZERO)
    assert (planned.action, planned.target) == ("none", 0)


def test_failed_starts_pause_the_start_of_a_first_engine_too() -> None:
    failing = pool(NOW, (), unserved=1, failed_starts=1, start_failed_s=NOW - 5, start_failure="no GPU")
    planned, _ = plan_scaling(failing, (), ScalingMemory(), ZERO)
    assert (planned.action, codes(planned)[0]) == ("none", "starts_fail")
