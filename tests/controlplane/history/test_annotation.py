"""Events that create a marker on the time axis, and events that do not."""

from __future__ import annotations

import msgspec
import pytest

from controlplane.history.annotation import MAX_MARKERS, WAVE_S, Annotation, AnnotationLog, event_verb, without_replaced
from gateway.contracts.fleet_sample import EngineFaults, FleetSample


def with_engine(sample: FleetSample, **changes: object) -> FleetSample:
    first = msgspec.structs.replace(sample.engines[0], **changes)
    return msgspec.structs.replace(sample, at=sample.at + 1, engines=(first, *sample.engines[1:]))


def kinds(before: FleetSample | None, after: FleetSample) -> list[str]:
    log = AnnotationLog(300)
    log.follow(before, after)
    return [marker.kind for marker in log.recent()]


def test_first_sample_creates_no_marker(samples: list[FleetSample]) -> None:
    assert kinds(None, samples[0]) == []


def test_unchanged_sample_creates_no_marker(samples: list[FleetSample]) -> None:
    assert kinds(samples[0], samples[1]) == []


@pytest.mark.parametrize("state", ["lost", "hot", "degraded", "draining", "maintenance", "starting", "unknown"])
def test_state_change_creates_a_marker_with_its_reason(samples: list[FleetSample], state: str) -> None:
    log = AnnotationLog(300)
    log.follow(samples[0], with_engine(samples[0], state=state, reason="because."))
    (marker,) = log.recent()
    assert (marker.kind, marker.label, marker.engine_id) == (state, "e-01", "engine-e-01")
    assert marker.text == f"e-01 is {state}: because"


def test_recovery_marker_names_the_state_before(samples: list[FleetSample]) -> None:
    lost = with_engine(samples[0], state="lost")
    log = AnnotationLog(300)
    log.follow(lost, with_engine(lost, state="serving"))
    assert log.recent()[0].text == "e-01 serves again; it was lost"
    assert event_verb(log.recent()[0]) == "engine.back"


@pytest.mark.parametrize("state", ["hot", "degraded"])
def test_only_a_return_from_a_loss_is_an_audit_event(samples: list[FleetSample], state: str) -> None:
    before = with_engine(samples[0], state=state)
    log = AnnotationLog(300)
    log.follow(before, with_engine(before, state="serving"))
    assert log.recent()[0].kind == "back"
    assert event_verb(log.recent()[0]) == ""


def test_first_start_is_not_a_recovery(samples: list[FleetSample]) -> None:
    starting = with_engine(samples[0], state="starting")
    log = AnnotationLog(300)
    log.follow(starting, with_engine(starting, state="serving"))
    assert (log.recent()[0].kind, log.recent()[0].text) == ("started", "e-01 serves")


def test_restart_without_a_state_change_creates_a_marker(samples: list[FleetSample]) -> None:
    assert kinds(samples[0], with_engine(samples[0], incarnation=9)) == ["restarted"]


def test_loss_and_restart_name_the_requests_that_failed_with_the_engine(samples: list[FleetSample]) -> None:
    log, before = (
        AnnotationLog(300),
        with_engine(samples[0], faults=EngineFaults(broken=2, failed_at=samples[0].at - 99)),
    )
    log.follow(samples[0], before)
    broken = EngineFaults(broken=33, unanswered=1, failed_at=before.at)
    lost = with_engine(before, state="lost", reason="connection refused", faults=broken)
    log.follow(before, lost)
    log.follow(lost, with_engine(lost, state="serving", reason="", incarnation=2))
    failed = "; 31 streams broke; 1 request got no answer"
    assert [(marker.kind, marker.text) for marker in log.recent()] == [
        ("lost", f"e-01 is lost: connection refused{failed}"),
        ("restarted", f"e-01 restarted as incarnation 2; it was lost{failed}"),
    ]


def test_added_and_removed_engines_create_markers(samples: list[FleetSample]) -> None:
    smaller = msgspec.structs.replace(samples[0], engines=samples[0].engines[1:])
    assert kinds(smaller, samples[0]) == ["joined"]
    assert kinds(samples[0], smaller) == ["left"]


def test_published_policy_creates_a_marker(samples: list[FleetSample]) -> None:
    pools = (msgspec.structs.replace(samples[0].pools[0], policy_version=42), *samples[0].pools[1:])
    log = AnnotationLog(300)
    log.follow(samples[0], msgspec.structs.replace(samples[0], pools=pools))
    (marker,) = log.recent()
    assert (marker.kind, marker.label, marker.pool_id) == ("policy", "v42 live", "pool-0")


def test_markers_expire_and_never_exceed_their_limit(samples: list[FleetSample]) -> None:
    log, before = AnnotationLog(300), samples[0]
    for step in range(3 * MAX_MARKERS):
        after = with_engine(before, state="hot" if step % 2 else "lost")
        log.follow(before, after)
        before = after
    assert len(log.recent()) == MAX_MARKERS
    assert log.recent(after=log.last_number - 2)[0].number == log.last_number - 1
    log.follow(before, msgspec.structs.replace(before, at=before.at + 1000))
    assert log.recent() == []


def step(sample: FleetSample, after_s: float, **states: str) -> FleetSample:
    """Return the sample `after_s` later, with these engine states by name (e_01)."""
    engines = tuple(
        msgspec.structs.replace(engine, state=states.get(engine.name.replace("-", "_"), engine.state))
        for engine in sample.engines
    )
    return msgspec.structs.replace(sample, at=sample.at + after_s, engines=engines)


def test_fleet_start_is_one_growing_marker_per_pool(samples: list[FleetSample]) -> None:
    log, before = AnnotationLog(300), step(samples[0], 0, e_01="unknown", e_02="unknown", e_03="unknown")
    for after_s, states in (
        (1, {"e_01": "starting", "e_02": "starting"}),
        (2, {"e_03": "starting", "e_01": "serving"}),
        (9, {"e_02": "serving"}),
        (20, {"e_03": "serving"}),
    ):
        after = step(before, after_s, **states)
        log.follow(before, after)
        before = after
    (marker,) = log.recent()
    assert (marker.kind, marker.label, marker.engine_id) == ("started", "3 started", "")
    assert marker.text == "3 engines started and serve: e-01, e-02, e-03"
    assert marker.at == samples[0].at + 1
    assert marker.number == log.last_number


def test_growing_marker_names_the_one_it_replaces(samples: list[FleetSample]) -> None:
    log = AnnotationLog(300)
    first = step(samples[0], 1, e_01="starting")
    log.follow(samples[0], first)
    held = log.recent()
    log.follow(first, step(first, 1, e_02="starting"))
    news = log.recent(held[-1].number)
    assert [marker.replaces for marker in news] == [held[-1].number]
    assert news[0].label == "0 of 2 started"
    assert without_replaced([*held, *news]) == log.recent()


def test_later_start_is_a_separate_marker(samples: list[FleetSample]) -> None:
    log = AnnotationLog(300)
    first = step(samples[0], 1, e_01="starting")
    log.follow(samples[0], first)
    second = step(first, WAVE_S + 1, e_02="starting")
    log.follow(first, second)
    assert [marker.label for marker in log.recent()] == ["e-01", "e-02"]


def test_markers_of_another_process_with_the_same_number_are_kept(samples: list[FleetSample]) -> None:
    old = Annotation(1, 10.0, "lost", "e-01", "lost", "p", "e")
    new = Annotation(2, 99.0, "started", "2 started", "2", "p", replaces=1)
    assert without_replaced([old, new]) == [old, new]
