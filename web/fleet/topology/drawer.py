"""The engine drawer of the Engines page: one engine, its actions, and their effects."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone

from controlplane.fleet.learned_costs import fitted_of
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.preflight.lifecycle import Preflight, preflight_of
from controlplane.fleet.preflight.steps import SKIPPED
from controlplane.platform.actor import Actor
from controlplane.platform.format import ago, clock_time, count, duration, iso, roughly, span
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from gateway.contracts.fleet_sample import TAKING_WORK, EngineSample, FleetSample
from web.fleet.topology.drains import drain_watch
from web.fleet.topology.form import CHANGED, change_drawer
from web.fleet.topology.rows import EngineRow, engine_line
from web.fleet.topology.words import STALE_S
from web.live.engine_health import engine_health, never_answered
from web.shell.resource_form import facts

HISTORY = 5
FRESH_S = 5.0
"""Maximum age of a sample in seconds; an older sample says nothing about current in-flight work."""
VERBS = {
    "ready": (DesiredState.READY, "Return to service"),
    "drain": (DesiredState.DRAINING, "Drain"),
    "maintenance": (DesiredState.MAINTENANCE, "Maintenance"),
}
WANTED = {
    DesiredState.READY: "Serving",
    DesiredState.DRAINING: "Draining",
    DesiredState.MAINTENANCE: "Maintenance",
    DesiredState.ASLEEP: "Asleep; the scaler wakes it",
}
DONE_WORDS = {
    "engine.register": "registered it",
    "engine.change": "changed it",
    "engine.move": "updated its address",
    "engine.ready": "returned it to service",
    "engine.drain": "drained it",
    "engine.maintain": "put it into maintenance",
    "engine.quarantine": "quarantined it",
    "engine.probation": "started its return",
    "engine.readmit": "returned it to service",
}


def sample_of(sample: FleetSample | None, engine_id: str, now: float) -> EngineSample | None:
    """Return the newest sample of the engine; None if it has no fresh one."""
    if sample is None or now - sample.at > FRESH_S:
        return None
    return next((engine for engine in sample.engines if engine.engine_id == engine_id), None)


def in_flight(seen: EngineSample | None) -> int | None:
    """Return the number of requests that run on the engine or wait for it; None if unknown."""
    return None if seen is None else seen.running + seen.bound


def engine_drawer(
    engine: Engine, sample: FleetSample | None, actor: Actor, pools: Sequence[Pool], do: str = ""
) -> dict[str, Any]:
    """Return the drawer's content for one engine; `do` is the action to confirm."""
    now = time.time()
    seen = sample_of(sample, engine.engine_id, now)
    pool = next((item for item in pools if item.pk == engine.pool_id), engine.pool)
    row = EngineRow(engine.pk, engine.engine_id, engine.name, engine.url, pool, engine.desired_state, seen, engine.role)
    preflight = preflight_of(engine)
    silent = never_answered(seen)
    failure = preflight.failure if preflight and engine.desired_state == DesiredState.MAINTENANCE else None
    trouble = "It receives no requests until its preflight passes." if failure else ""
    drawer: dict[str, Any] = {
        "kind": "engine",
        "engine": engine,
        "pool": pool,
        "line": engine_line(row, 1.0, now, trouble),
        "facts": facts(CHANGED, engine)[1:],
        "learned": learned_words(engine, answered=not silent),
        "wanted": WANTED[DesiredState(engine.desired_state)],
        "flight": flight_words(engine, seen),
        "checklist": checklist(preflight, now),
        "history": history(engine, now),
        "health": engine_health(engine, seen, timezone.now()),
        "verbs": verbs(engine, answered=not silent) if may(actor, Role.OPERATOR, pool) else [],
    }
    if drawer["verbs"] and do in VERBS:
        drawer["confirm"] = confirm_move(engine, do, seen, sample)
    elif drawer["verbs"] and do == "delete":
        drawer["confirm"] = confirm_delete(engine, seen)
    elif drawer["verbs"] and do == "change":
        drawer |= change_drawer(engine, engine.revision)
    return drawer


def verbs(engine: Engine, *, answered: bool = True) -> list[dict[str, str]]:
    """Return the state changes that would have an effect. An engine that never responded, or sleeps, cannot return to
    service.
    """
    able = answered and engine.desired_state != DesiredState.ASLEEP
    moves = {do: move for do, move in VERBS.items() if able or move[0] != DesiredState.READY}
    return [{"do": do, "label": label} for do, (state, label) in moves.items() if engine.desired_state != state.value]


def flight_words(engine: Engine, seen: EngineSample | None) -> dict[str, Any]:
    """Return the in-flight work in words and, if no new work arrives, how long it will take."""
    if seen is None:
        return {"text": "Unknown: the gateway does not report this engine.", "left": None, "done": False}
    if never_answered(seen) and not seen.running + seen.bound:
        return {
            "text": "Unknown: the engine never answered, and this gateway sent it no requests.",
            "left": 0,
            "done": True,
        }
    left = seen.running + seen.bound
    if engine.desired_state == DesiredState.READY:
        words = f"{count(seen.running, 'request')} running, {_requests(seen.bound)} waiting for it."
        return {"text": words, "left": left, "done": False}
    if not left:
        drained = "Drained: nothing" if engine.desired_state == DesiredState.DRAINING else "Nothing"
        return {"text": f"{drained} is in flight. It can be stopped or deleted.", "left": 0, "done": True}
    progress = drain_watch().progress(engine.engine_id)
    if progress is None or not progress.left:
        return {
            "text": f"{count(left, 'request')} left. New requests go to other engines.",
            "left": left,
            "done": False,
        }
    longest = f"the longest has run for at least {span(progress.longest_s)}"
    rest = "no estimate yet" if progress.about_s is None else f"about {roughly(progress.about_s)} to go"
    return {"text": f"{count(left, 'request')} left, {longest}; {rest}.", "left": left, "done": False}


def confirm_move(engine: Engine, do: str, seen: EngineSample | None, sample: FleetSample | None) -> dict[str, Any]:
    """Return the question, the effects in figures, and the button of a state change."""
    state = VERBS[do][0]
    others = _others_serving(engine, sample)
    effects: list[tuple[str, str]] = []
    warning = ""
    if state == DesiredState.READY:
        effects.append(("New requests", "in about 1 s"))
        effects.append(("Undo", "drain it at any time"))
        preflight = preflight_of(engine)
        if preflight is not None and preflight.failure is not None:
            warning = f"Its preflight failed: {preflight.failure.sentence} Check it again first."
    else:
        effects.append(("In flight", flight_effect(state, seen)))
        effects.append(("New requests", _elsewhere(others)))
        if state == DesiredState.MAINTENANCE:
            effects.append(("Probing", "stops"))
        effects.append(("Takes effect", "in about 1 s, on every gateway"))
        effects.append(("Undo", "return it to service at any time"))
        if others == 0 and engine.desired_state == DesiredState.READY:
            warning = f"No other engine of {engine.pool.name} is available: requests will wait and be rejected."
    verb = {"ready": "Return {} to service", "drain": "Drain {}", "maintenance": "Put {} into maintenance"}[do]
    sentence = verb.format(engine.name)
    return {"do": do, "title": f"{sentence}?", "button": sentence, "effects": effects, "warning": warning}


def confirm_delete(engine: Engine, seen: EngineSample | None) -> dict[str, Any]:
    """Return the question before a deletion, or why the engine cannot be deleted yet."""
    left = in_flight(seen)
    lost = seen is not None and seen.state == "lost"
    rejection = ""
    if engine.desired_state == DesiredState.READY:
        rejection = f"{engine.name} is serving. Drain it first; delete it when nothing is in flight."
    elif left is None and not lost:
        rejection = (
            f"In-flight requests on {engine.name} are unknown: the gateway does not report it. Wait for a report."
        )
    elif left:
        rejection = f"{count(left, 'request')} still in flight on {engine.name}. Delete it when they are done."
    effects = [
        ("In flight", "nothing"),
        ("Index", "its entries are removed"),
        ("Undo", "register it again"),
    ]
    return {
        "do": "delete",
        "title": f"Delete {engine.name}?",
        "button": f"Delete {engine.name}",
        "effects": [] if rejection else effects,
        "warning": "",
        "rejection": rejection,
    }


def checklist(preflight: Preflight | None, now: float) -> dict[str, Any] | None:
    """Return a preflight as a checklist. The first open step of a running preflight is in progress."""
    if preflight is None:
        return None
    open_step = next((step.key for step in preflight.steps if step.state == "pending"), "")
    current = open_step if preflight.state == "running" else ""
    steps = [
        {
            "name": step.name,
            "state": "checking" if step.key == current else step.state,
            "text": step.sentence or step.name,
            "remedy": step.remedy,
            "unseen": step.state == SKIPPED and not step.sentence,
        }
        for step in preflight.steps
    ]
    at = preflight.finished_at or preflight.started_at
    return {
        "state": preflight.state,
        "unfinished": preflight.unfinished,
        "steps": steps,
        "summary": _preflight_summary(preflight),
        "ago": ago(now - at.timestamp()),
        "at": at.isoformat(timespec="seconds"),
        "remark": preflight.remark if preflight.state in ("passed", "ended") else "",
    }


def history(engine: Engine, now: float) -> list[dict[str, str]]:
    """Return the engine's last changes, the newest first."""
    return changes_of(AuditEvent.objects.filter(object_kind="engine", object_id=engine.engine_id), DONE_WORDS, now)


def changes_of(events: QuerySet[AuditEvent], words: Mapping[str, str], now: float) -> list[dict[str, str]]:
    """Return the newest of these changes, each with the wording of its verb."""
    return [
        {
            "at": iso(event.at.timestamp()),
            "clock": clock_time(event.at.timestamp()),
            "ago": ago(now - event.at.timestamp()),
            "text": f"{event.actor_name} {words.get(event.verb, event.verb)}",
            "why": event.why,
        }
        for event in events[:HISTORY]
    ]


def _preflight_summary(preflight: Preflight) -> str:
    total = len(preflight.steps)
    words = {
        "waiting": "starts within a second",
        "running": "running",
        "passed": f"passed, {total} of {total}",
        "failed": f"stopped at {preflight.stopped_at} of {total}",
    }
    return words.get(preflight.state, "ended early")


def _requests(bound: int) -> str:
    return count(bound, "queued request") if bound else "none"


def _others_serving(engine: Engine, sample: FleetSample | None) -> int | None:
    if sample is None:
        return None
    peers = [item for item in sample.engines if item.pool_id == engine.pool.slug and item.engine_id != engine.engine_id]
    return sum(1 for peer in peers if peer.state in TAKING_WORK)


def _elsewhere(others: int | None) -> str:
    if others is None:
        return "go to the other engines of its pool"
    return f"go to {count(others, 'other engine')} of its pool"


def flight_effect(state: DesiredState, seen: EngineSample | None) -> str:
    """Return what would happen now to in-flight work."""
    if seen is None:
        return "unknown; the gateway does not report it"
    moved = "none queued"
    if seen.bound:
        moved = f"{count(seen.bound, 'queued request moves', 'queued requests move')} to other engines"
    if not seen.running:
        return f"none in flight, {moved}"
    goes_on = "finish here" if state == DesiredState.DRAINING else "continue while the engine runs"
    return f"{count(seen.running, 'request')} {goes_on}, {moved}"


def report_words(seen: EngineSample | None) -> str:
    """Return the age of the last report, for the drawer's header."""
    if seen is None or seen.report_age_s is None:
        return ""
    age = duration(seen.report_age_s)
    return f"no reports for {age}: figures are old" if seen.report_age_s > STALE_S else f"report {age} old"


_PROMPT_TOKENS = 4096


def learned_words(engine: Engine, *, answered: bool = True) -> str:
    """Return the engine's learned prefill and decode speeds, and how certain they are.

    Costs learned for its engine kind do not apply to an engine that never responded.
    """
    cost = LearnedCost.objects.filter(pool_id=engine.pool_id, kind=engine.kind).first()
    if cost is None or not answered:
        return "nothing yet"
    fitted = fitted_of(cost)
    speed = fitted.speeds.get(engine.engine_id, 1.0) * engine.speed
    prefill_ms = 1000 * fitted.prefill.seconds(_PROMPT_TOKENS, 0) / speed
    words = f"{_PROMPT_TOKENS:,} new tokens in {prefill_ms:,.0f} ms, from {count(fitted.samples, 'prefill')}"
    words += f"; off by {fitted.error:.0%} on average, the policy's cost by {fitted.policy_error:.0%}"
    if fitted.decode is not None:
        words += f"; a decode step of 16 requests takes {1000 * fitted.decode.seconds(16, 16 * _PROMPT_TOKENS):,.0f} ms"
    return f"{words}."
