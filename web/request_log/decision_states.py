"""The states of requests on the Requests page: their counts as links, and the requests that still run."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django.db.models import QuerySet

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.format import UNKNOWN, clock_time, duration, whole
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.request_log.decision_search import (
    FAILED,
    LATE,
    ON_TIME,
    REJECTED,
    RUNNING,
    DecisionFilter,
    engine_ids,
    narrowed,
    represented,
    search,
)
from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.recent_decisions import recent_decisions
from gateway.contracts.recent_question import RunningRequest
from web.request_log.decision_rows import SHAPES, Span, state_of
from web.shell.console_request import with_query

SHOWN_RUNNING = 50


def states_and_running(
    actor: Actor, wanted: DecisionFilter, span: Span, address: str, *, live: bool = True
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return one link per state with its count within the span, and lines of the running requests.

    The lines are those that the filter asks for; of `late`, those past their objective. Without `live` there are none.
    """
    others = replace(wanted, state="", late="")
    counts = {state: whole(number) for state, number in _counts(search(actor, others), span).items()}
    running = _running(actor, wanted) if live and (wanted.late or wanted.state in (LATE, RUNNING)) else []
    number = len(running) if wanted.state == RUNNING else _running_now(actor, wanted)
    counts[RUNNING] = UNKNOWN if number is None else whole(number)
    links = [
        {
            "state": state,
            "shape": shape,
            "word": word,
            "count": counts[state],
            "address": with_query(address, **others.given, state=state),
            "chosen": state == wanted.state and not wanted.late,
        }
        for state, (shape, word) in {"": ("", "All ended"), **SHAPES}.items()
    ]
    shown = running[:SHOWN_RUNNING]
    engines = Engine.objects.filter(engine_id__in={item.engine_id for item in shown})
    names = dict(engines.values_list("engine_id", "name"))
    return links, [_line(item, names.get(item.engine_id, item.engine_id)) for item in shown]


def _counts(rows: QuerySet[DecisionIndex], span: Span) -> dict[str, float]:
    """Return the number of ended requests by state, and of all under ""; sampled decisions are weighted up."""
    grouped = (
        narrowed(rows, span.begin_ms, span.end_ms).order_by().values("outcome", "late").annotate(count=represented())
    )
    counts: dict[str, float] = dict.fromkeys(("", ON_TIME, LATE, FAILED, REJECTED), 0.0)
    for item in grouped:
        counts[state_of(item["outcome"], item["late"])] += item["count"]
    return {**counts, "": sum(counts.values())}


def _running(actor: Actor, wanted: DecisionFilter) -> list[RunningRequest]:
    """Return the running requests that match, oldest first. Conditions that only ended ones can meet are ignored."""
    pools = _pools(actor, wanted)
    if pools == []:
        return []
    engines = {wanted.engine, *engine_ids(wanted.engine)}
    return [
        item
        for item in recent_decisions().running(pools or ())
        if (item.late or wanted.state == RUNNING)
        and wanted.tenant in ("", item.tenant_id)
        and (not wanted.engine or item.engine_id in engines)
    ]


def _running_now(actor: Actor, wanted: DecisionFilter) -> int | None:
    """Return the number of running requests of the newest sample; None if it is unknown or the filter is narrower."""
    sample, pools = fleet_samples().latest, _pools(actor, wanted)
    if sample is None or not wanted.given.keys() <= {"pool", "state", "late", "since", "until"}:
        return None
    waiting = sum(pool.unbound for pool in sample.pools if pools is None or pool.pool_id in pools)
    on_engines = (engine for engine in sample.engines if pools is None or engine.pool_id in pools)
    return waiting + sum(engine.running + engine.bound for engine in on_engines)


def _pools(actor: Actor, wanted: DecisionFilter) -> list[str] | None:
    """Return the visible pools that match; None: all."""
    if may(actor, Role.VIEWER):
        return [wanted.pool] if wanted.pool else None
    visible = visible_pools(actor).values_list("slug", flat=True)
    return [slug for slug in visible if wanted.pool in ("", slug)]


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
        "clock": clock_time(at, "milliseconds"),
        "shape": "late" if item.late else "starting",
        "state": state,
        "engine": engine,
        "prompt": whole(item.prompt_tokens) if item.prompt_tokens else UNKNOWN,
        "ttft": UNKNOWN if first_s is None else duration(first_s),
    }
