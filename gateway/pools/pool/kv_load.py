"""One request's load from node managers: the instruction for its engine, and the result.

vLLM does not report loads in streamed answers. Their results are inferred: tokens that the engine reports as cached,
beyond those that the index held at the dispatch, came from the node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.contracts.key_source import MEDIA, PREFIX
from gateway.contracts.stored_decision import StoredLoad
from kvstore.connector.engine_params import KvOutcome
from routing.values.observation import FAILED, LATE, MISSING, PARTIAL, UNNEEDED, UNTOLD, WHOLE, LoadResult

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from kvstore.connector.engine_params import LoadInstruction
    from routing.values.decision import Decision

_REASONS = frozenset({MISSING, LATE, FAILED, UNTOLD})


def order_on(record: DecisionRecord, engine_id: str, order: LoadInstruction | None) -> LoadInstruction | None:
    """Return this engine's load instruction, with its load if one was decided. None: the engine has no node.

    The record stores the load, in place of a previous attempt's.
    """
    record.load_ordered, record.load_node, record.load = 0, "", None
    loads, decision = record.pool.loads, record.decision
    if order is None or not loads.has_node(engine_id):
        return None
    fetch = decision.fetch
    if fetch is None or not fetch.node or engine_id != decision.engine_id:
        return order
    order, record.load_node = loads.with_load(order, fetch.blocks, record.load_holders)
    record.load_ordered = order.load_blocks
    return order


def load_result(record: DecisionRecord, seconds: float | None, now: float) -> LoadResult | None:
    """Return the result of the load before a prefill that has ended, and count it. None: no load was ordered.

    A load without a report is inferred, if possible; it took `seconds` (None: unknown).
    """
    if not record.load_ordered:
        return None
    if record.load is None:
        record.load = _inferred(record, seconds, now)
        record.load_inferred = record.load is not None
    decision, outcome, ended = record.decision, record.load, how_it_ended(record)
    metrics, pool_id = record.pool.loads.metrics, decision.pool_id
    metrics.kv_loads.inc(pool_id, ended)
    held = _own_blocks(record)
    if outcome is None:
        return LoadResult(record.load_node, ended, record.load_ordered, held)
    if outcome.loaded_blocks:
        metrics.kv_loaded_bytes.inc(pool_id, amount=float(outcome.loaded_bytes))
        metrics.kv_saved_tokens.inc(pool_id, amount=float(saved_tokens(record)))
    return LoadResult(
        _node(record),
        ended,
        record.load_ordered,
        held,
        outcome.loaded_blocks,
        0 if record.load_inferred else outcome.loaded_bytes,
        outcome.seconds,
        decision.fetch.ssd_blocks if decision.fetch is not None and ended in (WHOLE, LATE) else 0,
    )


def _inferred(record: DecisionRecord, seconds: float | None, now: float) -> KvOutcome | None:
    """Return the load that a request's cached tokens show, None if they can show none."""
    decision, pool = record.decision, record.pool
    engine = pool.engines.get(decision.engine_id)
    if engine is None or record.cached_tokens is None:
        return None
    # An engine's own lower tiers, and blocks that the index cannot know, would be taken for the node's.
    if not decision.knew_blocks or record.key_source in (PREFIX, MEDIA) or tier_tokens(decision):
        return None
    if engine.hits.gap_near(decision.decided_s, now):
        return None
    # An engine computes at least the last token, so that a wholly cached prompt is reported one block short.
    last = record.cached_tokens + 1 >= decision.prompt_tokens
    cached = record.load_ordered if last else record.cached_tokens // pool.entry.block_tokens
    blocks = min(cached, record.load_ordered) - _own_blocks(record)
    if blocks <= 0:
        return None
    size = round(blocks * pool.loads.learned.block_bytes)
    reason = "" if cached >= record.load_ordered else UNTOLD
    return KvOutcome(loaded_blocks=blocks, loaded_bytes=size, seconds=seconds or 0.0, reason=reason)


def stored_load(record: DecisionRecord) -> StoredLoad | None:
    """Return the load's part of the request record, None if no load was requested."""
    if not record.load_ordered:
        return None
    outcome, ended = record.load, how_it_ended(record)
    if outcome is None:
        return StoredLoad(record.load_node, record.load_ordered, reason=UNTOLD if record.outcome else "")
    return StoredLoad(
        _node(record),
        record.load_ordered,
        outcome.loaded_blocks,
        outcome.loaded_bytes,
        outcome.seconds,
        "" if ended in (WHOLE, UNNEEDED) else _reason(outcome.reason),
        saved_tokens(record),
        record.load_inferred,
    )


def how_it_ended(record: DecisionRecord) -> str:
    """Return the result of a request's load."""
    outcome = record.load
    if outcome is None:
        return UNTOLD
    if not outcome.reason:
        return WHOLE if outcome.loaded_blocks else UNNEEDED
    return PARTIAL if outcome.loaded_blocks else _reason(outcome.reason)


def saved_tokens(record: DecisionRecord) -> int:
    """Return the prompt tokens that were loaded instead of computed."""
    if record.load is None:
        return 0
    return min(record.load.loaded_blocks * record.pool.entry.block_tokens, record.decision.prompt_tokens)


def tier_tokens(decision: Decision) -> int:
    """Return the prompt tokens that the engine was expected to load from its own lower tiers."""
    return sum(decision.loading.tier_tokens.values()) if decision.loading is not None else 0


def _own_blocks(record: DecisionRecord) -> int:
    """Return the number of leading blocks that the engine held according to the placement."""
    candidates = record.decision.candidates
    return candidates[0].blocks if candidates else 0


def _node(record: DecisionRecord) -> str:
    said = record.load.holder if record.load is not None else ""
    return record.pool.loads.nodes.name_at(said) or record.load_node


def _reason(said: str) -> str:
    return said if said in _REASONS else FAILED
