"""The sentence about a period of the history: were requests late, when, and where."""

from __future__ import annotations

import math
from collections.abc import Iterable

from controlplane.history.bucket import POOL_FLOATS
from controlplane.platform.format import clock_time, count, day, day_time, percent, some_names, span, zone_name
from web.history.past import PastPicture
from web.live.verdict import NAMED_ENGINES, FleetVerdict, target_in

_ON_TIME = POOL_FLOATS.index("on_time")
_REQUESTS = POOL_FLOATS.index("requests_per_s")
DAY_S = 86_400


def judge_past(picture: PastPicture) -> FleetVerdict:
    """Return the finding for the period: on-time share with its low, requests, lost engines, and gaps."""
    stretch = picture.stretch
    start = stretch.first * stretch.range.column_s
    words = day_time if stretch.range.span_s >= DAY_S else clock_time
    end = clock_time(stretch.end) if day(start) == day(stretch.end) else day_time(stretch.end, "seconds")
    lead = f"{day_time(start, 'seconds')} to {end} {zone_name()}."
    known = [column for column in picture.columns if column is not None]
    if not known:
        text = "Nothing was recorded: Headway was not running, or the history has expired."
        return FleetVerdict("quiet", lead, text, shape="unknown")
    shares = [
        (values[_ON_TIME], values[_REQUESTS] * stretch.range.column_s, column.index, pool_id)
        for column in known
        for pool_id, values in column.pools.items()
        if not math.isnan(values[_ON_TIME]) and values[_REQUESTS] > 0
    ]
    requests = sum(weight for _, weight, *_ in shares)
    lost = _names(marker.label for marker in picture.markers if marker.kind == "lost")
    gap = len(picture.columns) - len(known)
    parts = []
    severity = "ok"
    if requests:
        mean = sum(share * weight for share, weight, *_ in shares) / requests
        low, _, index, pool_id = min(shares)
        # The target of all requests is that of their pools, weighted alike.
        target = sum(target_in(picture.targets, pool) * weight for _, weight, _, pool in shares) / requests
        missed = any(share < target_in(picture.targets, pool) for share, _, _, pool in shares)
        severity = "bad" if mean < target else "warn" if missed else "ok"
        # The tile's lowest is that of all pools together.
        where = f" in {picture.pools[pool_id].name}" if len({pool for *_, pool in shares}) > 1 else ""
        at = words(index * stretch.range.column_s)
        of = count(round(requests), "request")
        parts.append(f"{percent(mean)} of {of} on time, lowest {percent(low)}{where} at {at}")
    else:
        parts.append("No requests")
    if lost:
        severity = "bad" if severity == "bad" else "warn"
        parts.append(f"{lost} lost")
    if gap > 1:
        parts.append(f"nothing recorded for {span(gap * stretch.range.column_s)}")
    return FleetVerdict(severity, lead, "; ".join(parts) + ".", shape="" if severity != "ok" else "serving")


def _names(labels: Iterable[str]) -> str:
    names = list(dict.fromkeys(labels))
    return f"{some_names(names, NAMED_ENGINES)} {'was' if len(names) == 1 else 'were'}" if names else ""
