"""The rules by which incidents open and Prometheus alerts: one table, and the state of each rule now.

A test compares the table with deploy/prometheus/headway.rules.yml: names, severities, and limits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from controlplane.incidents.models.incident import Incident, IncidentState
from controlplane.incidents.watch import IncidentWatch
from controlplane.platform.bus import get_bus
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from planning.incidents import symptoms as kinds
from planning.incidents.symptoms import Symptom, find_preconditions, find_symptoms
from routing.values.prepared_struct import prepared

TOPIC = "alert_rules"
"""Last-value bus topic with the WatchedConditions."""
STALE = timedelta(seconds=15)
MAX_WATCHED = 200
SEARCHED = 500
"""Newest incidents in which the last one of a rule is searched."""
STATES = OK, PENDING, FIRING, UNKNOWN, EXTERNAL = "ok", "pending", "firing", "unknown", "external"


@dataclass(frozen=True, slots=True)
class AlertRule:
    """One condition. Without `symptom` only Prometheus evaluates it, without `alert` only Headway does."""

    title: str
    severity: str
    symptom: str
    alert: str
    """Name of the rule in Prometheus; it needs the condition for longer, so that it survives a restart."""
    condition: str
    """In words, as Headway evaluates it, else as Prometheus does."""
    limit: float | None = None
    """Share in the condition of both, 0..1."""

    @property
    def name(self) -> str:
        """Return the name in the API."""
        return self.symptom or self.alert


_BAD, _WARN = "critical", "warning"
_FAILED, _REJECTED, _AWAY = (100 * share for share in (kinds.FAILED_SHARE, kinds.REJECTED_SHARE, kinds.AWAY_SHARE))
RULES = tuple(AlertRule(*row) for row in (
    ("Objective burns", _BAD, kinds.BURN, "", f"Requests of a pool miss its objective {kinds.BURN_SHORT:g} × as often "
        f"as the error budget allows, for {kinds.LASTS_S:.0f} s and beyond chance."),
    ("Requests fail", _BAD, kinds.FAILING, "HeadwayRequestsFail",
        f"More than {_FAILED:g} % of a pool’s requests fail within a minute.", kinds.FAILED_SHARE),
    ("Requests are rejected", _BAD, kinds.REJECTING, "HeadwayRequestsRejected",
        f"More than {_REJECTED:g} % of a pool’s requests are rejected within a minute.", kinds.REJECTED_SHARE),
    ("Cache hits fell", _WARN, kinds.HITS_FELL, "",
        f"The cached share of a pool’s prompt tokens is for {2 * kinds.CACHE_S:.0f} s under {kinds.FELL_TO:.0%} of the "
        f"lowest of the {kinds.USUAL_WINDOWS * kinds.CACHE_S:.0f} s before; with {2 * kinds.FEW / kinds.CACHE_S:.1f} "
        "requests/s or more."),
    ("Evictions rose", _WARN, kinds.EVICTING, "",
        f"For {2 * kinds.CACHE_S:.0f} s, engines evict {kinds.EVICTED_SHARE:g} × the tokens that requests may have "
        f"added, and {kinds.EVICTED_TIMES:g} × as large a share as in the {kinds.USUAL_WINDOWS * kinds.CACHE_S:.0f} s "
        "before."),
    ("Engine lost", _WARN, kinds.ENGINE_LOST, "HeadwayEngineLost",
        f"An engine that served does not answer for {kinds.LOST_FOR_S:.0f} s, or its process restarted."),
    ("Engine unhealthy", _WARN, kinds.ENGINE_SICK, "",
        f"An engine is quarantined for {kinds.QUARANTINED_FOR_S:.0f} s, or degraded for {kinds.DEGRADED_FOR_S:.0f} s, "
        "without being on probation."),
    ("Prefix index blind", _WARN, kinds.INDEX_BLIND, "HeadwayIndexNotTrusted",
        f"The prefix index of an engine, exact before, is blind for {kinds.BLIND_FOR_S:.0f} s."),
    ("Gateway late", _WARN, kinds.GATEWAY_LATE, "HeadwayGatewayLate",
        f"The event loops of gateways are blocked for {_AWAY:g} % of a minute.", kinds.AWAY_SHARE),
    ("KV node silent", _WARN, kinds.NODE_LOST, "", "A node manager sends no heartbeats."),
    ("Region link down", _WARN, kinds.LINK_DOWN, "", "A gateway of another region cannot be reached any more."),
    ("Region cut off", _BAD, kinds.REGION_CUT, "", "All links of a region to other regions are down."),
    ("Job fails", _WARN, kinds.JOB_FAILING, "", "The rounds of a background job fail for 30 s."),
    ("Canary aborted", _WARN, kinds.CANARY_ABORTED, "", "A guardrail aborted a canary within the last minute."),
    ("No engine serves", _BAD, "", "HeadwayNoEngineServes", "A gateway has no engine that accepts requests for 60 s."),
    ("Gateway down", _BAD, "", "HeadwayGatewayDown", "A gateway does not answer Prometheus for a minute."),
    ("KV events lost", _WARN, "", "HeadwayKvEventGaps", "An engine’s KV events have more than 3 gaps in 15 minutes."),
    ("Jobs stalled", _BAD, "", "HeadwayJobsStalled", "No worker has run a job for 30 s."),
    ("Bus lost", _BAD, "", "HeadwayBusLost", "A gateway cannot reach Redis for a minute."),
    ("Snapshots differ", _WARN, "", "HeadwaySnapshotsDiffer", "Gateways serve different snapshots for 2 minutes."),
    ("Older snapshot published", _WARN, "", "HeadwayOlderSnapshotPublished",
        "Gateways rejected an older snapshot within 10 minutes."),
    ("Pool does not start", _BAD, "", "HeadwayPoolDoesNotStart",
        "Requests of a pool wait for 2 minutes, and none of the engines that it wants serves."),
))  # fmt: skip


class WatchedConditions(msgspec.Struct, frozen=True):
    """What the jobs process found in its newest reading."""

    at: float
    firing: tuple[Symptom, ...] = ()
    pending: tuple[Symptom, ...] = ()


_watched = WireForm(WatchedConditions, "conditions of rules", limit=MIB)
encode_watched, decode_watched = _watched.encode, _watched.decode


def publish_conditions(watch: IncidentWatch, now: datetime) -> None:
    """Publish the conditions that hold: those of open incidents and of the newest reading, and what may follow."""
    ongoing = _of_open_incidents()
    with watch.lock:
        firing = {item.identity: item for item in find_symptoms(watch.log, ongoing)}
        pending = [item for item in find_preconditions(watch.log) if item.identity not in {**ongoing, **firing}]
    firing |= ongoing
    message = WatchedConditions(now.timestamp(), tuple(firing.values())[:MAX_WATCHED], tuple(pending[:MAX_WATCHED]))
    get_bus().publish(TOPIC, encode_watched(message))


def _of_open_incidents() -> dict[tuple[str, str, str], Symptom]:
    """Return the symptoms that the open incidents have now."""
    details = Incident.objects.filter(state=IncidentState.OPEN).values_list("detail", flat=True)[:50]
    rows = [(item, detail.get("present", ())) for detail in details for item in detail.get("symptoms", ())]
    symptoms = [(msgspec.convert(item, prepared(Symptom)), present) for item, present in rows]
    return {item.identity: item for item, present in symptoms if list(item.identity) in present}


@dataclass(frozen=True, slots=True)
class RuleState:
    """One rule now."""

    rule: AlertRule
    state: str
    """ok, pending, firing, unknown (jobs report nothing), or external (only Prometheus evaluates it)."""
    conditions: Sequence[Symptom] = ()
    """Where it is firing, or else pending, oldest first."""
    incident: int | None = None
    """Number of the last incident with it; None: none among the newest SEARCHED."""
    fired_at: datetime | None = None
    channels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Channels that get a message, and for which pools; empty: for all."""

    @property
    def since(self) -> datetime | None:
        """Return since when it is in this state; None if unknown."""
        return datetime.fromtimestamp(self.conditions[0].since, UTC) if self.conditions else None

    @property
    def subjects(self) -> list[str]:
        """Return what it is about: engine, node, link, region, or job, and the pool, by their names and ids."""
        return [f"{item.name} {item.pool_id}".strip() or "whole fleet" for item in self.conditions]


def conditions_now(now: datetime) -> WatchedConditions | None:
    """Return what the jobs process reported last; None: nothing within STALE."""
    value = get_bus().latest(TOPIC)
    try:
        watched = decode_watched(value) if value is not None else None
    except UnreadableMessageError:
        return None
    return watched if watched is not None and now.timestamp() - watched.at <= STALE.total_seconds() else None


def rule_states(now: datetime) -> list[RuleState]:
    """Return the state of each rule."""
    watched = conditions_now(now)
    last: dict[str, tuple[int, datetime]] = {}
    rows = Incident.objects.values_list("pk", "onset", "detail__symptoms")
    for number, onset, symptoms in rows.order_by("-onset", "-id")[:SEARCHED]:
        for item in symptoms or ():
            last.setdefault(item["kind"], (number, onset))
    return [_state(rule, watched, last.get(rule.symptom)) for rule in RULES]


def _state(rule: AlertRule, watched: WatchedConditions | None, last: tuple[int, datetime] | None) -> RuleState:
    number, onset = last or (None, None)
    if not rule.symptom:
        return RuleState(rule, EXTERNAL)
    if watched is None:
        return RuleState(rule, UNKNOWN, (), number, onset)
    for state, matches in ((FIRING, watched.firing), (PENDING, watched.pending)):
        mine = sorted((item for item in matches if item.kind == rule.symptom), key=lambda item: item.since)
        if mine:
            return RuleState(rule, state, mine, number, onset)
    return RuleState(rule, OK, (), number, onset)
