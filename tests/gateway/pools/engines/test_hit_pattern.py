"""Causes injected into engine reports: the right cause is named, and trust follows."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from gateway.contracts.hit_sample import (
    EVICTION,
    LATE_EVENT,
    SALT,
    TEMPLATE,
    TOKENIZER,
    UNKNOWN,
    HitSample,
    mismatch_of,
)
from gateway.pools.engines.hit_pattern import (
    BLIND,
    DEGRADED,
    EXACT,
    LEAST_OTHERS,
    LEAST_SAMPLES,
    HitVerdict,
    PoolKeys,
    hit_verdict,
)
from gateway.pools.engines.hit_words import verdict_words
from gateway.pools.engines.index_trust import MAX_SAMPLES, MAX_SOURCES, IndexTrust

BLOCK = 512
EVENTS = PoolKeys()
DISPATCHES = PoolKeys(by_dispatches=True)
ISOLATED = PoolKeys(isolated=True, by_dispatches=True)
SHARED = PoolKeys(shared=True)


def requests(count: int = 30, **fields: object) -> list[HitSample]:
    """Return requests with 1 to 20 predicted and reported blocks, except as `fields` override."""
    rng = Random(7)
    made = []
    for number in range(count):
        believed = rng.randint(2, 20) * BLOCK
        values: dict[str, object] = {
            "at_s": float(number),
            "prompt_tokens": believed + rng.randint(1, BLOCK),
            "believed_tokens": believed,
            "reported_tokens": believed,
            "block_tokens": BLOCK,
        }
        for name, value in fields.items():
            values[name] = value(values, rng) if callable(value) else value
        made.append(HitSample(**values))  # type: ignore[arg-type]
    return made


def half(values: dict[str, int], rng: Random) -> int:
    return values["believed_tokens"] // BLOCK // rng.choice((2, 3, 4)) * BLOCK


def test_confirmed_hits_leave_the_index_exact() -> None:
    assert hit_verdict(requests(), EVENTS) == HitVerdict(EXACT, 1.0, "", 30, 0)


def test_a_recomputed_last_block_is_not_a_mismatch() -> None:
    samples = requests(reported_tokens=lambda values, _: values["believed_tokens"] - BLOCK)
    assert hit_verdict(samples, EVENTS).cause == ""


def test_a_wrong_salt_is_named_if_an_isolated_pool_hits_nothing() -> None:
    verdict = hit_verdict(requests(reported_tokens=0), ISOLATED)
    assert (verdict.grade, verdict.cause) == (BLIND, SALT)


def test_a_wrong_tokenizer_is_named_by_different_token_counts() -> None:
    planted = requests(
        reported_tokens=0, engine_prompt_tokens=lambda values, rng: int(values["prompt_tokens"] * rng.uniform(1.1, 1.3))
    )
    verdict = hit_verdict(planted, EVENTS)
    assert (verdict.grade, verdict.cause) == (BLIND, TOKENIZER)


def test_a_wrong_tokenizer_is_named_if_the_index_never_predicts_the_hits() -> None:
    planted = requests(believed_tokens=0, reported_tokens=lambda _, rng: rng.randint(1, 9) * BLOCK)
    verdict = hit_verdict(planted, EVENTS)
    assert (verdict.grade, verdict.cause) == (BLIND, TOKENIZER)


def test_blocks_that_never_match_in_an_exact_pool_indicate_a_tokenizer() -> None:
    assert hit_verdict(requests(reported_tokens=0), EVENTS).cause == TOKENIZER


def test_a_wrong_template_is_named_by_a_constant_length_difference() -> None:
    planted = requests(reported_tokens=half, engine_prompt_tokens=lambda values, _: values["prompt_tokens"] + 23)
    assert hit_verdict(planted, EVENTS).cause == TEMPLATE


def test_a_wrong_template_is_named_by_a_common_boundary_of_all_hits() -> None:
    planted = requests(reported_tokens=BLOCK, believed_tokens=lambda _, rng: rng.randint(3, 20) * BLOCK)
    assert hit_verdict(planted, EVENTS).cause == TEMPLATE


def test_a_wrong_template_is_named_by_a_tail_that_always_misses() -> None:
    planted = requests(
        believed_tokens=lambda _, rng: rng.randint(4, 20) * BLOCK,
        reported_tokens=lambda values, _: values["believed_tokens"] - 3 * BLOCK,
    )
    assert hit_verdict(planted, EVENTS).cause == TEMPLATE


def test_dropped_events_are_named_by_an_event_gap_near_the_requests() -> None:
    verdict = hit_verdict(requests(reported_tokens=half, gap=True), EVENTS)
    assert (verdict.grade, verdict.cause) == (DEGRADED, LATE_EVENT)


def test_removals_during_requests_indicate_eviction() -> None:
    assert hit_verdict(requests(reported_tokens=half, removed=True), EVENTS).cause == EVICTION


def test_without_removal_events_a_partial_hit_indicates_eviction() -> None:
    assert hit_verdict(requests(reported_tokens=half), DISPATCHES).cause == EVICTION


def test_a_mismatch_without_a_pattern_is_unknown() -> None:
    assert hit_verdict(requests(reported_tokens=half), EVENTS).cause == UNKNOWN


def test_few_requests_give_no_verdict() -> None:
    verdict = hit_verdict(requests(LEAST_SAMPLES - 1, reported_tokens=0), EVENTS)
    assert (verdict.grade, verdict.share, verdict.cause) == (EXACT, None, "")


def test_lost_trust_returns_only_well_above_the_threshold_where_it_was_lost() -> None:
    wavering = requests(reported_tokens=lambda values, _: int(values["believed_tokens"] * 0.65))
    assert hit_verdict(wavering, EVENTS).grade == EXACT
    assert hit_verdict(wavering, EVENTS, before=DEGRADED).grade == DEGRADED
    assert hit_verdict(requests(), EVENTS, before=BLIND).grade == EXACT


@pytest.mark.parametrize(
    ("fields", "pattern", "cause"),
    [
        ({}, "", ""),
        ({"reported_tokens": 0, "gap": True}, "", LATE_EVENT),
        ({"reported_tokens": 0, "removed": True}, "", EVICTION),
        ({"reported_tokens": 0}, "", UNKNOWN),
        ({"reported_tokens": 0, "gap": True}, SALT, SALT),
        ({"believed_tokens": 0, "removed": True}, "", UNKNOWN),
    ],
)
def test_a_single_request_is_classified_by_its_evidence(fields: dict[str, object], pattern: str, cause: str) -> None:
    values: dict[str, object] = {"believed_tokens": 2048, "reported_tokens": 2048, **fields}
    sample = HitSample(at_s=0.0, prompt_tokens=4096, block_tokens=BLOCK, **values)  # type: ignore[arg-type]
    assert mismatch_of(sample, pattern) == cause


def test_the_verdict_states_the_hit_share_and_the_remedy() -> None:
    assert verdict_words(HitVerdict(DEGRADED, 0.41, SALT, 30, 20)) == (
        "it had 41% of the tokens in the index (30 requests): the engine uses another cache salt; check that nothing "
        "in between changes cache_salt"
    )
    assert verdict_words(HitVerdict()) == ""


def test_mismatches_reported_by_one_tenant_do_not_lower_trust() -> None:
    lies = requests(40, reported_tokens=0, tenant="b", reported=True)
    enough, few = (
        requests(count, reported_tokens=0, tenant="c", reported=True) for count in (LEAST_SAMPLES, LEAST_SAMPLES - 1)
    )
    assert hit_verdict(lies, EVENTS).grade == EXACT
    assert hit_verdict([*lies, *few], EVENTS).grade == EXACT
    assert hit_verdict([*lies, *enough], EVENTS).grade == BLIND


def test_gateway_observations_outweigh_tenant_reports() -> None:
    seen = requests(LEAST_SAMPLES, reported_tokens=0)
    praise = [request for who in "bcd" for request in requests(20, tenant=who, reported=True)]
    assert hit_verdict([*seen, *praise], EVENTS).grade == BLIND
    assert hit_verdict([*seen[1:], *praise], EVENTS).grade == EXACT


@pytest.mark.parametrize(
    "planted",
    [
        {"reported_tokens": 0},
        {"reported_tokens": half},
        {"reported_tokens": 0, "engine_prompt_tokens": lambda values, _: values["prompt_tokens"] + 23},
        {"believed_tokens": 0, "reported_tokens": 9 * BLOCK},
    ],
)
def test_with_several_tenants_a_single_one_cannot_lower_trust(planted: dict[str, object]) -> None:
    alone = requests(60, tenant="b", **planted)
    assert hit_verdict(alone, PoolKeys()).grade != EXACT
    for others in ([], requests(8, tenant="a")):
        verdict = hit_verdict([*alone, *others], SHARED)
        assert (verdict.grade, verdict.cause) == (EXACT, "")


@pytest.mark.parametrize(("others", "grade"), [(LEAST_OTHERS - 1, EXACT), (LEAST_OTHERS, BLIND)])
def test_mismatches_of_several_tenants_lower_trust(others: int, grade: str) -> None:
    both = [*requests(60, reported_tokens=0, tenant="b"), *requests(others, reported_tokens=0, tenant="a")]
    verdict = hit_verdict(both, SHARED)
    assert (verdict.grade, verdict.cause) == (grade, TOKENIZER if grade == BLIND else "")


def test_a_cause_is_not_named_if_only_one_tenants_requests_suggest_it() -> None:
    template = requests(
        60, tenant="b", reported_tokens=0, engine_prompt_tokens=lambda values, _: values["prompt_tokens"] + 23
    )
    eviction = requests(20, tenant="a", reported_tokens=0, removed=True, believed_tokens=4 * BLOCK)
    verdict = hit_verdict([*template, *eviction], SHARED)
    assert (verdict.grade, verdict.cause) == (BLIND, UNKNOWN)


def test_an_operators_requests_are_sufficient() -> None:
    assert hit_verdict(requests(reported_tokens=0), SHARED).grade == BLIND


def test_a_busy_tenant_evicts_no_other_tenants_samples() -> None:
    watch = IndexTrust()
    for sample in [*requests(5, tenant="a"), *requests(3 * MAX_SAMPLES, tenant="b")]:
        watch.take(sample)
    held = [item.tenant for item in watch._all()]
    assert (held.count("a"), held.count("b")) == (5, MAX_SAMPLES)
    assert len(watch.recent()) == MAX_SAMPLES


def test_samples_are_bounded_and_the_longest_silent_tenant_is_evicted() -> None:
    watch = IndexTrust()
    for number, sample in enumerate(requests(MAX_SOURCES + 3)):
        watch.take(msgspec.structs.replace(sample, tenant=f"t{number}" if number else "steady"))
        watch.take(msgspec.structs.replace(sample, tenant="steady"))
    assert len(watch._samples) == MAX_SOURCES
    assert {item.tenant for item in watch._all()} >= {"steady", f"t{MAX_SOURCES + 2}"}
