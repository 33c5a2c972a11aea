import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning.documents.rebalance_document import RebalanceDocument
from planning.facts.fleet_facts import PoolWindow, PrefixFacts
from planning.rebalance.rebalance import plan_rebalance
from planning.rebalance.rebalance_plan import MigrateRequests, RebalanceMemory, RebalancePlan, Widened
from routing.values.load_cv import load_cv
from tests.planning.pools import engine, pool

NOTHING = RebalanceMemory()
DOCUMENT = RebalanceDocument(hold_s=5.0)
HOT = PrefixFacts(key="aa", work_s_by_engine={"e-1": 8.0, "e-2": 1.0})
COLD = PrefixFacts(key="bb", work_s_by_engine={"e-1": 2.0, "e-3": 2.0})


def facts(now_s: float, *work: float, bound: int = 20, recomputed: int = 0):
    members = tuple(
        engine(f"e-{at}", now_s, in_flight_s=busy_s, bound=bound if at == 1 else 0)
        for at, busy_s in enumerate(work, start=1)
    )
    window = PoolWindow(
        from_s=now_s - 10, span_s=10, requests=10, on_time=10, prompt_tokens=1000, recomputed_tokens=recomputed,
        load_cv=load_cv([10_000 * item for item in work if 0 <= item < math.inf]),
    )  # fmt: skip
    return pool(now_s, members, windows=(window,))


def plan(now_s: float, work: tuple[float, ...], memory: RebalanceMemory = NOTHING, **more: object):
    prefixes = more.pop("prefixes", (HOT, COLD))
    usual_d = more.pop("usual_d", 2)
    return plan_rebalance(facts(now_s, *work, **more), prefixes, memory, DOCUMENT, usual_d=usual_d)


def codes(rebalance: RebalancePlan) -> set[str]:
    return {reason.code for reason in rebalance.reasons}


UNEVEN, EVEN = (20.0, 1.0, 1.0, 1.0), (1.0, 1.0, 1.0, 1.0)


def persistent(**more: object):
    _, memory = plan(0.0, UNEVEN)
    return plan(5.0, UNEVEN, memory, **more)


def test_a_passing_peak_is_ignored() -> None:
    planned, memory = plan(0.0, UNEVEN)
    assert (planned.wider, planned.moves, codes(planned)) == ((), (), {"no_hotspot"})
    assert plan(3.0, EVEN, memory)[1].hot_since_s == {}


def test_a_hot_prefix_of_a_lasting_hotspot_gets_a_candidate() -> None:
    planned, memory = persistent()
    assert planned.widened == {"aa": 3}
    assert planned.wider == ("aa",)
    assert memory.widened == {"aa": Widened(3, 5.0, 5.0)}
    assert "hot_prefix" in codes(planned)


def test_queued_requests_leave_the_hot_engine_within_the_limit() -> None:
    planned, _ = persistent()
    assert planned.moves == (MigrateRequests("e-1", DOCUMENT.max_moves),)


def test_widening_continues_step_by_step_up_to_its_limit() -> None:
    _, memory = persistent()
    assert plan(6.0, UNEVEN, memory)[0].widened == {"aa": 3}
    planned, memory = plan(10.0, UNEVEN, memory)
    assert planned.widened == {"aa": 4}
    planned, _ = plan(16.0, UNEVEN, memory)
    assert planned.widened == {"aa": 4}
    assert "widest" in codes(planned)


def test_nothing_is_widened_while_much_is_recomputed() -> None:
    planned, _ = persistent(recomputed=500)
    assert (planned.widened, planned.recomputed_share) == ({}, 0.5)
    assert "recomputing" in codes(planned)


def test_work_of_many_small_prefixes_widens_none() -> None:
    many = tuple(PrefixFacts(key=f"{at:02}", work_s_by_engine={"e-1": 1.0}) for at in range(20))
    planned, _ = persistent(prefixes=many)
    assert planned.widened == {}
    assert "no_hot_prefix" in codes(planned)


def test_a_placement_that_can_choose_any_engine_has_nothing_to_widen() -> None:
    planned, _ = persistent(usual_d=0)
    assert planned.widened == {}
    assert planned.moves


def test_prefixes_are_narrowed_after_a_calm_period() -> None:
    memory = RebalanceMemory(widened={"aa": Widened(3, 0.0, 0.0)})
    planned, memory = plan(100.0, EVEN, memory)
    assert planned.widened == {"aa": 3}
    planned, memory = plan(100.0 + DOCUMENT.cool_down_s, EVEN, memory)
    assert (planned.widened, planned.narrower, memory.widened) == ({}, ("aa",), {})
    assert "calm" in codes(planned)


def test_a_load_between_the_thresholds_neither_widens_nor_narrows() -> None:
    memory = RebalanceMemory(widened={"aa": Widened(3, 0.0, 0.0)})
    for now_s in range(100, 400, 10):
        planned, memory = plan(float(now_s), (3.0, 1.5, 1.0, 1.0), memory)
        assert (planned.widened, planned.wider, planned.narrower) == ({"aa": 3}, (), ())


def test_a_prefix_that_cooled_is_narrowed_even_if_the_load_stays_uneven() -> None:
    memory = RebalanceMemory(widened={"aa": Widened(3, 0.0, 0.0)})
    planned, memory = plan(50.0, (3.0, 1.5, 1.0, 1.0), memory)
    assert planned.widened == {"aa": 3}
    planned, _ = plan(50.0 + DOCUMENT.cool_down_s, (3.0, 1.5, 1.0, 1.0), memory, prefixes=(COLD,))
    assert (planned.widened, planned.narrower) == ({}, ("aa",))


@pytest.mark.parametrize("value", [math.nan, -1.0, math.inf])
def test_impossible_work_is_not_a_hotspot(value: float) -> None:
    _, memory = plan(0.0, (value, 1.0, 1.0))
    planned, _ = plan(10.0, (value, 1.0, 1.0), memory)
    assert (planned.hot, planned.moves) == ((), ())


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.floats(0, 50), min_size=4, max_size=4), min_size=1, max_size=40))
def test_for_any_input_the_round_is_bounded_and_repeatable(ticks: list[list[float]]) -> None:
    memory = RebalanceMemory()
    for tick, work in enumerate(ticks):
        planned, after = plan(3.0 * tick, tuple(work), memory)
        assert (planned, after) == plan(3.0 * tick, tuple(work), memory)
        assert sum(move.at_most for move in planned.moves) <= DOCUMENT.max_moves
        assert all(2 < d <= DOCUMENT.d_max for d in planned.widened.values())
        assert len(planned.widened) <= DOCUMENT.max_widened
        assert planned.reasons
        memory = msgspec.json.decode(msgspec.json.encode(after), type=RebalanceMemory)
        assert memory == after
