"""The stored past as frames: restarts, gaps, tails, and later columns."""

from __future__ import annotations

import math

import pytest

from controlplane.history.bucket import Column
from controlplane.history.collector import FINE_S
from controlplane.history.merge import merged_by
from gateway.contracts.fleet_sample import STATES, FleetSample
from tests.controlplane.history.buckets import START, samples_of
from tests.controlplane.history.test_rollups import fed, run
from tests.web.fake_fleet import LOST_AT
from tests.web.live.frame_reader import Frame, apply_more, read_frame
from web.history.past import read_picture
from web.history.past_frames import encode_past
from web.history.past_range import BadRangeError, stretch_of
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
SERVING = STATES.index("serving")


def feed_of(samples: list[FleetSample]) -> FleetFeed:
    feed = FleetFeed()
    for sample in samples:
        feed.take(sample)
    return feed


def shown(name: str, at: float, feed: FleetFeed, end: str = "") -> Frame:
    return read_frame(encode_past(read_picture(stretch_of(name, end, at), feed)))


def known(frame: Frame, row: int = 0) -> list[int]:
    """Return the positions of known columns, counted from the right edge (0 is the newest)."""
    values = frame.engines["seconds"][row]
    return [len(values) - 1 - index for index, value in enumerate(values) if not math.isnan(value)]


def test_hour_shows_stored_columns_and_those_only_in_memory() -> None:
    samples = samples_of(4, 65)
    run(fed(samples[:90]), START + 45)
    frame = shown("1h", START + 64.5, feed_of(samples))
    assert frame.head["columns"] == 360
    assert known(frame) == [6, 5, 4, 3, 2, 1, 0]
    assert frame.head["live"]
    assert [engine["name"] for engine in frame.head["engines"]] == ["e-01", "e-02", "e-03", "e-04"]
    assert frame.now[0][0] == pytest.approx(frame.engines["tokens"][0][-1], rel=1e-3)


def test_earlier_hour_is_restored_after_a_restart_with_a_gap_for_the_downtime() -> None:
    run(fed(samples_of(4, 61)), START + 61)
    frame = shown("1h", START + 149, feed_of(samples_of(4, 30, begin=120)))
    assert known(frame) == [14, 13, 12, 11, 10, 9, 2, 1, 0]
    assert [row[-5] for row in frame.bytes["state"]] == [255] * 4
    strip = [index for index, value in enumerate(reversed(frame.hour[0])) if not math.isnan(value)]
    assert strip[0] == 0


def test_past_hour_does_not_change_and_has_its_own_verdict() -> None:
    run(fed(samples_of(5, 301, begin=LOST_AT - 100)), START + LOST_AT + 201)
    feed = feed_of(samples_of(5, 10, begin=9000))
    end = START + LOST_AT + 100
    frame = shown("5m", START + 9010, feed, str(end))
    assert not frame.head["live"]
    assert frame.head["columns"] == 30
    assert frame.head["index"] == int(end // FINE_S) - (end % FINE_S == 0)
    assert "% of" in frame.head["verdict"]["text"]
    assert "e-05 was lost" in frame.head["verdict"]["text"]
    assert STATES.index("lost") in frame.bytes["state"][4]
    again = shown("5m", START + 9100, feed, str(end))
    assert (again.head["verdict"], again.head["index"]) == (frame.head["verdict"], frame.head["index"])


def test_range_without_records_shows_a_message() -> None:
    frame = shown("1h", START + 9000, feed_of(samples_of(2, 5, begin=8990)), str(START + 3600))
    assert frame.head["engines"] == []
    assert "Nothing was recorded" in frame.head["verdict"]["text"]


def test_day_has_long_columns_and_a_tail_of_short_ones() -> None:
    begin = -START % 120
    samples = samples_of(3, 300, begin=begin)
    collector = fed(samples)
    for end in range(30, 310, 30):
        run(collector, START + begin + end)
    frame = shown("24h", START + begin + 299, feed_of(samples[-40:]))
    assert frame.head["column_s"] == 120
    assert known(frame) == [2, 1, 0]
    last = samples[-120:]
    assert frame.engines["seconds"][0][-1] == pytest.approx(max(s.engines[0].in_flight_s for s in last), rel=1e-3)


def test_removed_engines_keep_their_rows_in_the_past() -> None:
    run(fed(samples_of(5, 31)), START + 31)
    frame = shown("1h", START + 70, feed_of(samples_of(4, 10, begin=60)))
    names = [engine["name"] for engine in frame.head["engines"]]
    assert sorted(names) == ["e-01", "e-02", "e-03", "e-04", "e-05"]
    gone = frame.head["engines"][names.index("e-05")]
    assert gone["incarnation"] == 0
    assert (gone["state"], gone["removed"], gone["since"]) == ("removed", True, START + 30)
    assert len(known(frame, names.index("e-05"))) == 3


def test_past_view_marks_engines_that_are_removed_now() -> None:
    run(fed(samples_of(5, 31)), START + 31)
    frame = shown("5m", START + 500, feed_of(samples_of(4, 10, begin=490)), str(START + 30))
    facts = {item["name"]: (item["state"], item["removed"]) for item in frame.head["engines"]}
    assert facts == {f"e-0{number}": ("serving", number == 5) for number in range(1, 6)}
    before_the_first_sample = shown("5m", START + 500, FleetFeed(), str(START + 30))
    assert not any(item["removed"] for item in before_the_first_sample.head["engines"])


def test_old_view_plus_new_columns_equals_the_fresh_view() -> None:
    samples = samples_of(5, 140, begin=LOST_AT - 100)
    collector = fed([])
    feed = FleetFeed()
    state: Frame | None = None
    for number, sample in enumerate(samples):
        collector.take(sample)
        feed.take(sample)
        if number % 20:
            continue
        run(collector, sample.at)
        picture = read_picture(stretch_of("1h", "", sample.at), feed)
        fresh = read_frame(encode_past(picture))
        if state is None:
            state = fresh
            continue
        more = encode_past(picture, after=state.head["index"] - 2, known=state.head["roster"])
        frame = read_frame(more, 5, 2)
        assert frame.head["kind"] == "more"
        assert frame.head["columns"] < 10
        apply_more(state, frame)
        live_words = {name: fresh.head.pop(name) for name in ("engines", "pools", "kind", "columns")}
        assert {name: value for name, value in state.head.items() if name not in live_words} == fresh.head
        assert repr((state.engines, state.bytes, state.pools, state.hour)) == repr(
            (fresh.engines, fresh.bytes, fresh.pools, fresh.hour)
        )


def test_unstored_columns_are_merged_on_arrival_and_not_for_each_view(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    feed = feed_of(samples_of(4, 300, step_s=2))
    folded = 0

    def count(columns: list[Column], factor: int) -> dict[int, Column]:
        nonlocal folded
        folded += len(columns)
        return merged_by(columns, factor)

    monkeypatch.setattr("web.history.past.merged_by", count)
    assert len(known(shown("1h", START + 299, feed))) == 30
    assert folded == 0
    assert len(known(shown("24h", START + 299, feed))) == 3
    assert folded == 30


def test_new_columns_of_another_topology_are_sent_as_a_keyframe() -> None:
    feed = feed_of(samples_of(4, 30))
    picture = read_picture(stretch_of("1h", "", START + 29), feed)
    for after, roster in ((picture.stretch.last - 2, "another"), (3, "")):
        frame = read_frame(encode_past(picture, after=after, known=roster))
        assert frame.head["kind"] == "keyframe"


def test_markers_of_store_and_memory_are_one_series() -> None:
    samples = samples_of(5, 60, begin=LOST_AT - 10)
    run(fed(samples[:70]), START + LOST_AT + 25)
    frame = shown("1h", START + LOST_AT + 50, feed_of(samples))
    kinds = [marker["kind"] for marker in frame.head["markers"]]
    assert kinds.count("lost") == kinds.count("draining") == 1
    frame = shown("1h", START + LOST_AT + 50, feed_of(samples[60:]))
    assert [marker["kind"] for marker in frame.head["markers"]].count("lost") == 1


@pytest.mark.parametrize(
    ("name", "end", "words"),
    [
        ("2h", "", "use one of 5m, 1h, 24h"),
        ("1h", "yesterday", "unix seconds"),
        ("1h", "nan", "last 30 days"),
        ("1h", "inf", "last 30 days"),
        ("1h", "0", "last 30 days"),
        ("1h", str(START + 1e9), "last 30 days"),
    ],
)
def test_invalid_range_is_rejected_with_the_valid_ones(name: str, end: str, words: str) -> None:
    with pytest.raises(BadRangeError, match=words):
        stretch_of(name, end, START)


def test_strip_contains_the_window_and_ends_now_if_the_window_is_recent() -> None:
    near = stretch_of("5m", str(START - 600), START)
    assert near.strip_last == int(START // 10)
    far = stretch_of("5m", str(START - 86_400), START)
    assert far.strip_last * 10 > START - 86_400 > (far.strip_last - 360) * 10 + 300
    assert stretch_of("1h", str(START + 60), START).live
