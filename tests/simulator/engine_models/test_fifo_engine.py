from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstTokenEvent,
    PrefillStarted,
    TierChanged,
    Token,
    WindowChanged,
)
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import EngineModel
from simulator.engine_models.simulated_engine import PromptSequence
from tests.simulator.engine_models.random_work import chained

_LATE = 1e9


def _of(events: list[EngineEvent], kind: type) -> list[EngineEvent]:
    return [event for event in events if isinstance(event, kind)]


def _until(engine: EngineModel, request_id: str) -> list[EngineEvent]:
    """Advance time until a request has its first token, and return the events."""
    events: list[EngineEvent] = []
    while not any(isinstance(event, FirstTokenEvent) and event.request_id == request_id for event in events):
        at_s = engine.next_event_time()
        assert at_s is not None
        events += engine.advance(at_s)
    return events


def _sequence(
    name: str, keys: tuple[int, ...] = (), prompt: int = 1000, output: int = 1, **more: int
) -> PromptSequence:
    return PromptSequence(name, keys, prompt, output, **more)


def test_an_empty_engine_has_no_events() -> None:
    model = EngineModel(EngineProfile())
    assert model.next_event_time() is None
    assert model.advance(5.0) == []


def test_a_cold_prompt_of_9585_tokens_gets_its_first_token_after_0_87_seconds() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("a", prompt=9585), 1.0)
    assert model.next_event_time() == 1.0
    first = _of(model.advance(_LATE), FirstTokenEvent)[0]
    assert isinstance(first, FirstTokenEvent)
    assert first.at_s == pytest.approx(1.87, abs=0.005)


def test_prefills_run_one_at_a_time_in_order_of_arrival() -> None:
    model = EngineModel(EngineProfile())
    for name in "abc":
        model.submit(_sequence(name), 0.0)
    one = EngineProfile().prefill_s(1000, 0)
    firsts = _of(model.advance(_LATE), FirstTokenEvent)
    assert [(e.request_id, e.at_s) for e in firsts if isinstance(e, FirstTokenEvent)] == [
        ("a", pytest.approx(one)),
        ("b", pytest.approx(2 * one)),
        ("c", pytest.approx(3 * one)),
    ]


def test_lower_priority_numbers_go_first_but_only_after_their_arrival() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("first", prompt=20_000), 0.0)
    model.submit(_sequence("second"), 0.1)
    model.submit(_sequence("urgent", priority=-5), 0.2)
    order = [e.request_id for e in _of(model.advance(_LATE), FirstTokenEvent) if isinstance(e, FirstTokenEvent)]
    assert order == ["first", "urgent", "second"]


def test_a_late_submission_does_not_start_in_the_past() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("a"), 0.0)
    model.submit(_sequence("b"), 0.0)
    model.submit(_sequence("urgent", priority=-5), 0.15)
    starts = [e.request_id for e in _of(model.advance(_LATE), PrefillStarted) if isinstance(e, PrefillStarted)]
    assert starts == ["a", "b", "urgent"]


def test_hits_are_matched_at_the_start_and_blocks_stored_at_the_end() -> None:
    model = EngineModel(EngineProfile())
    keys = (1, 2, 3)
    model.submit(_sequence("a", keys, 1536), 0.0)
    model.advance(0.05)
    assert model.cached_blocks == 0, "a prefill that still runs has stored nothing"
    model.submit(_sequence("b", keys, 1536), 0.05)
    events = model.advance(_LATE)
    started = {e.request_id: e.cached_tokens for e in _of(events, PrefillStarted) if isinstance(e, PrefillStarted)}
    assert started == {"b": 1536}, "b arrived while a ran, but started after a's blocks were stored"
    assert model.cached_blocks == 3


def test_only_new_blocks_are_announced_with_their_parent() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("a", (1, 2), 1024), 0.0)
    model.submit(_sequence("b", (1, 2, 7), 1536), 0.0)
    stored = _of(model.advance(_LATE), BlocksStored)
    assert [(e.first_block, e.keys, e.parent) for e in stored if isinstance(e, BlocksStored)] == [
        (0, (1, 2), None),
        (2, (7,), 2),
    ]


def test_eviction_removes_the_tail_of_the_oldest_prompt() -> None:
    model = EngineModel(EngineProfile(num_blocks=3))
    model.submit(_sequence("a", (1, 2), 1024), 0.0)
    model.submit(_sequence("b", (3, 4), 1024), 0.0)
    events = model.advance(_LATE)
    removed = _of(events, BlocksRemoved)
    assert [e.keys for e in removed if isinstance(e, BlocksRemoved)] == [(2,)]
    assert events.index(removed[0]) < events.index(_of(events, BlocksStored)[1]), "room is made first"


def test_running_sequences_keep_their_blocks_and_a_prompt_that_does_not_fit_waits() -> None:
    model = EngineModel(EngineProfile(num_blocks=4))
    model.submit(_sequence("long", (1, 2, 3), 1536, output=50), 0.0)
    model.submit(_sequence("next", (8, 9), 1024), 0.0)
    events = model.advance(_LATE)
    finished = next(e for e in events if isinstance(e, Finished) and e.request_id == "long")
    started = next(e for e in events if isinstance(e, PrefillStarted) and e.request_id == "next")
    assert started.at_s >= finished.at_s
    assert [e.keys for e in events if isinstance(e, BlocksRemoved)] == [(3,)]


def test_loaded_blocks_are_available_at_the_prefill_even_if_the_engine_was_full() -> None:
    engine = EngineModel(EngineProfile(num_blocks=4))
    second = (5, 6, 7, 8)
    engine.submit(PromptSequence("a", (1, 2, 3), 3 * 512, 4), 0.0)
    _until(engine, "a")
    engine.receive_blocks(second[:3], engine.next_event_time() or 0.0)
    assert engine.held_blocks(second) == 1, "three of four blocks are running"
    engine.submit(PromptSequence("b", second, 4 * 512, 1, loaded_blocks=3), engine.next_event_time() or 0.0)
    events = _until(engine, "b")
    assert [item.cached_tokens for item in _of(events, PrefillStarted) if item.request_id == "b"] == [3 * 512]
    stored = [item for item in _of(events, BlocksStored) if item.request_id == "b"]
    assert [(item.first_block, item.keys, item.loaded) for item in stored] == [
        (1, second[1:3], True),
        (3, second[3:], False),
    ]
    engine.check()


def test_the_number_of_running_sequences_is_bounded() -> None:
    model = EngineModel(EngineProfile(max_running=2))
    for name in "abc":
        model.submit(_sequence(name, output=5), 0.0)
    events = model.advance(_LATE)
    third = next(e for e in events if isinstance(e, PrefillStarted) and e.request_id == "c")
    first_done = next(e for e in events if isinstance(e, Finished))
    assert third.at_s >= first_done.at_s


def test_prefill_precedes_decode_and_running_sequences_step_together() -> None:
    profile = EngineProfile()
    model = EngineModel(profile)
    model.submit(_sequence("a", output=3), 0.0)
    model.submit(_sequence("b", output=3), 0.0)
    prefilled = 2 * profile.prefill_s(1000, 0)
    step = profile.step_s(2, 2002)
    tokens = [(e.request_id, e.index, e.at_s) for e in model.advance(_LATE) if isinstance(e, Token)]
    assert tokens[:2] == [("a", 1, pytest.approx(prefilled + step)), ("b", 1, pytest.approx(prefilled + step))]
    assert [index for _, index, _ in tokens] == [1, 1, 2, 2]


def test_an_aborted_prefill_frees_the_engine_immediately_and_stores_nothing() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("a", (1, 2), 20_000), 0.0)
    model.submit(_sequence("b"), 0.0)
    model.advance(0.5)
    assert model.abort("a", 0.5)
    assert model.cached_blocks == 0
    starts = [e.at_s for e in model.advance(_LATE) if isinstance(e, PrefillStarted)]
    assert starts == [0.5]


@pytest.mark.parametrize("at_s", [0.0, 0.01, 0.15, 1.0])
def test_an_aborted_request_is_removed_from_any_stage(at_s: float) -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("other", output=200), 0.0)
    model.submit(_sequence("a", (1,), output=200), 0.0)
    model.advance(at_s)
    assert model.abort("a", at_s)
    model.check()
    assert not model.abort("a", at_s), "aborting twice is harmless"
    assert all(getattr(event, "request_id", "") != "a" for event in model.advance(_LATE))
    assert (model.running, model.waiting, model.kv_usage) == (0, 0, 0.0)


def test_usage_counts_blocks_of_running_sequences_only() -> None:
    model = EngineModel(EngineProfile(num_blocks=10))
    model.submit(_sequence("a", (1, 2), 1024, output=100), 0.0)
    model.advance(0.5)
    assert model.kv_usage == pytest.approx(0.2)
    model.advance(_LATE)
    assert (model.kv_usage, model.cached_blocks) == (0.0, 2)


def test_the_cache_can_be_reset_only_while_nothing_runs() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("a", (1, 2), 1024, output=100), 0.0)
    model.advance(0.5)
    assert not model.reset_cache()
    model.advance(_LATE)
    assert model.reset_cache()
    assert model.cached_blocks == 0


def test_time_never_runs_backward() -> None:
    model = EngineModel(EngineProfile())
    model.advance(2.0)
    with pytest.raises(ValueError, match="backwards"):
        model.submit(_sequence("a"), 1.0)


@pytest.mark.parametrize(
    ("sequence", "reason"),
    [
        (_sequence("a", prompt=0), "at least one"),
        (_sequence("a", output=0), "at least one"),
        (_sequence("a", (1, 2, 3)), "never fit"),
    ],
)
def test_a_sequence_that_can_never_run_is_rejected(sequence: PromptSequence, reason: str) -> None:
    model = EngineModel(EngineProfile(num_blocks=2))
    with pytest.raises(ValueError, match=reason):
        model.submit(sequence, 0.0)


def test_a_request_cannot_be_submitted_twice() -> None:
    model = EngineModel(EngineProfile())
    model.submit(_sequence("a"), 0.0)
    with pytest.raises(ValueError, match="already"):
        model.submit(_sequence("a"), 0.0)


_PROMPTS = st.lists(st.integers(0, 2), max_size=5)
_MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), _PROMPTS, st.integers(1, 6), st.integers(-1, 1)),
        st.tuples(st.just("wait"), st.floats(0, 0.4)),
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("reset")),
    ),
    max_size=40,
)


@given(_MOVES)
@settings(max_examples=60, deadline=None)
def test_random_work_keeps_every_invariant_and_loses_nothing(moves: list[tuple]) -> None:
    model = EngineModel(EngineProfile(num_blocks=6, max_running=3, block_tokens=16))
    now, number, aborted = 0.0, 0, 0
    events: list[EngineEvent] = []
    held: set[int] = set()
    for move in moves:
        if move[0] == "submit":
            keys = chained(move[1])
            model.submit(PromptSequence(str(number), keys, 16 * len(keys) + 3, move[2], move[3]), now)
            number += 1
        elif move[0] == "wait":
            now += move[1]
            events += model.advance(now)
        elif move[0] == "abort":
            aborted += model.abort(str(move[1]), now)
        elif model.reset_cache():
            held.clear()
        model.check()
    events += model.advance(now + 1e6)
    model.check()
    finished = [event for event in events if isinstance(event, Finished)]
    assert len(finished) + aborted == number
    times = [event.at_s for event in events]
    assert times == sorted(times)


@given(_MOVES)
@settings(max_examples=40, deadline=None)
def test_announced_blocks_equal_the_cached_ones(moves: list[tuple]) -> None:
    model = EngineModel(EngineProfile(num_blocks=6, max_running=3, block_tokens=16))
    held: set[int] = set()
    for number, move in enumerate(moves):
        if move[0] == "submit":
            model.submit(PromptSequence(str(number), chained(move[1]), 99, move[2]), float(number))
        for event in model.advance(float(number) + 0.9):
            if isinstance(event, BlocksStored):
                assert held.isdisjoint(event.keys), "a block is announced once"
                held.update(event.keys)
            elif isinstance(event, BlocksRemoved):
                assert held.issuperset(event.keys)
                held.difference_update(event.keys)
        assert len(held) == model.cached_blocks


def test_the_same_submissions_produce_the_same_events_for_any_polling_interval() -> None:
    coarse, fine = EngineModel(EngineProfile()), EngineModel(EngineProfile())
    for model in (coarse, fine):
        for number in range(5):
            model.submit(_sequence(str(number), (1, 2 + number), 1024, output=20), 0.0)
    stepwise: list[EngineEvent] = []
    while (due := fine.next_event_time()) is not None:
        stepwise += fine.advance(due)
    assert stepwise == coarse.advance(_LATE)


def test_copies_in_cpu_memory_are_loaded_after_the_cached_prefix_and_take_time() -> None:
    profile = EngineProfile(num_blocks=4, cpu_blocks=6, cpu_load_per_token_s=1e-5)
    engine, prompt = EngineModel(profile), (1, 2, 3)
    engine.submit(PromptSequence("a", prompt, 1600), 0.0)
    first = _until(engine, "a")
    assert [(item.stored, item.removed) for item in _of(first, TierChanged)] == [(prompt, ())]
    engine.submit(PromptSequence("b", (4, 5, 6), 1600), engine.next_event_time() or 10.0)
    pushed = _until(engine, "b")
    assert [item.keys for item in _of(pushed, BlocksRemoved)] == [(3, 2)]
    engine.submit(PromptSequence("c", prompt, 1600), 20.0)
    events = _until(engine, "c")
    assert [item.cached_tokens for item in _of(events, PrefillStarted)] == [3 * 512]
    took = next(item.at_s for item in _of(events, FirstTokenEvent)) - 20.0
    assert took == pytest.approx(profile.prefill_s(1600, 3 * 512) + 2 * 512 * 1e-5)
    assert [(item.first_block, item.keys, item.loaded) for item in _of(events, BlocksStored)] == [(1, (2, 3), True)]
    assert not _of(events, TierChanged), "what comes from there is there already"
    engine.submit(PromptSequence("d", (7, 8), 1024, setup_s=0.5), 30.0)
    events = _until(engine, "d")
    assert [(item.stored, item.removed) for item in _of(events, TierChanged)] == [((7, 8), (6, 5))]
    assert next(item.at_s for item in _of(events, FirstTokenEvent)) == pytest.approx(30.5 + profile.prefill_s(1024, 0))
    assert engine.reset_cache()
    engine.submit(PromptSequence("e", prompt, 1600), 40.0)
    assert [item.cached_tokens for item in _of(_until(engine, "e"), PrefillStarted)] == [0]
    engine.check()


def test_a_window_keeps_blocks_before_prompt_ends_and_evicts_separately() -> None:
    profile = EngineProfile(block_tokens=4, num_blocks=40, recompute_last_block=True)
    engine = EngineModel(profile, window=6)

    def run(name: str, keys: tuple[int, ...], now: float) -> tuple[int, WindowChanged]:
        engine.submit(PromptSequence(name, keys, 4 * len(keys) + 1), now)
        events = _until(engine, name)
        engine.check()
        (change,) = _of(events, WindowChanged)
        return _of(events, PrefillStarted)[0].cached_tokens // 4, change

    hit, change = run("a", (1, 2, 3, 4, 5, 6), 0.0)
    assert (hit, change.first_block, change.positions, change.removed) == (0, 0, (4, 5), ())
    # Full attention has three blocks, of which the window is kept from now on.
    hit, change = run("b", (1, 2, 3, 7, 8, 9), 10.0)
    assert (hit, change.first_block, change.positions, change.removed) == (0, 0, (1, 2, 4, 5), (6,))
    hit, change = run("c", (1, 2, 3, 10), 20.0)
    assert (hit, change.first_block, change.positions, change.removed) == (3, 3, (3,), (5,))
    # Its last block has left the window, and full attention has all of them.
    hit, change = run("d", (1, 2, 3, 4, 5, 6), 30.0)
    assert (hit, change.first_block, change.positions, change.removed) == (3, 3, (4, 5), (9, 8))
    assert engine.reset_cache()
    assert run("e", (1, 2, 3, 4, 5, 6), 40.0)[0] == 0


def test_running_tokens_are_those_of_decoding_sequences() -> None:
    model = EngineModel(EngineProfile(), emit_tokens=False)
    model.submit(_sequence("a", output=60), 0.0)
    assert model.running_tokens == 0
    _until(model, "a")
    assert model.running_tokens == 1
    model.advance(_LATE)
    assert model.running_tokens == 0
    assert not model.running
