from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted, Token
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.pd import DecodeRole, PrefillDecodeEngine, PrefillRole
from simulator.engine_models.simulated_engine import PromptSequence
from tests.simulator.engine_models.random_work import BLOCK, MOVES, Driver

_LATE = 1e9
_PROFILE = EngineProfile(link_bytes_per_s=57_344 * 1e6)
"""The link takes 1 µs per token."""


def _at(events: list[EngineEvent], kind: type, name: str) -> float:
    return next(e.at_s for e in events if isinstance(e, kind) and getattr(e, "request_id", "") == name)


def test_decoding_starts_when_the_last_layer_has_arrived() -> None:
    engine = PrefillDecodeEngine(_PROFILE)
    engine.submit(PromptSequence("a", (), 2800, 3), 0.0)
    events = engine.advance(_LATE)
    first = _PROFILE.prefill_s(2800, 0)
    assert _at(events, FirstTokenEvent, "a") == pytest.approx(first)
    steps = _PROFILE.step_s(1, 2801) + _PROFILE.step_s(1, 2802)
    assert _at(events, Finished, "a") == pytest.approx(first + 1e-4 + steps)


def test_prefill_continues_while_others_decode() -> None:
    engine = PrefillDecodeEngine(_PROFILE, emit_tokens=True)
    engine.submit(PromptSequence("a", (), 1000, 500), 0.0)
    engine.submit(PromptSequence("b", (), 20_000, 2), 0.0)
    events = engine.advance(_LATE)
    assert _at(events, PrefillStarted, "b") == _at(events, FirstTokenEvent, "a")
    tokens = [e.at_s for e in events if isinstance(e, Token) and e.request_id == "a"]
    gaps = [later - sooner for sooner, later in pairwise(tokens)]
    assert max(gaps) < 0.017, "no decode step waits for a prefill"


def test_a_response_of_one_token_needs_no_decode_device() -> None:
    engine = PrefillDecodeEngine(_PROFILE)
    engine.submit(PromptSequence("a", (), 1000, 1), 0.0)
    events = engine.advance(_LATE)
    assert _at(events, Finished, "a") == _at(events, FirstTokenEvent, "a")


def test_a_sequence_whose_kv_has_arrived_waits_until_it_fits() -> None:
    engine = PrefillDecodeEngine(EngineProfile(device_tokens=2000))
    engine.submit(PromptSequence("a", (), 1000, 100), 0.0)
    engine.submit(PromptSequence("b", (), 1000, 2), 0.0)
    engine.advance(0.3)
    assert (engine.running, engine.waiting) == (1, 1)
    assert engine.kv_usage == pytest.approx(0.55)
    events = engine.advance(_LATE)
    assert _at(events, Finished, "b") == pytest.approx(_at(events, Finished, "a") + _PROFILE.step_s(1, 1001))


def test_a_request_too_large_for_decode_is_rejected_before_prefill() -> None:
    engine = PrefillDecodeEngine(EngineProfile(device_tokens=1000))
    with pytest.raises(ValueError, match="never fit"):
        engine.submit(PromptSequence("a", (), 1000, 2), 0.0)


def test_a_running_request_cannot_be_submitted_again() -> None:
    engine = PrefillDecodeEngine(_PROFILE)
    engine.submit(PromptSequence("a", (), 1000, 100), 0.0)
    engine.advance(0.2)
    with pytest.raises(ValueError, match="already"):
        engine.submit(PromptSequence("a", (), 1000, 100), 0.2)


def test_prefill_and_decode_roles_can_be_combined_separately() -> None:
    senders = [PrefillRole(_PROFILE), PrefillRole(_PROFILE)]
    decode = DecodeRole(_PROFILE)
    handovers = []
    for number, sender in enumerate(senders):
        sender.submit(PromptSequence(str(number), (), 1000 * (number + 1), 5), 0.0)
        kinds = [type(event) for event in sender.advance(_LATE)]
        assert kinds == [PrefillStarted, FirstTokenEvent]
        handovers += sender.take_handovers()
        assert sender.take_handovers() == []
    for handover in handovers:
        decode.submit(handover.sequence, handover.ready_s)
    assert [event.request_id for event in decode.advance(_LATE) if isinstance(event, Finished)] == ["0", "1"]


_SMALL = EngineProfile(block_tokens=BLOCK, num_blocks=12, max_running=3, device_tokens=220, link_bytes_per_s=1e8)


@given(MOVES)
@settings(max_examples=150, deadline=None)
def test_random_work_keeps_every_invariant_and_loses_nothing(moves: list[tuple[Any, ...]]) -> None:
    Driver(PrefillDecodeEngine(_SMALL, emit_tokens=True)).play(moves)


@given(MOVES)
@settings(max_examples=100, deadline=None)
def test_batched_steps_give_the_same_results_as_single_steps(moves: list[tuple[Any, ...]]) -> None:
    at_once, single = Driver(PrefillDecodeEngine(_SMALL)), Driver(PrefillDecodeEngine(_SMALL, emit_tokens=True))
    at_once.play(moves)
    single.play(moves)
    story = [event for event in single.events if not isinstance(event, Token)]
    assert [(type(event), event.at_s) for event in story] == [
        (type(event), pytest.approx(event.at_s, abs=1e-9)) for event in at_once.events
    ]
