"""Loads that engines make before a prefill, as far as they differ between the engines of one pool.

An engine always loads the blocks that follow its match from its own lower tiers, and a request's LoRA adapter if it is
not loaded yet. Both are part of its prefill time under any placement.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvstore.index.lower_tiers import TIERS, LowerTiers
from kvstore.index.prefix_match import PrefixMatch
from routing.cost.loading_costs import LoadingCosts
from routing.values.decision import Loading
from routing.values.inference_request import InferenceRequest

ADAPTERS = 8
"""Number of adapters that an engine is assumed to keep loaded if it does not report its limit."""


class LoadedAdapters:
    """LoRA adapters loaded on each target, from the requests served and the engines' reports. Mutable.

    An engine over its limit drops the least recently used adapter.
    """

    def __init__(self) -> None:
        self._order: dict[int, dict[str, None]] = {}
        self._limits: dict[int, int] = {}

    def used(self, target: int, adapters: Iterable[str], limit: int | None = None) -> None:
        """Record that the target uses these adapters, and how many it can keep, if known."""
        if limit is not None:
            self._limits[target] = max(1, limit)
        order = self._order.setdefault(target, {})
        for adapter in adapters:
            order.pop(adapter, None)
            order[adapter] = None
        for adapter in list(order)[: max(0, len(order) - self._limits.get(target, ADAPTERS))]:
            del order[adapter]

    def has(self, target: int, adapter: str) -> bool:
        """Return whether the target has the adapter loaded."""
        return adapter in self._order.get(target, ())

    def targets(self, adapter: str) -> int:
        """Return the bitset of targets with the adapter loaded."""
        return sum(1 << target for target, order in self._order.items() if adapter in order)

    def clear(self, target: int) -> None:
        """Forget a target."""
        self._order.pop(target, None)
        self._limits.pop(target, None)


class OwnLoads:
    """The loads that the engines of one pool make.

    Mutable: the adapters, and the lower-tier blocks of the last matched request.
    """

    def __init__(self, tiers: LowerTiers, costs: LoadingCosts) -> None:
        self.tiers, self.costs, self.adapters = tiers, costs, LoadedAdapters()
        self._matched, self._among = "", 0
        self._ends: dict[int, tuple[int, ...]] = {}
        self._known: dict[object, Loading] = {}

    def matched(self, request: InferenceRequest, match: PrefixMatch, among: int) -> PrefixMatch:
        """Return the match including blocks in the engines' lower tiers. It is kept until the next request."""
        self._matched, self._among, self._ends, self._known = request.request_id, among, {}, {}
        below = self.tiers.targets & among
        if not below:
            return match
        groups = [(blocks, left) for blocks, mask in match.groups if (left := mask & ~below)]
        for ends, mask in self.tiers.reach(PrefixMatch(_only(match, below)), request.keys, below):
            if ends[-1]:
                groups.append((ends[-1], mask))
            if ends[-1] > ends[0]:
                self._ends.update((target, ends) for target in range(mask.bit_length()) if mask >> target & 1)
        # Longest first, as every match has its groups.
        groups.sort(reverse=True)
        return PrefixMatch(tuple(groups))

    def knows(self, request: InferenceRequest, target: int) -> bool:
        """Return whether this request was matched last, and the target was part of its match."""
        return request.request_id == self._matched and self._among >> target & 1 == 1

    def loading(
        self, request: InferenceRequest, engine_id: str, target: int, hit_tokens: int, token_s: float
    ) -> Loading | None:
        """Return the load that the engine makes for the last matched request, or None.

        `hit_tokens` of the prompt are cached there, and the engine computes one token in `token_s`.
        """
        ends = self._ends.get(target)
        adapter = request.adapter if request.adapter and not self.adapters.has(target, request.adapter) else ""
        if ends is None and not adapter:
            return None
        name = ends, hit_tokens, token_s, adapter, self.costs.kinds.get(engine_id)
        # Engines of a kind that hold the same blocks share one result.
        known = self._known.get(name)
        if known is None:
            tiers = {} if ends is None else _tokens(ends, request.block_tokens, hit_tokens)
            seconds = sum(self.costs.tier_s(engine_id, tier, tokens, token_s) for tier, tokens in tiers.items())
            seconds += self.costs.adapter_s(engine_id) if adapter else 0.0
            known = self._known[name] = Loading(seconds, tiers, adapter)
        return known if known.tier_tokens or adapter else None

    def in_memory(self, target: int, blocks: int) -> int:
        """Return how many leading blocks of the last matched request are in the target's engine memory."""
        ends = self._ends.get(target)
        return blocks if ends is None else min(blocks, ends[0])


def _tokens(ends: tuple[int, ...], block_tokens: int, hit_tokens: int) -> dict[str, int]:
    """Return how many tokens of the hit come from each tier."""
    parts, before = {}, ends[0] * block_tokens
    for tier, end in zip(TIERS, ends[1:], strict=True):
        tokens = min(end * block_tokens, hit_tokens) - before
        if tokens > 0:
            parts[tier] = tokens
            before += tokens
    return parts


def _only(match: PrefixMatch, targets: int) -> tuple[tuple[int, int], ...]:
    return tuple((blocks, left) for blocks, mask in match.groups if (left := mask & targets))
