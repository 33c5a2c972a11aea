"""The Policies page: each pool's live version, its results since it went live, and the waiting drafts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.objectives.attainment import on_time_since
from controlplane.platform.format import NARROW_SPACE, UNKNOWN, count, moment, or_dash, percent, rate, setting
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import PolicyAccess, open_drafts, policies_of
from controlplane.policies.upgrade import deviation_note, reading_problem
from controlplane.trials.trials_of_version import RunningTrial, running_trials
from gateway.contracts.fleet_sample import FleetSample, PoolSample
from web.live.feed import fleet_feed
from web.policies.words import version_facts
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

LISTED_DRAFTS = 3
LISTED_CHANGES = 10


TARGET_SHARE = 0.9
"""Target share of on-time requests of a pool."""


@require_safe
def policies(request: HttpRequest) -> HttpResponse:
    """Show one row per pool and policy, from the database and the newest fleet sample."""
    actor = console_actor(request)
    states, trials = policies_of(actor), running_trials(actor)
    sample = fleet_feed().latest
    drafts = open_drafts([state.policy for state in states])
    now = timezone.now()
    rows = [
        {
            **_row(state, pool, sample, drafts[state.policy.pk], now),
            "trials": [trial for trial in trials if _tries(trial, state, pool)],
        }
        for state in states
        for pool in (state.visible or (None,))
    ]
    live_since = {
        pool.slug: state.live.published_at
        for state in states
        if state.live is not None and state.live.published_at is not None
        for pool in state.visible
    }
    shares = on_time_since(live_since, now)
    for row in rows:
        row["since_live"] = shares.get(row["pool"].slug) if row["pool"] else None
    changes = AuditEvent.objects.filter(object_kind="policy", object_id__in=[item.policy.slug for item in states])
    waiting = sum(len(drafts[state.policy.pk]) for state in states)
    context = shell_context(
        request,
        page="Policies",
        tab="policies",
        rows=rows,
        changes=[(event, moment(event.at, now)) for event in changes.order_by("-at", "-pk")[:LISTED_CHANGES]],
        title=_title(rows),
        summary=_summary(states, waiting),
        silent=sample is None,
    )
    return render(request, "policies/policies.html", context)


def _tries(trial: RunningTrial, state: PolicyAccess, pool: Pool | None) -> bool:
    return trial.policy_id == state.policy.pk and (not trial.pool or (pool is not None and pool.slug == trial.pool))


def _row(
    state: PolicyAccess, pool: Pool | None, sample: FleetSample | None, drafts: list[PolicyVersion], now: datetime
) -> dict[str, Any]:
    """Return the row of one pool under its policy; a policy without pools also has one row."""
    live = state.live
    document = completed(live.document) if live else {}
    pool_sample = next((item for item in sample.pools if pool and item.pool_id == pool.slug), None) if sample else None
    share = pool_sample.on_time_share if pool_sample else None
    return {
        "policy": state.policy,
        "pool": pool,
        "live": version_facts(live, now),
        "placement": document.get("placement", {}).get("name", UNKNOWN),
        "order": document.get("order", {}).get("name", UNKNOWN),
        "slo": or_dash(document.get("ttft_slo_s"), setting),
        "requests": rate(pool_sample.requests_per_s) if pool_sample else UNKNOWN,
        "on_time": share,
        "on_time_note": _window_words(pool, pool_sample, sample, state.live_number),
        "low": share is not None and share < TARGET_SHARE,
        "drafts": [version_facts(draft, now) for draft in drafts[:LISTED_DRAFTS]],
        "more_drafts": max(0, len(drafts) - LISTED_DRAFTS),
        # Why this program cannot run the live version, or what the pool does instead.
        "unreadable": reading_problem(live) if live else "",
        "replaced": deviation_note(live.document) if live else "",
    }


def _window_words(
    pool: Pool | None,
    pool_sample: PoolSample | None,
    sample: FleetSample | None,
    live: int | None,
) -> str:
    """Return the window in which the share was measured, or why there is no share."""
    if pool is None:
        return "used by no pool"
    if pool_sample is None or sample is None:
        return "not reported yet"
    if pool_sample.policy_version != live:
        return f"the gateway still runs v{pool_sample.policy_version}"
    if pool_sample.on_time_share is None:
        return "no requests yet"
    return f"last {sample.window_s:.0f}{NARROW_SPACE}s"


def _title(rows: list[dict[str, Any]]) -> str:
    """Return the finding: the pools that are late under their policy, else the share on time."""
    known = [row for row in rows if row["on_time"] is not None and row["live"] is not None]
    late = [row for row in known if row["low"]]
    if not known:
        return "Policies"
    if len(late) > 1:
        return f"{len(late)} of {count(len(known), 'pool')} are below {percent(TARGET_SHARE)} on time"
    lowest = min(known, key=lambda row: row["on_time"])
    share = f"{percent(lowest['on_time'])} on time with v{lowest['live']['number']}"
    if len(known) == 1 or late:
        return f"Pool {lowest['pool'].slug} is {share}"
    return f"All pools are on time; the lowest, {lowest['pool'].slug}, is {share}"


def _summary(states: list[PolicyAccess], waiting: int) -> str:
    pools = sum(len(state.visible) for state in states)
    kinds = count(len(states), "policy", "policies")
    drafts = f"{count(waiting, 'draft')} not live" if waiting else "no drafts"
    return f"{kinds} for {count(pools, 'pool')}, {drafts}."
