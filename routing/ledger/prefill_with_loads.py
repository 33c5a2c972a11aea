"""Time until an engine has a prompt's KV, by computing it or by loading it from a node manager if that is faster.

A load counts only if it is cheaper than computing the same tokens there (Mooncake §4.2: transfer or recompute).
"""

from __future__ import annotations

from typing import NamedTuple

from routing.ledger.fleet_view import FleetView
from routing.ledger.node_loads import Loadable, NodeLoads
from routing.values.decision import Fetch
from routing.values.inference_request import InferenceRequest

_TRIAL = 8.0
"""A load is tried on an unmeasured link only if it would take less than this many times as long as computing."""
_COUNTING = frozenset({"least_cost", "mooncake"})


def counts_loads(placement: str) -> bool:
    """Return whether the named placement compares loads from node managers with computing."""
    return placement in _COUNTING


class Prefill(NamedTuple):
    """Expected cost of a prefill on one target."""

    seconds: float
    """Loading plus computing."""
    hit_tokens: int
    """Tokens that are not computed, including loaded ones."""
    fetch: Fetch | None


class Prefills:
    """Prefills of one request on the targets of one view. Equal ones are computed once."""

    def __init__(
        self, request: InferenceRequest, view: FleetView, loadable: Loadable, *, threshold: float = 1.0
    ) -> None:
        """Set up an empty table. Loads must bring more than `threshold` times the blocks that a target has."""
        self._request, self._view, self._loadable, self._threshold = request, view, loadable, threshold
        self._homes = view.nodes.homes if view.nodes is not None else {}
        self._known: dict[tuple[str, int], Prefill] = {}

    def on(self, target: int, blocks: int) -> Prefill:
        """Return the cheapest prefill on a target that has `blocks` leading blocks."""
        roster = self._view.roster
        engine_id = roster.engine_ids[target]
        if not roster.alike:
            return self._on(target, engine_id, blocks)
        name = self._homes.get(engine_id, ""), blocks
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._on(target, engine_id, blocks)
        return known

    def _on(self, target: int, engine_id: str, blocks: int) -> Prefill:
        request, view = self._request, self._view
        hit = view.hit_tokens(request, target, blocks)
        best = Prefill(view.compute_s(request, target, hit), hit, None)
        for load in self._loadable.onto(engine_id, blocks):
            if load.blocks <= self._threshold * blocks:
                continue
            # Contents of nodes are known exactly, whatever the trust in the engine's own index.
            tokens = min(load.blocks * request.block_tokens, request.prompt_tokens)
            seconds = load.seconds + view.compute_s(request, target, tokens)
            trial = load.untried and best.fetch is None and load.seconds < _TRIAL * best.seconds
            if seconds < best.seconds or trial:
                fetch = Fetch("", load.blocks, load.seconds, load.node, load.ssd_blocks)
                # A trial is no reason to choose or to avoid an engine.
                best = Prefill(min(seconds, best.seconds), tokens, fetch)
        return best


def loadable_blocks(request: InferenceRequest, nodes: NodeLoads, now: float) -> Loadable | None:
    """Return the loadable blocks of a request's prompt. None if there are none or no sender would order the load."""
    return nodes.loadable(request.keys, now) if request.may_load else None


def load_at_dispatch(request: InferenceRequest, view: FleetView, target: int, blocks: int, now: float) -> Fetch | None:
    """Return the load that pays off on a target with `blocks` blocks when the prefill starts, or None."""
    loadable = loadable_blocks(request, view.nodes, now) if view.nodes is not None else None
    return Prefills(request, view, loadable).on(target, blocks).fetch if loadable is not None else None
