"""One card per automation: its permissions, its inputs, its last action, and why it is idle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.plan_advice import advice_key
from controlplane.automation.reading import AutomationStatus
from controlplane.fleet.models.pool import Pool
from controlplane.platform.format import count, moment, percent, sentence
from planning.documents.automation_document import AutomationPolicy
from web.automation.next_action import next_change
from web.automation.words import MODES, TITLES, change_words, remap_words

HOLD_S = 15.0
"""Time for which advice stays shown after the last round that gave it, so that the text does not change every round."""
SILENT_S = 30.0
"""Maximum age of the last round in seconds; after it the card reports that the automation is silent. Rounds run at
least every five seconds.
"""


@dataclass(frozen=True, slots=True)
class AutomationCard:
    """The content of one card."""

    job: str
    title: str
    mode: str
    shape: str
    wants: str
    """The action that the automation wants, as the second half of a sentence; empty if it wants none."""
    state: str
    """One sentence: what the automation does or would do now."""
    reasons: tuple[str, ...]
    """Reasons for the action, or for taking no action."""
    idle: bool
    """Whether the automation wants no action."""
    next_change: str
    last: dict[str, Any] | None
    """The last plan that wanted an action; `meant` is empty if the plan was carried out."""
    trouble: str
    """What keeps the automation from working; empty if nothing does."""
    advice: str
    """Key of the advice that a person can follow now; empty if there is none."""
    note: str


def automation_cards(
    automations: Sequence[AutomationStatus],
    settings: AutomationPolicy,
    changes: Mapping[str, PlanRecord],
    names: Mapping[str, str],
    now: datetime,
) -> list[AutomationCard]:
    """Return the cards in the order of the automations; `changes` maps each job to its last plan with an effect."""
    return [_card(automation, settings, changes.get(automation.job), names, now) for automation in automations]


def last_changes(pool: Pool) -> dict[str, PlanRecord]:
    """Return each job's newest plan for this pool that wanted an action, in one query."""
    by_job: dict[str, PlanRecord] = {}
    newest = PlanRecord.objects.filter(pool=pool.slug, changes=True).order_by("-at", "-pk")
    for job in TITLES:
        record = newest.filter(job=job).first()
        if record is not None:
            by_job[job] = record
    return by_job


def _card(
    automation: AutomationStatus,
    settings: AutomationPolicy,
    change: PlanRecord | None,
    names: Mapping[str, str],
    now: datetime,
) -> AutomationCard:
    word, shape = MODES[automation.in_force]
    wants = change_words(automation.job, automation.plan, names)
    if not wants and automation.in_force == "advise" and change and (now - change.at).total_seconds() < HOLD_S:
        wants = change_words(automation.job, change.plan, names)
    at = moment(automation.at, now)
    silent = (
        automation.at is not None and (now - automation.at).total_seconds() > SILENT_S and automation.in_force != "off"
    )
    follows = automation.in_force == "advise" and not silent
    return AutomationCard(
        job=automation.job,
        title=TITLES[automation.job],
        mode=word,
        shape=shape,
        wants=wants,
        state=_state(automation, wants),
        reasons=tuple(sentence(item["text"]) for item in automation.plan.get("reasons", ()) if item.get("text")),
        idle=not wants,
        next_change=_next(automation, settings, now),
        last=None if change is None else _last(change, names, now),
        trouble=f"No evaluation since {at.clock}. Check the job under Jobs." if silent and at is not None else "",
        advice=advice_key(automation.job, automation.plan) if follows else "",
        note=_note(automation),
    )


def _next(automation: AutomationStatus, settings: AutomationPolicy, now: datetime) -> str:
    if automation.in_force == "off":
        return ""
    if automation.in_force == "frozen":
        return "After the pool is unfrozen."
    if automation.in_force == "override":
        return "At each evaluation; cooldowns do not delay an override."
    return next_change(automation.job, settings, automation.plan, automation.memory, now.timestamp())


def _state(automation: AutomationStatus, wants: str) -> str:
    if automation.in_force == "off":
        return "Off in the policy."
    if automation.at is None:
        return sentence(automation.reason) or "Not run yet; the first evaluation starts within seconds."
    if automation.in_force == "frozen":
        return f"Frozen. It would {wants}." if wants else "Frozen. It would take no action."
    if automation.in_force == "advise":
        return f"Advises to {wants}." if wants else "No advice."
    return _acts(automation, wants)


def _acts(automation: AutomationStatus, wants: str) -> str:
    by_hand = automation.in_force == "override"
    if by_hand and automation.mode_of_plan != "override":
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


def _note(automation: AutomationStatus) -> str:
    """Return one line with the most informative figures of the last round."""
    plan: Mapping[str, Any] = automation.plan
    if automation.job == "scaling" and automation.at is not None:
        sizes = f"{count(int(plan.get('engines', 0)), 'engine')} now, {plan.get('target', 0)} desired"
        return ", ".join(filter(None, [sizes, remap_words(plan)]))
    if automation.job == "prefill_decode" and automation.at is not None:
        factor = plan.get("imbalance")
        known = f"f_im {factor:.2f}" if isinstance(factor, int | float) else "f_im unknown"
        return f"{plan.get('prefill', 0)} prefill, {plan.get('decode', 0)} decode, {known}"
    if automation.job == "rebalance" and isinstance(plan.get("load_cv"), int | float):
        share = plan.get("recomputed_share")
        again = (
            f", {percent(share)} of prompt tokens recomputed though cached elsewhere"
            if isinstance(share, int | float)
            else ""
        )
        return f"load CV {plan['load_cv']:.2f}, {count(len(plan.get('hot', ())), 'hot engine')}{again}"
    if automation.job == "engine_health" and automation.at is not None:
        states = [item.get("state") for item in plan.get("verdicts", ())]
        parts = [
            f"{states.count(state)} {state}" for state in ("quarantined", "probation", "suspect") if state in states
        ]
        return ", ".join(parts) + (", panic threshold: outliers stay in" if plan.get("panic") else "")
    return ""
