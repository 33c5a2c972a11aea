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


@pytest.mark.parametrize(("text", "cores"), [("50000 100000", 0.5), ("max 100000", None), ("", None)])
def test_a_quota_limits_the_cores(tmp_path: Path, text: str, cores: float | None) -> None:
    path = tmp_path / "cpu.max"
    path.write_text(text)
    assert allowed_cores(path) == (cores or allowed_cores(tmp_path / "missing")) > 0.0


def test_slow_answers_lower_the_rate_and_prompt_ones_restore_it(tmp_path: Path) -> None:
    pace, clock = _pace(tmp_path)
    for _ in range(2):
        clock.now += 3.0
        pace.note(LATE_S)
    (shown,) = read_paces(tmp_path)
    assert (shown.full, shown.rate) == (4.0, 1.96)
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


def test_a_rate_never_falls_to_zero(tmp_path: Path) -> None:
    pace, clock = _pace(tmp_path)
    for _ in range(50):
        clock.now += 3.0
        pace.note(5.0)
    assert pace.share == 0.1
    assert read_paces(tmp_path)[0].rate == 0.4


async def test_the_replay_begins_after_prompt_answers_in_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulator.replay.host_pace._PROBE_S", 0.0)
    pace, _ = _pace(tmp_path)
    delays = iter([0.01, 0.01, 2.0, 0.01, 0.01, 0.01, 9.0])

    async def delay_s() -> float:
        return next(delays)

    await pace.settle(delay_s)
    assert list(delays) == [9.0]


def test_the_sentence_names_cores_rate_and_a_slowdown() -> None:
    pace = ReplayPace(2.0, 4.0, 4.0)
    slow = msgspec.structs.replace(pace, cores=1.0, rate=2.0)
    assert pace_words([pace]) == "2 cores: replaying 4 requests/s"
    assert pace_words([slow]) == "1 core: replaying 2 requests/s, slowed from 4 because the gateway responds late"
    assert pace_words([pace, pace, slow]).startswith("2 cores: replaying 10 requests/s, slowed from 12 because")
    little = msgspec.structs.replace(pace, full=3.51, rate=3.49)
    assert pace_words([little]) == "2 cores: replaying 3.5 requests/s", "no slowdown that cannot be seen"
    assert pace_words([]) == ""


def test_an_unreadable_or_old_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / f"broken{PACE_SUFFIX}").write_text("{")
    _pace(tmp_path)
    assert len(read_paces(tmp_path)) == 1
    os.utime(tmp_path / f"replay{PACE_SUFFIX}", (0, 0))
    assert read_paces(tmp_path) == []
