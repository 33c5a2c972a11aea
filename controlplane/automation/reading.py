"""Current automation state of a pool, for the API and the console."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from controlplane.automation.engine_actions import open_actions
from controlplane.automation.models.engine_action import ActionKind, ActionState, EngineAction
from controlplane.automation.observation import FleetObservation
from controlplane.automation.plan_advice import advice_key
from controlplane.automation.pool_policy import (
    OVERRIDE,
    mode_in_force,
    override_engines,
    override_prefill,
    pool_automation_of,
    pool_policy,
)
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.job_run import JobRun, JobState
from planning.documents.automation_mode import ADVISE

DOCUMENTS = {"engine_health": "health", "rebalance": "rebalance", "scaling": "scaling", "prefill_decode": "ratio"}
"""Job → its section of the automation document."""


@dataclass(frozen=True, slots=True)
class AutomationStatus:
    """One automation: its mode and the result of its last round."""

    job: str
    mode: str
    in_force: str
    at: datetime | None
    reason: str
    plan: dict[str, Any]
    memory: dict[str, Any]
    """The memory that the automation carries from one round to the next."""
    mode_of_plan: str = ""
    """The mode when the plan was made. It can differ from the mode in force until the next round."""
    advice: str = ""
    """Key of the advice, with which a person follows it; empty without advice."""


@dataclass(frozen=True, slots=True)
class PoolAutomationState:
    """A pool's switches, automations, engines, and actions. Names match PoolAutomation."""

    pool: str
    frozen: bool
    override_engines: int | None
    override_prefill: int | None
    override_until: datetime | None
    changed_at: datetime | None
    changed_by: str
    why: str
    engines: dict[str, int]
    automations: list[AutomationStatus]
    actions: list[EngineAction]


def pool_state(pool: Pool, observed: FleetObservation, now: datetime) -> PoolAutomationState:
    """Return the pool's current automation state."""
    switches = pool_automation_of(pool)
    lasts = switches.override_until is not None and switches.override_until > now
    actions = list(open_actions([pool]))
    return PoolAutomationState(
        pool=pool.slug,
        frozen=switches.frozen,
        override_engines=switches.override_engines if lasts else None,
        override_prefill=switches.override_prefill if lasts else None,
        override_until=switches.override_until if lasts else None,
        changed_at=switches.changed_at,
        changed_by=switches.changed_by,
        why=switches.why,
        engines=engine_counts(pool, actions, observed, now),
        automations=automation_statuses(pool, now),
        actions=actions,
    )


def engine_counts(pool: Pool, actions: list[EngineAction], observed: FleetObservation, now: datetime) -> dict[str, int]:
    """Return how many engines are desired, running, failed and asleep, and how many actions are open.

    Desired: engines set to serve, adjusted by open actions. Failed: engines set to serve that do not respond, except
    during a role change, and starts that were given up in the last hour.
    """
    shown = Engine.objects.filter(pool=pool, desired_state__in=(DesiredState.READY, DesiredState.ASLEEP))
    states = dict(shown.values_list("engine_id", "desired_state"))
    asleep = sum(state == DesiredState.ASLEEP for state in states.values())
    reports = {
        engine_id: observed.report(engine_id) for engine_id, state in states.items() if state == DesiredState.READY
    }
    answering = sum(report is not None and report.reachable for report in reports.values())
    coming = sum(action.kind == ActionKind.START and action.engine_id is None for action in actions)
    leaving = sum(action.kind == ActionKind.STOP and action.state == ActionState.WANTED for action in actions)
    restarting = {
        action.engine.engine_id for action in actions if action.kind == ActionKind.CHANGE_ROLE and action.engine
    }
    turning = sum(
        action.kind == ActionKind.CHANGE_ROLE
        and action.engine is not None
        and action.engine.desired_state == DesiredState.DRAINING
        for action in actions
    )
    silent = sum(
        report is not None and not report.reachable and engine_id not in restarting
        for engine_id, report in reports.items()
    )
    given_up = EngineAction.objects.filter(
        pool=pool, kind=ActionKind.START, state=ActionState.FAILED, finished_at__gte=now - timedelta(hours=1)
    ).count()
    return {
        "desired": len(reports) + coming - leaving + turning,
        "running": answering,
        "failed": silent + given_up,
        "asleep": asleep,
        "open_actions": len(actions),
    }


def automation_statuses(pool: Pool, now: datetime) -> list[AutomationStatus]:
    """Return each automation with the result of its last round."""
    documents = pool_policy(pool).automation
    runs = {run.job: run for run in JobRun.objects.filter(job__in=DOCUMENTS, shard=pool.pk, state=JobState.ACTIVE)}
    wishes = {"scaling": override_engines(pool, now), "prefill_decode": override_prefill(pool, now)}
    statuses = []
    for job, part in DOCUMENTS.items():
        run = runs.get(job)
        mode = getattr(documents, part).mode
        in_force = mode_in_force(pool, OVERRIDE if wishes.get(job) is not None else mode)
        outcome = run.outcome if run is not None else {}
        plan = run.plan if run is not None else {}
        memory = run.memory if run is not None else {}
        at = _moment(plan.get("at_s"))
        advice = advice_key(job, plan) if outcome.get("mode") == ADVISE else ""
        reason = str(outcome.get("reason", ""))
        made = str(outcome.get("mode", ""))
        statuses.append(AutomationStatus(job, mode, in_force, at, reason, plan, memory, made, advice))
    return statuses


def _moment(unix_s: Any) -> datetime | None:
    return datetime.fromtimestamp(unix_s, UTC) if isinstance(unix_s, int | float) else None
