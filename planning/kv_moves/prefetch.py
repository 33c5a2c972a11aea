"""Queue-driven prefetch: while a request is queued, move the blocks that it will load to the engine's own node.

Mooncake §5.2 moves a queued request's KV up from the slower tier. Here, the slower tier is another node, or the SSD of
the engine's own node. When the prefill begins, the remaining load comes from DRAM on the engine's own machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from planning.kv_moves.kv_move import MAX_BLOCKS, PREFETCH, KvMove
from routing.values.decision import Decision
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch, LoadCosts, LoadOptions

MIN_WAIT_S = 0.02
"""A shorter wait ends before a node has answered the three calls of an order."""


def prefetch(request: InferenceRequest, decision: Decision, loads: LoadOptions) -> KvMove | None:
    """Return the move for a bound queued request, None if no move pays off or would arrive in time.

    If the request will load from the engine's own node, its blocks that are only on SSD are moved to DRAM.
    """
    costs = loads.costs
    home = costs.homes.get(decision.engine_id)
    if home is None or decision.wait_s < MIN_WAIT_S:
        return None
    own, held = loads.blocks_on(home), _held(decision)
    without_s = _prefill_s(request, decision, loads.onto(decision.engine_id, held))
    ways = [
        (without_s - _prefill_s(request, decision, [_near(decision, costs, blocks)]), move)
        for blocks, nodes in loads.groups
        for node in nodes
        if node != home and (move := _move(request, decision, costs, node, own, blocks)) is not None
    ]
    # Only moves that save time and end before the request starts.
    ways = [way for way in ways if way[0] > 0 and way[1].seconds <= decision.wait_s]
    if ways:
        return max(ways, key=lambda way: (way[0], -way[1].seconds, way[1].source))[1]
    fetch = decision.fetch
    # Nothing to fetch from others: blocks on the own node's SSD can still come to its DRAM.
    if fetch is None or fetch.node != home or not fetch.ssd_blocks:
        return None
    return _move(request, decision, costs, home, fetch.blocks - fetch.ssd_blocks, fetch.blocks)


def _move(
    request: InferenceRequest, decision: Decision, costs: LoadCosts, source: str, first: int, blocks: int
) -> KvMove | None:
    keys = request.keys[first:blocks][:MAX_BLOCKS]
    home = costs.homes[decision.engine_id]
    return KvMove(PREFETCH, source, home, keys, costs.seconds(home, source, len(keys))) if keys else None


def _near(decision: Decision, costs: LoadCosts, blocks: int) -> Fetch:
    """Return the load of `blocks` leading blocks once they are on the engine's own node."""
    home = costs.homes[decision.engine_id]
    return Fetch("", blocks, costs.seconds(home, home, max(0, blocks - _held(decision))), home)


def _prefill_s(request: InferenceRequest, decision: Decision, ways: Sequence[Fetch]) -> float:
    """Return the seconds of the cheapest prefill: computed entirely, or after one of these loads."""
    block_s = request.block_tokens * _token_s(decision)
    held, blocks = _held(decision), len(request.keys)
    loaded_s = (way.seconds + (blocks - way.blocks) * block_s for way in ways if way.blocks > held)
    # min() needs a second value where nothing can be loaded.
    return min((blocks - held) * block_s, *loaded_s, math.inf)


def _token_s(decision: Decision) -> float:
    """Return the decision's seconds per computed token.

    If it computes none, return the time of its load per token, because computing would have taken longer.
    """
    fetch, computed = decision.fetch, decision.prompt_tokens - decision.hit_tokens
    load_s = fetch.seconds if fetch is not None else 0.0
    return (decision.compute_s - load_s) / computed if computed > 0 else load_s / max(1, decision.prompt_tokens)


def _held(decision: Decision) -> int:
    """Return the number of leading blocks on the engine itself."""
    return decision.candidates[0].blocks if decision.candidates else 0
