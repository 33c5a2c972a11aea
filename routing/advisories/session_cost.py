"""Cost of a session's next request on each engine, and the engine with the lowest cost.

The cost is the time until the KV cache is present (loaded, or recomputed if that is faster), plus the prefills ahead,
plus the decode time, which grows with the KV tokens that the engine reads in each step. Request counts alone do not
measure an engine's load: at a few active requests per engine they are noise.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class SessionEngineSpeed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Speed of the engines of one served model."""

    prefill_s_per_token: float
    attention_s_per_token_pair: float
    """Added to the prefill time of one token, per token of its context."""
    read_s_per_token: float
    """Added to a decode step, per KV token read."""
    step_s_per_request: float
    answer_tokens: float
    """Expected number of decode steps of a request."""

    def prefill_s(self, context_tokens: int, prompt_tokens: int) -> float:
        """Return the time to prefill a prompt after a context whose KV cache is present."""
        # A token attends to all before it: to the context, and on average to half of the prompt.
        pairs = prompt_tokens * (context_tokens + prompt_tokens / 2)
        return prompt_tokens * self.prefill_s_per_token + pairs * self.attention_s_per_token_pair


class EngineOffer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """State of one engine that determines a session's cost at this moment."""

    engine_id: int
    load_s: float
    """Time until the session's KV cache is in the engine, including the backlog of the links. Infinite if no copy
    exists.
    """
    prefill_backlog_s: float
    resident_tokens: float
    """KV tokens of the requests bound to the engine, including soft reservations."""
    requests: float
    """Requests bound to the engine, including soft reservations."""


class SessionCost(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """One engine's cost for one session, with its terms."""

    engine_id: int
    ready_s: float
    recompute: bool
    backlog_s: float
    decode_s: float
    slowdown_s: float

    @property
    def total_s(self) -> float:
        """Sum of the terms."""
        return self.ready_s + self.backlog_s + self.decode_s + self.slowdown_s


def cost_of(
    offer: EngineOffer, context_tokens: int, speed: SessionEngineSpeed, *, may_recompute: bool = True
) -> SessionCost:
    """Return the cost of an engine's offer. The cache is recomputed if loading it would take longer."""
    recompute_s = speed.prefill_s(0, context_tokens)
    recompute = offer.load_s == float("inf") or (may_recompute and offer.load_s > offer.prefill_backlog_s + recompute_s)
    steps = speed.answer_tokens
    step_s = offer.resident_tokens * speed.read_s_per_token + offer.requests * speed.step_s_per_request
    own_step_s = context_tokens * speed.read_s_per_token + speed.step_s_per_request
    # The other side of the cost: by how much this session slows those that are there.
    slowed = offer.requests * (steps * own_step_s + (recompute_s if recompute else 0.0))
    # A load runs beside the prefills ahead, a computation behind them.
    ready_s = recompute_s if recompute else max(0.0, offer.load_s - offer.prefill_backlog_s)
    return SessionCost(
        engine_id=offer.engine_id,
        ready_s=ready_s,
        recompute=recompute,
        backlog_s=offer.prefill_backlog_s,
        decode_s=steps * step_s,
        slowdown_s=slowed,
    )


def cheapest(costs: Iterable[SessionCost]) -> SessionCost:
    """Return the lowest cost. The lower engine id wins a tie."""
    return min(costs, key=lambda cost: (cost.total_s, cost.engine_id))


def at_arrival(costs: Iterable[SessionCost], reserved: int | None, margin_s: float) -> SessionCost:
    """Return the reserved engine's cost, or the lowest cost if that is cheaper by more than the margin."""
    least: SessionCost | None = None
    held: SessionCost | None = None
    for cost in costs:
        if least is None or (cost.total_s, cost.engine_id) < (least.total_s, least.engine_id):
            least = cost
        if cost.engine_id == reserved:
            held = cost
    if least is None:
        raise ValueError("no engine to choose from")
    return held if held is not None and held.total_s - least.total_s <= margin_s else least
