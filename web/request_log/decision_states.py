"""The states of requests on the Decisions page: their counts as links, and the requests that still run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.db.models import F, FloatField, QuerySet, Sum, Value

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.format import UNKNOWN, duration, whole
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.decision_search import FAILED, LATE, ON_TIME, REJECTED, RUNNING, DecisionFilter, narrowed
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.recent_decisions import recent_decisions
from gateway.contracts.recent_question import RunningRequest
from web.request_log.decision_rows import Span
from web.shell.console_request import with_query

SHAPES = {
    ON_TIME: ("serving", "On time"),
    LATE: ("late", "Late"),
    FAILED: ("failed", "Failed"),
    REJECTED: ("rejected", "Rejected"),
    RUNNING: ("starting", "Running"),
}
"""Shape and word of each state, in display order."""
SHOWN_RUNNING = 50
_OF_OUTCOME = {"completed": ON_TIME, "failed": FAILED, "rejected": REJECTED}


def state_of(outcome: str, late: bool) -> str:
    """Return the state of an ended request; empty for one that counts neither for nor against the objective."""
    return LATE if late and outcome == "completed" else _OF_OUTCOME.get(outcome, "")


def state_counts(rows: QuerySet[DecisionIndex], span: Span) -> dict[str, float]:
    """Return the number of ended requests within the span by state; sampled decisions are weighted up."""
    grouped = (
        narrowed(rows, span.begin_ms, span.end_ms)
        .order_by()
        .values("outcome", "late")
        .annotate(count=Sum(Value(1.0) / F("share"), output_field=FloatField()))
    )
    counts: dict[str, float] = dict.fromkeys((ON_TIME, LATE, FAILED, REJECTED), 0.0)
    for item in grouped:
        state = state_of(item["outcome"], item["late"])
        if state:
            counts[state] += item["count"]
    return counts


def state_links(
    address: str, wanted: DecisionFilter, counts: dict[str, float], running: int | None
) -> list[dict[str, Any]]:
    """Return one link per state with its count, and one for all; `running` None: unknown."""
    others = {name: value for name, value in wanted.given.items() if name not in ("state", "late")}
    shown = {state: whole(number) for state, number in {"": sum(counts.values()), **counts}.items()}
    shown[RUNNING] = UNKNOWN if running is None else whole(running)
    return [
        {
            "state": state,
            "shape": shape,
            "word": word,
            "count": shown[state],
            "address": with_query(address, **others, state=state),
            "chosen": state == wanted.state and not wanted.late,
        }
        for state, (shape, word) in {"": ("", "All ended"), **SHAPES}.items()
    ]


def running_of(actor: Actor, wanted: DecisionFilter) -> list[RunningRequest]:
    """Return the running requests that match and are visible, oldest first; of `late`, only those past their objective.

    Conditions that only ended requests can meet are ignored.
    """
    pools = [wanted.pool] if wanted.pool else []
    if not may(actor, Role.VIEWER):
        visible = set(visible_pools(actor).values_list("slug", flat=True))
        pools = [slug for slug in pools or visible if slug in visible]
        if not pools:
            return []
    only_late = bool(wanted.late) or wanted.state == LATE
    engines = _engine_ids(wanted.engine)
    return [
        item
        for item in recent_decisions().running(pools)
        if (not only_late or item.late)
        and wanted.tenant in ("", item.tenant_id)
        and (not engines or item.engine_id in engines)
    ]


def running_count(actor: Actor, wanted: DecisionFilter) -> int | None:
    """Return the number of running requests of the newest sample; None if it is unknown or the filter is narrower."""
    sample = fleet_samples().latest
    if sample is None or any(name not in ("pool", "state", "late", "since", "until") for name in wanted.given):
        return None
    visible = None if may(actor, Role.VIEWER) else set(visible_pools(actor).values_list("slug", flat=True))
    pools = [
        pool
        for pool in sample.pools
        if wanted.pool in ("", pool.pool_id) and (visible is None or pool.pool_id in visible)
    ]
    ids = {pool.pool_id for pool in pools}
    on_engines = sum(engine.running + engine.bound for engine in sample.engines if engine.pool_id in ids)
    return on_engines + sum(pool.unbound for pool in pools)


def running_lines(running: Sequence[RunningRequest]) -> list[dict[str, Any]]:
    """Return the running requests as lines of the table."""
    shown = running[:SHOWN_RUNNING]
    names = dict(
        Engine.objects.filter(engine_id__in={item.engine_id for item in shown}).values_list("engine_id", "name")
    )
    return [_line(item, names.get(item.engine_id, item.engine_id)) for item in shown]


def _line(item: RunningRequest, engine: str) -> dict[str, Any]:
    first_s = item.first_token_after_s
    if not item.engine_id:
        state = f"Waiting {duration(item.age_s)}"
    elif first_s is None:
        state = f"No first token for {duration(item.age_s)}"
    else:
        state = f"Answering for {duration(item.age_s - first_s)}"
    at = datetime.fromtimestamp(item.arrived_at, UTC)
    return {
        "request": item,
        "iso": at.isoformat(timespec="milliseconds"),
        "clock": at.strftime("%H:%M:%S.%f")[:-3],
        "shape": "late" if item.late else "starting",
        "state": state,
        "engine": engine,
        "prompt": whole(item.prompt_tokens) if item.prompt_tokens else UNKNOWN,
        "ttft": UNKNOWN if first_s is None else duration(first_s),
    }


def _engine_ids(name: str) -> set[str]:
    return {name, *Engine.objects.filter(name=name).values_list("engine_id", flat=True)[:100]} if name else set()
