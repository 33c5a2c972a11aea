from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    FirstTokenEvent,
    PrefillStarted,
)
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import PromptSequence
from tests.simulator.engine_models.random_work import MOVES, chained

LATE = 1e9


def test_a_cold_prompt_takes_the_time_given_by_the_study() -> None:
    engine = ReferenceEngine(EngineProfile())
    engine.submit(PromptSequence("a", (), 9585), 1.0)
    first = next(event for event in engine.advance(LATE) if isinstance(event, FirstTokenEvent))
    assert first.at_s == pytest.approx(1.0 + 0.010 + 0.08e-3 * 9585 + 2e-9 * 9585 * 9585 / 2)


def test_hits_are_matched_at_the_start_and_blocks_stored_at_the_end() -> None:
    engine = ReferenceEngine(EngineProfile())
    engine.submit(PromptSequence("a", (1, 2), 1024), 0.0)
    engine.advance(0.05)
    engine.submit(PromptSequence("b", (1, 2), 1024), 0.05)
    assert engine.cached_blocks == 0
    started = [event for event in engine.advance(LATE) if isinstance(event, PrefillStarted)]
    assert [(item.request_id, item.cached_tokens) for item in started] == [("b", 1024)]


def test_only_one_token_is_produced_whatever_the_requested_length() -> None:
    engine = ReferenceEngine(EngineProfile())
    engine.submit(PromptSequence("a", (1,), 512, output_tokens=300), 0.0)
    engine.advance(LATE)
    assert (engine.running, engine.waiting, engine.next_event_time()) == (0, 0, None)


def test_received_blocks_are_held_and_announced_once() -> None:
    engine = ReferenceEngine(EngineProfile(num_blocks=3))
    assert engine.receive_blocks((1, 2), 1.0) == [BlocksStored("", 1.0, 0, (1, 2), None)]
    assert engine.receive_blocks((1, 2), 1.0) == []
    assert engine.receive_blocks((7, 8), 2.0) == [BlocksRemoved(2.0, (2,)), BlocksStored("", 2.0, 0, (7, 8), None)]
    assert engine.held_blocks((1, 2)) == 1


@pytest.mark.parametrize(("keys", "tokens", "reason"), [((), 0, "at least one"), ((1, 2, 3), 1536, "never fit")])
def test_a_prompt_that_can_never_run_is_rejected(keys: tuple[int, ...], tokens: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        ReferenceEngine(EngineProfile(num_blocks=2)).submit(PromptSequence("a", keys, tokens), 0.0)


def _play(engine: Any, moves: list[tuple[Any, ...]], waits: float) -> list[EngineEvent]:
    now, events = 0.0, []
    for number, move in enumerate(moves):
        if move[0] == "submit":
            keys = chained(move[1])
            engine.submit(PromptSequence(str(number), keys, 16 * len(keys) + move[2], 1, move[4]), now)
        elif move[0] == "wait":
            now += move[1] * waits
            events += engine.advance(now)
        else:
            engine.abort(str(move[1]), now)
        engine.check()
    return events + engine.advance(LATE)


@given(MOVES, st.sampled_from([0.0, 1.0]))
@settings(max_examples=60, deadline=None)
def test_results_equal_those_of_the_full_model_with_one_token_responses(
    moves: list[tuple[Any, ...]], waits: float
) -> None:
    profile = EngineProfile(num_blocks=8, block_tokens=16)
    assert _play(ReferenceEngine(profile), moves, waits) == _play(EngineModel(profile), moves, waits)
