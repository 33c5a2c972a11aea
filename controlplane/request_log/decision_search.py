"""Finds recorded decisions that the user may see, by filter."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django.db.models import F, FloatField, Q, QuerySet, Sum, Value

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.actor import Actor
from controlplane.platform.bus import fleet_keyring
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.platform.search_filter import SearchFilter, UnreadableFilterError, moment_of
from controlplane.request_log.models.decision_index import DecisionIndex
from gateway.contracts.stored_decision import DIGESTS, session_digest
from gateway.reports.traffic_rows import tenant_digest

ON_TIME, LATE, FAILED, REJECTED, RUNNING = "on_time", "late", "failed", "rejected", "running"
STATES = {
    ON_TIME: Q(outcome="completed", late=False),
    LATE: Q(outcome="completed", late=True),
    # Each missed its objective, which lets a database use the index of those.
    FAILED: Q(outcome="failed", late=True),
    REJECTED: Q(outcome="rejected", late=True),
    # No stored decision: gateways list them.
    RUNNING: Q(pk__in=()),
}
"""Conditions of the states of requests."""
COUNTED = Q(outcome__in=("completed", "failed", "rejected"))
"""Condition of the requests that count for objectives: the others ended by their clients or their content."""
_DIGEST = re.compile(r"[0-9a-f]{12}")
_LIMITS = {
    "ttft_from": ("TTFT from", "ttft_ms__gte", 1000.0),
    "regret_from": ("Regret from", "regret_ms__gte", 1000.0),
    "prompt_from": ("Prompt from", "prompt_tokens__gte", 1.0),
    "prompt_below": ("Prompt below", "prompt_tokens__lt", 1.0),
}
"""Thresholds: name in errors, condition, and stored units per entered unit."""
LONGEST_MS = 3_600_000
_CONDITIONS = {
    "since": "at_ms__gte",
    "until": "at_ms__lt",
    "ended_since": "ended_ms__gte",
    "ended_until": "ended_ms__lt",
}
_SECONDS = re.compile(r"[0-9]{1,10}(\.[0-9]{1,3})?")


def represented(rows: Q | None = None) -> Sum:
    """Return the number of requests that the rows represent: sampled ones count for those that were left out."""
    return Sum(Value(1.0) / F("share"), filter=rows, output_field=FloatField())


@dataclass(frozen=True, slots=True)
class DecisionFilter(SearchFilter):
    """Search conditions; an empty field matches everything.

    Times are unix seconds, or ISO 8601 in UTC unless they include an offset.
    """

    id: str = ""
    """The start of a decision's id, or the X-Request-Id that a client sent."""
    pool: str = ""
    engine: str = ""
    """Name or id of the engine."""
    tenant: str = ""
    session: str = ""
    """The session id that clients send, or its digest in the records."""
    reason: str = ""
    arm: str = ""
    """live, canary, or control; empty: any."""
    cause: str = ""
    """Cause of the largest part of the decision's regret."""
    mismatch: str = ""
    state: str = ""
    """One of STATES."""
    late: str = ""
    """1: only decisions that missed their objective: late, failed or rejected."""
    ttft_from: str = ""
    """Least time to first token, in seconds."""
    regret_from: str = ""
    """Least regret, in seconds."""
    prompt_from: str = ""
    """Least number of prompt tokens."""
    prompt_below: str = ""
    """Number of prompt tokens that a request stays below."""
    since: str = ""
    until: str = ""
    ended_since: str = ""
    """The request ended at this time or later, and ran for at most LONGEST_MS."""
    ended_until: str = ""


def visible_decisions(actor: Actor) -> QuerySet[DecisionIndex]:
    """Return the recorded decisions of the actor's pools. Decisions of deleted pools require a role everywhere."""
    if may(actor, Role.VIEWER):
        return DecisionIndex.objects.all()
    return DecisionIndex.objects.filter(pool__in=visible_pools(actor).values("slug"))


def search(actor: Actor, wanted: DecisionFilter) -> QuerySet[DecisionIndex]:
    """Return the visible decisions that match, newest first. Raises UnreadableFilterError."""
    decisions = visible_decisions(actor).filter(**_equal(wanted))
    decisions = decisions.filter(**_thresholds(wanted))
    if wanted.state:
        if wanted.state not in STATES:
            raise UnreadableFilterError(f"State is one of {', '.join(STATES)}.")
        decisions = decisions.filter(STATES[wanted.state])
    if wanted.session:
        decisions = decisions.filter(session__in=digests_of(wanted.session))
    for name in ("session", "arm"):
        if getattr(wanted, name):
            # A database uses an index without the empty ones only if the query excludes them.
            decisions = decisions.exclude(**{name: ""})
    if wanted.id:
        decisions = decisions.filter(Q(decision_id__startswith=wanted.id) | sent_as(wanted.id))
    if wanted.engine:
        decisions = decisions.filter(engine__in=[wanted.engine, *engine_ids(wanted.engine)])
    return decisions.filter(**_times(wanted)).order_by("-at_ms", "-pk")


def _times(wanted: DecisionFilter) -> dict[str, int]:
    """Return the conditions of the entered times. Raises UnreadableFilterError."""
    named = {name: getattr(wanted, name) for name in ("since", "until", "ended_since", "ended_until")}
    times = {name: unix_ms(name, text) for name, text in named.items() if text}
    conditions = {_CONDITIONS[name]: at_ms for name, at_ms in times.items()}
    # Rows are indexed by their arrivals.
    if "ended_since" in times:
        conditions.setdefault("at_ms__gte", times["ended_since"] - LONGEST_MS)
    if "ended_until" in times:
        conditions.setdefault("at_ms__lt", times["ended_until"])
    return conditions


def _equal(wanted: DecisionFilter) -> dict[str, str | bool]:
    """Return the equality conditions of the filter."""
    asked: dict[str, str | bool] = {
        "pool": wanted.pool,
        "tenant": wanted.tenant,
        "reason": wanted.reason,
        "arm": wanted.arm,
        "regret_cause": wanted.cause,
        "mismatch": wanted.mismatch,
        "late": bool(wanted.late),
    }
    return {name: value for name, value in asked.items() if value}


def _thresholds(wanted: DecisionFilter) -> dict[str, int]:
    """Return the conditions of the entered thresholds. Raises UnreadableFilterError."""
    conditions = {}
    for name, (title, condition, units) in _LIMITS.items():
        text = getattr(wanted, name).replace(",", "")
        if text and not _SECONDS.fullmatch(text):
            unit = "seconds, such as 2.5" if units > 1 else "tokens, such as 16000"
            raise UnreadableFilterError(f"{title} is not a number of {unit}.")
        if text:
            conditions[condition] = min(round(float(text) * units), 2**31 - 1)
    return conditions


def digests_of(session: str) -> list[str]:
    """Return the digests of a session under all accepted secrets.

    A text in the form of a digest is returned unchanged.
    """
    if _DIGEST.fullmatch(session):
        return [session]
    return [session_digest(key, session) for key in fleet_keyring().keys(DIGESTS).every]


def tenants_by_digest() -> dict[str, str]:
    """Return each tenant's slug by its digests in records, under all accepted secrets."""
    slugs = list(Tenant.objects.values_list("slug", flat=True))
    return {tenant_digest(key, slug): slug for key in fleet_keyring().keys(DIGESTS).every for slug in slugs}


def sent_as(name: str) -> Q:
    """Return the condition for requests with this X-Request-Id. Several clients may use the same id."""
    # The second condition lets a database use the index without the empty names.
    return Q(client_request_id=name) & ~Q(client_request_id="")


def narrowed(rows: QuerySet[DecisionIndex], begin_ms: int, end_ms: int) -> QuerySet[DecisionIndex]:
    """Return the rows in [begin, end)."""
    return rows.filter(Q(at_ms__gte=begin_ms) & Q(at_ms__lt=end_ms))


def unix_ms(name: str, text: str) -> int:
    """Parse a time as unix milliseconds. Raises UnreadableFilterError."""
    if _SECONDS.fullmatch(text):
        return int(float(text) * 1000)
    return int(moment_of(name, text).timestamp() * 1000)


def engine_ids(name: str) -> list[str]:
    """Return the ids of engines with this name."""
    return list(Engine.objects.filter(name=name).values_list("engine_id", flat=True)[:100])
