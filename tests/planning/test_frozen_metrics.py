"""Frozen metrics are detected by responses that arrived meanwhile, then prove nothing, and cause no false alarms."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from planning.facts.fleet_facts import EngineObservation
from tests.planning.pools import engine
from tests.planning.stories import BEGIN, DOCUMENT, Story, after, first, others, rounds, stuck, well

FROZEN = {"running": 4, "prompt_tokens_total": 1000 * BEGIN, "generated_tokens_total": 50 * BEGIN}
"""Report of an engine whose metrics are frozen since BEGIN."""


def states_of(story: Story, seconds: float = 100.0) -> list[tuple[float, str, str]]:
    """Return (time, state, code) of an engine next to three healthy ones."""
    plans = rounds([*others(3), story], seconds)
    return [(plan.at_s, plan.verdicts[-1].state, plan.verdicts[-1].code) for plan in plans]


def test_frozen_counters_are_suspect_as_soon_as_enough_responses_arrived() -> None:
    at_s, verdict = first([*others(3), after(BEGIN, "sick", **FROZEN)], "suspect")
    assert (verdict.code, at_s) == ("frozen_metrics", BEGIN + 5.0)


def test_counters_that_froze_while_idle_are_detected_too() -> None:
    story = after(BEGIN, "sick", **FROZEN | {"running": 0, "dispatched": lambda now: int(now) % 2, "prefilling": 0})
    assert first([*others(3), story], "suspect")[1].code == "frozen_metrics"


def test_a_hanging_engine_with_frozen_metrics_is_quarantined_like_a_hanging_one() -> None:
    for begin_s in (BEGIN, BEGIN + 30.0):
        hung = stuck(begin_s, "sick")

        def story(now_s: float, hung: Story = hung) -> EngineObservation:
            return replace(hung(now_s), **FROZEN) if now_s >= BEGIN else hung(now_s)

        at_s, verdict = first([*others(3), story], "quarantined", seconds=90.0)
        assert (verdict.code, at_s) == ("no_progress", begin_s + DOCUMENT.stall_s + 2.0)


def test_frozen_metrics_do_not_prove_that_a_non_streaming_response_is_stuck() -> None:
    def story(now_s: float) -> EngineObservation:
        facts = after(BEGIN, "sick", **FROZEN)(now_s)
        if now_s < 40.0:
            return facts
        still = {"first_tokens_total": 40, "chunks_total": 2000, "longest_prefill_s": 0.0}
        return replace(facts, streaming=0, prefilling=0, dispatched=1, **still)

    states = states_of(story)
    assert {state for at_s, state, _ in states if at_s < 69.0} == {"healthy", "suspect"}
    assert states[71][1:] == ("quarantined", "no_progress")


def test_a_frozen_engine_without_recent_requests_is_not_considered_stuck() -> None:
    def story(now_s: float) -> EngineObservation:
        facts = after(BEGIN, "sick", **FROZEN)(now_s)
        if now_s < 40.0 or now_s > 72.0:
            return facts
        asked = 1 if now_s > 70.0 else 0
        still = {"first_tokens_total": 40, "chunks_total": 2000}
        return replace(facts, dispatched=asked, streaming=asked, prefilling=asked, **still)

    assert {state for _, state, _ in states_of(story)} == {"healthy", "suspect"}


def test_requests_of_other_engines_prove_nothing_about_a_new_one() -> None:
    def story(now_s: float) -> EngineObservation:
        asked = 1 if now_s % 40.0 > 38.0 else 0
        still = {"first_tokens_total": int(now_s // 40), "chunks_total": 0, "longest_prefill_s": 0.0}
        return replace(well("sick")(now_s), dispatched=asked, streaming=asked, prefilling=asked, **still)

    assert {state for _, state, _ in states_of(story, 200.0)} == {"healthy"}


@pytest.mark.parametrize("late_s", [0.0, 1.0])
def test_bursts_counted_by_metrics_before_the_gateway_are_not_suspect(late_s: float) -> None:
    def burst(now_s: float) -> int:
        return 6 * int(now_s // 20)

    def story(now_s: float) -> EngineObservation:
        return engine(
            "sick",
            now_s,
            prompt_tokens_total=1000.0 * burst(now_s + late_s),
            generated_tokens_total=50.0 * burst(now_s + late_s),
            first_tokens_total=burst(now_s),
            chunks_total=burst(now_s),
        )

    assert {state for _, state, _ in states_of(story)} == {"healthy"}


def test_a_long_prefill_with_frozen_metrics_gets_its_time() -> None:
    slow = stuck(30.0, "sick", longest_prefill_s=12.0)

    def story(now_s: float) -> EngineObservation:
        return replace(slow(now_s), **FROZEN) if now_s >= BEGIN else slow(now_s)

    assert first([*others(3), story], "quarantined", seconds=90.0)[0] >= 30.0 + DOCUMENT.stall_s + 24.0


def test_an_engine_without_counters_cannot_be_frozen() -> None:
    story = after(0.0, "sick", prompt_tokens_total=None, generated_tokens_total=None)
    assert {state for _, state, _ in states_of(story)} == {"healthy"}
