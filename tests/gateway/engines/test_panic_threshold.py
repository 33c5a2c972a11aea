"""How many engines may be out for their answers at once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from gateway.base.settings import BreakerSettings
from gateway.engines.breaker import Breaker
from gateway.engines.panic_threshold import excused_engines


def fleet(engines: int, rejecting: int) -> list[Any]:
    """Return engines of which the first ones are out for rejecting."""
    breakers = [Breaker(BreakerSettings(), 0.0) for _ in range(engines)]
    for number, breaker in enumerate(breakers):
        breaker.observe_probe(True, "", 1.0)
        for _ in range(3 if number < rejecting else 0):
            breaker.record_rejection(401, 2.0, shared=False)
    names = (SimpleNamespace(engine_id=f"engine-{number}") for number in range(engines))
    return [SimpleNamespace(entry=name, breaker=breaker) for name, breaker in zip(names, breakers, strict=True)]


def test_a_tenth_and_at_least_one_stays_out_where_nobody_knows_whose_fault_it_is() -> None:
    assert len(excused_engines(fleet(8, 6))) == 5
    assert len(excused_engines(fleet(20, 6))) == 4


def test_up_to_half_stays_out_where_others_took_what_they_rejected() -> None:
    engines = fleet(8, 6)
    for engine in engines[1:4]:
        engine.breaker.contradicted = True
    assert excused_engines(engines) == {"engine-0", "engine-4", "engine-5"}
    for engine in engines[:6]:
        engine.breaker.contradicted = True
    assert len(excused_engines(engines)) == 2, "half of the pool carries on"
