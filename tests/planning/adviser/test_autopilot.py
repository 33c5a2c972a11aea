"""The steps of the autopilot: every mode, what a person does first, and what it waits for."""

import pytest

from planning.adviser.autopilot import (
    ABORTED,
    CANARY,
    CONTRADICTED,
    DONE,
    ENDED,
    IN_CANARY,
    MODES,
    OFF,
    OPEN,
    OTHER,
    PROMOTE,
    PROMOTED,
    PROPOSE,
    PROPOSED,
    PUBLISH,
    REJECTED,
    ROLL_BACK,
    RUNNING,
    SETTLE,
    START_CANARY,
    START_SHADOW,
    SUPERSEDED,
    WAIT,
    WITHDRAWN,
    AutopilotFacts,
    AutopilotStep,
    HoldbackCounts,
    contradiction,
    lead_change,
    next_step,
    within_hours,
)


def step(mode: str = PROMOTE, state: str = OPEN, **facts: object) -> AutopilotStep:
    return next_step(AutopilotFacts(mode=mode, state=state, **facts))


def test_the_whole_course_without_a_person() -> None:
    assert step().action == START_SHADOW
    assert step(shadow=RUNNING).action == WAIT
    assert (step(shadow=DONE).action, step(shadow=DONE).state) == (START_CANARY, IN_CANARY)
    running = {"state": IN_CANARY, "shadow": DONE, "canary": RUNNING}
    assert step(**running, canary_waits="At 5 %.").reason == "At 5 %."
    assert (step(**running).action, step(**running).state) == (PUBLISH, PROMOTED)
    assert step(state=PROMOTED, live=PROPOSED).action == WAIT


@pytest.mark.parametrize("mode", [OFF, PROPOSE])
def test_below_canary_nothing_starts_by_itself(mode: str) -> None:
    for shadow in ("", RUNNING, DONE):
        assert step(mode, shadow=shadow).action == WAIT
    assert "person" in step(mode).reason


def test_canary_mode_never_publishes() -> None:
    assert step(CANARY, shadow=DONE).action == START_CANARY
    held = step(CANARY, IN_CANARY, canary=RUNNING)
    assert (held.action, "person to promote" in held.reason) == (WAIT, True)


@pytest.mark.parametrize("mode", MODES)
def test_an_approval_that_lacks_is_waited_for_in_every_mode(mode: str) -> None:
    waits = step(mode, IN_CANARY, canary=RUNNING, lacks_approval=True)
    assert (waits.action, "second person" in waits.reason) == (WAIT, True)


@pytest.mark.parametrize("held", [{"frozen": True}, {"within_hours": False}])
def test_frozen_pools_and_hours_hold_every_change_but_a_rollback(held: dict[str, bool]) -> None:
    assert step(**held).action == WAIT
    assert step(shadow=DONE, **held).action == WAIT
    assert step(state=IN_CANARY, canary=RUNNING, **held).action == WAIT
    after = step(state=PROMOTED, live=PROPOSED, contradiction="Worse.", **held)
    assert after.state == CONTRADICTED
    assert after.action == (SETTLE if "frozen" in held else ROLL_BACK)


def test_what_no_canary_can_compare_waits_for_a_person() -> None:
    assert step(untestable="Only the order changes.", shadow=DONE).reason == "Only the order changes."


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({"live": PROPOSED}, PROMOTED),
        ({"live": OTHER}, SUPERSEDED),
        ({"has_draft": False}, WITHDRAWN),
        ({"canary": RUNNING}, IN_CANARY),
        ({"canary": ABORTED, "canary_by_person": True}, REJECTED),
        ({"canary": ABORTED}, CONTRADICTED),
        ({"shadow": DONE, "shadow_against": "Slower."}, CONTRADICTED),
        ({"state": IN_CANARY, "canary": ENDED}, OPEN),
        ({"state": IN_CANARY, "canary": ABORTED}, CONTRADICTED),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_what_others_did_is_followed_in_every_mode(facts: dict[str, object], state: str, mode: str) -> None:
    made = step(mode, **facts)
    assert (made.action, made.state, bool(made.reason)) == (SETTLE, state, True)


@pytest.mark.parametrize("mode", MODES)
def test_a_contradicted_promotion_is_rolled_back_only_in_the_mode_that_promotes(mode: str) -> None:
    after = step(mode, PROMOTED, live=PROPOSED, contradiction="Worse.")
    assert (after.action == ROLL_BACK) == (mode == PROMOTE)
    assert after.state == CONTRADICTED
    # Someone has published something else meanwhile.
    assert step(mode, PROMOTED, live=OTHER, contradiction="Worse.").action == WAIT


@pytest.mark.parametrize(
    ("hours", "inside", "outside"),
    [("", (0, 23), ()), ("22-6", (22, 23, 0, 5), (6, 12, 21)), ("9-17", (9, 16), (8, 17)), ("3-3", (0, 3), ())],
)
def test_hours_may_span_midnight(hours: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    assert all(within_hours(hours, hour) for hour in inside)
    assert not any(within_hours(hours, hour) for hour in outside)


def counts(policy: float, rule: float, requests: int = 4000) -> HoldbackCounts:
    return HoldbackCounts(requests, policy * requests, requests, rule * requests)


def test_the_holdback_contradicts_only_a_practical_fall_beyond_doubt() -> None:
    before = counts(0.1, 0.2)
    assert lead_change(before, counts(0.2, 0.2)) == pytest.approx(-0.1)
    assert "10.0 points" in contradiction(before, counts(0.2, 0.2), 0.02)
    # Traffic became harder for both: the lead is the same.
    assert contradiction(before, counts(0.4, 0.5), 0.02) == ""
    assert contradiction(before, counts(0.115, 0.2), 0.02) == ""
    # The same fall among few requests can be chance.
    assert contradiction(counts(0.1, 0.2, 110), counts(0.2, 0.2, 110), 0.02) == ""
    assert lead_change(before, counts(0.2, 0.2, 50)) is None
    assert lead_change(HoldbackCounts(), counts(0.2, 0.2)) is None
