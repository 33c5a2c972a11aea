from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from msgspec.structs import replace

from simulator.engine_cache.evictions import EVICTIONS
from simulator.engine_models.engine_events import BlocksRemoved, BlocksStored, EngineEvent, Finished, PrefillStarted
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.registry import ENGINE_MODELS, UnknownEngineModelError, build_engine
from simulator.engine_models.simulated_engine import PromptSequence, SimulatedEngine, TransferringEngine
from tests.simulator.engine_models.random_work import Driver

_PROFILE = EngineProfile(num_blocks=60, device_tokens=30_000, max_batched_tokens=2048, max_running=16)


@pytest.fixture(params=[(model, eviction) for model in sorted(ENGINE_MODELS) for eviction in EVICTIONS])
def build(request: pytest.FixtureRequest) -> Callable[[], SimulatedEngine]:
    """Create a new engine of each model with each eviction rule in turn."""
    model, eviction = request.param
    return lambda: ENGINE_MODELS[model](replace(_PROFILE, eviction=eviction))


def _arrivals() -> list[tuple[float, PromptSequence]]:
    rng = Random(6)
    arrivals, now = [], 0.0
    for number in range(120):
        now += rng.expovariate(2.0)
        own = tuple(1000 * (number + 1) + index for index in range(rng.randint(1, 12)))
        keys = (*range(rng.choice((0, 4, 8))), *own)
        tokens = len(keys) * 512 - rng.randint(0, 511)
        arrivals.append((now, PromptSequence(f"r{number}", keys, tokens, rng.randint(1, 300))))
    return arrivals


def _play(engine: SimulatedEngine, *, stepwise: bool) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    for at_s, sequence in _arrivals():
        while stepwise and (due := engine.next_event_time()) is not None and due <= at_s:
            events += engine.advance(due)
        events += engine.advance(at_s)
        engine.submit(sequence, at_s)
        engine.check()
    return events + engine.advance(1e9)


def test_the_engine_is_idle_until_a_request_arrives(build: Callable[[], SimulatedEngine]) -> None:
    engine = build()
    assert engine.next_event_time() is None
    assert engine.advance(3.0) == []
    assert (engine.running, engine.waiting, engine.cached_blocks, engine.kv_usage) == (0, 0, 0, 0.0)


def test_all_requests_are_served_and_events_are_in_order_of_time(build: Callable[[], SimulatedEngine]) -> None:
    events = _play(build(), stepwise=False)
    assert sorted(e.request_id for e in events if isinstance(e, Finished)) == sorted(
        s.request_id for _, s in _arrivals()
    )
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)


def test_the_same_work_produces_the_same_events_for_any_polling_interval(build: Callable[[], SimulatedEngine]) -> None:
    assert _play(build(), stepwise=True) == _play(build(), stepwise=False)


@pytest.mark.parametrize("model", sorted(ENGINE_MODELS))
def test_the_profile_determines_which_blocks_are_evicted(model: str) -> None:
    profiles = (_PROFILE, replace(_PROFILE, eviction="rlt"), replace(_PROFILE, eviction="rlt", eviction_seed=1))
    gone = [
        [
            event.keys
            for event in _play(ENGINE_MODELS[model](profile), stepwise=False)
            if isinstance(event, BlocksRemoved)
        ]
        for profile in profiles
    ]
    assert all(gone[one] != gone[other] for one, other in ((0, 1), (0, 2), (1, 2)))


def test_an_event_occurs_at_the_announced_time(build: Callable[[], SimulatedEngine]) -> None:
    engine = build()
    engine.submit(PromptSequence("a", (1, 2), 1024, 50), 5.0)
    assert engine.next_event_time() == 5.0
    silent = 0
    while (due := engine.next_event_time()) is not None:
        events = engine.advance(due)
        assert all(event.at_s == due for event in events)
        silent += not events
    assert silent <= 4, "the model wakes no more often than it must"


def test_blocks_from_another_engine_are_announced_and_count_as_hits(build: Callable[[], SimulatedEngine]) -> None:
    engine = build()
    assert isinstance(engine, TransferringEngine)
    stored = [event for event in engine.receive_blocks((1, 2), 0.0) if isinstance(event, BlocksStored)]
    assert [(event.keys, event.parent) for event in stored] == [((1, 2), None)]
    assert engine.receive_blocks((1, 2), 0.0) == []
    assert (engine.held_blocks((1, 2, 3)), engine.cached_blocks) == (2, 2)
    engine.submit(PromptSequence("a", (1, 2, 3), 1536), 0.0)
    assert [e.cached_tokens for e in engine.advance(1e9) if isinstance(e, PrefillStarted)] == [1024]


def test_an_aborted_request_is_removed(build: Callable[[], SimulatedEngine]) -> None:
    engine = build()
    for name in "abc":
        engine.submit(PromptSequence(name, (), 2000, 100), 0.0)
    engine.advance(0.2)
    assert [engine.abort(name, 0.2) for name in "abcab"].count(True) in (2, 3)
    engine.check()
    assert engine.advance(1e9) == []
    assert (engine.running, engine.waiting) == (0, 0)


@pytest.mark.parametrize("name", sorted(ENGINE_MODELS))
def test_every_model_runs_and_can_transfer(name: str) -> None:
    engine = build_engine(name, EngineProfile(block_tokens=16, num_blocks=64))
    driver = Driver(engine)
    driver.play([("submit", [1, 2], 3, 1, 0), ("wait", 5.0), ("submit", [1, 2], 9, 1, 0)])
    assert isinstance(engine, TransferringEngine)
    assert engine.held_blocks((77,)) == 0


def test_an_unknown_model_lists_the_known_ones() -> None:
    with pytest.raises(UnknownEngineModelError, match=r"abacus.*reference"):
        build_engine("abacus", EngineProfile())
