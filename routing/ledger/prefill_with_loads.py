"""Time until an engine has a prompt's KV, by computing it or by loading it from a node manager if that is faster.

A load counts only if it is cheaper than computing the same tokens there (Mooncake §4.2: transfer or recompute).
"""

from __future__ import annotations

from typing import NamedTuple

from routing.ledger.fleet_view import FleetView
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch, LoadOptions

_TRIAL = 8.0
"""A load is tried on an unmeasured link only if it would take less than this many times as long as computing."""


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
        self, request: InferenceRequest, view: FleetView, loads: LoadOptions | None, *, threshold: float = 1.0
    ) -> None:
        """Set up an empty table. Loads must bring more than `threshold` times the blocks that a target has."""
        self.view = view
        self._request, self._loads, self._threshold = request, loads, threshold
        self._homes = loads.costs.homes if loads is not None else {}
        self._known: dict[tuple[str, int], Prefill] = {}

    def on(self, target: int, blocks: int) -> Prefill:
        """Return the cheapest prefill on a target that has `blocks` leading blocks."""
        roster = self.view.roster
        engine_id = roster.engine_ids[target]
        if not roster.alike:
            return self._on(target, engine_id, blocks)
        name = self._homes.get(engine_id, ""), blocks
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._on(target, engine_id, blocks)
        return known

    def _on(self, target: int, engine_id: str, blocks: int) -> Prefill:
        request, view = self._request, self.view
        hit = view.hit_tokens(request, target, blocks)
        best = Prefill(view.compute_s(request, target, hit), hit, None)
        for load in self._loads.onto(engine_id, blocks) if self._loads is not None else ():
            if load.blocks <= self._threshold * blocks:
                continue
            # Contents of nodes are known exactly, whatever the trust in the engine's own index.
            tokens = min(load.blocks * request.block_tokens, request.prompt_tokens)
            seconds = load.seconds + view.compute_s(request, target, tokens)
            if seconds < best.seconds:
                best = Prefill(seconds, tokens, load)
            elif best.fetch is None and load.seconds < _TRIAL * best.seconds and self._is_trial(engine_id, load):
                # No reason to choose or to avoid an engine.
                best = Prefill(best.seconds, tokens, load)
        return best

    def _is_trial(self, engine_id: str, load: Fetch) -> bool:
        return self._loads is not None and self._loads.costs.untried(self._homes[engine_id], load.node, load.ssd_blocks)
