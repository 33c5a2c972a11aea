"""What the charts of a Steering page draw: `/steering/{pool}/timeline?range=1h&end=…` answers JSON."""

from __future__ import annotations

import msgspec
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils import timezone
from django.views.decorators.http import require_safe

from web.automation.past import steering_past
from web.history.past_range import BadRangeError, stretch_of
from web.live.feed import fleet_feed
from web.shell.console_request import console_actor
from web.shell.seen_pools import seen_pool


@require_safe
def steering_timeline(request: HttpRequest, slug: str) -> HttpResponse:
    """Answer a stretch of a pool's steering: `range` 5m, 1h or 24h, `end` unix seconds (none: now)."""
    pool = seen_pool(console_actor(request), slug)
    now = timezone.now()
    try:
        stretch = stretch_of(request.GET.get("range", "1h"), request.GET.get("end", ""), now.timestamp())
    except BadRangeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    told = steering_past(pool, stretch, fleet_feed(), now)
    return HttpResponse(msgspec.json.encode(told), content_type="application/json")
