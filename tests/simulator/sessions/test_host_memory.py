import random

import pytest

from simulator.sessions.host_memory import HostMemory


def test_the_least_recently_used_copy_is_evicted_first() -> None:
    gone: list[int] = []
    host = HostMemory(100, gone.append)
    host.put(1, 50)
    host.put(2, 50)
    host.use(1)
    assert host.put(3, 40)
    assert gone == [2]


def test_a_copy_in_flight_is_not_usable_yet_but_uses_memory() -> None:
    host = HostMemory(100)
    assert host.expect(1, 60)
    assert host.tokens(1) == 0
    assert not host.put(2, 50)
    assert host.arrived(1)
    assert host.tokens(1) == 60


def test_a_copy_forgotten_in_flight_uses_no_memory_afterward() -> None:
    host = HostMemory(100)
    host.expect(1, 60)
    host.forget(1)
    assert host.used_tokens == 0
    assert not host.arrived(1)


def test_a_pinned_copy_stays() -> None:
    host = HostMemory(100)
    host.put(1, 80)
    host.pin(1)
    assert not host.put(2, 50)
    host.pin(1, -1)
    assert host.put(2, 50)


def test_only_the_growth_of_a_copy_uses_memory() -> None:
    gone: list[int] = []
    host = HostMemory(100, gone.append)
    host.put(1, 40)
    host.put(2, 40)
    assert host.put(1, 60)
    assert not gone
    assert host.put(1, 90)
    assert gone == [2]


def test_sums_hold_under_any_operations() -> None:
    rng = random.Random(7)
    host = HostMemory(1_000)
    pinned: list[int] = []
    for _ in range(3_000):
        session_id = rng.randrange(30)
        match rng.randrange(7):
            case 0 | 1:
                host.put(session_id, rng.randrange(1, 300))
            case 2:
                host.expect(session_id, rng.randrange(1, 300))
            case 3:
                host.arrived(session_id)
            case 4:
                host.forget(session_id)
            case 5:
                host.pin(session_id)
                pinned.append(session_id)
            case _ if pinned:
                host.pin(pinned.pop(), -1)
        if session_id not in pinned and rng.random() < 0.1:
            host.drop(session_id)
        host.check()


def test_check_reports_wrong_sums() -> None:
    host = HostMemory(100)
    host.used_tokens = 1
    with pytest.raises(ValueError, match="host memory"):
        host.check()
