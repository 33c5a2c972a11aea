"""The remedy for one decision, chosen by the largest part of its regret."""

from __future__ import annotations

from controlplane.platform.format import duration, plain
from controlplane.request_log.decision_story.before_words import slowest
from controlplane.request_log.decision_story.certainty import firmness, name_of
from controlplane.request_log.decision_story.instead import cause_of, regret_of, spared_s, unknown_regret
from gateway.contracts.regret import (
    ADMISSION,
    ATTEMPT,
    GATEWAY,
    LOAD,
    QUEUE_ORDER,
    STALE_VIEW,
    TOKENIZER,
    TRADE,
    WRONG_INDEX,
)
from gateway.contracts.stored_decision import StoredDecision
from gateway.pools.engines.hit_words import cause_words
from routing.values.reasons import DEADLINE_PASSED, GATEWAY_LATE, QUEUE_FULL, WAIT_EXPIRED

CAUSE_WORDS = {
    TRADE: "Load: waited for cached blocks",
    LOAD: "Load: the engine's queue grew",
    STALE_VIEW: "Stale report: the queue had grown",
    WRONG_INDEX: "Wrong index: blocks were evicted",
    QUEUE_ORDER: "Queue order: newer requests went first",
    ADMISSION: "Admission",
    GATEWAY: "Gateway: slow to decide",
    TOKENIZER: "Tokenizer: an engine tokenized late",
    ATTEMPT: "Earlier attempt: an engine failed",
}


def advice(stored: StoredDecision) -> str:
    """Return the remedy in at most two sentences."""
    if not stored.decision.engine_id:
        return _rejected(stored)
    if stored.outcome == "failed":
        return "The engine failed, not the choice. Check its state on the Fleet page and its log."
    cause = cause_of(stored)
    return _by_part(stored, cause) or _by_cause(stored, cause) if cause else _nothing_better(stored)


def _nothing_better(stored: StoredDecision) -> str:
    if not stored.late:
        return "Nothing. It was on time, and no other engine is known to have been faster."
    if regret_of(stored) is None:
        return f"Whether another engine would have been faster is unknown: {unknown_regret(stored)}"
    return "No other choice would have helped: the pool was out of capacity. Check its load at that time."


def _by_part(stored: StoredDecision, cause: str) -> str:
    """Return the remedy for time that was lost before the decision; empty for other causes."""
    if cause == GATEWAY:
        return "The gateway was slow, not an engine. Check headway_loop_lag_seconds, and give the gateway its own core."
    if cause == TOKENIZER:
        name = slowest(stored, TOKENIZER).engine
        return (
            f"The prompt waited for the tokenizer of {name}, not for the gateway. Check {name} on the Fleet page, and "
            "quarantine it if it stays slow."
        )
    if cause == ATTEMPT:
        name = slowest(stored, ATTEMPT).engine
        return f"An earlier attempt failed on {name}, not the choice. Check its state on the Fleet page and its log."
    return ""


def _by_cause(stored: StoredDecision, cause: str) -> str:
    decision = stored.decision
    name = name_of(stored, decision.engine_id)
    if cause == TRADE:
        return _trade(stored)
    if cause == WRONG_INDEX:
        known = f": {cause_words(stored.mismatch)}" if stored.mismatch else ""
        return f"The index was wrong about {name}{known}."
    if cause == STALE_VIEW:
        old = duration(stored.known[0].report_age_s if stored.known else None)
        return (
            f"The last report of {name} was {old} old. Check that the probe job runs, and why this engine answers late."
        )
    if cause == QUEUE_ORDER:
        return (
            f"Newer requests were dispatched to {name} first by the queue order {decision.order}. To limit that, set "
            "the starvation limit (starvation_limit_s) to 10 to 60 s, or lower it; 0 is no limit."
        )
    if cause == ADMISSION:
        return "Admission deferred it while an engine had capacity. Lower defer_s or raise the threshold in the policy."
    return (
        f"The work ahead of it on {name} took longer than estimated. If that is common there, use learned costs "
        "(cost: fitted) if the engine's drawer shows that they are closer, and look for traffic that bypasses Headway."
    )


def _trade(stored: StoredDecision) -> str:
    firm = firmness(stored)
    said = "Most of the loss was a trade-off, not an error"
    if firm is None or firm.beta_at is None or firm.beta_at >= firm.beta:
        return f"{said}: the placement preferred this engine although another was expected to be faster."
    rival = name_of(stored, firm.rival)
    return f"{said}: β weighs waiting too little at this load. Below β = {plain(firm.beta_at)} {rival} wins."


def _rejected(stored: StoredDecision) -> str:
    reason = stored.decision.reason
    if reason == GATEWAY_LATE:
        return _by_part(stored, GATEWAY)
    spare = ""
    if regret := regret_of(stored) if spared_s(stored) else None:
        spare = f"{name_of(stored, regret.best_engine_id)} would have had {duration(regret.seconds)} to spare"
    if reason in _LIMIT_CURES:
        return _LIMIT_CURES[reason] if not spare else f"{spare}. {_LIMIT_CURES[reason]}"
    if spare:
        return f"{spare}: admission is too strict. Raise its threshold."
    if not stored.decision.candidates:
        return "Check on the Fleet page whether engines of this pool are available and how many requests are queued."
    return (
        "No engine was expected to be on time, so rejecting it saved the client the wait. Add engines or reduce load."
    )


_LIMIT_CURES = {
    QUEUE_FULL: "Add engines or limit the key that sends most. Raising the queue limit only lengthens the wait.",
    WAIT_EXPIRED: "It waited as long as the policy allows. Add engines, or raise the maximum wait.",
    DEADLINE_PASSED: "It waited until its class's deadline. Add engines, or give the class a higher priority.",
}
"""Rejections by a limit of the queue, which admission does not decide."""
