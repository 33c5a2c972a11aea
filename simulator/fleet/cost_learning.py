"""Learns engine costs like a gateway, in a simulation whose policy has `cost: fitted`."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.cost_observer import CostObserver
from routing.cost.loading_costs import LoadingCosts
from routing.ledger.fleet_view import EngineFacts
from routing.policy.policy_document import RoutingPolicy
from routing.values.decision import Decision

PUBLISH_INTERVAL_S = 15.0
"""Seconds between updates of the router with learned costs, as a gateway reports them to the control plane."""
_KIND = "simulated"


class CostLearning:
    """A gateway's cost observer for one router. It is expensive, so it is off while the policy uses configured costs.

    Mutable: the observer (None while off), the configured costs at its start, and the next publishing time.
    """

    def __init__(self, policy: RoutingPolicy, loading: LoadingCosts | None = None) -> None:
        self._loading = loading
        self._next_s = PUBLISH_INTERVAL_S
        self._observer: CostObserver | None = None
        self._written = _written(policy)
        self.adopt(policy)

    def adopt(self, policy: RoutingPolicy) -> None:
        """Follow this policy. If the configured costs differ, restart the learning, as in the gateway."""
        written = _written(policy)
        if policy.cost != "fitted":
            self._observer = None
        elif self._observer is None or written != self._written:
            self._observer = CostObserver(*written, self._loading)
        self._written = written

    def dispatched(self, decision: Decision, now: float) -> None:
        """Record that a request was sent to its engine."""
        if self._observer is not None:
            tiers = None if decision.loading is None else decision.loading.tier_tokens
            self._observer.dispatched(
                decision.decision_id, decision.engine_id, decision.prompt_tokens, decision.hit_tokens, now, tiers
            )

    def first_token(self, request_id: str, now: float) -> None:
        """Record a first token."""
        if self._observer is not None:
            self._observer.first_token(request_id, now)

    def completed(self, request_id: str, now: float, cached_tokens: int | None, output_tokens: int) -> None:
        """Learn from a completed request."""
        if self._observer is not None:
            self._observer.completed(request_id, now, cached_tokens=cached_tokens, output_tokens=output_tokens)

    def dropped(self, request_id: str) -> None:
        """Discard a request that failed or was rejected."""
        if self._observer is not None:
            self._observer.dropped(request_id)

    def facts(self, engines: Sequence[EngineFacts]) -> list[EngineFacts]:
        """Return the engines' facts, with learned costs if those are more accurate than the configured ones."""
        if self._observer is None:
            return list(engines)
        self._observer.set_engines({engine.engine_id: (_KIND, engine.speed) for engine in engines}, {})
        fitted = self._observer.fitted().get(_KIND)
        if fitted is None or not fitted.better:
            return list(engines)
        return [_with(engine, fitted) for engine in engines]

    def due(self, now: float) -> bool:
        """Return whether publishing is due; if so, restart the interval."""
        if self._observer is None or now < self._next_s:
            return False
        self._next_s = now + PUBLISH_INTERVAL_S
        return True


def _with(engine: EngineFacts, fitted: FittedCost) -> EngineFacts:
    speed = engine.speed * fitted.speeds.get(engine.engine_id, 1.0)
    return replace(engine, speed=speed, cost=fitted.prefill, decode_cost=fitted.decode)


def _written(policy: RoutingPolicy) -> tuple[PrefillCost, DecodeCost]:
    return PrefillCost.of(policy.prefill_cost), DecodeCost.of(policy.decode_cost)
