from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from simulator.engine_models.chunked import ChunkedEngine
from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstTokenEvent,
    PrefillStarted,
    Token,
)
from simulator.engine_models.engine_profile import EngineProfile, profile_named
from simulator.engine_models.simulated_engine import PromptSequence
from tests.simulator.engine_models.random_work import BLOCK, MOVES, Driver

_LATE = 1e9
_PLAIN = EngineProfile(
    prefill_base_s=0.01,
    prefill_per_token_s=1e-4,
    prefill_per_token_squared_s=0.0,
    prefill_per_hit_token_s=0.0,
    step_base_s=0.02,
    step_per_sequence_s=0.0,
    step_per_context_token_s=0.0,
    block_tokens=100,
    num_blocks=100,
    max_batched_tokens=1000,
)
"""A step with a prompt takes 10 ms and 0.1 ms per prompt token, one with decoding at least 20 ms."""


def _times(events: list[EngineEvent], kind: type, name: str) -> list[float]:
    return [e.at_s for e in events if isinstance(e, kind) and getattr(e, "request_id", "") == name]


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    engine = ChunkedEngine(_PLAIN)
    engine.submit(PromptSequence("a", tuple(range(25)), 2500), 0.0)
    events = engine.advance(_LATE)
    stored = [(e.at_s, e.first_block, len(e.keys), e.parent) for e in events if isinstance(e, BlocksStored)]
    assert stored == [
        (pytest.approx(0.11), 0, 10, None),
        (pytest.approx(0.22), 10, 10, 9),
        (pytest.approx(0.28), 20, 5, 19),
    ]
    assert _times(events, FirstTokenEvent, "a") == [pytest.approx(0.28)]


def test_chunks_together_cost_one_prefill_plus_their_base_costs() -> None:
    profile = EngineProfile(max_batched_tokens=1024)
    engine = ChunkedEngine(profile)
    engine.submit(PromptSequence("a", (), 9585), 0.0)
    chunks = 10
    expected = profile.prefill_s(9585, 0) + (chunks - 1) * profile.prefill_base_s
    assert _times(engine.advance(_LATE), FirstTokenEvent, "a") == [pytest.approx(expected)]


def test_running_sequences_continue_while_a_prompt_uses_the_remaining_budget() -> None:
    engine = ChunkedEngine(_PLAIN, emit_tokens=True)
    engine.submit(PromptSequence("a", (), 100, 50), 0.0)
    engine.submit(PromptSequence("b", (), 1998, 2), 0.02)
    events = engine.advance(_LATE)
    # Two steps of 999 prompt tokens and one of a's, 20 ms and 99.9 ms each.
    assert _times(events, Token, "a")[:3] == [pytest.approx(0.02 + 0.1199 * n) for n in (1, 2)] + [
        pytest.approx(0.02 + 0.2398 + 0.02)
    ]
    assert _times(events, FirstTokenEvent, "b") == [pytest.approx(0.02 + 0.2398)]


def test_with_prefill_first_running_sequences_wait_while_a_prompt_is_computed() -> None:
    engine = ChunkedEngine(replace(_PLAIN, prefill_first=True), emit_tokens=True)
    engine.submit(PromptSequence("a", (), 100, 50), 0.0)
    engine.submit(PromptSequence("b", (), 2000, 2), 0.02)
    events = engine.advance(_LATE)
    engine.check()
    # Two steps of 1,000 prompt tokens, 110 ms each, then one token of both.
    assert _times(events, FirstTokenEvent, "b") == [pytest.approx(0.24)]
    assert _times(events, Token, "a")[0] == _times(events, Token, "b")[0] == pytest.approx(0.26)
    assert [event.index for event in events if isinstance(event, Token) and event.request_id == "a"] == list(
        range(1, 50)
    )


def test_with_prefill_first_a_sequence_waits_for_a_prefix_that_is_being_computed() -> None:
    for prefill_first, hit_tokens in ((True, 300), (False, 0)):
        engine = ChunkedEngine(replace(_PLAIN, prefill_first=prefill_first))
        engine.submit(PromptSequence("a", (1, 2, 3), 310), 0.0)
        engine.submit(PromptSequence("b", (1, 2, 3), 310), 0.0)
        engine.submit(PromptSequence("c", (9,), 100), 0.0)
        started = {e.request_id: e for e in engine.advance(_LATE) if isinstance(e, PrefillStarted)}
        assert started["a"].at_s == started["c"].at_s == 0.0
        assert started["b"].cached_tokens == hit_tokens
        assert (started["b"].at_s > 0.0) == prefill_first


def test_a_prefill_batch_ends_at_the_budget() -> None:
    engine = ChunkedEngine(replace(_PLAIN, prefill_first=True))
    for name in ("a", "b", "c"):
        engine.submit(PromptSequence(name, (), 600), 0.0)
    starts = [event.at_s for event in engine.advance(_LATE) if isinstance(event, PrefillStarted)]
    # The second prompt's last 200 tokens are in the second batch, with all of the third.
    assert starts == [0.0, 0.0, pytest.approx(0.11)]


def test_a_sequence_starts_only_if_the_reserves_of_all_answers_fit() -> None:
    # 25 blocks: two prompts of 8, and two reserves of 4. A third prompt waits for the first answer to end.
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=25, reserve_tokens=400))
    for name in ("a", "b", "c"):
        engine.submit(PromptSequence(name, (), 800, 50), 0.0)
    events = engine.advance(_LATE)
    starts = {event.request_id: event.at_s for event in events if isinstance(event, PrefillStarted)}
    ends = {event.request_id: event.at_s for event in events if isinstance(event, Finished)}
    assert starts["b"] == 0.0
    assert starts["c"] == min(ends.values())


def test_answers_beyond_their_reserves_preempt_and_all_sequences_still_finish() -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=25, reserve_tokens=400))
    for name in ("a", "b", "c"):
        engine.submit(PromptSequence(name, (), 500, 1000), 0.0)
    events = engine.advance(_LATE)
    engine.check()
    assert engine.preemptions
    assert sorted(event.output_tokens for event in events if isinstance(event, Finished)) == [1000, 1000, 1000]
    assert engine.kv_usage == 0


def test_a_prompt_without_room_for_its_reserve_runs_alone() -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=10, reserve_tokens=400))
    engine.submit(PromptSequence("a", (), 900, 50), 0.0)
    engine.submit(PromptSequence("b", (), 100, 50), 0.0)
    events = engine.advance(_LATE)
    assert len([event for event in events if isinstance(event, Finished)]) == 2


def test_a_prompt_that_continues_an_answer_hits_the_answers_full_blocks() -> None:
    engine = ChunkedEngine(_PLAIN)
    engine.submit(PromptSequence("a", (1, 2), 250, 250, answer_keys=(3, 4)), 0.0)
    engine.advance(_LATE)
    engine.submit(PromptSequence("b", (1, 2, 3, 4, 5), 550), _LATE)
    events = engine.advance(2 * _LATE)
    # The answer's last token is not computed, so the block that it would fill is missing.
    assert [event.cached_tokens for event in events if isinstance(event, PrefillStarted)] == [400]
    engine.submit(PromptSequence("c", (9,), 150, 250), 2 * _LATE)
    engine.advance(3 * _LATE)
    engine.submit(PromptSequence("d", (9, 10, 11), 400), 3 * _LATE)
    assert [event.cached_tokens for event in engine.advance(4 * _LATE) if isinstance(event, PrefillStarted)] == [100]


def test_a_sequence_generates_its_tokens_one_step_after_another() -> None:
    engine = ChunkedEngine(_PLAIN)
    engine.submit(PromptSequence("a", (), 100, 60), 0.0)
    engine.advance(0.221)
    # A run of steps counts at its end, which an arrival brings forward.
    engine.submit(PromptSequence("b", (), 100, 60), 0.221)
    engine.advance(0.241)
    assert engine.running_tokens == 12
    engine.advance(_LATE)
    assert engine.running_tokens == 0


def test_the_l4_profile_computes_512_tokens_in_300_ms() -> None:
    engine = ChunkedEngine(profile_named("l4-8b"))
    engine.submit(PromptSequence("a", (), 512), 0.0)
    assert _times(engine.advance(_LATE), FirstTokenEvent, "a") == [pytest.approx(0.3, abs=0.001)]


def test_a_block_is_shared_as_soon_as_it_is_full() -> None:
    engine = ChunkedEngine(_PLAIN)
    keys = tuple(range(15))
    engine.submit(PromptSequence("a", keys, 1500), 0.0)
    engine.submit(PromptSequence("b", keys, 1500), 0.05)
    events = engine.advance(_LATE)
    hits = {e.request_id: e.cached_tokens for e in events if isinstance(e, PrefillStarted)}
    assert hits == {"a": 0, "b": 1000}, "a's first chunk, while a is under way"


def test_a_prompts_last_token_is_always_computed_and_a_partial_block_never_cached() -> None:
    engine = ChunkedEngine(_PLAIN)
    hits = []
    for number, prompt in enumerate((250, 300, 300)):
        engine.submit(PromptSequence(str(number), (1, 2, 3), prompt), float(number))
        events = engine.advance(number + 0.5)
        hits += [(e.cached_tokens, engine.cached_blocks) for e in events if isinstance(e, PrefillStarted)]
    assert hits == [(0, 2), (200, 3), (200, 3)]


def test_blocks_filled_by_a_response_are_cached_too() -> None:
    engine = ChunkedEngine(_PLAIN)
    engine.submit(PromptSequence("a", (1,), 150, 152), 0.0)
    stored = [e for e in engine.advance(_LATE) if isinstance(e, BlocksStored)]
    assert [(e.first_block, len(e.keys)) for e in stored] == [(0, 1), (1, 1), (2, 1)]
    assert stored[1].parent == 1
    assert stored[2].parent == stored[1].keys[0]
    assert engine.cached_blocks == 3


def test_the_latest_arrival_is_preempted_when_blocks_run_out_and_recomputed() -> None:
    profile = replace(_PLAIN, num_blocks=5)
    engine = ChunkedEngine(profile, emit_tokens=True)
    engine.submit(PromptSequence("old", (1, 2), 200, 150), 0.0)
    engine.submit(PromptSequence("new", (1, 9), 200, 90), 0.0)
    events = engine.advance(0.06)
    assert (engine.running, engine.waiting, engine.preemptions) == (1, 1, 1), "both need a fifth block"
    events += engine.advance(_LATE)
    assert len(_times(events, PrefillStarted, "new")) == len(_times(events, FirstTokenEvent, "new")) == 1
    assert [e.index for e in events if isinstance(e, Token) and e.request_id == "new"] == list(range(1, 90))


def test_a_higher_priority_is_admitted_first_and_preempted_last() -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=5, max_running=2))
    engine.submit(PromptSequence("low", (1, 2), 200, 150, 1), 0.0)
    engine.submit(PromptSequence("high", (8, 9), 200, 150, 0), 0.01)
    events = engine.advance(_LATE)
    assert engine.preemptions >= 1
    assert _times(events, Finished, "high") < _times(events, Finished, "low")


def test_free_memory_is_a_cache_until_it_is_used() -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=4))
    engine.submit(PromptSequence("a", (1, 2, 3), 300), 0.0)
    engine.submit(PromptSequence("b", (7, 8), 200), 1.0)
    events = engine.advance(_LATE)
    assert [e.keys for e in events if isinstance(e, BlocksRemoved)] == [(3,)]
    assert engine.kv_usage == 0.0
    assert engine.cached_blocks == 4


def test_blocks_from_another_engine_count_as_hits() -> None:
    engine = ChunkedEngine(_PLAIN)
    stored = engine.receive_blocks([1, 2], 0.0)
    assert [e.keys for e in stored if isinstance(e, BlocksStored)] == [(1, 2)]
    assert engine.held_blocks([1, 2, 3]) == 2
    engine.submit(PromptSequence("a", (1, 2, 3), 300), 0.0)
    assert [e.cached_tokens for e in engine.advance(_LATE) if isinstance(e, PrefillStarted)] == [200]


def test_loaded_blocks_are_available_at_the_start_even_if_the_engine_was_full() -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=5))
    engine.submit(PromptSequence("a", (1, 2, 3, 4), 400, 50), 0.0)
    engine.advance(0.06)
    second = (5, 6, 7, 8)
    engine.receive_blocks(second[:3], 0.06)
    assert engine.held_blocks(second) == 0, "all blocks are held or promised to the running sequence"
    engine.submit(PromptSequence("b", second, 450, 1, loaded_blocks=3), 0.06)
    events = engine.advance(_LATE)
    assert [e.cached_tokens for e in events if isinstance(e, PrefillStarted) and e.request_id == "b"] == [300]
    stored = [e for e in events if isinstance(e, BlocksStored) and e.request_id == "b"]
    assert [(e.first_block, e.keys, e.loaded) for e in stored] == [(0, second[:3], True), (3, second[3:], False)]
    engine.check()


def test_loaded_blocks_count_once_and_never_for_the_last_token() -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=5))
    engine.submit(PromptSequence("a", (1, 2), 200, 150, loaded_blocks=2), 0.0)
    assert [e.cached_tokens for e in engine.advance(0.0) if isinstance(e, PrefillStarted)] == [100]
    engine.submit(PromptSequence("b", (8, 9), 200, 150, loaded_blocks=2, priority=-1), 0.01)
    events = engine.advance(_LATE)
    assert engine.preemptions >= 1
    assert sum(isinstance(e, BlocksStored) and e.loaded for e in events) == 1, "a preempted sequence loads no more"
    assert {name for name in "ab" if _times(events, Finished, name)} == {"a", "b"}
    engine.check()


def test_more_running_sequences_than_budget_tokens_are_rejected() -> None:
    with pytest.raises(ValueError, match="max_running 256 is over max_batched_tokens 100"):
        ChunkedEngine(EngineProfile(max_batched_tokens=100))


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (450, 52)])
def test_a_sequence_that_can_never_run_is_rejected(prompt: int, output: int) -> None:
    engine = ChunkedEngine(replace(_PLAIN, num_blocks=5))
    with pytest.raises(ValueError, match=r"at least one|never fit"):
        engine.submit(PromptSequence("a", (), prompt, output), 0.0)
    engine.submit(PromptSequence("b", (), 450, 51), 0.0)
    assert len(_times(engine.advance(_LATE), Finished, "b")) == 1


_SMALL = EngineProfile(block_tokens=BLOCK, num_blocks=9, max_running=4, max_batched_tokens=40)


_SCHEDULERS = st.sampled_from([_SMALL, replace(_SMALL, prefill_first=True, reserve_tokens=2 * BLOCK)])


@given(MOVES, _SCHEDULERS)
@settings(max_examples=60, deadline=None)
def test_random_work_keeps_every_invariant_and_loses_nothing(
    moves: list[tuple[Any, ...]], profile: EngineProfile
) -> None:
    Driver(ChunkedEngine(profile, emit_tokens=True)).play(moves)


@given(MOVES, _SCHEDULERS)
@settings(max_examples=60, deadline=None)
def test_batched_steps_give_the_same_results_as_single_steps(
    moves: list[tuple[Any, ...]], profile: EngineProfile
) -> None:
    at_once, single = Driver(ChunkedEngine(profile)), Driver(ChunkedEngine(profile, emit_tokens=True))
    at_once.play(moves)
    single.play(moves)
    story = [event for event in single.events if not isinstance(event, Token)]
    assert [type(event) for event in at_once.events] == [type(event) for event in story]
    assert at_once.engine.preemptions == single.engine.preemptions
    for ours, theirs in zip(at_once.events, story, strict=True):
        assert ours.at_s == pytest.approx(theirs.at_s, abs=1e-9)
        assert getattr(ours, "request_id", None) == getattr(theirs, "request_id", None)
