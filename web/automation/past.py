"""A pool's automation over time: engines, objective, work, roles, and each plan with its time and reason."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from controlplane.automation.models.plan_record import PlanRecord
from controlplane.automation.pool_policy import pool_policy
from controlplane.automation.reading import AutomationStatus, automation_statuses
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.history.bucket import ENGINE_BYTES, LOST, POOL_FLOATS, Column
from controlplane.history.codec import rows_of
from controlplane.platform.format import sentence
from controlplane.platform.models.audit_event import AuditEvent
from gateway.contracts.fleet_sample import STATES, TAKING_WORK
from planning.documents.scaling_document import ScalingDocument
from web.automation.words import MODES, TITLES, change_words
from web.history.past import past_columns
from web.history.past_range import Stretch
from web.live.feed import FleetFeed

MAX_PLANS = 4000
"""Maximum number of plans per automation in one response; the newest are kept."""
MAX_MARKS = 240
REPEAT_S = 60.0
"""An automation repeats its advice each round until it is followed; only advice after a longer pause is a new mark."""
_AUDITED = {
    "pool.freeze": ("freeze", "frozen"),
    "pool.unfreeze": ("unfreeze", "unfrozen"),
    "pool.override": ("override", "held"),
    "pool.end_override": ("override", "override ended"),
    "pool.follow_advice": ("follow", "advice"),
}
_ACTING = ("act", "override")
_SIZE = ("engines", "target", "demand", "demand_ahead")
_ROLES = ("prefill", "decode", "prefill_load", "decode_load", "imbalance")
_STATE, _ON_TIME = ENGINE_BYTES.index("state"), POOL_FLOATS.index("on_time")
_WORKING = tuple(STATES.index(state) for state in sorted(TAKING_WORK))
_DRAINING = STATES.index("draining")
Point = list[float | int | None]


def automation_past(pool: Pool, stretch: Stretch, feed: FleetFeed, now: datetime) -> dict[str, Any]:
    """Return the chart data: series of [Unix seconds, value, …] (None if unknown), and marks, oldest first."""
    settings = pool_policy(pool).automation
    from_s = float(stretch.first * stretch.range.column_s)
    to_s = min(stretch.end, now.timestamp()) if stretch.live else stretch.end
    scope = frozenset((pool.slug,))
    past = past_columns(stretch, feed.recent(scope).columns, scope)
    counts = _counts(pool.slug, past.columns, stretch.range.column_s)
    names = dict(Engine.objects.filter(pool=pool).values_list("engine_id", "name"))
    sizes = _sizes(pool, from_s, to_s)
    ratio = _figures(pool, "prefill_decode", _ROLES, from_s, to_s)
    if stretch.live:
        rounds = {automation.job: automation for automation in automation_statuses(pool, now)}
        sizes += _newest_size(rounds["scaling"])
        ratio += _newest(rounds["prefill_decode"].plan, _ROLES)
    out = _figures(pool, "engine_health", ("quarantined",), from_s, to_s)
    return {
        "from_s": from_s,
        "to_s": to_s,
        "live": stretch.live,
        "column_s": stretch.range.column_s,
        "engines": [point[:4] for point in counts],
        "desired": [[point[0], point[2]] for point in sizes],
        "quarantined": out,
        "on_time": [[point[0], point[4]] for point in counts],
        "target": settings.scaling.attainment,
        "demand": [[point[0], point[3]] for point in sizes],
        "forecast": _forecast(sizes, settings.scaling),
        "capacity": [[point[0], point[1] * settings.scaling.utilisation] for point in sizes if point[1] is not None],
        "roles": ratio,
        "band": [1.0 / (1.0 + settings.ratio.band), 1.0 + settings.ratio.band],
        "marks": _marks(pool, names, from_s, to_s),
    }


def _counts(pool: str, columns: Sequence[Column], column_s: int) -> list[Point]:
    """Return [Unix seconds, running, draining, failed, on-time share] of the columns with the pool, oldest first.

    Running engines are serving, hot, or degraded; failed ones were lost at any time in the interval.
    """
    counts: list[Point] = []
    for column in columns:
        if pool not in column.pools:
            continue
        codes, on_time = column.codes[_STATE], column.pools[pool][_ON_TIME]
        states = bytes(codes[row] for row in rows_of(column.roster, pool))
        sizes = sum(states.count(state) for state in _WORKING), states.count(_DRAINING), states.count(LOST)
        counts.append([float(column.index * column_s), *sizes, None if math.isnan(on_time) else on_time])
    return counts


def _figures(
    pool: Pool, job: str, names: Sequence[str], from_s: float, to_s: float, *, acting: bool = False
) -> list[Point]:
    """Return [Unix seconds, figures…] of the kept plans in the range, preceded by the last earlier plan, which still
    applies.

    With `acting`, each point ends with 1 if the automation was acting, else 0.
    """
    plans = PlanRecord.objects.filter(pool=pool.slug, job=job)
    begin = datetime.fromtimestamp(from_s, UTC)
    before = list(plans.filter(at__lt=begin).order_by("-at", "-pk").values_list("at", "figures", "mode")[:1])
    within = plans.filter(at__gte=begin, at__lte=datetime.fromtimestamp(to_s, UTC)).order_by("-at", "-pk")
    rows = [*reversed(within.values_list("at", "figures", "mode")[:MAX_PLANS])]
    return [
        [at.timestamp(), *(_number(figures.get(name)) for name in names), *([int(mode in _ACTING)] if acting else [])]
        for at, figures, mode in before + rows
    ]


def _sizes(pool: Pool, from_s: float, to_s: float) -> list[Point]:
    """Return [Unix seconds, engines, desired, demand, demand ahead]. While a size is only advised, `desired` is
    `engines`.
    """
    rows = _figures(pool, "scaling", _SIZE, from_s, to_s, acting=True)
    return [[at, engines, target if acts else engines, *rest] for at, engines, target, *rest, acts in rows]


def _newest_size(automation: AutomationStatus) -> list[Point]:
    plan = automation.plan
    ahead = (plan.get("forecast") or {}).get("ahead")
    desired = plan.get("target") if automation.in_force in _ACTING else plan.get("engines")
    figures = {**plan, "target": desired, "demand_ahead": ahead}
    return _newest(figures, _SIZE)


def _newest(plan: dict[str, Any], names: Sequence[str]) -> list[Point]:
    """Return the point of the latest round, which is rarely stored; empty before the first round."""
    at_s = _number(plan.get("at_s"))
    return [] if at_s is None else [[at_s, *(_number(plan.get(name)) for name in names)]]


def _forecast(sizes: Iterable[Point], settings: ScalingDocument) -> list[Point]:
    """Return each forecast at the end of its horizon, so that the chart aligns it with the actual value."""
    ahead_s = settings.warm_up_s + settings.window_s
    return [[(point[0] or 0.0) + ahead_s, point[4]] for point in sizes]


def _marks(pool: Pool, names: dict[str, str], from_s: float, to_s: float) -> list[dict[str, Any]]:
    span = (datetime.fromtimestamp(from_s, UTC), datetime.fromtimestamp(to_s, UTC))
    plans = PlanRecord.objects.filter(pool=pool.slug, changes=True, at__range=span, job__in=TITLES)
    kept = plans.exclude(job="rebalance").defer("figures").order_by("-at", "-pk")[:MAX_MARKS]
    marks = [mark for record in kept if (mark := _plan_mark(record, names)) is not None]
    events = AuditEvent.objects.filter(pool_slug=pool.slug, verb__in=_AUDITED, at__range=span)
    for event in events.order_by("-at")[:MAX_MARKS]:
        kind, label = _AUDITED[event.verb]
        why = f": {event.why}" if event.why else ""
        text = f"{label.capitalize()} by {event.actor_name}{why}"
        marks.append({"at": event.at.timestamp(), "kind": kind, "label": label, "text": sentence(text)})
    return without_repeats(sorted(marks, key=lambda mark: float(mark["at"])))[-MAX_MARKS:]


def without_repeats(marks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the marks, oldest first, without advice that repeats the last advice of its label within REPEAT_S."""
    last: dict[str, float] = {}
    kept = []
    for mark in marks:
        repeats = mark["kind"] == "advice" and mark["at"] - last.get(mark["label"], -math.inf) <= REPEAT_S
        if mark["kind"] == "advice":
            last[mark["label"]] = mark["at"]
        if not repeats:
            kept.append(mark)
    return kept


def _plan_mark(record: PlanRecord, names: dict[str, str]) -> dict[str, Any] | None:
    words = change_words(record.job, record.plan, names)
    if record.job == "engine_health":
        # Suspicions are transient; the chart marks only verdicts that take an engine out or return it.
        verdicts = [item for item in record.plan.get("verdicts", ()) if item.get("engine_id") in record.plan["changed"]]
        grave = [item for item in verdicts if item.get("state") in ("quarantined", "probation")]
        if not grave:
            return None
        words = ", ".join(f"{names.get(item['engine_id'], item['engine_id'])} {item['state']}" for item in grave[:4])
    done = record.outcome.get("carried_out", False)
    word, _ = MODES.get(record.mode, (record.mode, ""))
    why = " ".join(sentence(reason.get("text", "")) for reason in record.reasons[:3])
    label = _label(record)
    return {
        "at": record.at.timestamp(),
        "kind": record.job if done else "advice",
        "label": label,
        "text": f"{TITLES[record.job]}{'' if done else f' ({word.lower()}, not executed)'}: {sentence(words)} {why}",
    }


def _label(record: PlanRecord) -> str:
    if record.job == "scaling":
        return (
            f"+{len(record.plan.get('add', ()))}" if record.plan.get("add") else f"−{len(record.plan.get('drain', ()))}"
        )
    if record.job == "prefill_decode":
        role_changes = record.plan.get("role_changes", ())
        return f"{len(role_changes)} to {role_changes[0]['after']}" if role_changes else "role change"
    return "health"


def _number(value: Any) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
