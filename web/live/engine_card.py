"""Facts of the engine drawer beyond the live feed: the engine's last decisions, and the allowed actions."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from django.utils import timezone

from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import PoolMode
from controlplane.platform.actor import Actor
from controlplane.platform.format import count, duration
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.decision_story.before_words import failure_title
from controlplane.request_log.decision_story.load_words import TIER_PHRASES
from controlplane.request_log.recent_decisions import recent_decisions
from gateway.contracts.fleet_sample import EngineSample
from gateway.contracts.stored_decision import RUNNING, StoredDecision
from routing.values import reasons
from web.live.engine_health import HealthLine, engine_health, evidence

MAX_DECISIONS = 16

REASONS = {
    "observed": "Routed elsewhere",
    "round_robin": "Round robin",
    "least_loaded": "Least loaded",
    "least_cost": "Least cost",
    "longest_match": "Longest match",
    "equal_match": "Equal match",
    "slo_switch": "Switched for SLO",
    "random": "Random",
    "affinity": "Prefix affinity",
    "least_ttft": "Least TTFT",
    "fetch": "Fetch blocks",
    "load": "Load from node",
    "long_match": "Long match",
    "fewest_requests": "Fewest requests",
    "smallest_tree": "Fewest blocks sent",
    "least_blocks": "Fewest blocks",
    "softmax": "Weighted random",
    "two_choices": "Power of two",
    "ring": "Hash ring",
    "ring_full": "Hash ring, next",
    "session_ring": "Session ring",
    "least_latency": "Least latency",
    "highest_score": "Highest score",
    "free_match": "Available with match",
    "all_busy": "All busy, queued",
    "only_engine": "Only engine",
    "no_engine": "No engine, queued",
    "migrated": "Migrated in",
    "held": "Queued for a pull",
    "pulled": "Pulled",
    "deferred": "Deferred",
    "advised": "Advised",
    "forwarded": "Forwarded",
    "session_region": "Region of its session",
    "early_offload": "Region with less load",
    "no_local_room": "Region with capacity",
    "remote_match": "Region with match",
    "no_local_engine": "Region with engines",
    "queue_full": "Rejected, queue full",
    "wait_expired": "Rejected, max wait reached",
    "deadline_passed": "Rejected, deadline passed",
    "infeasible": "Rejected, SLO-infeasible",
    "prefill_overload": "Rejected, prefill overloaded",
    "decode_overload": "Rejected, decode overloaded",
    "gateway_late": "Rejected, gateway late",
}
DECODE_REASONS = {
    "least_tpot": "fastest tokens",
    "only_decoder": "only decode engine",
    "most_room": "most free memory",
}
"""Why a request is decoded on its engine when another engine computes its prompt."""
QUEUE_REASONS = {
    "arrived_first": "oldest",
    "earliest_deadline": "earliest deadline",
    "highest_priority": "highest priority",
    "first_feasible": "oldest on time",
    "shortest_feasible": "shortest on time",
    "only_feasible": "only one on time",
    "infeasible_last": "late, served last",
    "pulled_best_fit": "best fit",
    "fair_share": "tenant's share",
    "starvation_limit": "starvation limit",
}


class DecisionLine(msgspec.Struct, frozen=True):
    """One decision as a row of the drawer. Times are in Unix seconds, durations in seconds; None if not (yet) known."""

    decision_id: str
    at: float
    reason: str
    prompt_tokens: int
    predicted_tokens: int
    cached_tokens: int | None
    queued_s: float
    """Seconds that the request waited at the gateway."""
    queue_reason: str
    """Why the request was dispatched before the other queued requests; empty if it did not wait."""
    queue_words: str
    """The queue reason as the second half of a sentence."""
    overtook: int
    """Number of requests that had waited longer and were dispatched later."""
    ttft_s: float | None
    on_time: bool | None
    outcome: str
    """How the request ended; empty while it runs."""


class EngineCard(msgspec.Struct, frozen=True):
    """One engine's card for one viewer."""

    engine_id: str
    name: str
    desired_state: str
    revision: int
    may_operate: bool
    health_verb: str
    """quarantine or trust; empty where neither is allowed or has an effect."""
    pool: str
    health: HealthLine
    below: str
    """What the engine keeps in tiers below its memory, and the cost of loading it, as a sentence; empty if unknown."""
    decisions: list[DecisionLine] | None
    """Newest first; None if no gateway responds."""


def engine_card(engine: Engine, actor: Actor, sample: EngineSample | None = None) -> EngineCard:
    """Return an engine's card with what this actor can see; `sample` is the engine's newest sample."""
    recent = recent_decisions().of_engine(engine.engine_id)
    may_operate = may(actor, Role.OPERATOR, engine.pool)
    # The drawer has the age of the report, from the same sample as its other figures.
    health = replace(engine_health(engine, sample, timezone.now()), evidence=evidence(sample, aged=False))
    return EngineCard(
        engine_id=engine.engine_id,
        name=engine.name,
        desired_state=engine.desired_state,
        revision=engine.revision,
        may_operate=may_operate,
        health_verb=_health_verb(engine, health) if may_operate else "",
        pool=engine.pool.slug,
        health=health,
        below="" if sample is None else below_memory(sample),
        decisions=None if recent is None else list(map(_line, recent[:MAX_DECISIONS])),
    )


def _health_verb(engine: Engine, health: HealthLine) -> str:
    """Return the override that has an effect: no quarantine where no new request would come anyway."""
    if engine.pool.mode == PoolMode.OBSERVE:
        return ""
    return "trust" if health.out else "quarantine" if engine.desired_state == DesiredState.READY else ""


def below_memory(sample: EngineSample) -> str:
    """Return sentences on what an engine keeps in its lower tiers, and on the cost of loading that or an adapter."""
    tiers = []
    for tier in sample.tiers:
        cost = f", {duration(1000 * tier.token_s)} per 1,000 tokens loaded" if tier.token_s is not None else ""
        tiers.append(f"{count(tier.blocks, 'block')} {TIER_PHRASES[tier.tier]}{cost}")
    words = f"Lower tiers: {'; '.join(tiers)}." if tiers else ""
    if sample.adapter_s is not None:
        words += f" Loading a LoRA adapter takes {duration(sample.adapter_s)}."
    return words.strip()


def _line(record: StoredDecision) -> DecisionLine:
    decision = record.decision
    ttft_s = record.first_token_after_s
    return DecisionLine(
        decision_id=decision.decision_id,
        at=record.decided_at,
        reason=failure_title(record.error) if record.outcome == "failed" else reason_title(decision.reason),
        prompt_tokens=decision.prompt_tokens,
        predicted_tokens=decision.hit_tokens,
        cached_tokens=record.cached_tokens,
        queued_s=decision.queued_s,
        queue_reason=queue_title(decision.queue_reason),
        queue_words=reasons.words(decision.queue_reason),
        overtook=decision.overtook,
        ttft_s=ttft_s,
        on_time=None if ttft_s is None else ttft_s <= record.ttft_slo_s,
        outcome="" if record.outcome == RUNNING else record.outcome,
    )


def reason_title(code: str) -> str:
    """Return a reason code as a short title for a table cell."""
    return REASONS.get(code, code.replace("_", " ").capitalize())


def rejection_word(code: str) -> str:
    """Return the code of a rejection in few words, as frontend/fleet/queue/queue_figures.js does."""
    if code == reasons.NO_ENGINE:
        return "no engine available"
    return REASONS.get(code, code.replace("_", " ")).removeprefix("Rejected, ")


def queue_title(code: str) -> str:
    """Return a queue reason as the short second line of a cell."""
    return QUEUE_REASONS.get(code, code.replace("_", " "))
