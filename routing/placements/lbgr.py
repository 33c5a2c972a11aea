"""Learning-based greedy routing (LBGR §4.2, Algorithm 2, App. A): cost + EWMA load + learned residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Literal

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.placements.candidate_scores import least
from routing.policy.setting import about, fixed, number
from routing.values import reasons
from routing.values.decision import Choice
from routing.values.feedback_events import Answered, Bound, FeedbackEvent, Released
from routing.values.inference_request import InferenceRequest
from routing.values.prepared_struct import prepared


class DecayingLoad:
    """Work sent to an engine, decaying by the factor `decay` in each interval, computed on demand (LBGR §4.2, eq. 6).

    With `keeps_pending`, the load never falls below the sum of added and unreleased costs, so a request that is still
    queued is never forgotten.

    Mutable state: `_load` (valid at `_at_s`), `_at_s`, and `_pending`.
    """

    def __init__(self, decay: float, interval_s: float, *, keeps_pending: bool = False) -> None:
        self._decay = decay
        self._interval_s = interval_s
        self._keeps_pending = keeps_pending
        self._load = 0.0
        self._pending = 0.0
        self._at_s = 0.0

    def at(self, now: float) -> float:
        """Return the load at a time. Times before the last change count as that of the change."""
        load = self._load * self._factor(now - self._at_s)
        return max(load, self._pending) if self._keeps_pending else load

    def add(self, cost: float, now: float) -> None:
        """Add a cost."""
        self._move(now)
        self._load += cost
        self._pending += cost

    def release(self, cost: float, added_s: float, now: float) -> None:
        """Subtract the remainder of a cost that was added at `added_s`."""
        self._move(now)
        # Rounding must not leave less than nothing.
        self._load = max(self._load - cost * self._factor(now - added_s), 0.0)
        self._pending = max(self._pending - cost, 0.0)

    def _move(self, now: float) -> None:
        self._load *= self._factor(now - self._at_s)
        self._at_s = max(self._at_s, now)

    def _factor(self, passed_s: float) -> float:
        return float(self._decay ** (max(passed_s, 0.0) / self._interval_s))


LARGEST_COVARIANCE = 1e6
"""Limit of the covariance. Forgetting makes it grow without bound in directions that are never observed."""


class ResidualModel:
    """A linear model learned online by recursive least squares with forgetting (LBGR §4.2, App. A).

    θ minimises Σ λ^(n−i) (yᵢ − θᵀφᵢ)² over the n observations so far, with the prior covariance P₀ = p·I.

    Mutable state: `theta` (weights) and `_covariance`, symmetric, one row per feature.
    """

    def __init__(self, features: int, *, forgetting: float, prior: float) -> None:
        self.theta = [0.0] * features
        self._forgetting = forgetting
        self._covariance = [[prior if row == column else 0.0 for column in range(features)] for row in range(features)]

    def predict(self, features: Sequence[float]) -> float:
        """Return θᵀφ."""
        return math.fsum([weight * value for weight, value in zip(self.theta, features, strict=True)])

    def update(self, features: Sequence[float], observed: float) -> None:
        """Learn from one observation. A non-finite value is ignored."""
        error = observed - self.predict(features)
        if not math.isfinite(error):
            return
        seen = [self._dot(row, features) for row in self._covariance]
        scale = self._forgetting + self._dot(seen, features)
        gain = [value / scale for value in seen]
        self.theta = [weight + step * error for weight, step in zip(self.theta, gain, strict=True)]
        grown = max(row[at] - gain[at] * seen[at] for at, row in enumerate(self._covariance))
        # Only so much is forgotten that the largest variance stays within its limit.
        forgetting = max(self._forgetting, min(grown / LARGEST_COVARIANCE, 1.0))
        covariance = [
            [(value - gain[at] * other) / forgetting for value, other in zip(row, seen, strict=True)]
            for at, row in enumerate(self._covariance)
        ]
        # Rounding would let the two halves diverge, so one of them is copied to the other.
        self._covariance = [
            [covariance[min(at, other)][max(at, other)] for other in range(len(row))]
            for at, row in enumerate(covariance)
        ]

    def kept(self) -> tuple[list[float], list[list[float]]]:
        """Return the weights and the covariance."""
        return self.theta, self._covariance

    def resume(self, theta: list[float], covariance: list[list[float]]) -> None:
        """Continue from kept figures. They are ignored unless they are finite and of this model's size."""
        rows, size = [theta, *covariance], len(self.theta)
        if len(rows) == size + 1 and all(len(row) == size and all(map(math.isfinite, row)) for row in rows):
            self.theta, self._covariance = theta, covariance

    def check(self) -> None:
        """Raise AssertionError unless all numbers are finite and the covariance is symmetric and bounded."""
        rows = self._covariance
        if not all(math.isfinite(value) for row in [self.theta, *rows] for value in row):
            raise AssertionError("a weight is not a finite number")
        for at, row in enumerate(rows):
            if not -1e-9 <= row[at] <= LARGEST_COVARIANCE * (1 + 1e-9):
                raise AssertionError(f"variance {row[at]} of feature {at} is out of bounds")
            if any(abs(row[other] - rows[other][at]) > 1e-6 * (1 + abs(row[other])) for other in range(len(rows))):
                raise AssertionError("the covariance is not symmetric")

    @staticmethod
    def _dot(left: Sequence[float], right: Sequence[float]) -> float:
        return math.fsum([one * two for one, two in zip(left, right, strict=True)])


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


class _Kept(msgspec.Struct, frozen=True):
    """What is learned about engines, by their ids, and of which latency."""

    latency: str
    engines: dict[str, tuple[list[float], list[list[float]]]]


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
    """Does not decay the load of requests that are not released; not in the paper."""
    latency: Annotated[
        Literal["ttft", "end_to_end"],
        about(
            "Learned latency",
            "ttft: load is released at the first token. end_to_end: the latency includes decoding, and load is "
            "released at the end, as in the paper.",
        ),
    ] = "ttft"
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
        """Count sent requests, and learn from and release them at their first token or end, as `latency` states."""
        request, engine_id, now = event.request, event.engine_id, event.at_s
        if isinstance(event, Bound):
            self._send(request, self._engine(engine_id), event.hit_tokens, now)
            return
        if isinstance(event, Answered) and self.latency == "end_to_end":
            return
        engine = self._engines.get(engine_id)
        sent = engine.sent.pop(request.request_id, None) if engine is not None else None
        if engine is None or sent is None:
            return
        if isinstance(event, Answered) or (isinstance(event, Released) and event.finished):
            engine.model.update(sent.features, now - request.arrived_s - sent.estimate)
        engine.load.release(sent.cost, sent.at_s, now)

    def kept(self) -> bytes:
        """Return what is learned about the engines."""
        return msgspec.msgpack.encode(
            _Kept(self.latency, {engine_id: engine.model.kept() for engine_id, engine in self._engines.items()})
        )

    def resume(self, kept: bytes) -> None:
        """Continue with what `kept` returned. Of another latency, or damaged, it is ignored."""
        try:
            state = msgspec.msgpack.decode(kept, type=prepared(_Kept))
        except msgspec.DecodeError:
            return
        for engine_id, model in state.engines.items() if state.latency == self.latency else ():
            self._engine(engine_id).model.resume(*model)

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
