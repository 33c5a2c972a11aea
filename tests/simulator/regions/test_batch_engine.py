from __future__ import annotations

import pytest

from simulator.regions.batch_engine import BatchEngine, BatchEngineProfile, KvMemory
from simulator.regions.prompt import EMPTY, Prompt, PromptSegment
from simulator.regions.region_request import RegionRequest
from simulator.virtual_clock import VirtualClock


def request(*segments: tuple[int, int], output: int = 10, key: int = 900) -> RegionRequest:
    prompt: Prompt = EMPTY.then(*[PromptSegment(name, tokens) for name, tokens in segments])
    return RegionRequest(prompt, PromptSegment(key, output), 1, "us")


class Bench:
    """One engine and the requests that ended there."""

    def __init__(self, kv_tokens: int = 30_000, speed: float = 1.0) -> None:
        self.clock, self.memory = VirtualClock(), KvMemory(kv_tokens)
        self.ended: list[RegionRequest] = []
        profile = BatchEngineProfile(speed=speed)
        self.engine = BatchEngine(
            "e", "us", self.clock, self.memory, profile, lambda ended, _: self.ended.append(ended)
        )

    def run(self, *requests: RegionRequest, until: float = 600.0) -> None:
        for item in requests:
            self.clock.after(0.0, self.engine.arrive, item)
        self.clock.run(until)


def test_a_prompt_of_512_tokens_takes_300_ms() -> None:
    bench, asked = Bench(), request((1, 512))
    bench.run(asked)
    assert asked.first_token_s == pytest.approx(0.3, abs=0.001)


def test_a_cached_prefix_is_not_recomputed_and_responses_join_the_cache() -> None:
    bench, first = Bench(), request((1, 512), output=100, key=2)
    bench.run(first)
    again = request((1, 512), (2, 100), (3, 50))
    bench.run(again, until=1200.0)
    assert again.cached_tokens == 612
    assert again.first_token_s == pytest.approx(600 + 0.02 + 50 * 0.000547)


def test_a_faster_engine_takes_less_time() -> None:
    bench, asked = Bench(speed=2.0), request((1, 512))
    bench.run(asked)
    assert asked.first_token_s == pytest.approx(0.15, abs=0.001)


def test_a_prefill_batch_ends_at_2048_tokens() -> None:
    bench, asked = Bench(), [request((number, 1000), key=900 + number) for number in range(1, 4)]
    bench.run(*asked)
    assert [round(item.admitted_s or 0, 2) for item in asked] == [0.0, 0.57, 0.57]


def test_a_request_sharing_a_prefix_with_the_forming_batch_waits_for_the_next() -> None:
    bench, first = Bench(), request((1, 700))
    bench.clock.after(0.0, bench.engine.arrive, first)
    siblings = [request((5, 300), (number, 10), key=900 + number) for number in (6, 7)]
    other = request((8, 20), key=908)
    for sibling in (*siblings, other):
        bench.clock.after(0.1, bench.engine.arrive, sibling)
    bench.clock.run(600.0)
    assert siblings[0].admitted_s == other.admitted_s
    assert siblings[1].cached_tokens == 300
    assert (siblings[1].admitted_s or 0) > (siblings[0].admitted_s or 0)


def test_requests_wait_while_prompts_and_reserves_do_not_fit() -> None:
    bench, asked = Bench(2_500), [request((number, 800), output=50, key=900 + number) for number in range(1, 4)]
    bench.run(*asked)
    assert asked[1].admitted_s == pytest.approx(0.4576)
    assert (asked[2].admitted_s or 0) >= (asked[0].ended_s or 0)
    assert len(bench.ended) == 3


def test_requests_that_outgrow_memory_are_retracted_and_still_finish() -> None:
    bench, asked = Bench(2_500), [request((number, 500), output=1000, key=900 + number) for number in range(1, 4)]
    bench.run(*asked)
    assert len(bench.ended) == 3
    assert bench.engine.produced == 3000
    assert (bench.memory.generated, bench.memory.running, bench.memory.cache.locked) == (0, 0, 0)
    bench.memory.cache.check()


def test_a_prompt_longer_than_memory_is_served_alone() -> None:
    bench = Bench(1_000)
    bench.run(request((1, 1500)), request((2, 100), key=901))
    assert len(bench.ended) == 2
