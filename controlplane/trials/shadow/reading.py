"""Figures computed from a shadow's counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from controlplane.policies.upgrade import routing_of
from controlplane.trials.models.shadow import Shadow
from controlplane.trials.shadow.reports import total_of
from gateway.contracts.shadow_tally import GAIN_EDGES_S, Disagreement, ShadowEngineShare, ShadowTally
from routing.policy.schema_versions import SchemaError
from routing.trials.shadow import uncompared_parts

SHOWN_DISAGREEMENTS = 40


@dataclass(frozen=True, slots=True)
class ShadowFigures:
    """All gateways' counts of one shadow so far. Gains are seconds of predicted TTFT."""

    tally: ShadowTally
    uncompared: tuple[str, ...]
    """Parts of the policy in which draft and live version differ but which a shadow does not compare."""

    @property
    def agreement(self) -> float | None:
        """Return the share of requests with the same choice of engine, 0..1; None without compared requests."""
        return self.tally.agreed / self.tally.compared if self.tally.compared else None

    @property
    def disagreed(self) -> int:
        """Return the number of requests with different choices."""
        return self.tally.compared - self.tally.agreed

    @property
    def mean_gain_s(self) -> float | None:
        """Return the mean gain over all compared requests. Requests with the same choice count as 0."""
        return self.tally.gain_s / self.tally.compared if self.tally.compared else None

    @property
    def mean_gain_hit_tokens(self) -> float | None:
        """Return the mean number of gained cached tokens over all compared requests."""
        return self.tally.gain_hit_tokens / self.tally.compared if self.tally.compared else None

    @property
    def cpu_s(self) -> float | None:
        """Return the mean CPU time of one choice of the shadow."""
        return self._per_choice(self.tally.cpu_s)

    @property
    def learning_cpu_s(self) -> float | None:
        """Return the mean CPU time that the shadow learns for each choice."""
        return self._per_choice(self.tally.learning_cpu_s)

    def _per_choice(self, total_s: float) -> float | None:
        chosen = self.tally.compared + self.tally.unbound
        return total_s / chosen if chosen else None

    @property
    def expected_s(self) -> float | None:
        """Return the mean predicted TTFT of the compared requests at their real engines; None without a first token."""
        return self.tally.expected_s / self.tally.answered if self.tally.answered else None

    @property
    def measured_s(self) -> float | None:
        """Return the mean measured TTFT of the same requests."""
        return self.tally.measured_s / self.tally.answered if self.tally.answered else None

    def gain_quantile_s(self, share: float) -> float | None:
        """Return this quantile of the gains of requests with different choices; None without any."""
        return range_quantile(self.tally.gains, share)

    @property
    def engines(self) -> list[tuple[str, ShadowEngineShare]]:
        """Return the engines by name."""
        return sorted(self.tally.engines.items())

    @property
    def disagreements(self) -> list[Disagreement]:
        """Return a sample of the requests with different choices, newest first."""
        return sorted(self.tally.sample, key=lambda item: -item.at)[:SHOWN_DISAGREEMENTS]


def figures_of(shadow: Shadow) -> ShadowFigures:
    """Return the shadow's figures so far."""
    if shadow.observed:
        return ShadowFigures(total_of(shadow), ())
    try:
        uncompared = uncompared_parts(routing_of(shadow.base), routing_of(shadow.draft))
    except (SchemaError, msgspec.ValidationError):
        uncompared = ()
    return ShadowFigures(total_of(shadow), uncompared)


def range_quantile(counts: Sequence[int], share: float) -> float | None:
    """Return the quantile of gains counted in the ranges of GAIN_EDGES_S, assumed uniform in each range.

    None without gains.
    """
    total = sum(counts)
    if not total:
        return None
    wanted, passed = share * total, 0
    # The outermost ranges are unbounded; they count as their one edge.
    lows = (GAIN_EDGES_S[0], *GAIN_EDGES_S)
    highs = (*GAIN_EDGES_S, GAIN_EDGES_S[-1])
    for low, high, number in zip(lows, highs, counts, strict=True):
        if number and passed + number >= wanted:
            return low + (high - low) * (wanted - passed) / number
        passed += number
    return highs[-1]
