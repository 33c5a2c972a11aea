"""The Regions page; with `?fragment` only the live section."""

from __future__ import annotations

from collections.abc import Sequence

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.capacity.job import stored_demand
from controlplane.capacity.saving import UTILIZATION
from controlplane.platform.format import NARROW_SPACE, UNKNOWN, count, percent, some_names
from controlplane.platform.live_fleet.samples import fleet_samples
from web.regions.flow import flow
from web.regions.region_rows import RegionRow, hand_over_rows, region_rows
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools

ADDRESS = "/regions"
PAGE = "Regions"


@require_safe
@needs_all_pools(PAGE, "Regions include all pools. Viewing them")
def regions(request: HttpRequest) -> HttpResponse:
    """Show all regions to people who have a role in all pools."""
    sample = fleet_samples().latest
    stored = stored_demand()
    logged = stored[0].regions if stored is not None else {}
    peaks = {region: max(values) / UTILIZATION for region, values in logged.items()}
    rows = region_rows(sample, peaks) if sample is not None else []
    arriving = sum(row.arriving_per_s for row in rows)
    forwarded = sum(sum(row.forwarded_per_s.values()) for row in rows)
    links = [link for row in rows for link in row.links]
    context = shell_context(
        request,
        page=PAGE,
        tab="traffic",
        rows=rows,
        flow=flow(rows),
        hand_overs=hand_over_rows(sample) if sample is not None else [],
        finding=_finding(rows),
        arriving=f"{arriving:.1f}{NARROW_SPACE}/s",
        forwarded=percent(forwarded / arriving if arriving else None),
        forwarded_per_s=f"{forwarded:.1f}",
        queued=sum(row.queued for row in rows),
        up=f"{sum(link.up for link in links)} of {len(links)}" if links else UNKNOWN,
        links=len(links),
        busy=percent(UTILIZATION),
        fragment=f"{ADDRESS}?fragment=1",
    )
    return render(request, "regions/live.html" if "fragment" in request.GET else "regions/page.html", context)


def _finding(rows: Sequence[RegionRow]) -> tuple[str, str]:
    """Return the first sentence of the page and its shape."""
    if not rows:
        return ("No fleet sample received yet", "unknown")
    if len(rows) == 1:
        serving = f"{rows[0].available} of {count(rows[0].engines, 'engine')} serving"
        return (f"{rows[0].name}, the only region: {rows[0].served_per_s:.1f} requests/s, {serving}.", rows[0].shape)
    adopted = [row for row in rows if row.served_by]
    if adopted:
        return (f"{adopted[0].served_by} serves the engines of {adopted[0].name}, whose gateway has died.", "degraded")
    cut = [(row.name, link.region) for row in rows for link in row.links if not link.up]
    forwards = _forwards(rows)
    if cut:
        named = some_names([f"{name} → {region}" for name, region in cut], 3)
        down = f"Link {named} is down" if len(cut) == 1 else f"Links {named} are down"
        return (f"{down}; no requests are sent over {'it' if len(cut) == 1 else 'them'}. {forwards}".rstrip(), "lost")
    if forwards:
        return (forwards, "hot")
    return ("Every region serves its own requests.", "serving")


def _forwards(rows: Sequence[RegionRow]) -> str:
    """Return the largest flow between regions; rates over links that are down are those of before."""
    sent = [
        (rate / row.arriving_per_s, f"{row.name} forwards {{}} of its requests to {region}.")
        for row in rows
        for region, rate in row.forwarded_per_s.items()
        if rate and region not in row.down
    ]
    share, words = max(sent, default=(0.0, ""))
    return words.format(percent(share))
