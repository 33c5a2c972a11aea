"""What another engine would have saved: one figure and one sentence, for title, figures, charts, and advice alike."""

from __future__ import annotations

from controlplane.platform.format import duration
from controlplane.request_log.decision_story.certainty import name_of
from controlplane.request_log.decision_story.service_words import by_provider
from gateway.contracts.regret import Regret
from gateway.contracts.stored_decision import StoredDecision

WORTH_REPORTING_S = 0.01
"""Seconds from which a difference between engines is more than the error of the estimates."""


def regret_of(stored: StoredDecision) -> Regret | None:
    """Return the regret; None also if the outcome does not judge the choice: it failed, or a provider answered."""
    return None if stored.outcome == "failed" or by_provider(stored) is not None else stored.regret


def spared_s(stored: StoredDecision) -> float:
    """Return the seconds that the best other engine would have saved; 0 if fewer than WORTH_REPORTING_S."""
    regret = regret_of(stored)
    saved_s = regret.seconds - regret.lost_s if regret is not None else 0.0
    return saved_s if saved_s >= WORTH_REPORTING_S else 0.0


def cause_of(stored: StoredDecision) -> str:
    """Return the cause of the largest part of the regret; empty if it is not worth reporting."""
    regret = regret_of(stored)
    return regret.cause if regret is not None and regret.seconds >= WORTH_REPORTING_S else ""


def instead_words(stored: StoredDecision) -> str:
    """Return what would have happened on the best other engine, without a full stop; empty if it is unknown."""
    regret, saved_s = regret_of(stored), spared_s(stored)
    if regret is None:
        return ""
    best = name_of(stored, regret.best_engine_id)
    if not stored.decision.engine_id:
        return f"{best} was expected to be on time" if saved_s else "no engine was expected to be on time"
    return f"{best} would have been {duration(saved_s)} faster" if saved_s else "no engine would have been faster"


def lost_words(stored: StoredDecision) -> str:
    """Return the time that was lost before an engine was chosen, as a sentence; empty if there is none."""
    regret = regret_of(stored)
    lost_s = regret.lost_s if regret is not None else 0.0
    return f"{duration(lost_s)} were lost before the engine was chosen. " if lost_s >= WORTH_REPORTING_S else ""


def unknown_regret(stored: StoredDecision) -> str:
    """Return why a decision without a regret has none, as the end of a sentence."""
    if by_provider(stored) is not None:
        return "an external provider answered."
    if not stored.decision.engine_id:
        return "no engine was evaluated."
    if stored.outcome == "failed":
        return "the request failed, which does not judge the choice."
    if stored.first_token_after_s is None:
        return "no first token was received."
    if len(stored.decision.candidates) < 2:
        return "there was no other candidate to compare with."
    return "an earlier attempt failed, and this older record does not contain its times."
