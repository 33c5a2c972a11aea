"""One card per automation: what it may do, what it sees, what it last did, and why it does nothing now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.plan_advice import advice_key
from controlplane.automation.reading import AutomationStanding
from controlplane.fleet.models.pool import Pool
from controlplane.platform.format import count, moment, percent, sentence
from planning.documents.automation_document import AutomationPolicy
from web.automation.next_action import next_change
from web.automation.words import MODES, TITLES, change_words, remap_words

SILENT_S = 30.0
"""Rounds are at most five seconds apart; after this time without one the card says so."""


@dataclass(frozen=True, slots=True)
class AutomationCard:
    """What a card shows."""

    job: str
    title: str
    mode: str
    shape: str
    state: str
    """One sentence: what it does or would do at this moment."""
    reasons: tuple[str, ...]
    """Why, or why nothing."""
    idle: bool
    """Whether it wants nothing done."""
    next_change: str
    last: dict[str, Any] | None
    """The last plan that wanted anything done; `meant` is empty where it was carried out."""
    trouble: str
    """What keeps it from working; empty where nothing does."""
    advice: str
    """The key of an advice that a person may follow now; empty where there is none."""
    note: str


def automation_cards(
    standings: Sequence[AutomationStanding],
    settings: AutomationPolicy,
    changes: Mapping[str, PlanRecord],
    names: Mapping[str, str],
    now: datetime,
) -> list[AutomationCard]:
    """Return the cards in the order of the standings; `changes` is the last plan with effect by job."""
    return [_card(standing, settings, changes.get(standing.job), names, now) for standing in standings]


def last_changes(pool: Pool) -> dict[str, PlanRecord]:
    """Return by job the newest plan of the pool that wanted anything done; one query."""
    found: dict[str, PlanRecord] = {}
    newest = PlanRecord.objects.filter(pool=pool.slug, changes=True).order_by("-at", "-pk")
    for job in TITLES:
        record = newest.filter(job=job).first()
        if record is not None:
            found[job] = record
    return found


def _card(
    standing: AutomationStanding,
    settings: AutomationPolicy,
    change: PlanRecord | None,
    names: Mapping[str, str],
    now: datetime,
) -> AutomationCard:
    word, shape = MODES[standing.in_force]
    wants = change_words(standing.job, standing.plan, names)
    at = moment(standing.at, now)
    silent = standing.at is not None and (now - standing.at).total_seconds() > SILENT_S and standing.in_force != "off"
    follows = standing.in_force == "advise" and not silent
    return AutomationCard(
        job=standing.job,
        title=TITLES[standing.job],
        mode=word,
        shape=shape,
        state=_state(standing, wants),
        reasons=tuple(sentence(item["text"]) for item in standing.plan.get("reasons", ()) if item.get("text")),
        idle=not wants,
        next_change=_next(standing, settings, now),
        last=None if change is None else _last(change, names, now),
        trouble=f"No round since {at.clock}. Check under Jobs whether it runs." if silent and at is not None else "",
        advice=advice_key(standing.job, standing.plan) if follows else "",
        note=_note(standing),
    )


def _next(standing: AutomationStanding, settings: AutomationPolicy, now: datetime) -> str:
    if standing.in_force == "off":
        return ""
    if standing.in_force == "frozen":
        return "After the pool is unfrozen."
    if standing.in_force == "override":
        return "At each evaluation; cooldowns do not delay an override."
    return next_change(standing.job, settings, standing.plan, standing.memory, now.timestamp())


def _state(standing: AutomationStanding, wants: str) -> str:
    if standing.in_force == "off":
        return "Off in the policy."
    if standing.at is None:
        return sentence(standing.reason) or "Not run yet; the first evaluation starts within seconds."
    if standing.in_force == "frozen":
        return f"Frozen. It would {wants}." if wants else "Frozen. It would take no action."
    if standing.in_force == "advise":
        return f"Advises to {wants}." if wants else "No advice."
    return _acts(standing, wants)


def _acts(standing: AutomationStanding, wants: str) -> str:
    by_hand = standing.in_force == "override"
    if by_hand and standing.mode_of_plan != "override":
        return "Override active; the first evaluation starts within seconds."
    if not wants:
        return "No action needed."
    return sentence(f"{'By an operator: ' if by_hand else 'Now: '}{wants}")


def _last(record: PlanRecord, names: Mapping[str, str], now: datetime) -> dict[str, Any]:
    done = record.outcome.get("carried_out", False)
    words = change_words(record.job, record.plan, names) or record.summary
    return {
        "at": moment(record.at, now),
        "words": sentence(words),
        "reasons": [sentence(reason.get("text", "")) for reason in record.reasons[:3]],
        "meant": "" if done else "advised, not executed" if record.mode != "frozen" else "frozen, not executed",
    }


def _note(standing: AutomationStanding) -> str:
    """Return the figures of the last round that say most, in one line."""
    plan: Mapping[str, Any] = standing.plan
    if standing.job == "scaling" and standing.at is not None:
        sizes = f"{count(int(plan.get('engines', 0)), 'engine')} now, {plan.get('target', 0)} wanted"
        return ", ".join(filter(None, [sizes, remap_words(plan)]))
    if standing.job == "prefill_decode" and standing.at is not None:
        factor = plan.get("imbalance")
        known = f"f_im {factor:.2f}" if isinstance(factor, int | float) else "f_im unknown"
        return f"{plan.get('prefill', 0)} prefill, {plan.get('decode', 0)} decode, {known}"
    if standing.job == "rebalance" and isinstance(plan.get("load_cv"), int | float):
        share = plan.get("recomputed_share")
        again = f", {percent(share)} recomputed" if isinstance(share, int | float) else ""
        return f"load CV {plan['load_cv']:.2f}, {count(len(plan.get('hot', ())), 'hot engine')}{again}"
    if standing.job == "engine_health" and standing.at is not None:
        states = [item.get("state") for item in plan.get("verdicts", ())]
        parts = [
            f"{states.count(state)} {state}" for state in ("quarantined", "probation", "suspect") if state in states
        ]
        return ", ".join(parts) + (", panic threshold: outliers stay in" if plan.get("panic") else "")
    return ""
