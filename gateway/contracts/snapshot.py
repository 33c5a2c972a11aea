"""The versioned snapshot that the control plane publishes and every gateway serves from.

A snapshot is complete (topology, policies, API keys) and replaces its predecessor as a whole, so that a decision never
mixes two versions. It is sent as msgpack over the bus, and stored on disk as the last-known-good snapshot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from gateway.base.engine_api_keys import FLEET_KEY
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from routing import live_policy
from routing.advisories.call_graph import NO_AGENTS, CallGraph
from routing.cost.cost_fit import FittedCost
from routing.policy import policy_document
from routing.policy.policy_document import RoutingPolicy
from routing.policy.schema_versions import SchemaError, SchemaLine
from routing.regions.sovereignty import SovereigntyDocument
from routing.trials.arms import ArmEntry
from routing.values.prepared_struct import prepared

SCHEMA_VERSION = 1
MAX_BYTES = 256 * MIB

PREVIOUS_SECRET = "/previous"  # noqa: S105 - no secret, but its name
"""Follows a key's id in reports of uses of its previous secret."""

OBSERVE = "observe"
"""PoolEntry.mode of an observe-only pool."""

SNAPSHOT_SCHEMA = SchemaLine("snapshots", SCHEMA_VERSION)
"""New fields with defaults need no new schema, because older gateways skip them. Any other change increments
SCHEMA_VERSION and needs an upgrader here.
"""


class EngineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One engine in the topology."""

    engine_id: str
    name: str
    pool_id: str
    url: str
    """Base URL, for example http://10.0.3.7:8000, already checked against the allow-list."""
    rank: int | None = None
    """Data-parallel rank behind the URL; None: all ranks."""
    key_variable: str = FLEET_KEY
    """Name of the variable that holds the engine's API key; empty: no key is sent."""
    desired_state: str = "ready"
    """The operator's choice: ready, draining or maintenance."""
    kv_events_endpoint: str = ""
    """ZMQ PUB endpoint of the engine's KV events (tcp://host:port); empty: none."""
    kv_replay_endpoint: str = ""
    speed: float = 1.0
    """Prefill speed relative to the pool's cost profile."""
    kind: str = ""
    """Kind (accelerator, build) of engines that share a learned cost; empty: the pool's common kind."""
    role: str = "mixed"
    """prefill, decode or mixed: the part of each request that the engine serves."""
    health: str = "healthy"
    """The fleet-wide health verdict on the engine: healthy, suspect, quarantined or probation."""
    health_reason: str = ""
    """The reason of the verdict as a sentence; empty when healthy."""
    health_since: float | None = None
    """Unix seconds."""
    slow_start_from: float = 1.0
    """Share of its load with which probation begins."""
    slow_start_s: float = 0.0
    """Seconds over which that share grows to 1."""
    kv_node: str = ""
    """Name of the node manager that stores the engine's blocks; empty: none."""


class KvNodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One registered node manager (`manage.py node`)."""

    name: str
    address: str
    """host:port under which engines and gateways reach it."""
    events_endpoint: str = ""
    """ZMQ PUB endpoint of the node's KV events; empty: it publishes none, and nothing is fetched from it."""
    replay_endpoint: str = ""
    slot_bytes: int = 0
    """Size of the largest block that the node stores."""
    state: str = "serving"
    """serving or draining."""


class ShadowEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that decides beside the pool's live policy. Its decisions are not executed."""

    run_id: str
    policy: RoutingPolicy
    base_version: int
    """The live version to compare with. Under another live version, the shadow pauses."""
    until: float
    """Unix seconds when the shadow ends automatically."""
    max_per_s: float = 50.0
    """Maximum requests compared per second at each gateway; others are skipped."""


class PoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Engines of one served model and role in one region, with their live policy."""

    pool_id: str
    name: str
    region: str
    served_model: str
    key_source: str = "exact"
    """exact (token blocks, index fed by KV events) or approximate (byte blocks, fed by dispatches)."""
    block_tokens: int = 512
    """Tokens per engine block (exact); tokens that one byte block represents (approximate)."""
    block_bytes: int = 2048
    isolated: bool = False
    """True: caches are separated per tenant by a server-derived cache salt."""
    unsalted_tenant: str = ""
    """The tenant whose blocks have no salt although caches are separated; empty: none."""
    max_prompt_tokens: int = 131_072
    weight: float = 100
    """Share of the model's requests relative to other pools that serve it; 0: only if no other pool can serve."""
    arm: str = ""
    """canary for the pool on trial and live for the others, while pools of its model are compared. Else empty."""
    policy_version: int = 0
    policy: RoutingPolicy = msgspec.field(default_factory=RoutingPolicy)
    costs: dict[str, FittedCost] = {}
    """Learned costs of the pool's engines by kind."""
    shadow: ShadowEntry | None = None
    mode: str = "route"
    """route, or observe: Headway routes nothing and accounts for what others routed."""
    arms: tuple[ArmEntry, ...] = ()
    """Placements that decide for a share of the sessions, in order of precedence."""
    start_s: float | None = None
    """Expected seconds until a pool without engines has one; None: its requests start none."""


class ApiKeyEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One API key. Only its SHA-256 ever leaves its owner."""

    key_id: str
    sha256: str
    prefix: str = ""
    """The key's first characters, shown to identify it."""
    tenant_id: str
    expires_at: float | None = None
    """Unix seconds; None: never."""
    scopes: tuple[str, ...] = ("infer", "route")
    """Paths that the key permits: infer (/v1) and route (/api/v1/route and related paths). forward: decisions by other
    keys, those of a proxy's clients.
    """
    rate_per_min: int | None = None
    """Requests per minute at each gateway; None: no limit."""
    max_in_flight: int | None = None
    """Concurrent requests at each gateway; None: no limit."""
    slo_class: str = ""
    """Default SLO class of requests, in pools that have this class; empty: none."""
    served_models: tuple[str, ...] = ()
    """Served models that the tenant can use; empty: all."""
    priority_ceiling: int | None = None
    """Most urgent priority of the key's requests (lower is more urgent); None: any."""
    origins: tuple[str, ...] = ()
    """Web origins (https://chat.example.com) whose pages can send advisories with the key's tokens, in addition to the
    gateway's own.
    """
    previous: bool = False
    """Whether this is the secret before the key's last rotation; `expires_at` is then the end of the overlap, too. The
    entry of the same key with its secret in use follows.
    """

    @property
    def usage_id(self) -> str:
        """Return the name under which uses of this secret are reported."""
        return f"{self.key_id}{PREVIOUS_SECRET}" if self.previous else self.key_id


class ProviderEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An external OpenAI-compatible API that answers what a service's pools cannot."""

    url: str
    """Base URL with the version, for example https://api.example.com/v1."""
    model: str
    """The provider's name of the model."""
    key_variable: str = ""
    """Variable of the gateways that holds the provider's API key; empty: no key is sent."""
    region: str = ""
    """Region in which the provider processes prompts; empty: unknown."""
    input_cost: float = 0.0
    """Dollars per million prompt tokens."""
    output_cost: float = 0.0
    """Dollars per million generated tokens."""


class ServiceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Names that clients send as `model`, and what serves them."""

    name: str
    aliases: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    """Pool ids in the order in which they are tried. Neighbors with one served model share the requests by weight."""
    provider: ProviderEntry | None = None
    """Answers if no pool can; None: the client gets the pools' rejection."""


class BudgetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A limit on what a key or a tenant uses in each UTC minute, day, or month."""

    budget_id: str
    key_id: str = ""
    """The key whose use counts; empty: the use of all keys of `tenant_id`."""
    tenant_id: str = ""
    unit: str
    """tokens or dollars."""
    amount: int
    """Tokens (prompt and output), or nano-dollars by the price list."""
    window: str
    """minute, day, or month."""
    mode: str
    """soft (a notice), hard (429), or shadow (what hard would reject is counted)."""


class PriceEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The list price of a served model in dollars per million tokens."""

    model: str
    prompt: float = 0.0
    cached: float | None = None
    """Of cached prompt tokens; None: as other prompt tokens."""
    output: float = 0.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a gateway needs to serve, as one consistent version."""

    schema_version: int = SCHEMA_VERSION
    version: int
    published_at: float
    """Unix seconds."""
    pools: tuple[PoolEntry, ...] = ()
    engines: tuple[EngineEntry, ...] = ()
    api_keys: tuple[ApiKeyEntry, ...] = ()
    kv_nodes: tuple[KvNodeEntry, ...] = ()
    sovereignty: SovereigntyDocument = msgspec.field(default_factory=SovereigntyDocument)
    """Which hops between regions are allowed, and for which tenants."""
    services: tuple[ServiceEntry, ...] = ()
    budgets: tuple[BudgetEntry, ...] = ()
    prices: tuple[PriceEntry, ...] = ()
    call_graph: CallGraph = NO_AGENTS
    """Predicts agents' next requests."""


def as_live(entry: PoolEntry) -> tuple[PoolEntry, str]:
    """Return the pool as this program routes it, and how it differs from the published pool ("": not at all).

    A shadow is not changed. If it cannot run, it ends and states why.
    """
    policy, said = live_policy.as_live(entry.policy)
    arms = tuple(
        msgspec.structs.replace(arm, placement=live_policy.live_placement(arm.placement)) for arm in entry.arms
    )
    if arms != entry.arms:
        said = (
            said or "A canary's placement is a baseline for simulation and what-if only; the nearest live one is used."
        )
    return (msgspec.structs.replace(entry, policy=policy, arms=arms), said) if said else (entry, "")


def decode_snapshot(data: bytes) -> Snapshot:
    """Read a snapshot; raise UnreadableMessageError for other content or a newer schema.

    The previous schema of the snapshot and of its policies is also accepted, so that gateways can be upgraded before
    the control plane and keep their last-known-good snapshot.
    """
    try:
        if _schemas.decode(data).current:
            return _snapshot.decode(data)
        return msgspec.convert(_upgraded(_fields.decode(data)), prepared(Snapshot))
    except msgspec.ValidationError as error:
        raise UnreadableMessageError(f"not {_WHAT}: {error}") from error
    except SchemaError as error:
        raise UnreadableMessageError(f"snapshot schema {error}") from error


class _Policy(msgspec.Struct, frozen=True):
    schema_version: int = policy_document.SCHEMA_VERSION


class _Pool(msgspec.Struct, frozen=True):
    policy: _Policy = msgspec.field(default_factory=_Policy)


class _Schemas(msgspec.Struct, frozen=True):
    """The schema versions of a snapshot. Other fields are skipped, not decoded."""

    schema_version: int = SCHEMA_VERSION
    pools: tuple[_Pool, ...] = ()

    @property
    def current(self) -> bool:
        return self.schema_version == SNAPSHOT_SCHEMA.current and all(
            pool.policy.schema_version == policy_document.ROUTING_SCHEMA.current for pool in self.pools
        )


def _upgraded(snapshot: dict[str, Any]) -> dict[str, Any]:
    """Return a copy in the current schemas; raise SchemaError for newer schemas or those before the previous one."""
    snapshot = SNAPSHOT_SCHEMA.upgraded(snapshot)
    pools = [
        {**pool, "policy": policy_document.ROUTING_SCHEMA.upgraded(pool["policy"])} if "policy" in pool else pool
        for pool in snapshot.get("pools", ())
    ]
    return {**snapshot, "pools": pools}


_WHAT = "a snapshot"
_snapshot = WireForm(Snapshot, _WHAT, limit=MAX_BYTES)
encode_snapshot = _snapshot.encode
_schemas = WireForm(_Schemas, _WHAT, limit=MAX_BYTES)
_fields = WireForm(dict[str, Any], _WHAT, limit=MAX_BYTES)
