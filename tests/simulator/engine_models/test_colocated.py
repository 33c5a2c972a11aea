from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted, Token
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import DEVICE_TOKENS, EngineModel, colocated
from simulator.engine_models.simulated_engine import PromptSequence
from tests.simulator.engine_models.random_work import BLOCK, MOVES, Driver

_LATE = 1e9
_SMALL = EngineProfile(block_tokens=BLOCK, num_blocks=12, max_running=3, device_tokens=220)


def _at(events: list[EngineEvent], kind: type, name: str) -> float:
    return next(e.at_s for e in events if isinstance(e, kind) and getattr(e, "request_id", "") == name)


def test_decode_steps_follow_the_formula_of_the_study() -> None:
    engine = colocated(EngineProfile())
    engine.submit(PromptSequence("a", (), 1000, 11), 0.0)
    events = engine.advance(_LATE)
    first = 0.010 + 0.08 + 2e-9 * 1000 * 500
    assert _at(events, FirstTokenEvent, "a") == pytest.approx(first)
    steps = sum(0.015 + 0.0001 + 30e-9 * (1001 + step) for step in range(10))
    assert _at(events, Finished, "a") == pytest.approx(first + steps)


def test_a_prefill_that_does_not_fit_waits_for_a_running_request_to_end() -> None:
    engine = colocated(EngineProfile(device_tokens=2500))
    engine.submit(PromptSequence("a", (), 1000, 200), 0.0)
    engine.submit(PromptSequence("b", (), 1000, 100), 0.0)
    engine.submit(PromptSequence("c", (), 300, 1), 0.0)
    events = engine.advance(_LATE)
    assert _at(events, PrefillStarted, "b") == _at(events, FirstTokenEvent, "a"), "2,300 of 2,500 tokens fit"
    assert _at(events, PrefillStarted, "c") == _at(events, Finished, "b")
    assert _at(events, Finished, "b") < _at(events, Finished, "a")


def test_the_device_holds_300000_tokens_unless_the_profile_says_otherwise() -> None:
    assert colocated(EngineProfile()).profile.device_tokens == DEVICE_TOKENS == 300_000
    assert colocated(EngineProfile(device_tokens=5)).profile.device_tokens == 5


def test_a_request_larger_than_the_device_is_rejected() -> None:
    with pytest.raises(ValueError, match="never fit"):
        colocated(EngineProfile(device_tokens=100)).submit(PromptSequence("a", (), 90, 11), 0.0)


def test_an_arrival_during_batched_steps_is_handled_after_the_running_step() -> None:
    profile = EngineProfile(step_per_context_token_s=0.0, step_per_sequence_s=0.0, step_base_s=0.02)
    for advanced in (True, False):
        engine = colocated(profile)
        engine.submit(PromptSequence("a", (), 1000, 1000), 0.0)
        first = profile.prefill_s(1000, 0)
        if advanced:
            engine.advance(first + 0.05)
        engine.submit(PromptSequence("b", (), 1000, 1), first + 0.05)
        assert _at(engine.advance(_LATE), PrefillStarted, "b") == pytest.approx(first + 0.06)


def test_thousands_of_tokens_need_few_operations() -> None:
    engine = colocated(EngineProfile())
    engine.submit(PromptSequence("a", (), 1000, 100_000), 0.0)
    operations = 0
    while (due := engine.next_event_time()) is not None:
        engine.advance(due)
        operations += 1
    assert operations <= 4


@given(MOVES)
@settings(max_examples=60, deadline=None)
def test_random_work_keeps_every_invariant_and_loses_nothing(moves: list[tuple[Any, ...]]) -> None:
    Driver(colocated(_SMALL)).play(moves)


@given(MOVES)
@settings(max_examples=60, deadline=None)
def test_batched_steps_give_the_same_results_as_single_steps(moves: list[tuple[Any, ...]]) -> None:
    at_once, single = Driver(colocated(_SMALL)), Driver(EngineModel(_SMALL))
    at_once.play(moves)
    single.play(moves)
    story = [event for event in single.events if not isinstance(event, Token)]
    assert [type(event) for event in at_once.events] == [type(event) for event in story]
    for ours, theirs in zip(at_once.events, story, strict=True):
        assert ours.at_s == pytest.approx(theirs.at_s, abs=1e-9)
        assert getattr(ours, "request_id", None) == getattr(theirs, "request_id", None)
