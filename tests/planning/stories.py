"""Engines whose facts are a function of time, and their health in every round."""

from collections.abc import Callable, Iterator

import msgspec
from msgspec.structs import replace

from planning.documents.health_document import HealthDocument
from planning.engine_health.engine_health import plan_health
from planning.engine_health.health_memory import HealthMemory
from planning.engine_health.health_verdict import HealthPlan, HealthVerdict
from planning.facts.fleet_facts import EngineObservation
from tests.planning.pools import engine, pool

DOCUMENT = HealthDocument()
TICK_S = 1.0

Story = Callable[[float], EngineObservation]
"""From the moment to the facts of one engine at it."""


def well(name: str) -> Story:
    """Return an engine that prefills and decodes all the time."""

    def at(now_s: float) -> EngineObservation:
        return engine(
            name,
            now_s,
            running=4,
            dispatched=4,
            prefilling=1,
            streaming=3,
            longest_prefill_s=1.0,
            first_tokens_total=int(now_s),
            chunks_total=int(50 * now_s),
            prompt_tokens_total=1000 * now_s,
            generated_tokens_total=50 * now_s,
            rejected_share=0.02,
            rejected_samples=20,
            slowness=1.1,
            slowness_samples=20,
            tpot_s=0.03,
            tpot_samples=20,
        )

    return at


def after(start_s: float, name: str, **changes: object) -> Story:
    """Return an engine that is healthy until `start_s` and then differs by `changes`; callables get the time."""

    def at(now_s: float) -> EngineObservation:
        facts = well(name)(now_s)
        if now_s < start_s:
            return facts
        made = {key: value(now_s) if callable(value) else value for key, value in changes.items()}
        return replace(facts, **made)

    return at


def stuck(start_s: float, name: str, **changes: object) -> Story:
    """Return an engine that sends nothing after `start_s`; its counters stop too."""
    frozen = well(name)(start_s)
    counters = ("first_tokens_total", "chunks_total", "prompt_tokens_total", "generated_tokens_total")
    still = {counter: getattr(frozen, counter) for counter in counters}
    return after(start_s, name, **(still | changes))


def rounds(
    stories: list[Story], seconds: float, document: HealthDocument = DOCUMENT, start_s: float = 0.0
) -> Iterator[HealthPlan]:
    """Judge once per tick, with the memory encoded and decoded each time as between jobs."""
    memory = HealthMemory()
    for tick in range(int(seconds / TICK_S)):
        now_s = start_s + tick * TICK_S
        plan, after_round = plan_health(pool(now_s, tuple(story(now_s) for story in stories)), memory, document)
        memory = msgspec.json.decode(msgspec.json.encode(after_round), type=HealthMemory)
        assert memory == after_round
        yield plan


def first(stories: list[Story], state: str, name: str = "sick", seconds: float = 60.0) -> tuple[float, HealthVerdict]:
    for plan in rounds(stories, seconds):
        for verdict in plan.verdicts:
            if verdict.engine_id == name and verdict.state == state:
                return plan.at_s, verdict
    raise AssertionError(f"{name} never became {state}")


def others(count: int) -> list[Story]:
    return [well(f"e-{number}") for number in range(count)]


BEGIN = 20.0
