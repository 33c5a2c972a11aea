"""Markers: what becomes a mark on the time axis, and what does not."""

from __future__ import annotations

import msgspec
import pytest

from gateway.fleet_sample import FleetSample
from web.live.marker import MAX_MARKERS, MarkerLog


def with_engine(sample: FleetSample, **changes: object) -> FleetSample:
    first = msgspec.structs.replace(sample.engines[0], **changes)
    return msgspec.structs.replace(sample, at=sample.at + 1, engines=(first, *sample.engines[1:]))


def kinds(before: FleetSample | None, after: FleetSample) -> list[str]:
    log = MarkerLog(300)
    log.follow(before, after)
    return [marker.kind for marker in log.recent()]


def test_the_first_sample_marks_nothing(samples: list[FleetSample]) -> None:
    assert kinds(None, samples[0]) == []


def test_nothing_new_marks_nothing(samples: list[FleetSample]) -> None:
    assert kinds(samples[0], samples[1]) == []


@pytest.mark.parametrize("state", ["lost", "hot", "degraded", "draining", "maintenance", "starting", "unknown"])
def test_a_change_of_state_is_marked_with_its_reason(samples: list[FleetSample], state: str) -> None:
    log = MarkerLog(300)
    log.follow(samples[0], with_engine(samples[0], state=state, reason="because."))
    (marker,) = log.recent()
    assert (marker.kind, marker.label, marker.engine_id) == (state, "e-01", "engine-e-01")
    assert marker.text == f"e-01 is {state}: because"


def test_a_return_names_what_it_returns_from(samples: list[FleetSample]) -> None:
    lost = with_engine(samples[0], state="lost")
    log = MarkerLog(300)
    log.follow(lost, with_engine(lost, state="serving"))
    assert log.recent()[0].text == "e-01 serves again; it was lost"


def test_a_first_start_is_no_return(samples: list[FleetSample]) -> None:
    starting = with_engine(samples[0], state="starting")
    log = MarkerLog(300)
    log.follow(starting, with_engine(starting, state="serving"))
    assert (log.recent()[0].kind, log.recent()[0].text) == ("started", "e-01 serves")


def test_a_restart_without_a_change_of_state_is_marked(samples: list[FleetSample]) -> None:
    assert kinds(samples[0], with_engine(samples[0], incarnation=9)) == ["restarted"]


def test_engines_that_join_or_leave_are_marked(samples: list[FleetSample]) -> None:
    smaller = msgspec.structs.replace(samples[0], engines=samples[0].engines[1:])
    assert kinds(smaller, samples[0]) == ["joined"]
    assert kinds(samples[0], smaller) == ["left"]


def test_a_published_policy_is_marked(samples: list[FleetSample]) -> None:
    pools = (msgspec.structs.replace(samples[0].pools[0], policy_version=42), *samples[0].pools[1:])
    log = MarkerLog(300)
    log.follow(samples[0], msgspec.structs.replace(samples[0], pools=pools))
    (marker,) = log.recent()
    assert (marker.kind, marker.label, marker.pool_id) == ("policy", "v42 live", "pool-0")


def test_markers_age_out_and_never_exceed_their_limit(samples: list[FleetSample]) -> None:
    log, before = MarkerLog(300), samples[0]
    for step in range(3 * MAX_MARKERS):
        after = with_engine(before, state="hot" if step % 2 else "lost")
        log.follow(before, after)
        before = after
    assert len(log.recent()) == MAX_MARKERS
    assert log.recent(after=log.last_number - 2)[0].number == log.last_number - 1
    log.follow(before, msgspec.structs.replace(before, at=before.at + 1000))
    assert log.recent() == []
