"""The rate of a replay follows its host."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from simulator.replay.host_pace import (
    LATE_S,
    MIN_RATE,
    PACE_SUFFIX,
    HostPace,
    ReplayPace,
    allowed_cores,
    free_power,
    pace_words,
    read_paces,
    sized_rate,
)

HALF_A_MINUTE = 31.0


class _Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def _pace(path: Path, full: float = 4.0) -> tuple[HostPace, _Clock]:
    clock = _Clock()
    return HostPace(path / f"replay{PACE_SUFFIX}", full, clock), clock


@pytest.mark.parametrize(("power", "rate"), [(2.0, 9.0), (1.0, 3.5), (0.5, MIN_RATE), (0.0, MIN_RATE), (64.0, 9.0)])
def test_a_host_with_less_power_gets_fewer_requests(power: float, rate: float) -> None:
    assert sized_rate(9.0, power) == rate


def test_the_power_of_a_host_is_measured() -> None:
    assert free_power() > 0.0


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "50000 100000"}, 0.5),
        ({"cpu.max": "max 100000"}, None),
        ({"cpu/cpu.cfs_quota_us": "25000", "cpu/cpu.cfs_period_us": "100000"}, 0.25),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        ({}, None),
    ],
)
def test_a_quota_limits_the_cores(tmp_path: Path, files: dict[str, str], cores: float | None) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert allowed_cores(tmp_path) == (cores or float(len(os.sched_getaffinity(0))))


def test_slow_answers_lower_the_rate_and_prompt_ones_restore_it(tmp_path: Path) -> None:
    pace, clock = _pace(tmp_path)
    for _ in range(2):
        clock.now += 3.0
        pace.note(LATE_S)
    (shown,) = read_paces(tmp_path)
    assert (shown.full, shown.rate, shown.since) == (4.0, 2.0, 1006.0)
    for _ in range(6):
        clock.now += HALF_A_MINUTE
        pace.note(0.001)
    assert (pace.share, read_paces(tmp_path)[0].rate) == (1.0, 4.0)


def test_one_pause_lowers_the_rate_once(tmp_path: Path) -> None:
    pace, clock = _pace(tmp_path)
    clock.now += 3.0
    for _ in range(5):
        pace.note(1.0)
    assert pace.share == 0.7


def test_a_rate_never_ends_and_states_since_when_it_holds(tmp_path: Path) -> None:
    pace, clock = _pace(tmp_path)
    for _ in range(50):
        clock.now += 3.0
        pace.note(5.0)
    assert pace.share == 0.1
    assert read_paces(tmp_path)[0].since == 1000.0 + 7 * 3.0, "it did not change after the seventh time"


async def test_the_replay_begins_after_prompt_answers_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.replay.host_pace._PROBE_S", 0.0)
    pace, _ = _pace(tmp_path)
    delays = iter([0.01, 0.01, 2.0, 0.01, 0.01, 0.01, 9.0])

    async def delay_s() -> float:
        return next(delays)

    await pace.settle(delay_s)
    assert list(delays) == [9.0]


def test_the_sentence_names_cores_rate_and_a_slowdown() -> None:
    pace = ReplayPace(cores=2.0, full=4.0, rate=4.0, since=0.0)
    slow = msgspec.structs.replace(pace, cores=1.0, rate=2.0)
    assert pace_words([pace]) == "2 cores: replaying 4 requests/s"
    assert pace_words([slow]) == "1 core: replaying 2 requests/s, slowed from 4 because the gateway responds late"
    assert pace_words([pace, pace, slow]).startswith("2 cores: replaying 10 requests/s, slowed from 12 because")
    assert pace_words([]) == ""


def test_an_unreadable_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / f"broken{PACE_SUFFIX}").write_text("{")
    assert read_paces(tmp_path) == []
