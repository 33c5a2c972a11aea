"""Queue-driven prefetch: while a request waits for its engine, what it will load comes to that engine's own node.

Mooncake §5.2 moves a queued request's KV from the slower tier meanwhile; here a slower place is another node, or the
SSD of the engine's own. The load that is left when the prefill begins comes from the DRAM beside the engine.
"""

from __future__ import annotations

import math

from planning.kv_orders.kv_move import MAX_BLOCKS, PREFETCH, KvMove
from routing.ledger.node_loads import Loadable, NodeLoads
from routing.values.decision import Decision
from routing.values.inference_request import InferenceRequest

MIN_WAIT_S = 0.02
"""A shorter wait is over before a node has answered the three questions of an order."""


def prefetch(request: InferenceRequest, decision: Decision, loads: NodeLoads, now: float) -> KvMove | None:
    """Return what should be moved while a bound request waits; None: nothing pays, or would be there in time.

    Where the request is to load from the engine's own node already, those of its blocks that lie on SSD alone are
    brought to DRAM; which these are only the node knows.
    """
    home = loads.homes.get(decision.engine_id)
    if home is None or decision.wait_s < MIN_WAIT_S:
        return None
    loadable = loads.loadable(request.keys, now)
    if loadable is None:
        return None
    ways = [
        (gain_s, move)
        for blocks, nodes in loadable.groups
        for node in nodes
        if (move := _move(request, decision, loads, node, _own(loadable, home), blocks)) is not None
        and (gain_s := _gain_s(request, decision, loads, node, blocks)) > 0
        and move.seconds <= decision.wait_s
    ]
    if ways:
        return max(ways, key=lambda way: (way[0], -way[1].seconds, way[1].source))[1]
    fetch = decision.fetch
    if fetch is None or fetch.node != home:
        return None
    return _move(request, decision, loads, home, _held(decision), fetch.blocks)


def _move(
    request: InferenceRequest, decision: Decision, loads: NodeLoads, source: str, first: int, blocks: int
) -> KvMove | None:
    keys = request.keys[first:blocks][:MAX_BLOCKS]
    home = loads.homes[decision.engine_id]
    return KvMove(PREFETCH, source, home, keys, loads.seconds(home, source, len(keys))) if keys else None


def _gain_s(request: InferenceRequest, decision: Decision, loads: NodeLoads, node: str, blocks: int) -> float:
    """Return the seconds of prefill that are saved when so many leading blocks of a node lie at home by then."""
    home, missing = loads.homes[decision.engine_id], blocks - _held(decision)
    if missing <= 0 or node == home:
        return 0.0
    without_s = min(loads.seconds(home, node, missing), missing * request.block_tokens * _token_s(decision))
    return without_s - loads.seconds(home, home, missing)


def _token_s(decision: Decision) -> float:
    """Return the seconds per token that the decision expects to compute; a load in it was found to be less."""
    fetch = decision.fetch
    computed = decision.prompt_tokens - decision.hit_tokens
    if computed <= 0:
        return math.inf
    return (decision.compute_s - (fetch.seconds if fetch is not None else 0.0)) / computed


def _held(decision: Decision) -> int:
    """Return the leading blocks that the engine itself has."""
    return decision.candidates[0].blocks if decision.candidates else 0


def _own(loadable: Loadable, home: str) -> int:
    """Return the leading blocks that the engine's own node has."""
    return max((blocks for blocks, nodes in loadable.groups if home in nodes), default=0)
