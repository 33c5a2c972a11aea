"""What to do about one decision: the remedy of the largest part of its regret."""

from __future__ import annotations

from controlplane.decision_story.figures import age, plain, seconds
from controlplane.decision_story.firmness import firmness, name_of
from gateway.contracts.regret import ADMISSION, GATEWAY, LOAD, QUEUE_ORDER, STALE_VIEW, TRADE, WRONG_INDEX
from gateway.contracts.stored_decision import StoredDecision
from gateway.engines.hit_words import cause_words

CAUSE_WORDS = {
    TRADE: "Load: waiting traded for cache",
    LOAD: "Load: the queue grew",
    STALE_VIEW: "Stale view: the queue had grown",
    WRONG_INDEX: "Wrong index: blocks were gone",
    QUEUE_ORDER: "Queue order: younger ones went first",
    ADMISSION: "Admission",
    GATEWAY: "Gateway: it was slow to decide",
}


def advice(stored: StoredDecision) -> str:
    """Return what to do, in two sentences at most."""
    regret = stored.regret
    if not stored.decision.engine_id:
        return _refused(stored)
    if stored.outcome == "failed":
        return "The engine failed, not the choice: look at its state on the Fleet page and at its log."
    if regret is None or not regret.cause:
        if not stored.late:
            return "Nothing: it was on time, and no other engine is known to have been faster."
        return "No other choice would have helped: the pool had too little room. Look at its load at that moment."
    if regret.cause == GATEWAY:
        return (
            "The gateway was slow, not an engine: its process had no time for this request. "
            "See switchyard_loop_lag_seconds, and give the gateway a core of its own."
        )
    return _by_cause(stored, regret.cause)


def _by_cause(stored: StoredDecision, cause: str) -> str:
    decision = stored.decision
    name = name_of(stored, decision.engine_id)
    if cause == TRADE:
        return _trade(stored)
    if cause == WRONG_INDEX:
        known = f": {cause_words(stored.mismatch)}" if stored.mismatch else ""
        return f"The index was wrong about {name}{known}."
    if cause == STALE_VIEW:
        old = age(stored.known[0].report_age_s if stored.known else None)
        return (
            f"The last report of {name} was {old} old. See that the probe job runs, and why this engine answers late."
        )
    if cause == QUEUE_ORDER:
        return (
            f"Younger tickets were granted {name} first, as the order {decision.order} wants. "
            "Set max_passed_over_s in the policy to 10 to 60 s, or lower it, to bound that; 0 sets no bound."
        )
    if cause == ADMISSION:
        return "Admission kept it back while an engine had room. Lower defer_s, or raise the threshold, in the policy."
    return (
        f"The work before it on {name} took longer than estimated. Where that is usual there, use learned costs "
        "(cost: fitted), and look for traffic that does not come through Switchyard."
    )


def _trade(stored: StoredDecision) -> str:
    firm = firmness(stored)
    said = "Most of the loss was a choice, not an error"
    if firm is None or firm.beta_at is None or firm.beta_at >= firm.beta:
        return f"{said}: the placement preferred this engine although another was expected to be faster."
    rival = name_of(stored, firm.rival)
    return f"{said}: β prices waiting too low at this load. Below β = {plain(firm.beta_at)} {rival} wins."


def _refused(stored: StoredDecision) -> str:
    regret = stored.regret
    if regret is not None and regret.seconds:
        name = name_of(stored, regret.best_engine_id)
        left = seconds(regret.seconds)
        return f"{name} would have had {left} to spare: admission is stricter than it need be. Raise its threshold."
    if not stored.decision.candidates:
        return "See on the Fleet page whether engines of this pool take work, and how many tickets wait."
    return "No engine was expected to be on time, so refusing spared the client the wait. Add engines or shed load."
