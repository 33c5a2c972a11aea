"""What was found about one decision, why it went there, what happened, and what to do."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.format import duration, plain, whole
from controlplane.request_log.decision_story.advice import advice
from controlplane.request_log.decision_story.advisory_words import what_was_announced
from controlplane.request_log.decision_story.certainty import beta_of, name_of, runner_up
from controlplane.request_log.decision_story.load_words import held_on_node, what_was_loaded
from gateway.contracts.regret import GATEWAY, SLOW_GATEWAY_S
from gateway.contracts.stored_decision import RUNNING, UNANSWERED, StoredDecision
from routing.values import reasons

Words = tuple[tuple[str, bool], ...]
"""Pieces of text; True: the figure that matters."""
WORTH_TELLING_S = 0.01


@dataclass(frozen=True, slots=True)
class Story:
    """One decision in words."""

    title: str
    verdict: str
    """Late by 0.47 s, on time, refused …"""
    why: Words
    happened: Words
    to_do: str


def story_of(stored: StoredDecision) -> Story:
    """Return the decision in words."""
    return Story(_title(stored), verdict_of(stored), _why(stored), _happened(stored), advice(stored))


def text_of(words: Words) -> str:
    """Return the words without their weights."""
    return "".join(text for text, _ in words)


def verdict_of(stored: StoredDecision) -> str:
    """Return how it came out, in two or three words."""
    ttft_s = stored.first_token_after_s
    if stored.outcome == "completed" and ttft_s is not None:
        over_s = ttft_s - stored.ttft_slo_s
        return f"Late by {duration(over_s)}" if over_s > 0 else "On time"
    named = {
        "completed": "Completed",
        "failed": "Failed",
        "refused": "Rejected",
        "cancelled": "Client disconnected",
        "client_error": "Rejected by engine",
        UNANSWERED: "No completion report",
        RUNNING: "Running",
    }
    return named.get(stored.outcome, stored.outcome)


def _title(stored: StoredDecision) -> str:
    decision, regret = stored.decision, stored.regret
    spared_s = regret.seconds - regret.gateway_s if regret is not None else 0.0
    gained = spared_s >= WORTH_TELLING_S
    best = name_of(stored, regret.best_engine_id) if regret is not None else ""
    if not decision.engine_id:
        sent = f"Rejected: {reasons.words(decision.reason)}"
        return f"{sent}; {best} was expected to be on time" if gained else sent
    sent = _sent(stored)
    if stored.outcome == "failed":
        return f"{sent}; it failed ({stored.error})"
    if regret is None:
        return sent
    if regret.cause == GATEWAY:
        return f"{sent}; the gateway took {duration(regret.gateway_s)} to decide"
    return f"{sent}; {best} would have been {duration(spared_s)} faster" if gained else f"{sent}; no engine was faster"


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


def _why(stored: StoredDecision) -> Words:
    decision = stored.decision
    if not decision.engine_id:
        return _why_refused(stored)
    name, rival = name_of(stored, decision.engine_id), runner_up(stored)
    words: list[tuple[str, bool]] = []
    if stored.believed_tokens:
        held = f"{whole(stored.believed_tokens)} of {whole(decision.prompt_tokens)}"
        words += [(f"The index had {name} holding ", False), (held, True), (" prompt tokens. ", False)]
    else:
        words += [(f"The index had {name} holding none of the ", False), (whole(decision.prompt_tokens), True)]
        words += [(" prompt tokens. ", False)]
    words += held_on_node(stored)
    if rival is None:
        return (*words, (f"It was chosen because {reasons.words(decision.reason)}; it was the only candidate.", False))
    return (*words, *_against(stored, name_of(stored, rival.engine_id)))


def _against(stored: StoredDecision, rival_name: str) -> Words:
    chosen, rival, beta = stored.decision.candidates[0], runner_up(stored), beta_of(stored)
    if rival is None:
        return ()
    longer_s, margin = chosen.wait_s - rival.wait_s, rival.cost - chosen.cost
    won = [("It won by ", False), (plain(margin), True), (f", or {_percent(margin, rival.cost)}.", False)]
    if beta is not None and longer_s >= 0.001 and chosen.compute_s < rival.compute_s:
        weighed = [(f"At β = {plain(beta)} that outweighed ", False), (duration(longer_s), True)]
        return (*weighed, (f" more waiting than {rival_name}. ", False), *won)
    if longer_s <= -0.001:
        shorter = [("Its queue was ", False), (duration(-longer_s), True), (f" shorter than {rival_name}'s. ", False)]
        return (*shorter, *won) if margin > 0 else (*shorter, (_because(stored), False))
    return (*won, (f" {rival_name} came second.", False)) if margin > 0 else ((_because(stored), False),)


def _because(stored: StoredDecision) -> str:
    return f"It was chosen because {reasons.words(stored.decision.reason)}."


def _percent(part: float, whole_: float) -> str:
    return f"{100 * part / whole_:.0f} %" if whole_ > 0 else "0 %"


def _why_refused(stored: StoredDecision) -> Words:
    words = [(f"It was rejected because {reasons.words(stored.decision.reason)}. ", False)]
    candidates = stored.decision.candidates
    if candidates:
        best = min(candidates, key=lambda each: each.wait_s + each.compute_s)
        words += [(f"The best engine, {name_of(stored, best.engine_id)}, was expected to take ", False)]
        words += [
            (duration(best.wait_s + best.compute_s), True),
            (f"; the SLO is {duration(stored.ttft_slo_s)}.", False),
        ]
    return tuple(words)


def _happened(stored: StoredDecision) -> Words:
    decision = stored.decision
    if not decision.engine_id:
        return ((f"The client got an error after {duration(stored.finished_after_s or 0.0)} ({stored.error}).", False),)
    words = [*_waited(stored), *_found(stored), *what_was_loaded(stored), *what_was_announced(stored)]
    ttft_s = stored.first_token_after_s
    if ttft_s is not None:
        words += [(" First token after ", False), (duration(ttft_s), True)]
        words += [(f"; the SLO is {duration(stored.ttft_slo_s)}.", False)]
    return (*words, (_end(stored), False))


def _waited(stored: StoredDecision) -> list[tuple[str, bool]]:
    decision = stored.decision
    before_s = stored.decided_after_s
    late = (
        [("The decision came after ", False), (duration(before_s), True), (". ", False)]
        if before_s >= SLOW_GATEWAY_S
        else []
    )
    if decision.queued_s < 0.001:
        return [
            *late,
            ("The request was then dispatched at once" if late else "The request was dispatched at once", False),
        ]
    waited_s = decision.queued_s - before_s
    longer_s = waited_s - decision.wait_s
    compared = "as long as estimated"
    if abs(longer_s) >= 0.01:
        compared = f"{duration(abs(longer_s))} {'longer' if longer_s > 0 else 'shorter'} than estimated"
    return [*late, ("It waited ", False), (duration(waited_s), True), (f", {compared}", False)]


def _found(stored: StoredDecision) -> list[tuple[str, bool]]:
    reported = stored.cached_tokens
    if reported is None:
        return [("; the engine does not report cached tokens.", False)]
    only = "only " if reported < stored.believed_tokens else ""
    return [(f", and found {only}", False), (whole(reported), True), (" tokens cached.", False)]


def _end(stored: StoredDecision) -> str:
    ends = {
        "failed": f" It failed ({stored.error}).",
        "cancelled": " The client disconnected.",
        "client_error": f" The engine rejected it ({stored.error}).",
        UNANSWERED: " No completion report came before its reservation expired.",
        RUNNING: " It is still running.",
    }
    return ends.get(stored.outcome, "")
