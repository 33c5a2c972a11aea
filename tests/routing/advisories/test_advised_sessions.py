import random

import msgspec
import pytest

from routing.advisories.advised_sessions import AdvisedSession, AdvisedSessions


def advised(session_id: int, engine_id: int = 0, tokens: int = 100, expires_s: float = 60.0) -> AdvisedSession:
    return AdvisedSession(
        session_id=session_id, engine_id=engine_id, tokens=tokens, expected_s=11.0, expires_s=expires_s
    )


def test_the_newest_advisory_of_a_session_wins() -> None:
    sessions = AdvisedSessions()
    sessions.reserve(advised(1, engine_id=0))
    sessions.reserve(advised(1, engine_id=3, tokens=200))
    assert (sessions.tokens_at(0), sessions.tokens_at(3)) == (0, 200)
    assert len(sessions) == 1


def test_an_arrival_ends_the_reservation_and_a_second_arrival_is_harmless() -> None:
    sessions = AdvisedSessions()
    sessions.reserve(advised(1))
    assert sessions.release(1) is not None
    assert sessions.release(1) is None
    assert sessions.sessions_at(0) == 0


def test_a_reservation_expires() -> None:
    sessions = AdvisedSessions()
    sessions.reserve(advised(1, expires_s=60.0))
    sessions.reserve(advised(2, expires_s=70.0))
    assert [session.session_id for session in sessions.expire(60.0)] == [1]
    assert len(sessions) == 1


def test_a_session_that_was_not_announced_is_no_expected_load() -> None:
    sessions = AdvisedSessions()
    sessions.reserve(msgspec.structs.replace(advised(1), tokens=0, announced=False))
    sessions.reserve(advised(2))
    assert (sessions.sessions_at(0), sessions.tokens_at(0), len(sessions)) == (1, 100, 2)
    sessions.release(1)
    sessions.check()
    assert sessions.sessions_at(0) == 1


def test_a_renewed_reservation_expires_at_its_new_time() -> None:
    sessions = AdvisedSessions()
    for number in range(50):
        sessions.reserve(advised(1, expires_s=60.0 + number))
    assert not sessions.expire(100.0)
    assert [session.session_id for session in sessions.expire(109.0)] == [1]
    assert len(sessions._ends) <= 3


def test_at_the_limit_the_oldest_advisory_is_evicted() -> None:
    sessions = AdvisedSessions(limit=2)
    for session_id in (1, 2, 3):
        sessions.reserve(advised(session_id))
    assert sessions.release(1) is None
    assert len(sessions) == 2


def test_no_order_of_events_leaks_a_reservation() -> None:
    rng = random.Random(5)
    sessions = AdvisedSessions(limit=20)
    for now in range(2_000):
        session_id = rng.randrange(40)
        match rng.randrange(4):
            case 0:
                sessions.release(session_id)
            case 1:
                sessions.expire(float(now))
            case _:
                sessions.reserve(advised(session_id, rng.randrange(4), rng.randrange(1_000), now + rng.random() * 60))
        sessions.check()
    sessions.expire(1e9)
    assert not len(sessions)
    assert not any(sessions.tokens_at(engine) or sessions.sessions_at(engine) for engine in range(4))


def test_check_detects_wrong_sums() -> None:
    sessions = AdvisedSessions()
    sessions.reserve(advised(1))
    sessions._tokens[0] += 1
    with pytest.raises(AssertionError, match="sums"):
        sessions.check()
