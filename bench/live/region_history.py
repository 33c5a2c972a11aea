"""Check the logs of several regions' gateways: one engine per request, at most one hop, one holder per epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from routing.regions.peer_gateway import SILENCE_S

CLOCK_S = 0.02
"""Log lines have timestamps in milliseconds, and are written shortly after their event."""

Event = Mapping[str, Any]


def seconds(event: Event) -> float:
    """Return when an event was logged, in Unix seconds."""
    return datetime.fromisoformat(str(event["at"])).timestamp()


def problems(events: Iterable[Event], ends: Mapping[str, Iterable[float]]) -> list[str]:
    """Return a sentence for each violation. `ends` are the times at which each region's gateway was killed."""
    listed = list(events)
    return [*_two_engines(listed, ends), *_hops(listed), *_epochs(listed), *_stale_picks(listed)]


def _two_engines(events: list[Event], ends: Mapping[str, Iterable[float]]) -> list[str]:
    """Check that a request runs on one engine at a time. The death of its gateway ends its work."""
    running: dict[str, tuple[str, str, float]] = {}
    wrong = []
    for event in events:
        decision_id, at = event.get("decision_id"), seconds(event)
        if event.get("event") == "dispatched":
            earlier = running.get(decision_id or "")
            if earlier is not None:
                gateway, engine, since = earlier
                if not any(since <= end <= at for end in ends.get(gateway, ())):
                    wrong.append(
                        f"{decision_id} was dispatched to {event['engine_id']} by {event['gateway']} while "
                        f"{gateway} had it on {engine}"
                    )
            running[str(decision_id)] = (str(event["gateway"]), str(event["engine_id"]), at)
        elif event.get("event") == "released" and running.get(decision_id or "", ("",))[0] == event["gateway"]:
            del running[str(decision_id)]
    return wrong


def _hops(events: list[Event]) -> list[str]:
    origins: dict[str, str] = {}
    wrong = []
    for event in events:
        if event.get("event") == "forwarded":
            origin = origins.setdefault(str(event["decision_id"]), str(event["gateway"]))
            if origin != event["gateway"]:
                wrong.append(f"{event['decision_id']} was forwarded by {origin} and again by {event['gateway']}")
    return wrong


def _epochs(events: list[Event]) -> list[str]:
    holders: dict[tuple[str, int], str] = {}
    wrong = []
    for event in events:
        if event.get("event") == "region_epoch":
            name = str(event["region_name"]), int(event["number"])
            holder = holders.setdefault(name, str(event["holder"]))
            if holder != event["holder"]:
                wrong.append(f"epoch {name[1]} of {name[0]} was held by {holder} and by {event['holder']}")
    return wrong


def _stale_picks(events: list[Event]) -> list[str]:
    return [
        f"{event['decision_id']} was sent to {event['destination']}, last heartbeat {event['heartbeat_age_s']} s before"
        for event in events
        if event.get("event") == "forwarded" and float(event["heartbeat_age_s"]) > SILENCE_S + CLOCK_S
    ]
