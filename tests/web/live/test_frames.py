"""Encoded frames are decoded unchanged, and old state plus columns equals fresh state."""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec
import pytest

from gateway.contracts.fleet_sample import STATES, FleetSample
from routing.values import reasons
from tests.web.fake_fleet import LOST_AT, FakeFleet
from tests.web.live.frame_reader import Frame, apply_column, read_frame
from web.live.engine_card import rejection_word
from web.live.frames import encode_column, encode_keyframe, topology
from web.live.history import FleetHistory, ScopedHistory
from web.live.verdict import findings

START = 1_800_000_000.0

NOTHING_SAID = findings(None)[0]


def filled(samples: list[FleetSample]) -> FleetHistory:
    history = FleetHistory()
    for sample in samples:
        history.add(sample)
    return history


def same(one: Frame, other: Frame) -> None:
    assert one.head == other.head
    for left, right in (
        (one.now, other.now),
        (one.engines, other.engines),
        (one.pools, other.pools),
        (one.hour, other.hour),
        (one.bytes, other.bytes),
    ):
        # NaN is not equal to itself; its text is.
        assert repr(left) == repr(right)


def test_keyframe_carries_the_newest_sample(samples: list[FleetSample]) -> None:
    frame = read_frame(encode_keyframe(ScopedHistory(filled(samples), None), 7, NOTHING_SAID))
    assert frame.head["seq"] == 7
    assert [engine["name"] for engine in frame.head["engines"]] == ["e-01", "e-02", "e-03", "e-04"]
    assert frame.now[0][0] == samples[-1].engines[0].in_flight_tokens
    assert frame.bytes["state"][0][-1] == STATES.index("serving")


def test_cell_is_the_peak_of_its_two_seconds(samples: list[FleetSample]) -> None:
    frame = read_frame(encode_keyframe(ScopedHistory(filled(samples), None), 1, NOTHING_SAID))
    newest = [sample for sample in samples if sample.at // 2 == samples[-1].at // 2]
    assert len(newest) > 1
    for row in range(4):
        peak = max(sample.engines[row].in_flight_tokens for sample in newest)
        assert frame.engines["tokens"][row][-1] == peak


def test_columns_before_the_first_sample_are_unknown_not_zero(samples: list[FleetSample]) -> None:
    frame = read_frame(encode_keyframe(ScopedHistory(filled(samples), None), 1, NOTHING_SAID))
    assert math.isnan(frame.engines["tokens"][0][0])
    assert frame.bytes["state"][0][0] == 255
    assert math.isnan(frame.pools["cv"][0][0])


def test_empty_history_gives_a_keyframe_without_engines() -> None:
    frame = read_frame(encode_keyframe(ScopedHistory(FleetHistory(), None), 0, NOTHING_SAID))
    assert frame.head["at"] is None
    assert frame.head["index"] is None
    assert frame.head["engines"] == []


def test_column_frame_requires_a_sample() -> None:
    with pytest.raises(ValueError, match="no sample yet"):
        encode_column(ScopedHistory(FleetHistory(), None), 1, None, 0, NOTHING_SAID)


@pytest.mark.parametrize("begin", [0.0, LOST_AT - 5, 195.0, 228.0])
def test_old_state_plus_columns_equals_fresh_state(begin: float) -> None:
    fleet = FakeFleet(engines=5, pools=2)
    history = FleetHistory()
    history.add(fleet.sample_at(begin, START))
    state = read_frame(encode_keyframe(ScopedHistory(history, None), 0, NOTHING_SAID))
    for seq in range(1, 100):
        before, last_marker = history.latest, history.markers.last_number
        # A pause of seven seconds leaves a gap of columns in the middle.
        history.add(fleet.sample_at(begin + seq / 2 + (7 if seq > 50 else 0), START))
        if topology(before) != topology(history.latest):
            state = read_frame(encode_keyframe(ScopedHistory(history, None), seq, NOTHING_SAID))
            continue
        apply_column(
            state, read_frame(encode_column(ScopedHistory(history, None), seq, before, last_marker, NOTHING_SAID), 5, 2)
        )
        if seq % 11 == 0 or seq == 99:
            same(state, read_frame(encode_keyframe(ScopedHistory(history, None), seq, NOTHING_SAID)))


def test_only_changed_texts_are_sent(samples: list[FleetSample]) -> None:
    history = filled(samples[:-1])
    before = samples[-2]
    hot = msgspec.structs.replace(samples[-1].engines[2], state="hot", reason="it is", since=samples[-1].at)
    engines = (*samples[-1].engines[:2], hot, *samples[-1].engines[3:])
    history.add(msgspec.structs.replace(samples[-1], engines=engines))
    head = read_frame(encode_column(ScopedHistory(history, None), 1, before, 0, NOTHING_SAID), 4, 2).head
    assert [row for row, _ in head["facts"]] == [2]
    assert [marker["kind"] for marker in head["markers"]] == ["hot"]


def test_new_policy_version_requires_a_keyframe(samples: list[FleetSample]) -> None:
    pools = (msgspec.structs.replace(samples[0].pools[0], policy_version=99), *samples[0].pools[1:])
    assert topology(samples[0]) == topology(samples[1])
    assert topology(samples[0]) != topology(msgspec.structs.replace(samples[0], pools=pools))


def test_python_and_javascript_have_the_same_rejection_texts() -> None:
    text = (Path(__file__).parents[3] / "web/frontend/fleet/queue/queue_figures.js").read_text()
    listed = text.split("export const REJECTIONS = {")[1].split("}")[0]
    assert dict(re.findall(r"(\w+): '([^']+)'", listed)) == {code: rejection_word(code) for code in reasons.REJECTIONS}
    assert rejection_word("a_code_of_tomorrow") == "a code of tomorrow"


def test_python_and_javascript_have_the_same_series() -> None:
    text = (Path(__file__).parents[3] / "web/frontend/live/frame_reader.js").read_text()
    from controlplane.history import bucket as column
    from web.live import frames

    for name, series in (
        ("NOW_FLOATS", frames.NOW_FLOATS),
        ("ENGINE_FLOATS", frames.WIRE_FLOATS),
        ("ENGINE_BYTES", column.ENGINE_BYTES),
        ("POOL_FLOATS", frames.WIRE_POOL_FLOATS),
    ):
        listed = text.split(f"export const {name} = [")[1].split("]")[0]
        assert re.findall(r"'(\w+)'", listed) == list(series)
    assert f"export const PROTOCOL = {frames.PROTOCOL};" in text
