"""Fit the cost formulas to measured times: one fit per kind of engine, one speed per engine."""

from __future__ import annotations

import math

import msgspec

from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.cost.nonnegative_fit import NonNegativeFit

LEAST_SPEED, MOST_SPEED = 0.1, 10.0
TRUSTED_SAMPLES = 50
"""Number of prefills needed before a fit can be used."""
MAX_ENGINES = 4096
_MARGIN = 0.95
"""A fit counts as better if its mean error is below this share of the policy's."""
_MEMORY = 0.98
_SPEED_STEP = 0.05
_MOST_SURPRISE = 0.7
"""Limit on how much one sample can move an engine's speed (difference from the fit in natural logarithms)."""
_LONGEST_S = 600.0
_FASTEST_TOKENS_PER_S = 1e7
_LONGEST_PROMPT = 100_000_000

_PREFILL_ANCHORS = ((64, 0), (512, 0), (4096, 0), (20_480, 0), (8192, 8128), (20_480, 16_384))
"""Prompts (tokens, cached tokens) at which a fit is kept near the prior's shape."""
_DECODE_ANCHORS = ((1.0, 1.0, 2e3), (1.0, 16.0, 6e4), (1.0, 64.0, 5e5))


class FittedCost(msgspec.Struct, frozen=True, kw_only=True):
    """Learned cost of one kind of engine."""

    prefill: PrefillCost
    samples: int
    """Number of prefills in the fit. Older ones count less."""
    error: float
    """Mean relative error of its predictions, each made before its sample was learned."""
    policy_error: float
    """Mean relative error of the policy's own cost."""
    decode: DecodeCost | None = None
    """None if too few decodes were observed."""
    speeds: dict[str, float] = {}
    """Engine id → speed relative to the fit, 0.1 to 10."""

    @property
    def better(self) -> bool:
        """Whether it has predicted better than the policy's cost, over enough prefills."""
        return self.samples >= TRUSTED_SAMPLES and self.error < _MARGIN * self.policy_error


class CostFit:
    """Learns the cost of one kind of engine. Mutable: both fits, the engines' speeds and the mean errors."""

    def __init__(self, prefill: PrefillCost, decode: DecodeCost, start: FittedCost | None = None) -> None:
        self._policy_prefill = prefill
        prior = prefill if start is None else start.prefill
        decode_prior = decode if start is None or start.decode is None else start.decode
        self._prefill = NonNegativeFit(_coefficients(prior), [_features(*item) for item in _PREFILL_ANCHORS])
        self._decode = NonNegativeFit(_decode_coefficients(decode_prior), _DECODE_ANCHORS)
        self._speeds: dict[str, float] = {} if start is None else dict(start.speeds)
        self._error: float | None = None
        self._policy_error: float | None = None

    def prefilled(
        self, engine_id: str, prompt_tokens: int, hit_tokens: int, seconds: float, *, speed: float = 1.0
    ) -> bool:
        """Learn from one prefill. Return False, without learning, if the measurement is impossible.

        `speed` is the engine's speed in the topology. The fit describes an engine of speed 1.
        """
        if not _possible(prompt_tokens, hit_tokens, seconds) or not speed > 0:
            return False
        seconds *= speed
        features = _features(prompt_tokens, hit_tokens)
        # Predicted before the sample is learned, so that the errors are those of predictions.
        expected = self._prefill.predict(features) / self._speeds.get(engine_id, 1.0)
        # Bounded, so that one outlier does not decide which cost predicts better.
        self._error = _mean(self._error, min(abs(expected - seconds) / seconds, 2.0))
        by_policy = self._policy_prefill.seconds(prompt_tokens, hit_tokens)
        self._policy_error = _mean(self._policy_error, min(abs(by_policy - seconds) / seconds, 2.0))
        self._learn_speed(engine_id, seconds, features)
        self._prefill.learn(features, seconds)
        return True

    def expected(self, engine_id: str, prompt_tokens: int, hit_tokens: int, *, speed: float = 1.0) -> float:
        """Return the expected seconds of a prefill on an engine of this declared speed."""
        features = _features(prompt_tokens, hit_tokens)
        return self._prefill.predict(features) / (self._speeds.get(engine_id, 1.0) * speed)

    @property
    def samples(self) -> int:
        """Number of prefills learned from."""
        return self._prefill.samples

    @property
    def token_s(self) -> float:
        """Seconds to compute one token, without attention."""
        return self._prefill.coefficients[1]

    def decoded(self, batch: float, context_tokens: float, seconds: float) -> bool:
        """Learn from the mean step of one decode. Return False, without learning, if the measurement is impossible."""
        figures = (batch, context_tokens, seconds)
        if not all(math.isfinite(figure) for figure in figures) or batch < 1 or context_tokens < 0:
            return False
        if not 1e-5 <= seconds <= 60.0:
            return False
        self._decode.learn((1.0, batch, context_tokens), seconds)
        return True

    def keep(self, engine_ids: frozenset[str]) -> None:
        """Forget the speeds of all other engines."""
        self._speeds = {engine_id: speed for engine_id, speed in self._speeds.items() if engine_id in engine_ids}

    def fitted(self) -> FittedCost:
        """Return the current fit."""
        enough = self._decode.samples >= TRUSTED_SAMPLES
        return FittedCost(
            prefill=PrefillCost(*self._prefill.coefficients),
            samples=self._prefill.samples,
            # An unknown error is the greatest one, so that no fit without samples seems good.
            error=2.0 if self._error is None else self._error,
            policy_error=2.0 if self._policy_error is None else self._policy_error,
            decode=DecodeCost(*self._decode.coefficients) if enough else None,
            speeds=dict(sorted(self._speeds.items())),
        )

    def _learn_speed(self, engine_id: str, seconds: float, features: tuple[float, ...]) -> None:
        """Move the engine's speed one step towards the ratio of the fit to this prefill."""
        before = self._speeds.get(engine_id)
        if before is None:
            if len(self._speeds) >= MAX_ENGINES:
                return
            before = 1.0
        surprise = math.log(max(self._prefill.predict(features), 1e-9) / seconds) - math.log(before)
        # One outlier moves the speed by a bounded step.
        surprise = max(-_MOST_SURPRISE, min(_MOST_SURPRISE, surprise))
        speed = before * math.exp(_SPEED_STEP * surprise)
        self._speeds[engine_id] = max(LEAST_SPEED, min(MOST_SPEED, speed))


def _possible(prompt_tokens: int, hit_tokens: int, seconds: float) -> bool:
    """Return whether this time is possible for an engine."""
    if not (1 <= prompt_tokens <= _LONGEST_PROMPT and 0 <= hit_tokens <= prompt_tokens):
        return False
    if not math.isfinite(seconds) or not 0 < seconds <= _LONGEST_S:
        return False
    return (prompt_tokens - hit_tokens) / seconds <= _FASTEST_TOKENS_PER_S


def _features(prompt_tokens: int, hit_tokens: int) -> tuple[float, ...]:
    uncached = max(prompt_tokens - hit_tokens, 1)
    return (1.0, float(uncached), uncached * (prompt_tokens - uncached / 2), float(hit_tokens))


def _coefficients(cost: PrefillCost) -> tuple[float, ...]:
    return (cost.base_s, cost.per_token_s, cost.per_token_squared_s, cost.per_hit_token_s)


def _decode_coefficients(cost: DecodeCost) -> tuple[float, ...]:
    coefficients = (cost.base_s, cost.per_sequence_s, cost.per_context_token_s)
    # A fit needs a prior above 0; these are the defaults of DecodeCost.
    return coefficients if any(coefficients) else (0.015, 0.1e-3, 30e-9)


def _mean(before: float | None, value: float) -> float:
    return value if before is None else _MEMORY * before + (1 - _MEMORY) * value
