"""Learning-based greedy routing (LBGR §4.2, Algorithm 2, App. A): cost + EWMA load + learned residual."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Literal

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.placements.ewma_load import DecayingLoad
from routing.placements.residual_model import ResidualModel
from routing.policy.setting import about, fixed, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.feedback_events import Answered, Bound, FeedbackEvent, Released
from routing.values.inference_request import InferenceRequest

_MAX_ENGINES = 4096
"""Maximum engines in memory. The least recently used one is forgotten first."""


class _Sent(msgspec.Struct, frozen=True, gc=False):
    """One request in flight and its estimated latency, until the measured one is known."""

    cost: float
    estimate: float
    """Cost + load, without the learned residual."""
    features: tuple[float, ...]
    at_s: float


@dataclass(slots=True, eq=False)
class _Engine:
    """Learned state of one engine. Mutable."""

    load: DecayingLoad
    model: ResidualModel
    sent: dict[str, _Sent] = field(default_factory=dict)


class Lbgr(msgspec.Struct, forbid_unknown_fields=True, eq=False, dict=True):
    """Picks the lowest estimated latency: tokens to compute, plus an EWMA load, plus a residual learned by regression.

    Mutable state: `_engines`, by engine id. With the paper's coefficients, estimates are in seconds per 1,000 uncached
    tokens. The residual learns the true scale.
    """

    uncached_s: Annotated[
        float,
        about("Cost of uncached tokens", "Time per 1,000 uncached prompt tokens (α_miss); the paper uses 1."),
        number("s per 1,000 tok", ge=0, le=1000, usual=(0.05, 1)),
    ] = 1.0
    cached_s: Annotated[float, fixed(ge=0, le=1000)] = 0.0
    """Time per 1,000 cached prompt tokens (α_cached); the paper uses 0."""
    decay: Annotated[float, fixed(gt=0, le=1)] = 31 / 32
    """Factor (ρ) by which the load decays in each interval; 1: no decay."""
    decay_interval_s: Annotated[float, fixed(gt=0, le=3600)] = 0.020
    """How often the load decays (Δt)."""
    keep_pending: Annotated[bool, fixed()] = False
    """Does not decay the load of requests without a first token; not in the paper."""
    residual: Annotated[Literal["full", "bias"], fixed()] = "full"
    """Inputs of the regression. full: cached tokens, uncached tokens, load and a constant. bias: the constant only."""
    # App. A calls 0.992 a learning rate, which recursive least squares has not (docs/papers.md).
    forgetting: Annotated[float, fixed(gt=0, le=1)] = 0.992
    """Weight (λ) that an observation keeps per newer one; 0.95 adapts faster."""
    prior: Annotated[float, fixed(gt=0, le=1e6)] = 10.0
    """Initial variance of the regression's weights."""

    def __post_init__(self) -> None:
        self._engines: dict[str, _Engine] = {}

    def choose(self, request: InferenceRequest, view: FleetView, now: float, rng: Random) -> Choice:
        """Return the engine with the lowest estimated latency (eq. 4)."""
        held = view.held(view.match(request))
        costs = {}
        for target in view.roster.accepting:
            hit = view.hit_tokens(request, target, held[target])
            costs[target] = self._estimate(request, view.roster.engine_ids[target], hit, now)
        return least(request, view, now, held, costs, reasons.LEAST_LATENCY)

    def learn(self, event: FeedbackEvent) -> None:
        """Count sent requests, learn from first tokens (or from ends without one), and release ended requests."""
        request, engine_id, now = event.request, event.engine_id, event.at_s
        if isinstance(event, Bound):
            self._send(request, self._engine(engine_id), event.hit_tokens, now)
            return
        engine = self._engines.get(engine_id)
        sent = engine.sent.pop(request.request_id, None) if engine is not None else None
        if engine is None or sent is None:
            return
        if isinstance(event, Answered) or (isinstance(event, Released) and event.finished):
            # The TTFT: of the whole latency, as in the paper, most would be decode time (docs/papers.md).
            engine.model.update(sent.features, now - request.arrived_s - sent.estimate)
        engine.load.release(sent.cost, sent.at_s, now)

    def _estimate(self, request: InferenceRequest, engine_id: str, hit_tokens: int, now: float) -> float:
        cost = self._cost(request, hit_tokens)
        engine = self._engines.get(engine_id)
        if engine is None:
            return cost
        load = engine.load.at(now)
        return cost + load + engine.model.predict(self._features(request, hit_tokens, load))

    def _send(self, request: InferenceRequest, engine: _Engine, hit_tokens: int, now: float) -> None:
        cost, load = self._cost(request, hit_tokens), engine.load.at(now)
        features = self._features(request, hit_tokens, load)
        engine.sent[request.request_id] = _Sent(cost, cost + load, features, now)
        engine.load.add(cost, now)

    def _cost(self, request: InferenceRequest, hit_tokens: int) -> float:
        """Return the estimated service time of eq. 5."""
        return (self.cached_s * hit_tokens + self.uncached_s * (request.prompt_tokens - hit_tokens)) / 1000

    def _features(self, request: InferenceRequest, hit_tokens: int, load: float) -> tuple[float, ...]:
        if self.residual == "bias":
            return (1.0,)
        return (hit_tokens / 1000, (request.prompt_tokens - hit_tokens) / 1000, load, 1.0)

    def _engine(self, engine_id: str) -> _Engine:
        """Return the state of an engine, and mark it as most recently used."""
        engine = self._engines.pop(engine_id, None)
        if engine is None:
            load = DecayingLoad(self.decay, self.decay_interval_s, keeps_pending=self.keep_pending)
            features = 1 if self.residual == "bias" else 4
            engine = _Engine(load, ResidualModel(features, forgetting=self.forgetting, prior=self.prior))
            if len(self._engines) >= _MAX_ENGINES:
                del self._engines[next(iter(self._engines))]
        self._engines[engine_id] = engine
        return engine
