"""Cost of a session's next request on each engine, and the engine with the lowest cost.

The cost is a time: until the KV cache is there (loaded, or recomputed where that is sooner), until the prefill ahead is
done, and for decode, which slows with the KV tokens that the engine reads in each step. Request counts alone are no
measure of an engine's load: at a few active requests per engine they are noise.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class SessionEngineSpeed(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Speed of the engines of one served model."""

    prefill_s_per_token: float
    attention_s_per_token_pair: float
    """Added to the prefill of one token, per token of its context."""
    read_s_per_token: float
    """Added to a decode step, per KV token that it reads."""
    step_s_per_request: float
    answer_tokens: float
    """Decode steps that a request is expected to take."""

    def prefill_s(self, context_tokens: int, prompt_tokens: int) -> float:
        """Return the time to prefill a prompt behind a context whose KV cache is present."""
        # A token attends to all before it: to the context, and on average to half of the prompt.
        pairs = prompt_tokens * (context_tokens + prompt_tokens / 2)
        return prompt_tokens * self.prefill_s_per_token + pairs * self.attention_s_per_token_pair


class EngineOffer(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What one engine can offer one session at this moment."""

    engine_id: int
    load_s: float
    """Time until the session's KV cache is in the engine, the backlog of the links included; infinite: no copy."""
    prefill_backlog_s: float
    resident_tokens: float
    """KV tokens of the requests bound to the engine, soft reservations included."""
    requests: float
    """Requests bound to the engine, soft reservations included."""


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
        """The sum of the terms."""
        return self.ready_s + self.backlog_s + self.decode_s + self.slowdown_s


def cost_of(
    offer: EngineOffer, context_tokens: int, speed: SessionEngineSpeed, *, may_recompute: bool = True
) -> SessionCost:
    """Return the cost of an engine's offer; the cache is recomputed where loading it would take longer."""
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
    """Return the least cost; the lower engine id wins a tie."""
    return min(costs, key=lambda cost: (cost.total_s, cost.engine_id))


def at_arrival(costs: Iterable[SessionCost], reserved: int | None, margin_s: float) -> SessionCost:
    """Return the reserved engine's cost, or the least where that is cheaper by more than the margin."""
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
