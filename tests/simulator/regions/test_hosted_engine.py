from __future__ import annotations

from msgspec.structs import replace

from simulator.engine_models.engine_events import EngineEvent, Finished, FirstTokenEvent
from simulator.regions.hosted_engine import HostedEngine, pooled_engines
from simulator.regions.region_request import EMPTY, PromptSegment, RegionRequest
from simulator.regions.region_run import engine_profile
from simulator.virtual_clock import VirtualClock


class Pair:
    """Two engines that share the memory of both, 1,600 tokens without reserves."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ends: dict[str, float] = {}
        profile = replace(engine_profile(800, 1.0), reserve_tokens=0)
        self.engines = [
            HostedEngine(str(at), "us", model, self.clock) for at, model in enumerate(pooled_engines(profile, 2))
        ]
        for engine in self.engines:
            engine.sharing, engine.publish = self.engines, self.note

    def note(self, engine: HostedEngine, events: list[EngineEvent]) -> None:
        self.ends |= {event.request_id: event.at_s for event in events if isinstance(event, Finished)}
        for event in events:
            if isinstance(event, FirstTokenEvent):
                assert engine.requests[event.request_id].first_token_s == event.at_s

    def send(self, at: int, name: str, prompt: int, answer: int, key: int) -> RegionRequest:
        asked = RegionRequest(
            EMPTY.then(PromptSegment(key, prompt)), PromptSegment(900 + key, answer), 1, "us", request_id=name
        )
        self.engines[at].arrive(asked)
        return asked


def test_an_engine_without_memory_waits_until_the_other_one_frees_some() -> None:
    pair = Pair()
    pair.send(0, "first", 1000, 100, key=1)
    waits = pair.send(1, "second", 1000, 10, key=2)
    pair.clock.run(60.0)
    assert waits.admitted_s == pair.ends["first"]
    assert pair.engines[0].produced + pair.engines[1].produced == 110
    for engine in pair.engines:
        engine.engine.check()
        assert engine.engine.kv_usage == 0


def test_a_prefix_computed_by_one_engine_is_a_hit_on_the_other() -> None:
    pair = Pair()
    pair.send(0, "first", 800, 1, key=1)
    pair.clock.run(10.0)
    assert pair.send(1, "second", 800, 1, key=1).cached_tokens == 0
    pair.clock.run(20.0)
    assert pair.engines[1].requests["second"].cached_tokens == 792
