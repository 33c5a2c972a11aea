from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_models.decode_batch import DecodeBatch
from simulator.engine_models.engine_profile import EngineProfile


def _batch(*contexts: int, profile: EngineProfile | None = None) -> DecodeBatch:
    batch = DecodeBatch(profile or EngineProfile())
    for number, context in enumerate(contexts):
        batch.join(str(number), context, 10 + number)
    return batch


def test_many_steps_take_as_long_as_the_same_steps_one_by_one() -> None:
    batch, slow = _batch(1000, 50), _batch(1000, 50)
    total = 0.0
    for _ in range(9):
        total += slow.seconds(1)
        slow.step(1)
    assert batch.seconds(9) == pytest.approx(total, rel=1e-12)


def test_members_are_due_in_the_order_they_joined() -> None:
    batch = _batch(5, 5, 5)
    batch.rearm("0", 12)
    assert batch.steps_until_due() == 11
    assert batch.step(11) == ["1"]
    assert batch.leave("1") == 11
    assert batch.step(1) == ["0", "2"]


def test_a_removed_member_is_never_due() -> None:
    batch = _batch(5, 5)
    assert batch.leave("0") == 0
    assert batch.steps_until_due() == 11
    assert batch.context == 5


def test_no_member_can_be_due_in_the_past() -> None:
    batch = _batch(5)
    with pytest.raises(ValueError, match="due in 0"):
        batch.rearm("0", 0)


@given(
    st.integers(1, 300),
    st.integers(0, 10**7),
    st.floats(0, 1e5),
    st.floats(0, 100),
    st.sampled_from([0.0, 30e-9, 1e-6]),
)
def test_the_step_count_to_a_time_is_the_smallest_that_reaches_it(
    members: int, context: int, started: float, later: float, growth: float
) -> None:
    batch = _batch(*[context] * members, profile=EngineProfile(step_per_context_token_s=growth))
    steps = batch.steps_reaching(started, started + later)
    assert started + batch.seconds(steps) >= started + later
    assert steps == 1 or started + batch.seconds(steps - 1) < started + later
