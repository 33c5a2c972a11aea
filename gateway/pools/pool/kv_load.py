"""One request's load from node managers: the instruction for its engine, and the result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gateway.contracts.stored_decision import StoredLoad
from gateway.pools.traffic.traffic_window import COMPLETED

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from kvstore.connector.engine_params import LoadInstruction

WHOLE, PARTIAL, UNNEEDED = "whole", "partial", "unneeded"
MISSING, LATE, FAILED, UNTOLD = "missing", "late", "failed", "untold"
"""Results of a load, as counted. unneeded: the engine already held the blocks."""
_REASONS = frozenset({MISSING, LATE, FAILED})


def order_on(
    record: DecisionRecord, engine_id: str, order: LoadInstruction | None, keys: Sequence[int]
) -> LoadInstruction | None:
    """Return this engine's load instruction, with its load if one was decided. None: the engine has no node.

    The record stores the load, in place of a previous attempt's.
    """
    record.load_ordered, record.load_node, record.load_keys, record.load = 0, "", (), None
    loads, decision = record.pool.loads, record.decision
    if order is None or not loads.has_node(engine_id):
        return None
    if engine_id == decision.engine_id and decision.candidates:
        record.pool.orders.wanted(loads.learned.homes[engine_id], keys[_own_blocks(record) :])
    fetch = decision.fetch
    if fetch is None or not fetch.node or engine_id != decision.engine_id:
        return order
    order, record.load_node = loads.with_load(order, fetch.blocks, record.load_holders)
    record.load_ordered, record.load_keys = order.load_blocks, keys
    return order


def load_ended(record: DecisionRecord, now: float) -> None:
    """Learn from a request that has ended, and count its loaded blocks."""
    keys, record.load_keys = record.load_keys, ()
    if not record.load_ordered or record.outcome != COMPLETED:
        return
    loads, pool_id, outcome = record.pool.loads, record.decision.pool_id, record.load
    ended = how_it_ended(record)
    loads.metrics.kv_loads.inc(pool_id, ended)
    if outcome is None:
        return
    request_id, engine_id = record.decision.decision_id, record.decision.engine_id
    fetch = record.decision.fetch
    ssd_blocks = fetch.ssd_blocks if fetch is not None else 0
    if ended == FAILED:
        loads.learned.failed(record.load_node, now)
    elif ended == LATE:
        blocks = record.load_ordered - _own_blocks(record)
        loads.learned.late(engine_id, record.load_node, blocks, outcome.seconds, now, ssd_blocks, request_id)
    if outcome.loaded_blocks:
        size, blocks = outcome.loaded_bytes, outcome.loaded_blocks
        ssd_blocks = ssd_blocks if ended == WHOLE else 0
        loads.learned.loaded(engine_id, _node(record), blocks, size, outcome.seconds, now, ssd_blocks, request_id)
        loads.metrics.kv_loaded_bytes.inc(pool_id, amount=float(size))
        loads.metrics.kv_saved_tokens.inc(pool_id, amount=float(saved_tokens(record)))
        _note_orders(record, keys, outcome.loaded_blocks)


def _note_orders(record: DecisionRecord, keys: Sequence[int], loaded: int) -> None:
    """Report the loaded blocks to the move planners, as far as the record names them."""
    pool = record.pool
    if how_it_ended(record) == WHOLE:
        end, first = record.load_ordered, record.load_ordered - loaded
    else:
        first = _own_blocks(record)
        end = first + loaded
    link = pool.loads.learned.homes.get(record.decision.engine_id, ""), _node(record)
    pool.orders.loaded(
        record.decision.pool_id, pool.entry.block_tokens, pool.loads.learned, link, keys[:end], max(0, first)
    )


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


def _own_blocks(record: DecisionRecord) -> int:
    """Return the number of leading blocks that the engine held according to the placement."""
    candidates = record.decision.candidates
    return candidates[0].blocks if candidates else 0


def _node(record: DecisionRecord) -> str:
    said = record.load.holder if record.load is not None else ""
    return record.pool.loads.nodes.name_at(said) or record.load_node


def _reason(said: str) -> str:
    return said if said in _REASONS else FAILED
