"""The finding of a shadow: its verdict, and which sentence of templates/trials/shadow states it."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.shadow.reading import ShadowFigures
from controlplane.trials.whatif.finding import BETTER, EVEN, WORSE

ENOUGH = 100
"""Minimum number of requests for a verdict."""
_LEAST_S = 0.001
_LEAST_SHARE = 0.001


@dataclass(frozen=True, slots=True)
class ShadowFinding:
    """The result of a shadow; `kind` is better, worse, or even, and empty while there is no verdict."""

    kind: str
    case: str
    """The sentence that states it."""


def finding(shadow: Shadow, figures: ShadowFigures) -> ShadowFinding:
    """Return the result of the comparisons so far."""
    tally = figures.tally
    if shadow.state == ShadowState.FAILED:
        return ShadowFinding("", "failed")
    if not tally.compared:
        return ShadowFinding("", _nothing(shadow, figures))
    if tally.compared < ENOUGH and shadow.state == ShadowState.RUNNING:
        return ShadowFinding("", "few")
    if figures.disagreed / tally.compared < _LEAST_SHARE:
        return ShadowFinding(EVEN, "same")
    gain_s = figures.mean_gain_s or 0.0
    if abs(gain_s) < _LEAST_S:
        return ShadowFinding(EVEN, "equal")
    return ShadowFinding(BETTER, "shorter") if gain_s > 0 else ShadowFinding(WORSE, "longer")


def _nothing(shadow: Shadow, figures: ShadowFigures) -> str:
    if figures.tally.unbound:
        return "unbound"
    if shadow.state != ShadowState.RUNNING:
        return "none"
    return "observing" if shadow.observed else "waiting"
