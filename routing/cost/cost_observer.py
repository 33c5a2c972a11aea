"""Turn a gateway's observations of its requests into samples of prefill and decode times.

The time from dispatch to first token is a prefill time only if the engine ran no other prefill of ours at the same
time. Concurrent decodes are not excluded: under load there are always some, and the next request also waits for them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from routing.cost.cost_fit import CostFit, FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.loading_costs import LoadingCosts

TAKEN, SHARED, IMPOSSIBLE, LOADED = "taken", "shared", "impossible", "loaded"
"""Result of a prefill's measurement. LOADED: the prefill included a load, and only the load cost was learned."""

MAX_OPEN = 20_000
MAX_KINDS = 64
FIRST, LATER = "first", "later"
"""FIRST: the adapter was expected to be loaded for this request. LATER: it was loaded before."""
_FIRST_SAMPLES = 8
"""Load costs are learned only after this many prefills, when the computation time is known well enough."""
_LEAST_DECODE_TOKENS = 16
"""Shorter answers contain too little information about a step."""


class _Open(msgspec.Struct, gc=False):
    """A dispatched request. Mutable: `shared`, and the fields that its first token sets."""

    engine_id: str
    dispatched_s: float
    prompt_tokens: int
    hit_tokens: int
    shared: bool = False
    handed_over: bool = False
    """Its prefill is complete and learned from. Another engine sends its first token."""
    first_token_s: float | None = None
    batch: int = 0
    context_tokens: int = 0
    tier_tokens: Mapping[str, int] | None = None
    """The part of `hit_tokens` that the engine was expected to load, by lower tier. None if it loads nothing."""
    adapter: str = ""
    """FIRST or LATER, empty without a LoRA adapter."""


class CostObserver:
    """Follows the requests of one pool and fits a cost for each kind of engine.

    Mutable state: `_open` (dispatched requests in order of their dispatches), `_prefilling` (request ids per
    engine), `_decoding` (requests and their prompt tokens per engine), `_kinds` with the declared speed of
    each engine, the fits, and the counts of samples.
    """

    def __init__(self, prefill: PrefillCost, decode: DecodeCost, loading: LoadingCosts | None = None) -> None:
        """Set the priors. `loading` learns from prefills that included a load, which the fits ignore."""
        self._prefill, self._decode = prefill, decode
        self._loading = loading or LoadingCosts()
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._prefilling: dict[str, set[str]] = {}
        self._decoding: dict[str, list[int]] = {}
        self._kinds: dict[str, tuple[str, float]] = {}
        self._fits: dict[str, CostFit] = {}
        self.samples = {TAKEN: 0, SHARED: 0, IMPOSSIBLE: 0, LOADED: 0}

    def set_engines(self, engines: dict[str, tuple[str, float]], known: dict[str, FittedCost]) -> None:
        """Set the pool's engines (id → kind and declared speed).

        The fit of a new kind starts with its entry in `known`.
        """
        self._kinds = dict(list(engines.items()))
        self._loading.kinds = {engine_id: kind for engine_id, (kind, _) in engines.items()}
        kinds = sorted({kind for kind, _ in engines.values()})[:MAX_KINDS]
        fits = self._fits
        self._fits = {kind: fits.get(kind) or CostFit(self._prefill, self._decode, known.get(kind)) for kind in kinds}
        for kind, fit in self._fits.items():
            fit.keep(frozenset(name for name, (its, _) in engines.items() if its == kind))

    def dispatched(
        self,
        request_id: str,
        engine_id: str,
        prompt_tokens: int,
        hit_tokens: int,
        now: float,
        tier_tokens: Mapping[str, int] | None = None,
        adapter: str = "",
    ) -> None:
        """Record that a request was sent to an engine. Another attempt replaces the earlier one.

        `tier_tokens`: the part of the hit expected from the engine's lower tiers. `adapter` is FIRST, LATER, or empty.
        """
        opened = self._open
        if request_id in opened:
            self.dropped(request_id)
        # Requests of callers that never report would otherwise add up.
        if len(opened) >= MAX_OPEN:
            self.dropped(next(iter(opened)))
        prefilling = self._prefilling.get(engine_id)
        if prefilling is None:
            prefilling = self._prefilling[engine_id] = set()
        elif len(prefilling) == 1:
            # With two or more prefills here, all of them are marked already.
            opened[next(iter(prefilling))].shared = True
        entry = _Open(engine_id, now, prompt_tokens, hit_tokens, bool(prefilling))
        entry.tier_tokens, entry.adapter = tier_tokens, adapter
        opened[request_id] = entry
        prefilling.add(request_id)

    def first_token(self, request_id: str, now: float) -> None:
        """Record a first token. Repeated ones and those of unknown requests are ignored."""
        entry = self._open.get(request_id)
        if entry is None or entry.first_token_s is not None:
            return
        if not entry.handed_over:
            self._leave_prefill(request_id, entry)
        entry.first_token_s = now
        decoding = self._decoding.setdefault(entry.engine_id, [0, 0])
        decoding[0] += 1
        decoding[1] += entry.prompt_tokens
        entry.batch, entry.context_tokens = decoding

    def handed_over(self, request_id: str, engine_id: str, now: float, cached_tokens: int | None = None) -> None:
        """Learn from a prefill whose request continues at `engine_id`. Unknown ids and repeated calls are ignored."""
        entry = self._open.get(request_id)
        if entry is None or entry.first_token_s is not None or entry.handed_over:
            return
        self._leave_prefill(request_id, entry)
        self._learn_prefill(entry, now, cached_tokens)
        entry.handed_over, entry.engine_id = True, engine_id

    def completed(
        self,
        request_id: str,
        now: float,
        *,
        cached_tokens: int | None = None,
        output_tokens: int | None = None,
        computed: bool = True,
    ) -> float | None:
        """Learn from a complete answer; ignore unknown ids. `computed` is False if some of its KV was to be loaded.

        Return the seconds that this load took, None if they are unknown.
        """
        entry = self._open.get(request_id)
        if entry is None:
            return None
        # Before the request leaves the sums: it was in the batch of its last step.
        batch, context_tokens = self._decoding.get(entry.engine_id, (0, 0))
        self.dropped(request_id)
        fit = self._fits.get(self._kinds.get(entry.engine_id, ("", 1.0))[0])
        if fit is None or entry.first_token_s is None:
            return None
        if not entry.handed_over and computed:
            self._learn_prefill(entry, entry.first_token_s, cached_tokens)
        if output_tokens is not None and output_tokens >= _LEAST_DECODE_TOKENS:
            # The first token is the prefill's.
            step_s = (now - entry.first_token_s) / (output_tokens - 1)
            # The mean of the first and the last step's batch approximates the steps between.
            fit.decoded((entry.batch + batch) / 2, (entry.context_tokens + context_tokens) / 2, step_s)
        if computed or entry.handed_over or entry.shared or cached_tokens is None or fit.samples < _FIRST_SAMPLES:
            return None
        speed = self._kinds[entry.engine_id][1]
        computed_s = fit.expected(entry.engine_id, entry.prompt_tokens, cached_tokens, speed=speed)
        return max(0.0, entry.first_token_s - entry.dispatched_s - computed_s)

    def dropped(self, request_id: str) -> None:
        """Forget a request without learning from it; unknown ids are ignored."""
        entry = self._open.pop(request_id, None)
        if entry is None:
            return
        if entry.first_token_s is None:
            if not entry.handed_over:
                self._leave_prefill(request_id, entry)
            return
        decoding = self._decoding[entry.engine_id]
        decoding[0] -= 1
        decoding[1] -= entry.prompt_tokens
        if not decoding[0]:
            del self._decoding[entry.engine_id]

    def fitted(self) -> dict[str, FittedCost]:
        """Return the fit of each kind with samples."""
        costs = {kind: fit.fitted() for kind, fit in sorted(self._fits.items())}
        return {kind: cost for kind, cost in costs.items() if cost.samples}

    def check(self) -> None:
        """Raise AssertionError if the tables disagree."""
        prefilling = {name for row in self._prefilling.values() for name in row}
        if prefilling != {
            name for name, entry in self._open.items() if entry.first_token_s is None and not entry.handed_over
        }:
            raise AssertionError("prefills and open requests differ")
        sums: dict[str, list[int]] = {}
        for item in self._open.values():
            if item.first_token_s is not None:
                row = sums.setdefault(item.engine_id, [0, 0])
                row[0] += 1
                row[1] += item.prompt_tokens
        if sums != self._decoding or len(self._open) > MAX_OPEN:
            raise AssertionError("decodes and open requests differ")

    def _learn_prefill(self, entry: _Open, ended_s: float, cached_tokens: int | None) -> None:
        kind, speed = self._kinds.get(entry.engine_id, ("", 1.0))
        fit = self._fits.get(kind)
        if fit is None:
            return
        # Two prefills at once show how long both took, not each of them.
        if entry.shared:
            self.samples[SHARED] += 1
            return
        hit = entry.hit_tokens if cached_tokens is None else cached_tokens
        seconds = ended_s - entry.dispatched_s
        if entry.tier_tokens or entry.adapter:
            if fit.samples >= _FIRST_SAMPLES:
                self._learn_loading(entry, fit, speed, seconds, hit, ended_s)
            if entry.tier_tokens or entry.adapter == FIRST:
                self.samples[LOADED] += 1
                return
        taken = fit.prefilled(entry.engine_id, entry.prompt_tokens, hit, seconds, speed=speed)
        self.samples[TAKEN if taken else IMPOSSIBLE] += 1

    def _learn_loading(
        self, entry: _Open, fit: CostFit, speed: float, seconds: float, hit_tokens: int, now: float
    ) -> None:
        """Learn the load time: the measured time minus the computation.

        Tokens expected from a tier count as loaded even if the engine reports them missing: computing them is part of
        the cost of relying on this tier.
        """
        tiers = entry.tier_tokens or {}
        below = sum(tiers.values())
        hit = min(max(hit_tokens, min(hit_tokens, entry.hit_tokens - below) + below), entry.prompt_tokens)
        extra_s = seconds - fit.expected(entry.engine_id, entry.prompt_tokens, hit, speed=speed)
        if tiers or entry.adapter == FIRST:
            first = entry.adapter == FIRST
            self._loading.loaded(entry.engine_id, tiers, first, extra_s, fit.token_s / speed, now)
        else:
            self._loading.served(entry.engine_id, extra_s, now)

    def _leave_prefill(self, request_id: str, entry: _Open) -> None:
        prefilling = self._prefilling[entry.engine_id]
        prefilling.discard(request_id)
        if not prefilling:
            del self._prefilling[entry.engine_id]
