"""Describes one decision: its inputs, reasons, outcome, and remedy."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.format import duration, plain, whole
from controlplane.request_log.decision_story.advice import advice
from controlplane.request_log.decision_story.advisory_words import what_was_announced
from controlplane.request_log.decision_story.before_words import before_words, failure_words, slowest
from controlplane.request_log.decision_story.certainty import beta_of, name_of, runner_up
from controlplane.request_log.decision_story.emphasis import Words, pieces, strong
from controlplane.request_log.decision_story.instead import instead_words, regret_of, spared_s
from controlplane.request_log.decision_story.load_words import held_below, held_on_node, what_was_loaded
from controlplane.request_log.decision_story.service_words import by_provider, pool_reason, provider_happened
from gateway.contracts.regret import ATTEMPT, GATEWAY, SLOW_GATEWAY_S, TOKENIZER, Regret
from gateway.contracts.stored_decision import RUNNING, UNANSWERED, StoredDecision
from routing.values import reasons
from routing.values.counted import count
from routing.values.decision import Candidate


@dataclass(frozen=True, slots=True)
class Story:
    """Description of one decision."""

    title: str
    verdict: str
    """Such as "late by 0.47 s", "on time", or "rejected"."""
    why: Words
    happened: Words
    to_do: str


def story_of(stored: StoredDecision) -> Story:
    """Return the description of the decision."""
    why, happened = pieces(_why(stored)), pieces(_happened(stored))
    return Story(_title(stored), verdict_of(stored), why, happened, advice(stored))


def verdict_of(stored: StoredDecision) -> str:
    """Return its outcome in two or three words."""
    ttft_s = stored.first_token_after_s
    if stored.outcome == "completed" and ttft_s is not None:
        over_s = ttft_s - stored.ttft_slo_s
        return f"Late by {duration(over_s)}" if over_s > 0 else "On time"
    named = {
        "completed": "Completed",
        "failed": "Failed",
        "rejected": "Rejected",
        "cancelled": "Client disconnected",
        "client_error": "Rejected by provider" if by_provider(stored) else "Rejected by engine",
        UNANSWERED: "No completion report",
        RUNNING: "Running",
    }
    return named.get(stored.outcome, stored.outcome)


def _title(stored: StoredDecision) -> str:
    decision, regret, instead = stored.decision, regret_of(stored), instead_words(stored)
    if (story := by_provider(stored)) is not None:
        return f"Sent to the provider {story.provider}: no pool of {story.service} could serve it"
    if not decision.engine_id:
        sent = f"Rejected: {_rejection(stored)}"
        return f"{sent}; {instead}" if spared_s(stored) else sent
    sent = _sent(stored)
    if stored.outcome == "failed":
        return f"{sent}; {failure_words(stored.error)}"
    if regret is None:
        return sent
    if lost := _lost_words(stored, regret):
        return f"{sent}{lost}"
    return f"{sent}; {instead}"


def _rejection(stored: StoredDecision) -> str:
    code = stored.decision.reason
    # Its words are those of a request that waits for an engine.
    return "no engine was available" if code == reasons.NO_ENGINE else reasons.words(code)


def _lost_words(stored: StoredDecision, regret: Regret) -> str:
    """Return what took the largest part of the lost time, if that was before the decision."""
    slow, failed = slowest(stored, TOKENIZER), slowest(stored, ATTEMPT)
    words = {
        GATEWAY: f"; the gateway took {duration(regret.gateway_s)} to decide",
        TOKENIZER: f"; the tokenizer of {slow.engine} took {duration(slow.seconds)}",
        ATTEMPT: f" after an attempt on {failed.engine} took {duration(failed.seconds)}",
    }
    return words.get(regret.cause, "")


def _sent(stored: StoredDecision) -> str:
    decision = stored.decision
    name = name_of(stored, decision.engine_id)
    rival = runner_up(stored)
    if decision.reason == reasons.MIGRATED:
        return f"Migrated to {name} while queued"
    if decision.fetch is not None and decision.fetch.node:
        return f"Sent to {name} to load from node {decision.fetch.node}"
    if decision.hit_tokens and (rival is None or decision.hit_tokens > rival.hit_tokens):
        return f"Sent to {name} for its cache"
    if rival is not None and decision.candidates and decision.candidates[0].wait_s < rival.wait_s:
        return f"Sent to {name} for its short queue"
    return f"Sent to {name}"


def _why(stored: StoredDecision) -> str:
    decision = stored.decision
    if not decision.engine_id:
        return _why_rejected(stored)
    name, rival, prompt = name_of(stored, decision.engine_id), runner_up(stored), whole(decision.prompt_tokens)
    if stored.believed_tokens:
        held = strong(f"{whole(stored.believed_tokens)} of {prompt}")
    else:
        held = f"none of the {strong(prompt)}"
    words = f"The index had {name} holding {held} prompt tokens. {held_below(stored)}{held_on_node(stored)}"
    if rival is None:
        return f"{words}It was chosen because {reasons.words(decision.reason)}; it was the only candidate."
    return words + _against(stored, rival)


def _against(stored: StoredDecision, rival: Candidate) -> str:
    chosen, beta, name = stored.decision.candidates[0], beta_of(stored), name_of(stored, rival.engine_id)
    longer_s, margin = chosen.wait_s - rival.wait_s, rival.cost - chosen.cost
    won = f"It won by {strong(plain(margin))}, or {_percent(margin, rival.cost)}."
    because = f"It was chosen because {reasons.words(stored.decision.reason)}."
    if beta is not None and longer_s >= 0.001 and chosen.compute_s < rival.compute_s:
        return f"At β = {plain(beta)} that outweighed {strong(duration(longer_s))} more waiting than {name}. {won}"
    if 0 < margin <= rival.sharing_s - chosen.sharing_s:
        less = strong(duration(rival.sharing_s - chosen.sharing_s))
        return f"Sharing it with its running answers cost {less} less than sharing {name}. {won}"
    if longer_s <= -0.001:
        shorter = f"Its queue was {strong(duration(-longer_s))} shorter than {name}'s."
        return f"{shorter} {won if margin > 0 else because}"
    return f"{won} {name} came second." if margin > 0 else because


def _percent(part: float, whole_: float) -> str:
    return f"{100 * part / whole_:.0f} %" if whole_ > 0 else "0 %"


def _why_rejected(stored: StoredDecision) -> str:
    if (story := by_provider(stored)) is not None:
        tried = "; ".join(f"{strong(pool)}: {pool_reason(code)}" for pool, code in story.tried)
        return f"The pools of {story.service} did not serve it. {tried}."
    words = f"It was rejected because {_rejection(stored)}. "
    if not stored.decision.candidates:
        return words
    best = min(stored.decision.candidates, key=lambda candidate: candidate.wait_s + candidate.compute_s)
    name, took_s, regret = best.engine_id, best.wait_s + best.compute_s, regret_of(stored)
    if regret is not None:
        name, took_s = regret.best_engine_id, regret.best_ttft_s
    took, slo = strong(duration(took_s)), duration(stored.ttft_slo_s)
    return f"{words}The best engine, {name_of(stored, name)}, was expected to take {took}; the SLO is {slo}."


def _happened(stored: StoredDecision) -> str:
    if (story := by_provider(stored)) is not None:
        return provider_happened(stored, story)
    if not stored.decision.engine_id:
        return f"The client got an error after {duration(stored.finished_after_s or 0.0)} ({stored.error})."
    words = _waited(stored) + _cached_words(stored) + what_was_loaded(stored) + what_was_announced(stored)
    ttft_s = stored.first_token_after_s
    if ttft_s is not None:
        words += f" First token after {strong(duration(ttft_s))}; the SLO is {duration(stored.ttft_slo_s)}."
    return words + _end(stored)


def _waited(stored: StoredDecision) -> str:
    decision, before_s = stored.decision, stored.decided_after_s
    late = f"The decision came after {strong(duration(before_s))}. " if before_s >= SLOW_GATEWAY_S else ""
    late += before_words(stored) if late else ""
    if decision.queued_s < 0.001:
        return f"{late}The request was {'then ' if late else ''}dispatched at once"
    waited_s = decision.queued_s - before_s
    longer_s = waited_s - decision.wait_s
    compared = "as long as estimated"
    if abs(longer_s) >= 0.01:
        compared = f"{duration(abs(longer_s))} {'longer' if longer_s > 0 else 'shorter'} than estimated"
    return f"{late}It waited {strong(duration(waited_s))}, {compared}"


def _cached_words(stored: StoredDecision) -> str:
    reported = stored.cached_tokens
    if reported is None and stored.outcome in ("failed", "cancelled", RUNNING):
        return "; cached tokens are reported at the end of an answer."
    if reported is None:
        return "; the engine does not report cached tokens."
    only = "only " if reported < stored.believed_tokens else ""
    figure, tokens = count(reported, "token").split()
    return f", and the engine reported {only}{strong(figure)} {tokens} cached."


def _end(stored: StoredDecision) -> str:
    ends = {
        "failed": f" Then {failure_words(stored.error)}.",
        "cancelled": " The client disconnected.",
        "client_error": f" The engine rejected it ({stored.error}).",
        UNANSWERED: " No completion report came before its reservation expired.",
        RUNNING: " It is still running.",
    }
    return ends.get(stored.outcome, "")
