"""Publishes topology, policies, and API keys as one complete, versioned snapshot.

A change increments the version in its transaction, and a snapshot is read under a lock on that row, so each version
represents one committed state. Gateways receive the snapshot on the bus and store it on disk as last known good.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from django.conf import settings
from django.db import models, transaction
from django.db.models import Prefetch

from controlplane.automation.models.engine_health import HealthState
from controlplane.fleet.engine_addressing import key_variable
from controlplane.fleet.model_services import service_entries
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool, PoolMode
from controlplane.fleet.sovereignty.rules import document_in_force
from controlplane.kv_nodes.models.kv_node import LIVE, KvNode
from controlplane.platform.bus import get_bus
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.platform.snapshot_change import TOPIC
from controlplane.policies.upgrade import automation_of, deviation_note, live_routing_of, routing_of
from controlplane.publication.continued_versions import (
    continue_above,
    version_in_database,
    version_on_bus,
    version_served,
)
from controlplane.request_log.models.call_graph import graph_in_force
from controlplane.trials.canary.pool_arms import arms_of
from controlplane.trials.canary.service_share import arms_and_weights
from controlplane.trials.models.canary import Canary, CanaryState
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.usage.budgets import budget_entries, price_entries
from gateway.base.settings import GatewaySettings
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import (
    ApiKeyEntry,
    EngineEntry,
    KvNodeEntry,
    PoolEntry,
    ShadowEntry,
    Snapshot,
    decode_snapshot,
    encode_snapshot,
)
from gateway.contracts.wire import UnreadableMessageError
from routing.cost.cost_fit import FittedCost
from routing.policy.policy_document import RoutingPolicy
from routing.policy.schema_versions import SchemaError
from routing.values.prepared_struct import prepared

Entry = TypeVar("Entry", bound=msgspec.Struct)

_POLICY_PART = ("policy_version", "policy", "costs", "arms", "shadow", "start_s")

logger = logging.getLogger(__name__)

# Two threads that publish at once must leave the newer snapshot on the bus.
_publishing = threading.Lock()


def publish() -> Snapshot:
    """Publish the committed state and return it. It is never older than a published version. Idempotent."""
    # First: gateways reject every version below one that they have served.
    continue_above(version_on_bus())
    with _publishing:
        snapshot = build_snapshot(at=time.time())
        get_bus().publish(TOPIC, encode_snapshot(snapshot))
    return snapshot


def publish_if_newer() -> Snapshot | None:
    """Publish if another process (a command, a second server) has changed the database.

    Return None if nothing changed.
    """
    continue_above(version_served())
    return publish() if version_in_database() > version_on_bus() else None


def build_snapshot(at: float) -> Snapshot:
    """Read the whole committed state as a Snapshot. `at` is unix seconds."""
    with transaction.atomic():
        # The lock makes each version represent one committed state.
        counter = SnapshotVersion.objects.select_for_update().filter(pk=SnapshotVersion.ONLY).first()
        pools = Pool.objects.select_related("region", "policy__live_version", "holdback").order_by("slug")
        shadows = Shadow.objects.filter(state=ShadowState.RUNNING).select_related("draft", "base")
        canaries = Canary.objects.filter(state=CanaryState.RUNNING).select_related("version").order_by("pk")
        pools = pools.prefetch_related(
            "learned_costs",
            Prefetch("shadows", shadows, to_attr="running_shadows"),
            Prefetch("policy__canaries", canaries, to_attr="running_canaries"),
        )
        engines = Engine.objects.select_related("pool", "health").order_by("pool__slug", "name")
        last_good = _LastGood(at)
        compared = arms_and_weights(list(pools))
        keys = ApiKey.objects.select_related("tenant").filter(revoked_at=None).order_by("key_id")
        # A tenant without a key sends no requests.
        unsalted = next((key.tenant.slug for key in keys if key.tenant.unsalted), "")
        return Snapshot(
            version=counter.version if counter else 0,
            published_at=at,
            pools=tuple(
                _pool_entry(pool, unsalted, last_good, compared.get(pool.pk, ("", pool.weight))) for pool in pools
            ),
            engines=tuple(_engine_entry(engine) for engine in engines),
            api_keys=tuple(entry for key in keys for entry in _key_entries(key, at)),
            kv_nodes=tuple(_node_entry(node) for node in KvNode.objects.filter(state__in=LIVE).order_by("name")),
            sovereignty=document_in_force(),
            services=service_entries(),
            budgets=budget_entries(),
            prices=price_entries(),
            call_graph=graph_in_force(),
        )


class _LastGood:
    """The last published entries of pools with an unreadable policy, loaded on demand."""

    def __init__(self, at: float) -> None:
        self._at = at

    def policy_part(self, pool_id: str) -> dict[str, Any]:
        """Return the pool's last published policy, arms, and costs; empty if none were published, so that defaults
        apply.
        """
        known = next((entry for entry in self._snapshot_pools if entry.pool_id == pool_id), None)
        return {} if known is None else {name: getattr(known, name) for name in _POLICY_PART}

    @functools.cached_property
    def _snapshot_pools(self) -> tuple[PoolEntry, ...]:
        latest = get_bus().latest(TOPIC)
        try:
            known = decode_snapshot(latest) if latest is not None else None
        except UnreadableMessageError:
            known = None
        known = known or SnapshotStore(settings.STATE_DIR, GatewaySettings().snapshot_max_age_s).load(self._at)
        return known.pools if known is not None else ()


def _pool_entry(pool: Pool, unsalted_tenant: str, last_good: _LastGood, arm_and_weight: tuple[str, float]) -> PoolEntry:
    try:
        policy_part = _policy_part(pool)
    except (ValueError, msgspec.ValidationError) as error:
        # Its other values, other pools and revoked keys must reach the gateways all the same.
        logger.error("the policy of pool %s cannot be read, so it keeps the last one: %s", pool.slug, error)
        policy_part = last_good.policy_part(pool.slug)
    arm, weight = arm_and_weight
    own = {"pool_id": pool.slug, "region": pool.region.slug, "arm": arm, "weight": weight}
    return _entry(PoolEntry, pool, unsalted_tenant=unsalted_tenant, **own, **policy_part)


def _policy_part(pool: Pool) -> dict[str, Any]:
    """Return the fields in _POLICY_PART. Raises ValueError and msgspec.ValidationError."""
    live = pool.policy.live_version
    for version in (live, *(running_canary.version for running_canary in pool.policy.running_canaries)):
        if version is not None and (note := deviation_note(version.document)):
            logger.warning("%s is not followed in full by pool %s: %s", version, pool.slug, note)
    return {
        "policy_version": live.number if live else 0,
        "policy": live_routing_of(live) if live else RoutingPolicy(),
        "costs": {cost.kind: msgspec.convert(cost.fitted, prepared(FittedCost)) for cost in pool.learned_costs.all()},
        "arms": arms_of(live, pool.policy.running_canaries, getattr(pool, "holdback", None)),
        "shadow": _shadow_entry(pool),
        "start_s": _start_s(pool),
    }


def _start_s(pool: Pool) -> float | None:
    """Return the expected time of a first engine's start, None if the pool's requests start none."""
    live = pool.policy.live_version
    scaling = automation_of(live).scaling if live else None
    if scaling is None or not scaling.starts_on_demand or pool.mode == PoolMode.OBSERVE:
        return None
    return scaling.warm_up_s


def _shadow_entry(pool: Pool) -> ShadowEntry | None:
    running: list[Shadow] = pool.running_shadows  # prefetched to this name
    if not running:
        return None
    shadow = running[0]
    try:
        policy = (live_routing_of if shadow.observed else routing_of)(shadow.draft)
    except (SchemaError, msgspec.ValidationError):
        # A draft that this program no longer reads must not block the snapshot.
        return None
    return ShadowEntry(
        run_id=shadow.key,
        policy=policy,
        base_version=shadow.base.number,
        until=shadow.until.timestamp(),
        max_per_s=float(shadow.max_per_s),
    )


def _engine_entry(engine: Engine) -> EngineEntry:
    own = {"pool_id": engine.pool.slug, "url": engine.connect_url, "rank": engine.rank}
    return _entry(EngineEntry, engine, key_variable=key_variable(engine), **own, **_verdict(engine))


def _verdict(engine: Engine) -> dict[str, Any]:
    """Return the engine health verdict in the gateways' format. A suspect engine counts as healthy."""
    health = getattr(engine, "health", None)
    if health is None or health.state not in (HealthState.QUARANTINED, HealthState.PROBATION):
        return {}
    return {
        "health": health.state,
        "health_reason": health.reason,
        "health_since": health.since.timestamp(),
        "slow_start_from": health.slow_start_from,
        "slow_start_s": health.slow_start_s,
    }


def _node_entry(node: KvNode) -> KvNodeEntry:
    return msgspec.convert(node, prepared(KvNodeEntry), from_attributes=True)


def _key_entries(key: ApiKey, at: float) -> Iterator[ApiKeyEntry]:
    """Yield the key's entry, preceded by that of its previous secret while both are accepted."""
    own = {"tenant_id": key.tenant.slug, "served_models": tuple(key.tenant.served_models)}
    entry = _entry(ApiKeyEntry, key, expires_at=_unix_seconds(key.expires_at), **own)
    until = _unix_seconds(key.previous_until)
    if until is not None and at < until:
        ends = min(until, entry.expires_at or until)
        old = {"sha256": key.previous_sha256, "prefix": key.previous_prefix, "expires_at": ends}
        yield msgspec.structs.replace(entry, previous=True, **old)
    yield entry


def _entry(kind: type[Entry], thing: models.Model, **own: Any) -> Entry:
    """Return the entry with its own values and the object's fields of the same names."""
    stored = {field.name for field in thing._meta.concrete_fields if not field.is_relation} & set(
        kind.__struct_fields__
    ) - own.keys()
    copied = {name: getattr(thing, name) for name in stored}
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in copied.items()}, **own)


def _unix_seconds(moment: datetime | None) -> float | None:
    return moment.timestamp() if moment else None
