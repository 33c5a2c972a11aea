"""Limits on how many engines can be ejected at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.base.settings import BreakerSettings
from gateway.pools.engines.breaker import CONNECT, PAUSED, TIMEOUT, UNHEALTHY, Breaker
from gateway.pools.engines.panic_threshold import excused_engines


def fleet(engines: int, rejecting: int) -> list[Any]:
    """Return engines of which the first ones are ejected for rejecting."""
    breakers = [Breaker(BreakerSettings(), 0.0) for _ in range(engines)]
    for number, breaker in enumerate(breakers):
        breaker.observe_probe(True, "", 1.0)
        for _ in range(3 if number < rejecting else 0):
            breaker.record_rejection(401, 2.0, shared=False)
    names = (
        SimpleNamespace(engine_id=f"engine-{number}", role="mixed", desired_state="ready") for number in range(engines)
    )
    return [SimpleNamespace(entry=name, breaker=breaker) for name, breaker in zip(names, breakers, strict=True)]


CAUSES: dict[str, Callable[[Breaker], object]] = {
    "silent": lambda breaker: [breaker.observe_probe(False, "timed out", 3.0) for _ in range(2)],
    "unhealthy": lambda breaker: [breaker.observe_probe(False, "503", 3.0, cause=UNHEALTHY) for _ in range(2)],
    "timeout": lambda breaker: [breaker.record_failure(TIMEOUT, 3.0) for _ in range(3)],
    "connect": lambda breaker: [breaker.record_failure(CONNECT, 3.0) for _ in range(3)],
    "suspected": lambda breaker: breaker.record_stall("still", 3.0),
    "hung": lambda breaker: breaker.record_hang("still", 3.0),
}
DEAD: dict[str, Callable[[Breaker], object]] = {
    "refused": lambda breaker: breaker.observe_probe(False, "refused", 3.0, refused=True),
    "paused": lambda breaker: [breaker.observe_probe(False, "paused", 3.0, cause=PAUSED) for _ in range(2)],
}


@pytest.mark.parametrize("cause", CAUSES)
def test_no_cause_ejects_the_last_engine_of_a_role(cause: str) -> None:
    engines = fleet(4, 0)
    for engine in engines[:2]:
        engine.entry.role = "decode"
    for engine in engines[:3]:
        CAUSES[cause](engine.breaker)
    assert excused_engines(engines) == frozenset(), "the mixed one that is left does all"
    CAUSES[cause](engines[3].breaker)
    assert excused_engines(engines) == {"engine-0", "engine-1", "engine-2", "engine-3"}
    engines[2].entry.desired_state = engines[3].entry.desired_state = "draining"
    assert excused_engines(engines) == {"engine-0", "engine-1"}


@pytest.mark.parametrize("cause", DEAD)
def test_dead_stalled_and_paused_engines_are_not_excused(cause: str) -> None:
    engines = fleet(3, 0)
    for engine in engines:
        DEAD[cause](engine.breaker)
    assert excused_engines(engines) == frozenset()
    CAUSES["silent"](engines[1].breaker)
    assert excused_engines(engines) == {"engine-1"}


def test_an_only_engine_gets_the_pause_that_it_asks_for() -> None:
    engines = fleet(1, 0)
    engines[0].breaker.record_throttle(9.0, 3.0)
    assert excused_engines(engines) == frozenset()


def test_a_tenth_and_at_least_one_stays_ejected_if_the_cause_is_unknown() -> None:
    assert len(excused_engines(fleet(8, 6))) == 5
    assert len(excused_engines(fleet(20, 6))) == 4


def test_up_to_half_stays_ejected_if_others_accepted_the_rejected_requests() -> None:
    engines = fleet(8, 6)
    for engine in engines[1:4]:
        engine.breaker.contradicted = True
    assert excused_engines(engines) == {"engine-0", "engine-4", "engine-5"}
    for engine in engines[:6]:
        engine.breaker.contradicted = True
    assert len(excused_engines(engines)) == 2, "half of the pool carries on"
