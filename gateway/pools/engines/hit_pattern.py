"""Judges the last requests on one engine: how far its index can be trusted, and what is wrong with it.

The share is s = Σ min(reported, believed) / Σ believed, over requests with at least one block believed to be cached.
Below BLIND_BELOW the index has no weight, below DEGRADED_BELOW half weight. The cause is the first rule that applies.
The number m of requests that differ must be at least LEAST_SAMPLES (LEAST_OTHERS over all tenants but one):

1. template    the engine counts more, or fewer, tokens than we do, by the same number on every request
2. tokenizer   the engine's token counts differ from ours by a different number from request to request
3. salt        token counts are equal, but the engine reports no hits on (nearly) all requests with believed blocks:
               it stores them under another name. Only in a pool with salts, or with an index built from dispatches
4. tokenizer   the same in an exact pool: the blocks in its events are not those of the requests. Also if the engine
               reports hits that the index never has, although events arrive
5. template    all prompts agree up to one boundary T (equal reported hits, different believed ones), or all fall
               short by the same number of tokens: a part common to all prompts is rendered differently
6. late event  at least half of the requests that differ ran near a gap in the engine's events
7. eviction    at least half of the requests that fell short ran while the engine removed blocks, or removals are
               not reported (an index built from dispatches)
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.contracts.hit_sample import EVICTION, LATE_EVENT, SALT, TEMPLATE, TOKENIZER, UNKNOWN, HitSample

LEAST_SAMPLES = 12
LEAST_OTHERS = 6
"""Minimum number of other tenants' requests that the gateway saw with the same difference. One tenant alone cannot
lower trust.
"""
BLIND_BELOW = 0.25
DEGRADED_BELOW = 0.6
EXACT_AGAIN = 0.75
"""An index regains its trust only above this share, so that trust does not oscillate."""
EXACT, DEGRADED, BLIND = "exact", "degraded", "blind"
_GRADES = (BLIND, DEGRADED, EXACT)
_NEARLY_ALL = 0.95
_MOST = 0.8


class PoolKeys(msgspec.Struct, frozen=True):
    """Properties of a pool's keys by which causes can be distinguished."""

    isolated: bool = False
    """Requests carry a cache salt."""
    by_dispatches: bool = False
    """The index is built from our own dispatches, without the engine's removals."""
    shared: bool = False
    """Several tenants can use the pool."""


class HitVerdict(msgspec.Struct, frozen=True):
    """Trust in an engine's index from its reported hits. `share` None: too few requests to judge."""

    grade: str = EXACT
    share: float | None = None
    cause: str = ""
    requests: int = 0
    """Number of judged requests."""
    differing: int = 0


NO_VERDICT = HitVerdict()


def hit_verdict(samples: Sequence[HitSample], keys: PoolKeys, before: str = EXACT) -> HitVerdict:
    """Return the verdict on these requests of one engine; `before` is the previous grade.

    Enough requests that the gateway saw outweigh all tenants' reports. If several tenants can use the pool, or if
    reports count, the verdict must hold without the requests of any one tenant, because a sender can cause its own
    requests to differ.
    """
    seen = [sample for sample in samples if not sample.reported]
    enough = len(seen) >= LEAST_SAMPLES or len(seen) == len(samples)
    counted = seen if enough else samples
    overall = _verdict(counted, keys, before)
    if enough and not keys.shared:
        return overall
    least = LEAST_OTHERS if enough else LEAST_SAMPLES
    tenants = sorted({item.tenant for item in counted if item.tenant})
    without = [_verdict([item for item in counted if item.tenant != who], keys, before, least) for who in tenants]
    return _agreed(overall, without)


def _agreed(overall: HitVerdict, without: Sequence[HitVerdict]) -> HitVerdict:
    """Return the verdict that lowers trust least. Its cause is named only if no single tenant's requests suggest it."""
    best = max([overall, *without], key=lambda item: _GRADES.index(item.grade))
    if all(item.cause == best.cause for item in without):
        return best
    return msgspec.structs.replace(best, cause="" if best.grade == EXACT else UNKNOWN)


def _verdict(samples: Sequence[HitSample], keys: PoolKeys, before: str, least: int = LEAST_SAMPLES) -> HitVerdict:
    differing = [sample for sample in samples if sample.short or sample.missed]
    cause = _cause(samples, differing, keys, least) if len(differing) >= least else ""
    believed = [sample for sample in samples if sample.believed_tokens >= sample.block_tokens]
    if len(believed) < least:
        blind = cause == TOKENIZER
        share = 0.0 if blind else None
        return HitVerdict(BLIND if blind else EXACT, share, cause, len(samples), len(differing))
    reported = sum(min(item.reported_tokens, item.believed_tokens) for item in believed)
    share = reported / sum(item.believed_tokens for item in believed)
    enough = EXACT_AGAIN if before != EXACT else DEGRADED_BELOW
    grade = BLIND if share < BLIND_BELOW else DEGRADED if share < enough else EXACT
    return HitVerdict(grade, share, cause, len(samples), len(differing))


def _cause(samples: Sequence[HitSample], differing: Sequence[HitSample], keys: PoolKeys, least: int) -> str:
    lengths = _by_length(samples, least)
    if lengths:
        return lengths
    short = [item for item in differing if item.short]
    if len(short) >= least:
        nothing = sum(item.reported_tokens == 0 for item in short)
        believed = sum(sample.believed_tokens >= sample.block_tokens for sample in samples)
        if nothing >= _NEARLY_ALL * believed:
            return SALT if keys.isolated or keys.by_dispatches else TOKENIZER
        if _one_boundary(short):
            return TEMPLATE
    missed = [item for item in differing if item.missed]
    if not keys.by_dispatches and _never_known(samples, missed, least):
        return TOKENIZER
    return _by_events(differing, short, keys)


def _by_events(differing: Sequence[HitSample], short: Sequence[HitSample], keys: PoolKeys) -> str:
    if 2 * sum(item.gap for item in differing) >= len(differing):
        return LATE_EVENT
    removals = keys.by_dispatches or 2 * sum(item.removed for item in short) >= len(short)
    return EVICTION if short and 2 * len(short) >= len(differing) and removals else UNKNOWN


def _by_length(samples: Sequence[HitSample], least: int) -> str:
    """Return template or tokenizer if most prompts have another length on the engine, else an empty string."""
    counted = [sample for sample in samples if sample.engine_prompt_tokens is not None]
    differences = [item.engine_prompt_tokens - item.prompt_tokens for item in counted if item.engine_prompt_tokens]
    other = [difference for difference in differences if difference]
    if len(other) < least or len(other) < _MOST * len(counted):
        return ""
    return TEMPLATE if max(other) - min(other) <= 1 else TOKENIZER


def _one_boundary(short: Sequence[HitSample]) -> bool:
    """Return whether all prompts agree up to one boundary, or all fall short by the same number of tokens."""
    block_tokens = short[0].block_tokens
    reported = [item.reported_tokens for item in short]
    missing = [item.believed_tokens - item.reported_tokens for item in short]
    believed = [item.believed_tokens for item in short]
    if max(believed) - min(believed) <= block_tokens:
        return False
    return max(reported) == min(reported) > 0 or (max(missing) - min(missing) < block_tokens and min(reported) > 0)


def _never_known(samples: Sequence[HitSample], missed: Sequence[HitSample], least: int) -> bool:
    """Return whether the engine reports hits that the index lacks on nearly all requests."""
    hits = [sample for sample in samples if sample.reported_tokens >= sample.block_tokens]
    unknown = sum(hit.believed_tokens < hit.block_tokens for hit in hits)
    return len(missed) >= least and len(hits) >= least and unknown >= _NEARLY_ALL * len(hits)
