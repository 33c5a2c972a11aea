"""The Policies page: which policy each pool runs, as the gateway reports it."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from web.live.feed import fleet_feed
from web.live.wording import count, percent, rate, setting
from web.shell import shell_context

UNKNOWN = "—"


@require_safe
@never_cache
def policies(request: HttpRequest) -> HttpResponse:
    """Show one row per pool: its live version, how it places and orders, and how that does."""
    sample = fleet_feed().latest
    rows = [
        {
            "pool": pool,
            "slo": setting(pool.ttft_slo_s),
            "speed": f"{pool.tokens_per_s:,.0f}",
            "requests": rate(pool.requests_per_s),
            "on_time": UNKNOWN if pool.on_time_share is None else percent(pool.on_time_share),
            "hit": UNKNOWN if pool.hit_share is None else percent(pool.hit_share),
        }
        for pool in (sample.pools if sample else ())
    ]
    summary = f"{count(len(rows), 'pool')}, shares over the last {sample.window_s:.0f} s." if sample else ""
    return render(request, "web/policies.html", shell_context(request, page="Policies", rows=rows, summary=summary))
