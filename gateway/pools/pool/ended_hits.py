"""Samples the hits of ended requests, to judge the trust in indexes.

Every ended request counts, whether or not the request log keeps it. Sampling waits for the next evaluation, because
events of blocks removed during a request can arrive after its answer.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from typing_extensions import override

from gateway.contracts.hit_sample import HitSample
from gateway.contracts.key_source import COUNTED, MEDIA, PREFIX
from gateway.pools.pool.kv_load import saved_tokens, tier_tokens
from gateway.pools.pool.request_listener import RequestListener

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from routing.values.decision import Decision

MAX_ENDED = 10_000
"""Limit of ended requests that wait for the next evaluation, twice a second. Beyond it, the oldest are not sampled."""


class EndedHits(RequestListener):
    """Holds ended requests with reported hits until `take`. Mutable: these requests."""

    def __init__(self) -> None:
        self._ended: deque[DecisionRecord] = deque(maxlen=MAX_ENDED)

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        if record.cached_tokens is not None:
            self._ended.append(record)

    def take(self) -> None:
        """Add the samples of the answers since the last call to each engine's trust."""
        ended, self._ended = self._ended, deque(maxlen=MAX_ENDED)
        for record in ended:
            sample = hit_sample(record)
            if sample is not None:
                record.pool.engines[record.decision.engine_id].hits.take(sample)


def hit_sample(record: DecisionRecord) -> HitSample | None:
    """Return the predicted and the reported hit of a request.

    None if the engine is gone or reported no hit, if it loaded an unreported number of blocks, if the prompt was only
    partly known, if its blocks were unknown to the gateway that decided, or if the request's hits are not those of its
    cached blocks.
    """
    decision, reported = record.decision, record.cached_tokens
    engine = record.pool.engines.get(decision.engine_id)
    if engine is None or reported is None or record.finished_s is None or record.key_source in (PREFIX, MEDIA):
        return None
    if record.witness is None or not decision.knew_blocks:
        return None
    # An inferred load presumes that the index was right.
    if record.load_ordered and (record.load is None or record.load_inferred):
        return None
    watch, block_tokens = engine.hits, record.pool.entry.block_tokens
    # The index covers the engine's own memory; loaded blocks came from elsewhere.
    believed = believed_tokens(decision, block_tokens)
    reported = max(0, reported - saved_tokens(record))
    reported -= min(max(0, reported - believed), tier_tokens(decision))
    counted = record.key_source in COUNTED
    return HitSample(
        decision.decided_s,
        decision.prompt_tokens,
        believed,
        reported,
        block_tokens,
        record.engine_prompt_tokens if counted else None,
        watch.gap_near(decision.decided_s, record.finished_s),
        watch.removed_between(decision.decided_s, record.finished_s),
        record.witness,
        bool(record.reporter),
    )


def believed_tokens(decision: Decision, block_tokens: int) -> int:
    """Return the prompt tokens that the engine held at the dispatch according to the index, regardless of its trust."""
    if not decision.candidates:
        return decision.hit_tokens
    chosen = decision.candidates[0]
    held = min(chosen.blocks * block_tokens, decision.prompt_tokens)
    if decision.fetch is not None and decision.fetch.node:
        # The expected hit is that of a node.
        return held
    if tier_tokens(decision):
        return held
    if chosen.hit_tokens <= 0 or chosen.hit_tokens == decision.hit_tokens:
        return held if chosen.blocks else decision.hit_tokens
    # Dispatches estimate again; the trust in between is that of the choice.
    return min(decision.prompt_tokens, round(decision.hit_tokens * held / chosen.hit_tokens))
