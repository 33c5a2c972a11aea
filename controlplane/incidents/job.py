"""Detects incidents: observe the readings, advance the episodes, store them with the job's memory in one transaction.

The memory is stored under the fencing token of the job's lease, together with the incidents. A process that dies
between two rounds loses nothing, and no other process opens an episode twice.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import msgspec
from celery import shared_task
from django.db import DatabaseError
from django.utils import timezone

from controlplane.automation.rounds import LeaseLostError, RoundResult, moved_back, store
from controlplane.incidents import words
from controlplane.incidents.models.incident import Incident, IncidentEntry, IncidentEntryKind, IncidentState
from controlplane.incidents.notices import publish_notices
from controlplane.incidents.rules import publish_conditions
from controlplane.incidents.watch import IncidentWatch, cut_off, incident_watch
from controlplane.objectives.objective import targets
from controlplane.platform import audit
from controlplane.platform.actor import PROGRAM, program
from controlplane.platform.jobs.lease import acquire, release, this_owner
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from planning.incidents.episodes import Episode, EpisodeNews, IncidentMemory, advance
from planning.incidents.signs import Change
from planning.incidents.symptoms import find_symptoms
from routing.values.prepared_struct import prepared

JOB = "incidents"
EVERY = timedelta(seconds=1)
LEASE = timedelta(seconds=15)
KEPT = timedelta(days=90)
MAX_KEPT = 5_000
RECORDED_WITHIN = timedelta(minutes=10)
_KINDS = {"canary.abort": "canary", "engine.exit": "crash"}
"""Verb of an audit event of the program → kind of the change."""
ACTOR = program("incidents")
_COUNTERS = ("counted", "key", "dismissed", "reported_low", "reported_at")
"""Fields of an episode that only the job's memory needs."""

logger = logging.getLogger(__name__)


@shared_task(name="controlplane.incidents", ignore_result=True)
def incidents() -> None:
    """Run every two seconds."""
    try:
        now = timezone.now()
        detect(incident_watch(), now)
        publish_conditions(incident_watch(), now)
    except DatabaseError as error:
        # The readings stay; the next round continues from the stored memory.
        logger.warning("incidents cannot be stored now", extra={"error": type(error).__name__})


def detect(watch: IncidentWatch, now: datetime) -> bool:
    """Run one round, if there is trouble and this process gets the lease. Return whether it was stored."""
    watch.note_outages(cut_off(), now.timestamp())
    if watch.note_targets(targets()):
        publish_notices(now)
    changes = [*watch.changes(), *_recorded_changes(now)]
    if not _is_needed(watch, changes):
        return False
    lease = acquire(JOB, this_owner(), LEASE, clock=lambda: now)
    if lease is None:
        return False
    stored = JobRun.objects.values_list("memory", flat=True).get(pk=lease.run_id)
    memory = msgspec.convert(moved_back(stored, lease.went_back, now), prepared(IncidentMemory))
    by_hand = Incident.objects.filter(key__in=[item.key for item in memory.episodes], state=IncidentState.CLOSED)
    with watch.lock:
        after, news = advance(memory, watch.log, changes, set(by_hand.values_list("key", flat=True)))
        pools = {key: pool.name for key, pool in watch.log.newest.pools.items()} if watch.log.newest else {}
    result = RoundResult(
        msgspec.to_builtins(after),
        outcome={"open": len(after.episodes)},
        effects=[partial(_store, after, news, pools, now)],
    )
    try:
        store(lease, result, now + EVERY)
    except LeaseLostError:
        release(lease)
        return False
    publish_notices(now)
    return True


def _is_needed(watch: IncidentWatch, changes: list[Change]) -> bool:
    """Return whether something is wrong, or was: a quiet fleet needs no lease and no write."""
    with watch.lock:
        if find_symptoms(watch.log) or any(item.kind == "canary" for item in changes):
            return True
    if Incident.objects.filter(state=IncidentState.OPEN).exists():
        return True
    # An episode that a person closed is followed until its trouble is over.
    memory = JobRun.objects.filter(job=JOB).order_by("-pk").values_list("memory", flat=True).first()
    return bool(memory and memory.get("episodes"))


def _recorded_changes(now: datetime) -> list[Change]:
    """Return what the audit alone records: canaries that a guardrail aborted, and exits of processes."""
    since = now - RECORDED_WITHIN
    events = AuditEvent.objects.filter(at__gte=since, at__lte=now, verb__in=_KINDS, via=PROGRAM).exclude(pool_slug="")
    return [
        Change(event.at.timestamp(), _KINDS[event.verb], event.pool_slug, event.object_id, event.why)
        for event in events
    ]


def _store(after: IncidentMemory, news: list[EpisodeNews], pools: dict[str, str], now: datetime) -> None:
    """Write the open episodes, and a timeline entry for each piece of news."""
    for item in news:
        incident = _write(item.episode, pools, again=item.kind == "returned")
        kind = IncidentEntryKind(item.kind)
        text = incident.title if item.kind in ("opened", "returned") else _news_text(item)
        at = incident.opened_at if item.kind == "opened" else now
        IncidentEntry.objects.create(incident=incident, at=at, kind=kind, text=text)
        if item.kind in ("opened", "returned", "closed"):
            fields = {
                "title": incident.title,
                "cause": incident.cause,
                "certain": incident.certain,
                "at": at.timestamp(),
            }
            verb = f"incident.{_VERBS[item.kind]}"
            audit.record_for(ACTOR, verb, incident, after=fields, why=incident.title, pool=incident.pool)
    written = {item.episode.key for item in news}
    for episode in after.episodes:
        if episode.key not in written and not episode.dismissed:
            _write(episode, pools)


_VERBS = {"opened": "open", "returned": "reopen", "closed": "close"}


def _news_text(item: EpisodeNews) -> str:
    episode = item.episode
    hit = words.outcome_words(words.all_hit(episode))
    return {"worse": f"{hit}.", "cause": words.why(episode), "closed": f"{hit}. {words.why(episode)}"}[item.kind]


def _write(episode: Episode, pools: dict[str, str], *, again: bool = False) -> Incident:
    """Store the episode, and return its incident. `again`: it is open again, even if a person had closed it."""
    fields: dict[str, Any] = {
        "pool": episode.pool_id,
        "title": words.title(episode, pools.get(episode.pool_id, ""))[:200],
        "cause": episode.causes[0].kind if episode.causes else "",
        "certain": episode.certain,
        "onset": _moment(episode.onset),
        "last_bad_at": _moment(episode.last_bad),
        "state": IncidentState.OPEN if episode.closed is None else IncidentState.CLOSED,
        "closed_at": None if episode.closed is None else _moment(episode.closed),
        "detail": {name: value for name, value in msgspec.to_builtins(episode).items() if name not in _COUNTERS},
    }
    incident, is_new = Incident.objects.get_or_create(
        key=episode.key, defaults={**fields, "opened_at": _moment(episode.opened)}
    )
    if not is_new:
        # An act of a person meanwhile stays: only these columns are written, and none after a person has closed it.
        stored = Incident.objects.filter(pk=incident.pk)
        stored.update(**fields, closed_by="") if again else stored.filter(closed_by="").update(**fields)
        incident.refresh_from_db()
    return incident


def forget_incidents(now: datetime) -> int:
    """Delete closed incidents that are older than KEPT or exceed MAX_KEPT. Return how many."""
    closed = Incident.objects.filter(state=IncidentState.CLOSED)
    surplus = list(closed.order_by("-onset").values_list("pk", flat=True)[MAX_KEPT:][:MAX_KEPT])
    # Returns the incidents, not their entries.
    return sum(
        rows.delete()[1].get("controlplane.Incident", 0)
        for rows in (closed.filter(onset__lt=now - KEPT), closed.filter(pk__in=surplus))
    )


def _moment(unix_s: float) -> datetime:
    return datetime.fromtimestamp(unix_s, UTC)
