"""The Policies page: which version each pool runs, how it does since it is live, and what waits to follow it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.platform.format import NARROW_SPACE, UNKNOWN, count, or_dash, rate, setting
from controlplane.policies.document.text import completed
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import PolicyStanding, open_drafts, policies_of
from controlplane.policies.upgrade import baseline_note, reading_problem
from gateway.contracts.fleet_sample import FleetSample, PoolSample
from web.live.feed import fleet_feed
from web.policies.words import version_facts
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

LISTED_DRAFTS = 3


TARGET_SHARE = 0.9
"""Of requests on time that a pool should reach."""


@require_safe
def policies(request: HttpRequest) -> HttpResponse:
    """Show one row per pool and policy, from the database and the newest fleet sample."""
    standings = policies_of(console_actor(request))
    sample = fleet_feed().latest
    drafts = open_drafts([standing.policy for standing in standings])
    now = timezone.now()
    rows = [
        _row(standing, pool, sample, drafts[standing.policy.pk], now)
        for standing in standings
        for pool in (standing.visible or (None,))
    ]
    waiting = sum(len(drafts[standing.policy.pk]) for standing in standings)
    context = shell_context(
        request, page="Policies", rows=rows, summary=_summary(standings, waiting), silent=sample is None
    )
    return render(request, "policies/policies.html", context)


def _row(
    standing: PolicyStanding, pool: Pool | None, sample: FleetSample | None, drafts: list[PolicyVersion], now: datetime
) -> dict[str, Any]:
    """Return one pool under its policy; a policy that no pool follows has one row too."""
    live = standing.live
    document = completed(live.document) if live else {}
    heard = next((item for item in sample.pools if pool and item.pool_id == pool.slug), None) if sample else None
    published_at = live.published_at if live else None
    share = heard.on_time_share if heard else None
    return {
        "policy": standing.policy,
        "pool": pool,
        "live": version_facts(live, now),
        "placement": document.get("placement", {}).get("name", UNKNOWN),
        "order": document.get("order", {}).get("name", UNKNOWN),
        "slo": or_dash(document.get("ttft_slo_s"), setting),
        "requests": rate(heard.requests_per_s) if heard else UNKNOWN,
        "on_time": share,
        "on_time_note": _window_words(pool, heard, sample, standing.live_number, published_at, now),
        "low": share is not None and share < TARGET_SHARE,
        "drafts": [version_facts(draft, now) for draft in drafts[:LISTED_DRAFTS]],
        "more_drafts": max(0, len(drafts) - LISTED_DRAFTS),
        # Why this program cannot run the live version, or what the pool does instead of what that says.
        "unreadable": reading_problem(live) if live else "",
        "replaced": baseline_note(live) if live else "",
    }


def _window_words(
    pool: Pool | None,
    heard: PoolSample | None,
    sample: FleetSample | None,
    live: int | None,
    published_at: datetime | None,
    now: datetime,
) -> str:
    """Say over which time the share was taken, and how much of it the live version had."""
    if pool is None:
        return "used by no pool"
    if heard is None or sample is None:
        return "not reported yet"
    if heard.policy_version != live:
        return f"the gateway still runs v{heard.policy_version}"
    if heard.on_time_share is None:
        return "no requests yet"
    window_s = sample.window_s
    age_s = (now - published_at).total_seconds() if published_at else window_s
    if age_s >= window_s:
        return f"last {window_s:.0f}{NARROW_SPACE}s"
    return f"last {window_s:.0f}{NARROW_SPACE}s, of which {max(age_s, 0):.0f}{NARROW_SPACE}s with v{live}"


def _summary(standings: list[PolicyStanding], waiting: int) -> str:
    pools = sum(len(standing.visible) for standing in standings)
    kinds = count(len(standings), "policy", "policies")
    drafts = f"{count(waiting, 'draft')} not live" if waiting else "no drafts"
    return f"{kinds} for {count(pools, 'pool')}, {drafts}."
