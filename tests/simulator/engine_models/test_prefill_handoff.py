"""An engine that hands prompts over: held blocks, hold time, and the cost of a prompt taken over."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent, PrefillStarted
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.prefill_handoff import KvLink, PrefillHandoffEngine
from simulator.engine_models.simulated_engine import PromptSequence

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


_PROFILE = EngineProfile(layers=10, kv_bytes_per_token=1000, link_bytes_per_s=1e6)
"""1 ms per token, 0.1 ms per token and layer."""


def test_after_a_slow_prefill_only_the_last_layer_remains_to_be_sent() -> None:
    assert KvLink(_PROFILE).send(0, 1000, 5.0, 15.0) == pytest.approx(15.1)


def test_a_slow_link_sends_from_the_first_layer_on() -> None:
    assert KvLink(_PROFILE).send(0, 1000, 5.0, 5.5) == pytest.approx(5.05 + 1.0)


def test_cached_tokens_are_sent_immediately() -> None:
    assert KvLink(_PROFILE).send(400, 100, 5.0, 5.2) == pytest.approx(5.0 + 0.4 + 0.1)
    assert KvLink(_PROFILE).send(400, 100, 5.0, 8.0) == pytest.approx(8.0 + 0.01)


def test_one_sender_sends_prompts_one_after_another() -> None:
    link = KvLink(_PROFILE)
    assert link.send(0, 1000, 0.0, 0.0) == pytest.approx(1.0)
    assert link.send(0, 500, 0.0, 0.2) == pytest.approx(1.5)
    assert link.send(0, 500, 9.0, 9.0) == pytest.approx(9.5)


def test_latency_is_added_to_the_transfer_time() -> None:
    link = KvLink(EngineProfile(layers=1, kv_bytes_per_token=1, link_bytes_per_s=1e6, link_latency_s=0.25))
    assert link.send(0, 1, 0.0, 1.0) == pytest.approx(1.250001)


@given(st.floats(0, 5), st.floats(0, 5), st.integers(0, 5000), st.integers(1, 5000), st.floats(0, 9))
def test_the_closed_form_equals_sending_layer_by_layer(
    started: float, took: float, hit: int, computed: int, free_at: float
) -> None:
    link = KvLink(_PROFILE)
    link.free_at = free_at
    sent = max(free_at, started) + hit * 1e-3
    for layer in range(10):
        sent = max(sent, started + took * (layer + 1) / 10) + computed * 1e-4
    assert link.send(hit, computed, started, started + took) == pytest.approx(sent, abs=1e-9)
