"""Wake-ups use the monotonic clock, so that a changed wall clock has no effect."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from typing_extensions import override

from controlplane.project.celery import EXPIRES_S
from controlplane.project.celery import app as program
from controlplane.project.job_needs import IDLE_S
from controlplane.project.processes.job_threads import MAX_WAITING, MonotonicScheduler


class Woken(MonotonicScheduler):
    """Records woken entries, with both clocks set by the test."""

    def __init__(self, app: Celery) -> None:
        self.now = 50.0
        self.woken: list[tuple[str, float]] = []
        self.clock = lambda: self.now
        super().__init__(app, max_interval=1)

    @override
    def apply_entry(self, entry: Any, producer: Any = None) -> None:
        self.woken.append((entry.name, round(self.now, 3)))

    def run_s(self, seconds: float) -> list[tuple[str, float]]:
        """Tick as beat does for this long, and return the entries woken meanwhile."""
        self.woken.clear()
        until = self.now + seconds
        while self.now < until:
            self.now += max(self.tick(), 0.01)
        return self.woken


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery("schedule-test", broker="memory://localhost/", set_as_current=False, fixups=[])
    app.conf.beat_schedule = {"often": {"task": "x", "schedule": 0.5}, "rarely": {"task": "y", "schedule": 2.0}}
    yield app
    app.close()
    program.set_default()


def test_each_entry_is_woken_at_its_own_interval(app: Celery) -> None:
    woken = Woken(app).run_s(4.0)
    assert sum(name == "often" for name, _ in woken) == 8
    assert sum(name == "rarely" for name, _ in woken) == 2


@pytest.mark.parametrize("hours", [-1, -24, 1, 24])
def test_changed_wall_clock_stops_and_repeats_nothing(app: Celery, monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    scheduler = Woken(app)
    before = len(scheduler.run_s(4.0))
    real = app.now
    monkeypatch.setattr(app, "now", lambda: real() + datetime.timedelta(hours=hours))
    assert len(scheduler.run_s(4.0)) == before


def test_schedule_sleeps_until_the_next_entry_is_due(app: Celery) -> None:
    scheduler = Woken(app)
    assert scheduler.tick() == pytest.approx(0.5)
    scheduler.now += 0.4
    assert scheduler.tick() == pytest.approx(0.1)
    assert len(scheduler.woken) == 2


def test_requested_entry_is_woken_at_once_and_then_at_its_interval(app: Celery) -> None:
    app.conf.beat_schedule = {
        "often": {"task": "x", "schedule": 0.5},
        "rarely": {"task": "controlplane.y", "schedule": 2.0},
    }
    scheduler = Woken(app)
    scheduler.run_s(1.0)
    scheduler.ask(["y", "unknown"])
    assert [name for name, _ in scheduler.run_s(0.1)].count("rarely") == 1
    assert "rarely" not in [name for name, _ in scheduler.run_s(1.0)]
    assert "rarely" in [name for name, _ in scheduler.run_s(1.0)]


def test_missed_wake_ups_are_not_repeated_after_a_long_sleep(app: Celery) -> None:
    scheduler = Woken(app)
    scheduler.run_s(1.0)
    scheduler.now += 3600.0
    assert len(scheduler.run_s(0.4)) == 2


def test_an_entry_without_work_is_woken_at_the_start_and_then_rarely(app: Celery) -> None:
    scheduler = Woken(app)
    scheduler.needs = lambda task: task == "y"
    woken = scheduler.run_s(IDLE_S)
    assert [name for name, _ in woken].count("often") == 1
    assert [name for name, _ in woken].count("rarely") == round(IDLE_S / 2.0)
    assert [name for name, _ in scheduler.run_s(2 * IDLE_S)].count("often") == 2


def test_work_that_appears_is_started_within_the_interval(app: Celery) -> None:
    scheduler = Woken(app)
    scheduler.needs = lambda _task: scheduler.now >= 57.3
    scheduler.run_s(10.0)
    assert min(at for name, at in scheduler.woken if name == "often" and at > 51.0) <= 57.3 + 0.5


def test_schedule_of_a_worker_that_is_behind_waits_and_forgets_no_request(app: Celery) -> None:
    app.conf.beat_schedule = {
        "often": {"task": "x", "schedule": 0.5},
        "asked": {"task": "controlplane.y", "schedule": 60},
    }
    scheduler = Woken(app)
    scheduler.run_s(1.0)
    scheduler.waiting = lambda: MAX_WAITING
    scheduler.ask(["y"])
    assert scheduler.run_s(5.0) == []
    scheduler.waiting = lambda: MAX_WAITING - 1
    assert {name for name, _ in scheduler.run_s(0.3)} == {"often", "asked"}


def test_a_wake_up_outlives_the_delay_of_a_busy_worker() -> None:
    assert all(entry["options"]["expires"] >= EXPIRES_S for entry in program.conf.beat_schedule.values())
