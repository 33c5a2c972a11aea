"""An engine that hands prompts over: held blocks, hold time, and the cost of a prompt taken over."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted, Token
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.pd import DecodeRole, PrefillDecodeEngine, PrefillRole
from simulator.engine_models.prefill_handoff import PrefillHandoffEngine
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
@settings(max_examples=60, deadline=None)
def test_random_work_keeps_every_invariant_and_loses_nothing(moves: list[tuple[Any, ...]]) -> None:
    Driver(PrefillDecodeEngine(_SMALL, emit_tokens=True)).play(moves)


@given(MOVES)
@settings(max_examples=40, deadline=None)
def test_batched_steps_give_the_same_results_as_single_steps(moves: list[tuple[Any, ...]]) -> None:
    at_once, single = Driver(PrefillDecodeEngine(_SMALL)), Driver(PrefillDecodeEngine(_SMALL, emit_tokens=True))
    at_once.play(moves)
    single.play(moves)
    story = [event for event in single.events if not isinstance(event, Token)]
    assert [(type(event), event.at_s) for event in story] == [
        (type(event), pytest.approx(event.at_s, abs=1e-9)) for event in at_once.events
    ]


PROFILE = EngineProfile(block_tokens=16, num_blocks=64, recompute_last_block=True, kv_bytes_per_token=1 << 20)


def sequence(name: str, blocks: int = 10, output: int = 4) -> PromptSequence:
    keys = tuple(hash((name, number)) & (2**63 - 1) for number in range(blocks))
    return PromptSequence(name, keys, 16 * blocks, output)


def finish(engine: PrefillHandoffEngine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while (due := engine.next_event_time()) is not None:
        events += engine.advance(due)
        engine.check()
    return events


def test_a_prompt_handed_over_makes_one_token_and_stays_pinned_until_released() -> None:
    engine = PrefillHandoffEngine(PROFILE)
    engine.submit_handing(sequence("a", output=50), 0.0)
    ends = [item for item in finish(engine) if isinstance(item, Finished)]
    assert [end.output_tokens for end in ends] == [1]
    held = engine.held("a")
    assert held is not None
    assert (held.prompt_tokens, held.cached_tokens, len(held.keys)) == (160, 0, 10)
    assert engine.kv_usage > 0
    assert not engine.reset_cache()
    assert (engine.let_go("a"), engine.let_go("a")) == (True, False)
    assert (engine.kv_usage, engine.cached_blocks) == (0, 10)
    engine.check()


def test_the_last_layer_arrives_after_the_prefill_and_later_over_a_slower_link() -> None:
    ready = {}
    for bytes_per_s in (1e9, 1e12):
        engine = PrefillHandoffEngine(
            EngineProfile(block_tokens=16, kv_bytes_per_token=1 << 20, link_bytes_per_s=bytes_per_s)
        )
        engine.submit_handing(sequence("a"), 0.0)
        end = next(item.at_s for item in finish(engine) if isinstance(item, FirstTokenEvent))
        held = engine.held("a")
        assert held is not None
        assert held.ready_s > end
        ready[bytes_per_s] = held.ready_s
    assert ready[1e9] > ready[1e12]


def test_a_prompt_taken_over_costs_one_decode_step() -> None:
    computed, loaded = PrefillHandoffEngine(PROFILE), PrefillHandoffEngine(PROFILE)
    computed.submit(sequence("a"), 0.0)
    loaded.submit_loaded(sequence("a"), 0.0)
    events = finish(loaded)
    start = next(event for event in events if isinstance(event, PrefillStarted))
    assert start.cached_tokens == 159
    first = [next(e.at_s for e in made if isinstance(e, FirstTokenEvent)) for made in (events, finish(computed))]
    assert first[0] == PROFILE.step_s(1, 160) < first[1]
    assert loaded.cached_blocks == 10, "the blocks are there for the next request"


def test_an_aborted_request_leaves_nothing_held() -> None:
    engine = PrefillHandoffEngine(PROFILE)
    engine.submit_handing(sequence("a"), 0.0)
    engine.advance(0.001)
    assert engine.abort("a", 0.001)
    finish(engine)
    assert engine.held("a") is None
    assert engine.kv_usage == 0


def test_invariants_hold_under_random_operations() -> None:
    rng = Random(7)
    for _ in range(20):
        engine, now = PrefillHandoffEngine(PROFILE), 0.0
        for number in range(60):
            now += rng.random() * 0.05
            name = f"r{number}"
            kind = rng.randrange(5)
            if kind < 3:
                submit = (engine.submit, engine.submit_handing, engine.submit_loaded)[kind]
                submit(sequence(name, rng.randint(1, 40), rng.randint(1, 8)), now)
            elif kind == 3:
                engine.let_go(f"r{rng.randrange(60)}")
            else:
                engine.abort(f"r{rng.randrange(60)}", now)
            engine.advance(now)
            engine.check()
        finish(engine)
        assert (engine.running, engine.waiting) == (0, 0)
