"""The Topology page: pools and their engines, as the gateway sees them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from gateway.fleet_sample import EngineSample, FleetSample
from web.live.feed import fleet_feed
from web.live.wording import clock_time, count, duration
from web.shell import shell_context


@require_safe
@never_cache
def topology(request: HttpRequest) -> HttpResponse:
    """Show each pool with its engines: state, reason, incarnation, index trust, age of the last report."""
    sample = fleet_feed().latest
    context = shell_context(
        request,
        page="Topology",
        groups=_groups(sample) if sample else [],
        summary=_summary(sample) if sample else "",
    )
    return render(request, "web/topology.html", context)


def _groups(sample: FleetSample) -> list[dict[str, object]]:
    return [
        {"pool": pool, "engines": [_row(engine) for engine in sample.engines if engine.pool_id == pool.pool_id]}
        for pool in sample.pools
    ]


def _row(engine: EngineSample) -> dict[str, object]:
    return {
        "engine": engine,
        "since": clock_time(engine.since),
        "report": "never heard" if engine.report_age_s is None else duration(engine.report_age_s),
    }


def _summary(sample: FleetSample) -> str:
    regions = {pool.region for pool in sample.pools}
    parts = (count(len(sample.engines), "engine"), count(len(sample.pools), "pool"), count(len(regions), "region"))
    return f"{', '.join(parts)}; snapshot v{sample.snapshot_version}, seen at {clock_time(sample.at)} UTC."
