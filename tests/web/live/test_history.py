"""The history of limited length: columns, the hour strip, and hit rates."""

from __future__ import annotations

import math

import msgspec

from controlplane.history.bucket import UNKNOWN_BYTE, share_byte, state_byte
from gateway.contracts.fleet_sample import FleetSample
from tests.web.fake_fleet import FakeFleet
from web.live.history import FleetHistory
from web.live.peak_strip import STRIP_COLUMN_S, STRIP_COLUMNS, PeakStrip

START = 1_800_000_000.0


def test_history_is_limited() -> None:
    fleet, history = FakeFleet(2, 1), FleetHistory(columns=10)
    for step in range(200):
        history.add(fleet.sample_at(step, START))
    window = history.window()
    assert len(window) == 10
    assert [column.index for column in window if column] == list(range(window[-1].index - 9, window[-1].index + 1))


def test_pause_leaves_a_gap_and_nothing_older_than_the_window() -> None:
    fleet, history = FakeFleet(2, 1), FleetHistory(columns=10)
    for t in (0, 2, 4, 12, 14):
        history.add(fleet.sample_at(t, START))
    known = [column is not None for column in history.window()]
    assert known == [False, False, True, True, True, False, False, False, True, True]
    history.add(fleet.sample_at(500, START))
    assert [column is not None for column in history.window()] == [False] * 9 + [True]


def test_late_sample_is_dropped(samples: list[FleetSample]) -> None:
    history = FleetHistory()
    assert history.add(samples[-1])
    assert not history.add(samples[0])
    assert history.latest is samples[-1]


def test_loss_shorter_than_a_column_is_visible() -> None:
    sample, history = FakeFleet(1, 1).sample_at(0, START), FleetHistory()
    for t, state in ((0.0, "serving"), (0.5, "lost"), (1.0, "degraded"), (2.0, "degraded")):
        engine = msgspec.structs.replace(sample.engines[0], state=state)
        history.add(msgspec.structs.replace(sample, at=START + t, engines=(engine,)))
    states = [column.codes[0][0] for column in history.window() if column]
    assert states == [state_byte("lost"), state_byte("degraded")]


def test_hit_rate_of_an_engine_covers_the_last_30_seconds() -> None:
    fleet, history = FakeFleet(1, 1), FleetHistory()
    base = fleet.sample_at(0, START)

    def at(t: float, prompt: int, cached: int) -> FleetSample:
        totals = {"prompt_tokens_total": prompt, "cached_tokens_total": cached}
        engine = msgspec.structs.replace(base.engines[0], **totals)
        return msgspec.structs.replace(base, at=START + t, engines=(engine,))

    def hit() -> int:
        return history.newest.codes[2][0]

    history.add(at(0, 1000, 1000))
    assert hit() == UNKNOWN_BYTE
    history.add(at(10, 3000, 1500))
    assert hit() == share_byte(0.25)
    history.add(at(44, 4000, 2500))
    assert hit() == UNKNOWN_BYTE
    history.add(at(46, 5000, 2600))
    assert hit() == share_byte(0.1)
    history.add(at(48, 10, 5))
    assert hit() == UNKNOWN_BYTE


def test_hour_strip_keeps_peaks_per_pool_for_one_hour() -> None:
    fleet, strip = FakeFleet(4, 2), PeakStrip()
    samples = [fleet.sample_at(step * 5, START) for step in range(900)]
    for sample in samples:
        strip.add(sample)
    series = strip.series("pool-0")
    assert len(series) == STRIP_COLUMNS
    assert not any(math.isnan(value) for value in series)
    last = [sample for sample in samples if sample.at // STRIP_COLUMN_S == samples[-1].at // STRIP_COLUMN_S]
    peak = max(engine.in_flight_s for sample in last for engine in sample.engines if engine.pool_id == "pool-0")
    assert series[-1] == peak
    assert strip.series("pool-0", 1) == [peak]


def test_unknown_pool_has_an_unknown_hour() -> None:
    assert all(math.isnan(value) for value in PeakStrip().series("nowhere"))


def test_shares_are_encoded_in_half_percents_and_unknown_is_preserved() -> None:
    assert [share_byte(share) for share in (0.0, 0.714, 1.0, 1.3)] == [0, 143, 200, 200]
    assert share_byte(None) == UNKNOWN_BYTE
    assert share_byte(math.nan) == UNKNOWN_BYTE


def test_state_of_a_newer_gateway_is_decoded_as_unknown() -> None:
    assert state_byte("of tomorrow") == state_byte("unknown")
