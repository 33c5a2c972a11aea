from random import Random

import pytest

from simulator.engine_models.engine_events import EngineEvent, FirstTokenEvent
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.pipelined import PipelinedEngine, chunk_seconds
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import PromptSequence


def prompt(name: str, tokens: int, first: int = 0) -> PromptSequence:
    return PromptSequence(name, tuple(range(first, first + tokens // 512)), tokens)


def first_tokens(engine: ReferenceEngine) -> dict[str, float]:
    events: list[EngineEvent] = []
    while (due_s := engine.next_event_time()) is not None:
        events += engine.advance(due_s)
        engine.check()
    return {event.request_id: event.at_s for event in events if isinstance(event, FirstTokenEvent)}


def test_chunks_of_a_prompt_cost_its_prefill_plus_their_base_costs() -> None:
    profile = EngineProfile(max_batched_tokens=1000)
    seconds = chunk_seconds(profile, 10_240, 2048)
    assert len(seconds) == 9
    assert sum(seconds) == pytest.approx(profile.prefill_s(10_240, 2048) + 8 * profile.prefill_base_s)


def test_one_stage_with_one_chunk_equals_the_reference() -> None:
    profile = EngineProfile(max_batched_tokens=100_000)
    one, other = PipelinedEngine(profile), ReferenceEngine(profile)
    for engine in (one, other):
        for number in range(6):
            engine.submit(prompt(f"r{number}", 4096 + 512 * number, 100 * (number % 3)), 0.1 * number)
    assert first_tokens(one) == pytest.approx(first_tokens(other))


def test_a_long_prompt_speeds_up_by_almost_the_stage_count_and_short_ones_stay_fast() -> None:
    """128k tokens in 63 chunks over 4 stages: the pipeline is full except at its ends."""
    seconds = {}
    for stages in (1, 4):
        engine = PipelinedEngine(EngineProfile(max_batched_tokens=2048, pipeline_stages=stages))
        engine.submit(prompt("long", 131_072), 0.0)
        long_s = first_tokens(engine)["long"]
        engine.submit(prompt("short", 1024, 5000), 1000.0)
        seconds[stages] = long_s, first_tokens(engine)["short"] - 1000.0
    assert seconds[1][0] / seconds[4][0] > 3.5
    assert seconds[4][1] == pytest.approx(seconds[1][1])


def test_prompts_follow_each_other_through_the_pipeline() -> None:
    """Ten short prompts: the second enters when the first has left the first stage."""
    profile = EngineProfile(pipeline_stages=4)
    engine, one_s = PipelinedEngine(profile), profile.prefill_s(1024, 0)
    for number in range(10):
        engine.submit(prompt(f"r{number}", 1024, 10 * number), 0.0)
    ends = sorted(first_tokens(engine).values())
    assert ends[0] == pytest.approx(one_s)
    assert ends[-1] == pytest.approx(one_s + 9 * one_s / 4)


def test_an_aborted_prompt_produces_no_token_and_the_others_do() -> None:
    engine = PipelinedEngine(EngineProfile(pipeline_stages=2))
    for number in range(4):
        engine.submit(prompt(f"r{number}", 2048, 10 * number), 0.0)
    engine.advance(0.0)
    assert engine.abort("r0", 0.0)
    assert engine.abort("r2", 0.0)
    assert not engine.abort("r2", 0.0)
    assert set(first_tokens(engine)) == {"r1", "r3"}


def test_random_work_finishes_in_order() -> None:
    random, engine, now = Random(2), PipelinedEngine(EngineProfile(pipeline_stages=3, max_batched_tokens=1024)), 0.0
    for number in range(100):
        now += random.expovariate(4.0)
        engine.advance(now)
        engine.check()
        engine.submit(prompt(f"r{number}", random.randrange(512, 20_000), 100 * random.randrange(9)), now)
    ended = first_tokens(engine)
    assert engine.running == engine.waiting == 0
    assert ended
