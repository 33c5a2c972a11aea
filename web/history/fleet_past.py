"""The fleet's history for the Fleet page: `/fleet/history?range=1h&end=…` returns a binary keyframe."""

from __future__ import annotations

import time

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from web.history.past import read_picture
from web.history.past_frames import encode_past
from web.history.past_range import BadRangeError, stretch_of
from web.live.feed import fleet_feed
from web.live.scope import scope_of
from web.shell.console_request import console_actor, row_number


@require_safe
def fleet_history(request: HttpRequest) -> HttpResponse:
    """Return a period of the history; `range` is 5m, 1h, or 24h, `end` is in Unix seconds (default: now).

    With `after` (a column number) and `roster` (from the head of an earlier response), return only newer columns.
    """
    query = request.GET
    try:
        stretch = stretch_of(query.get("range", ""), query.get("end", ""), time.time())
        after = _column(query.get("after", ""))
    except BadRangeError as error:
        return JsonResponse({"error": str(error)}, status=400)
    picture = read_picture(stretch, fleet_feed(), scope_of(console_actor(request)))
    frame = encode_past(picture, after=after, known=query.get("roster", ""))
    return HttpResponse(frame, content_type="application/octet-stream")


def _column(text: str) -> int | None:
    if not text:
        return None
    number = row_number(text, 12)
    if number is None:
        raise BadRangeError(f"after must be the number of a column, not {text[:20]!r}.")
    return number
