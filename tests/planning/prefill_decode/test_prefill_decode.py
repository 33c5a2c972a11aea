import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planning.documents.ratio_document import RatioDocument
from planning.facts.fleet_facts import EngineObservation
from planning.prefill_decode.imbalance import imbalance_of, trimmed_mean
from planning.prefill_decode.prefill_decode import plan_ratio
from planning.prefill_decode.ratio_plan import RatioMemory, RatioPlan
from tests.planning.pools import engine, loads, pool

NOW = 10_000.0
NOTHING = RatioMemory()
DOCUMENT = RatioDocument(hold_s=0.0)


def members(prefill: int, decode: int) -> tuple[EngineObservation, ...]:
    made = [engine(f"p-{at}", NOW, role="prefill", dispatched=9 - at) for at in range(prefill)]
    return (*made, *(engine(f"d-{at}", NOW, role="decode", dispatched=9 - at) for at in range(decode)))


def plan(
    prefill_load: float,
    decode_load: float,
    *,
    counts: tuple[int, int] = (4, 4),
    document: RatioDocument = DOCUMENT,
    memory: RatioMemory = NOTHING,
    now_s: float = NOW,
    override: int | None = None,
) -> tuple[RatioPlan, RatioMemory]:
    seen = loads(now_s, prefill_load, decode_load)
    return plan_ratio(pool(now_s, members(*counts)), seen, memory, document, override_prefill=override)


def codes(ratio: RatioPlan) -> list[str]:
    return [reason.code for reason in ratio.reasons]


def test_the_imbalance_factor_equals_the_papers() -> None:
    seen = imbalance_of(loads(NOW, 0.5, 2.0), NOW, 60.0, 10)
    assert seen is not None
    assert seen.factor == pytest.approx((2.0 + 1) / (0.5 + 1))


def test_the_highest_and_lowest_tenth_are_excluded() -> None:
    assert trimmed_mean([1.0] * 8 + [1000.0, -1000.0]) == 1.0
    assert trimmed_mean([1.0, 2.0]) == 1.5
    with pytest.raises(ValueError, match="needs samples"):
        trimmed_mean([])


def test_busy_decode_gets_the_prefill_engine_with_the_least_remaining_work() -> None:
    planned, _ = plan(0.3, 1.5)
    assert [(change.engine_id, change.after) for change in planned.role_changes] == [("p-3", "decode")]
    assert (planned.target_prefill, planned.target_decode) == (3, 5)
    assert codes(planned) == ["more_decode"]


def test_busy_prefill_gets_a_decode_engine() -> None:
    planned, _ = plan(1.5, 0.3)
    assert [(change.engine_id, change.after) for change in planned.role_changes] == [("d-3", "prefill")]


def test_steps_are_bounded() -> None:
    assert len(plan(0.0, 9.0, counts=(8, 8))[0].role_changes) == DOCUMENT.max_step


def test_a_balanced_pool_changes_nothing_and_states_why() -> None:
    planned, _ = plan(0.8, 0.9)
    assert (planned.role_changes, codes(planned)) == ((), ["balanced"])


def test_a_role_change_that_would_overload_the_other_side_is_not_made() -> None:
    planned, _ = plan(0.55, 1.0, counts=(2, 1))
    assert (planned.role_changes, codes(planned)) == ((), ["bound"])


def test_the_last_engine_of_a_role_is_never_changed() -> None:
    assert codes(plan(0.0, 5.0, counts=(1, 4))[0]) == ["bound"]
    assert codes(plan(0.0, 5.0, counts=(3, 4), document=replace(DOCUMENT, min_prefill=3))[0]) == ["bound"]


def test_imbalance_must_last_before_a_role_changes() -> None:
    document = replace(DOCUMENT, hold_s=30.0)
    planned, memory = plan(0.3, 1.5, document=document)
    assert codes(planned) == ["not_persistent"]
    assert plan(0.3, 1.5, document=document, memory=memory, now_s=NOW + 29)[0].role_changes == ()
    assert plan(0.3, 1.5, document=document, memory=memory, now_s=NOW + 30)[0].role_changes


def test_role_changes_have_a_cooldown_and_reversing_needs_more_imbalance() -> None:
    _, memory = plan(0.3, 1.5)
    assert codes(plan(0.3, 1.5, memory=memory, now_s=NOW + 60)[0]) == ["cool_down"]
    later = NOW + DOCUMENT.cool_down_s
    assert plan(1.25 * 1.0, 0.8, memory=memory, now_s=later)[0].role_changes == ()
    back, memory = plan(1.6, 0.6, memory=memory, now_s=later)
    assert (back.role_changes[0].after, memory.turns) == ("prefill", 1)


def test_no_role_changes_while_engines_are_still_changing() -> None:
    facts = pool(NOW, (*members(4, 4), engine("x", NOW, role="decode", lifecycle="starting")))
    planned, _ = plan_ratio(facts, loads(NOW, 0.3, 1.5), RatioMemory(), DOCUMENT)
    assert (planned.role_changes, codes(planned)) == ((), ["changing"])


def test_pools_without_roles_or_samples_change_nothing() -> None:
    facts = pool(NOW, (engine("e"),))
    assert codes(plan_ratio(facts, [], RatioMemory(), DOCUMENT)[0]) == ["no_roles"]
    assert codes(plan_ratio(pool(NOW, members(2, 2)), [], RatioMemory(), DOCUMENT)[0]) == ["no_facts"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0])
def test_impossible_loads_change_nothing(value: float) -> None:
    assert codes(plan(value, 1.0)[0]) == ["no_facts"]


def test_an_operators_override_is_followed_within_the_bounds() -> None:
    assert len(plan(1.0, 1.0, override=6)[0].role_changes) == 2
    assert plan(1.0, 1.0, override=0)[0].target_prefill == DOCUMENT.min_prefill


def test_plan_and_memory_round_trip() -> None:
    planned, memory = plan(0.3, 1.5)
    assert msgspec.json.decode(msgspec.json.encode(planned), type=RatioPlan) == planned
    assert msgspec.json.decode(msgspec.json.encode(memory), type=RatioMemory) == memory


@settings(max_examples=40, deadline=None)
@given(st.floats(0, 20), st.floats(0, 20), st.integers(2, 15))
def test_constant_work_reverses_at_most_once_and_never_empties_a_role(
    prefill_work: float, decode_work: float, prefill: int
) -> None:
    total, memory, targets = 16, RatioMemory(), []
    for tick in range(60):
        seen = (prefill_work / prefill, decode_work / (total - prefill))
        planned, memory = plan(*seen, counts=(prefill, total - prefill), memory=memory, now_s=NOW + 130 * tick)
        assert abs(planned.target_prefill - prefill) <= DOCUMENT.max_step
        prefill = planned.target_prefill
        targets.append(prefill)
    assert memory.turns <= 1
    assert all(1 <= target <= total - 1 for target in targets)
    assert len(set(targets[-20:])) == 1
