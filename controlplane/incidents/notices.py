"""The open and recent incidents as published on the bus, for the pages that show them live."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from controlplane.fleet.visibility import visible_pools
from controlplane.incidents import words
from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.objectives.objective import targets
from controlplane.platform.actor import Actor
from controlplane.platform.bus import get_bus
from controlplane.platform.format import percent, sentence
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from planning.incidents.episodes import Episode
from planning.incidents.signs import ON_TIME_TARGET
from routing.values.prepared_struct import prepared

TOPIC = "incidents"
"""Last-value bus topic with the IncidentNotices."""
STAYS = timedelta(minutes=10)
"""How long the sentence of a closed incident stays."""
BETTER_BY = 0.02
"""An on-time share this far above its lowest value counts as improving."""


class IncidentNotice(msgspec.Struct, frozen=True):
    """One incident in a sentence. Times are Unix seconds."""

    number: int
    pool: str
    """Empty: the whole fleet."""
    onset: float
    title: str
    text: str
    closed: float | None = None
    on_time: float | None = None
    lowest: float | None = None


class IncidentNotices(msgspec.Struct, frozen=True):
    """Open incidents first, each group newest first."""

    notices: tuple[IncidentNotice, ...] = ()
    targets: dict[str, float] = msgspec.field(default_factory=lambda: {"": ON_TIME_TARGET})
    """Target share on time 0..1 by pool; "" has that of all other pools."""


_notices = WireForm(IncidentNotices, "notices of incidents", limit=4 * MIB)
encode_notices, decode_notices = _notices.encode, _notices.decode


def open_notices(actor: Actor) -> tuple[IncidentNotice, ...]:
    """Return the open incidents that the actor may see, from the bus: every page shows their number."""
    value = get_bus().latest(TOPIC)
    try:
        notices = decode_notices(value).notices if value is not None else ()
    except UnreadableMessageError:
        # Of another release, for the moment of an update. The job publishes it again within seconds.
        notices = ()
    open_ones = tuple(item for item in notices if item.closed is None)
    if not open_ones or may(actor, Role.VIEWER):
        return open_ones
    pools = set(visible_pools(actor).values_list("slug", flat=True))
    return tuple(item for item in open_ones if item.pool in pools)


def mark_of(notice: IncidentNotice) -> str:
    """Return the on-time share for the title of a browser's tab; a mark alone if it is unknown."""
    return f"◆ {percent(notice.on_time)}" if notice.on_time is not None else "◆"


def publish_notices(now: datetime) -> None:
    """Publish the open incidents, those that closed in the last minutes, and the targets."""
    get_bus().publish(TOPIC, encode_notices(IncidentNotices(tuple(map(notice_of, recent_incidents(now))), targets())))


def recent_incidents(now: datetime) -> list[Incident]:
    """Return the incidents whose sentences are shown at `now`."""
    open_ones = Incident.objects.filter(state=IncidentState.OPEN)[:50]
    return [*open_ones, *Incident.objects.filter(state=IncidentState.CLOSED, closed_at__gte=now - STAYS)[:20]]


def episode_of(incident: Incident) -> Episode:
    """Return the stored episode."""
    return msgspec.convert({**incident.detail, "key": incident.key}, prepared(Episode))


def notice_of(incident: Incident) -> IncidentNotice:
    """Return the incident's sentence."""
    episode = episode_of(incident)
    # The title has the finding already.
    why = words.evidence(episode) if episode.certain else words.why(episode)
    parts: Iterable[str] = (why, sentence(words.outcome_words(words.all_hit(episode))))
    return IncidentNotice(
        incident.pk,
        incident.pool,
        episode.onset,
        incident.title,
        " ".join(part for part in parts if part),
        incident.closed_at.timestamp() if incident.closed_at is not None else None,
        episode.on_time,
        episode.lowest,
    )


def trend_words(notice: IncidentNotice) -> str:
    """Return the on-time share of the last minute and whether it improves, as a sentence; empty if it is unknown."""
    if notice.on_time is None or notice.lowest is None:
        return ""
    now = f"{percent(notice.on_time)} on time in the last minute"
    if notice.on_time > notice.lowest + BETTER_BY:
        return f"{now}, lowest {percent(notice.lowest)}: improving."
    return f"{now}."
