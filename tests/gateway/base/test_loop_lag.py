"""Event-loop lag under an injected clock: lost time, valid conclusions, and rejection of requests.

Background tasks restart after an unexpected error and end when cancelled.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from gateway.base import background
from gateway.base.loop_lag import LAPSE_S, MAX_LAPSES, SUSTAINED_LAG_S, SUSTAINED_S, TICK_S, WINDOW_S, LoopLag
from tests.patience import until


def punctual(lag: LoopLag, since_s: float, until_s: float) -> float:
    """Tick on time; return the time of the last tick."""
    now = since_s
    while now <= until_s:
        lag.tick(now)
        now += TICK_S
    return now - TICK_S


def lagging(lag: LoopLag, since_s: float, until_s: float, lag_s: float) -> float:
    """Delay each tick by this much; return the time of the last tick."""
    now = since_s
    while now <= until_s:
        now += TICK_S + lag_s
        lag.tick(now)
    return now


def test_a_punctual_loop_vouches_and_is_never_late() -> None:
    lag = LoopLag()
    now = punctual(lag, 0.0, 20.0)
    assert lag.vouches(now - 1.0, now)
    assert not lag.late
    assert lag.retry_after_s(now) is None


def test_a_blocked_loop_does_not_vouch_for_the_time_it_was_blocked() -> None:
    lag = LoopLag()
    now = punctual(lag, 0.0, 1.0)
    lag.tick(now + 1.6)
    assert lag.lost_s(now + 0.6, now + 1.6) == pytest.approx(1.0)
    assert not lag.vouches(now, now + 1.6)
    until_s = punctual(lag, now + 1.6 + TICK_S, now + 2.6)
    assert lag.vouches(now + 1.6, until_s)


def test_a_lapse_in_progress_counts_before_the_next_tick() -> None:
    lag = LoopLag()
    now = punctual(lag, 0.0, 1.0)
    assert not lag.vouches(now, now + 1.0)
    assert lag.vouches(now, now + TICK_S + 0.9 * LAPSE_S)


def test_a_short_lapse_within_a_long_wait_does_not_matter() -> None:
    lag = LoopLag()
    now = punctual(lag, 0.0, 8.0)
    lag.tick(now + TICK_S + 0.9)
    now = punctual(lag, now + TICK_S + 1.0, 10.0)
    assert lag.vouches(0.0, now)


def test_the_loop_is_late_from_the_first_lapse_until_a_window_without_loss() -> None:
    lag = LoopLag()
    now = punctual(lag, 0.0, 10.0)
    for _ in range(2):
        now += TICK_S + 0.6
        lag.tick(now)
    assert lag.late
    assert (lag.since_s, lag.lapses, lag.away_s) == pytest.approx((10.1, 2, 1.2))
    now = punctual(lag, now + TICK_S, now + WINDOW_S - 2 * TICK_S)
    assert lag.late
    punctual(lag, now + TICK_S, now + 5 * TICK_S)
    assert not lag.late


def test_a_single_pause_of_any_length_rejects_no_request() -> None:
    lag = LoopLag()
    now = punctual(lag, 0.0, 1.0) + 16.0
    lag.tick(now)
    assert lag.late
    assert lag.retry_after_s(now) is None
    assert lag.retry_after_s(punctual(lag, now + TICK_S, now + 1.0)) is None


def test_sustained_lag_rejects_requests_until_one_tick_is_on_time() -> None:
    lag = LoopLag()
    now = lagging(lag, punctual(lag, 0.0, 1.0), 1.0 + 3 * SUSTAINED_S, SUSTAINED_LAG_S + 0.1)
    assert lag.retry_after_s(now) == 1.0
    lag.tick(now + TICK_S)
    assert lag.retry_after_s(now + TICK_S) is None


def test_retry_after_grows_with_the_lag_up_to_a_limit() -> None:
    for lag_s, expected_s in ((2.0, 4.0), (100.0, 30.0)):
        lag = LoopLag()
        now = lagging(lag, punctual(lag, 0.0, 1.0), 3 * lag_s, lag_s)
        assert lag.retry_after_s(now) == pytest.approx(expected_s)


def test_each_tick_is_reported_and_stored_lapses_are_bounded() -> None:
    lags: list[float] = []
    lag = LoopLag(lags.append)
    lagging(lag, punctual(lag, 0.0, 0.0), 2 * MAX_LAPSES * (TICK_S + 2 * LAPSE_S), 2 * LAPSE_S)
    assert len(lags) > MAX_LAPSES
    assert len(lag._lapses) == MAX_LAPSES


async def test_a_failed_task_is_logged_and_restarted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(background, "_RESTART_S", 0.01)
    runs: list[int] = []

    async def fragile() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise RuntimeError("a surprise")
        await asyncio.sleep(60)

    with caplog.at_level(logging.ERROR):
        task = background.start("fragile", fragile)
        await until(lambda: len(runs) == 2)
    assert "fragile failed" in caplog.text
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
