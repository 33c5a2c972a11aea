"""All data of one pool's Automation page, read with a fixed number of queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controlplane.automation.engine_actions import started_names
from controlplane.automation.models.engine_action import EngineAction
from controlplane.automation.observation import fleet_observation
from controlplane.automation.pool_policy import pool_automation_of, pool_policy
from controlplane.automation.reading import PoolAutomationState, pool_state
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import ActuatorKind, Pool
from controlplane.objectives.objective import targets
from controlplane.platform.actor import Actor
from controlplane.platform.format import count, moment, percent, span, zone_name
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from gateway.contracts.fleet_sample import EngineSample, PoolSample
from planning.documents.scaling_document import ScalingDocument
from web.automation.actions import SHOWN_ENDED, SHOWN_OPEN, action_row
from web.automation.cards import AutomationCard, automation_cards, last_changes
from web.automation.plan_rows import plan_rows
from web.automation.words import action_words
from web.fleet.topology.drains import drain_watch
from web.fleet.topology.drawer import FRESH_S
from web.live.engine_health import watched
from web.live.feed import fleet_feed


def verdict(
    pool: Pool,
    state: PoolAutomationState,
    cards: Sequence[AutomationCard],
    late: str,
    now: datetime,
    *,
    known: bool = True,
) -> tuple[str, str]:
    """Return the most important fact about the pool in emphasized words, then the other facts.

    `late` is the on-time share in words if it misses the target, else empty; `known` is False without live figures.
    """
    if state.frozen:
        since = moment(state.changed_at, now)
        when = f" by {state.changed_by}, {since.ago}" if since is not None else ""
        why = f": {state.why}" if state.why else ""
        return ("Frozen.", f"Automations of {pool.name} take no action. Frozen{when}{why}.")
    advice = [card for card in cards if card.mode == "Advises" and not card.idle]
    failed = f"{count(state.engines['failed'], 'engine')} failed." if state.engines["failed"] else ""
    if failed or late:
        return (
            " ".join(filter(None, (failed, late))),
            " ".join([_sizes(state), *(f"{card.title} advises to {card.wants}." for card in advice)]),
        )
    if state.override_until is not None:
        return ("Engine count fixed.", _sizes(state))
    if state.actions:
        first = state.actions[0]
        does = action_words(first.kind, first.role if first.role != "mixed" else "", first.engine_name)
        more = f" and {count(len(state.actions) - 1, 'more action')}" if len(state.actions) > 1 else ""
        return ("Changing.", f"{does}{more}. {_sizes(state)}")
    if advice:
        return (f"{advice[0].title}:", advice[0].state[0].lower() + advice[0].state[1:])
    acting = [card.title.lower() for card in cards if card.mode == "Acts"]
    steered = f"Automatic: {', '.join(acting)}." if acting else "No automation is active."
    return ("Steady." if known else "No live figures.", f"{_sizes(state)} {steered}")


def late_words(sample: PoolSample | None, target: float) -> str:
    """Return the on-time share in words if it misses the target 0..1; empty otherwise, and if it is unknown."""
    share = sample.on_time_share if sample is not None else None
    if share is None or share >= target:
        return ""
    return f"{percent(share)} on time, target {percent(target)}."


def on_time_target(pool: str, objectives: Mapping[str, float], settings: ScalingDocument) -> float:
    """Return the higher one of the pool's objective and the target of scaling."""
    return max(objectives.get(pool, objectives[""]), settings.attainment)


def _sizes(state: PoolAutomationState) -> str:
    counts = state.engines
    return f"{counts['running']} of {count(counts['desired'], 'desired engine')} running."


UNKNOWN = "—"


def pool_page(pool: Pool, actor: Actor, now: datetime) -> dict[str, Any]:
    """Return the template context for the page's live section."""
    state = pool_state(pool, fleet_observation(), now)
    policy = pool_policy(pool)
    engines = list(Engine.objects.filter(pool=pool).only("pk", "engine_id", "name", "role", "desired_state"))
    names = {engine.engine_id: engine.name for engine in engines}
    all_names = {**started_names(pool), **names}
    seen, sample, window_s = _seen(pool, now)
    watch = drain_watch()
    drains = {name: progress for name in names if (progress := watch.progress(name)) is not None}
    ended = EngineAction.objects.filter(pool=pool).exclude(finished_at=None).select_related("pool", "engine")
    cards = automation_cards(state.automations, policy.automation, last_changes(pool), all_names, now)
    roles = sorted({engine.role for engine in engines} - {"mixed"})
    target = on_time_target(pool.slug, targets(), policy.automation.scaling)
    return {
        "pool": pool,
        "pool_state": state,
        "verdict": verdict(pool, state, cards, late_words(sample, target), now, known=sample is not None),
        "override": override_words(state, policy.automation.scaling, now),
        "cards": [card for card in cards if roles or card.job != "prefill_decode" or card.mode == "Overridden"],
        "tiles": tiles(state, sample, window_s, policy.automation.scaling, target),
        "actions": [action_row(action, drains, seen, now) for action in state.actions[:SHOWN_OPEN]],
        "ended": [action_row(item, {}, seen, now) for item in ended.order_by("-finished_at")[:SHOWN_ENDED]],
        "watched": watched({engine.pk: engine for engine in engines}, seen, now),
        "plans": plan_rows([pool], now),
        "roles": roles,
        "by_hand": pool.actuator == ActuatorKind.MANUAL,
        "actuator": ActuatorKind(pool.actuator).label,
        "may_operate": may(actor, Role.OPERATOR, pool),
        "revision": pool_automation_of(pool).revision,
        "at": moment(now, now),
    }


def tiles(
    state: PoolAutomationState, sample: PoolSample | None, window_s: float, settings: ScalingDocument, target: float
) -> list[dict[str, str]]:
    """Return the key figures: label, figure, unit, a line of context, and a shape if a limit is broken."""
    counts = state.engines
    scaling = next((automation.plan for automation in state.automations if automation.job == "scaling"), {})
    share = sample.on_time_share if sample is not None else None
    demand, hours = scaling.get("demand"), scaling.get("engine_h_today")
    ahead = (scaling.get("forecast") or {}).get("ahead")
    ahead_s = settings.warm_up_s + settings.window_s
    opened = f"{count(counts['open_actions'], 'action')} open"
    if not counts["desired"] and settings.starts_on_demand:
        opened = "the next request starts one"
    running = "fewer than desired" if counts["running"] < counts["desired"] else "as desired"
    if counts["asleep"]:
        running = f"{running}, {counts['asleep']} asleep"
    return [
        _tile("Desired", str(counts["desired"]), "engines", opened),
        _tile("Running", str(counts["running"]), "engines", running),
        _tile(
            "Failed",
            str(counts["failed"]),
            "engines",
            "failed to start, or silent",
            "lost" * bool(counts["failed"]),
        ),
        _tile(
            "On time",
            UNKNOWN if share is None else f"{share * 100:.1f}",
            "" if share is None else "%",
            f"target {percent(target)}" + (f", last {span(window_s)}" if window_s else ""),
            "hot" * (share is not None and share < target),
        ),
        _tile(
            "Demand",
            UNKNOWN if demand is None else f"{demand:.1f}",
            "" if demand is None else "engines",
            "no forecast yet" if ahead is None else f"{ahead:.1f} expected in {span(ahead_s)}",
        ),
        _tile("Engine hours", UNKNOWN if hours is None else f"{hours:.1f}", "" if hours is None else "h", "last 24 h"),
    ]


def override_words(state: PoolAutomationState, settings: ScalingDocument, now: datetime) -> str:
    """Return the size at which an operator holds the pool; empty if no override is active."""
    until = moment(state.override_until, now)
    if until is None:
        return ""
    held = []
    if state.override_engines is not None:
        asked = state.override_engines
        bound = min(max(asked, settings.min_engines), settings.max_engines)
        held.append(
            count(bound, "engine") + (f" (requested: {asked}, beyond the policy's bounds)" if bound != asked else "")
        )
    if state.override_prefill is not None:
        held.append(f"{state.override_prefill} prefill")
    return f"Fixed at {', '.join(held)} until {until.clock} {zone_name()} ({until.ago}) by {state.changed_by}"


def _tile(label: str, figure: str, unit: str, note: str, shape: str = "") -> dict[str, str]:
    return {"label": label, "figure": figure, "unit": unit, "note": note, "shape": shape}


def _seen(pool: Pool, now: datetime) -> tuple[dict[str, EngineSample], PoolSample | None, float]:
    """Return the pool's engines, the pool, and the window of the newest sample. All are empty if the sample is old."""
    sample = fleet_feed().latest
    if sample is None or now.timestamp() - sample.at > FRESH_S:
        return {}, None, 0.0
    engines = {engine.engine_id: engine for engine in sample.engines if engine.pool_id == pool.slug}
    return engines, next((item for item in sample.pools if item.pool_id == pool.slug), None), sample.window_s
