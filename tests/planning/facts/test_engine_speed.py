"""Recent speed of an engine: late requests and runs of slow ones outweigh earlier quick ones."""

from __future__ import annotations

from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning.documents.health_document import HealthDocument
from planning.facts.engine_speed import MAX_SAMPLES, SLOW_RUN_S, WINDOW_S, EngineSpeed
from planning.facts.peer_speeds import Peers, PeerSpeeds
from tests.planning.pools import engine


def served(speed: EngineSpeed, count: int, at_s: float = 0.0, times: float = 1.0, took_s: float = 1.0) -> float:
    """Let the engine deliver first tokens in turn, each `times` as late as expected; return the end time."""
    for _ in range(count):
        at_s += took_s
        speed.first_token(took_s, took_s / times, at_s)
    return at_s


def test_the_expectation_includes_requests_ahead_in_the_queue() -> None:
    speed = EngineSpeed()
    assert [speed.expects(2.0, 0.0), speed.expects(1.0, 0.5), speed.expects(1.0, 10.0)] == [2.0, 2.5, 1.0]


def test_a_late_request_counts_before_its_first_token() -> None:
    speed = EngineSpeed()
    assert speed.slowness([(0.0, 1.0)], 0.5) == (None, 0)
    assert speed.slowness([(0.0, 1.0), (0.0, 0.0)], 8.0) == (8.0, 1)


def test_three_late_requests_outweigh_earlier_quick_ones() -> None:
    speed = EngineSpeed()
    now = served(speed, 20)
    assert speed.slowness([(now, 0.5)] * 2, now + 5.0) == (1.0, 22)
    assert speed.slowness([(now, 0.5)] * 3, now + 5.0) == (10.0, 3)


def test_a_lasting_run_of_slow_requests_outweighs_earlier_quick_ones() -> None:
    speed = EngineSpeed()
    now = served(speed, 20)
    now = served(speed, 2, now, times=6.0, took_s=6.0)
    assert speed.slowness([], now) == (1.0, 22)
    assert speed.slowness([(now, 1.0)], now + 6.0) == (pytest.approx(6.0), 3)


def test_a_short_pause_of_the_machine_is_not_a_slow_run() -> None:
    speed = EngineSpeed()
    now = served(speed, 20)
    for _ in range(5):
        speed.first_token(3.0, 0.1, now + 3.0)
    assert speed.slowness([], now + SLOW_RUN_S) == (1.0, 25)


def test_a_quick_request_ends_the_slow_run() -> None:
    speed = EngineSpeed()
    now = served(speed, 4, served(speed, 20), times=6.0, took_s=6.0)
    assert speed.slowness([], now) == (pytest.approx(6.0), 4)
    assert speed.slowness([], served(speed, 1, now)) == (1.0, 25)


def test_the_window_and_the_number_of_samples_are_bounded() -> None:
    speed = EngineSpeed()
    now = served(speed, 2 * MAX_SAMPLES, took_s=0.01)
    speed.answered(0.03, now)
    assert speed.slowness([], now)[1] == MAX_SAMPLES
    assert (speed.tpot(now), speed.usual()) == ((0.03, 1), pytest.approx(1.0))
    later = now + WINDOW_S + 1.0
    assert (speed.slowness([], later), speed.tpot(later), speed.usual()) == ((None, 0), (None, 0), 1.0)


@given(st.lists(st.one_of(st.none(), st.floats(0, 100)), min_size=1, max_size=12))
def test_the_peer_speed_is_the_median_of_all_others(values: list[float | None]) -> None:
    engines = [engine(f"e-{at}", slowness=value, slowness_samples=9) for at, value in enumerate(values)]
    speeds = PeerSpeeds(engines, HealthDocument())
    for at, one in enumerate(engines):
        others = [value for other, value in enumerate(values) if other != at and value is not None]
        assert speeds.peers_of(one).slowness == (median(others) if len(others) >= 2 else None)


def test_engines_with_too_few_samples_are_not_peers() -> None:
    engines = [engine(f"e-{at}", slowness=1.0, slowness_samples=1, tpot_s=0.1, tpot_samples=1) for at in range(5)]
    assert PeerSpeeds(engines, HealthDocument()).peers_of(engines[0]) == Peers(None, None)
