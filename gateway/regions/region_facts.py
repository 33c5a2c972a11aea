"""Messages between gateways of different regions: the heartbeat request every 100 ms, and the heartbeat.

The requester dates the answer by the time of its request. An answer that was delayed by a stalled connection therefore
has its true age, and an answer proves both directions of the connection.
"""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, WireForm
from gateway.regions.prefix_snapshot import PrefixDelta

KIND = "regions/heartbeat"
SCHEMA_VERSION = 1


class RegionEpoch(msgspec.Struct, frozen=True, order=True):
    """The gateway that serves a region's engines, by number: the higher number wins."""

    number: int
    holder: str
    """Tag of the gateway."""
    region: str
    """Region of the holder."""


class HeartbeatCall(msgspec.Struct, frozen=True):
    """Asks a peer for its facts."""

    tag: str = ""
    """The peer's, as far as the caller knows it."""
    prefixes: dict[str, int] = {}
    """Region that the peer serves → version of its prefix snapshot that the caller has."""
    epochs: dict[str, RegionEpoch] = {}
    """As in Heartbeat: a region that returns learns them at once."""
    stamp: float = 0.0
    """The newest of the peer's stamps received (gateway.regions.work_lease); 0: none."""


class ServiceFacts(msgspec.Struct, frozen=True, gc=False):
    """The engines of one served model in one region, as the gateway that serves them sees them."""

    region: str
    served_model: str
    engines: int
    """Engines that take work."""
    available: int
    """Engines that would start another request at once."""
    queued: int
    in_flight: int
    """Requests dispatched and not complete."""
    policy_version: int
    whole: bool
    """Whether the figures cover all gateways of the region, and not this one's requests only."""


class Heartbeat(msgspec.Struct, frozen=True):
    """One gateway's facts at one moment."""

    tag: str
    region: str
    at: float
    """Unix seconds by its own clock."""
    services: tuple[ServiceFacts, ...]
    epochs: dict[str, RegionEpoch]
    """Region → the gateway that serves it, as far as this gateway knows."""
    one_way_s: dict[str, float]
    """Region → seconds to it, as this gateway measured last."""
    prefixes: dict[str, PrefixDelta]
    """For each region that this gateway serves, from its own requests alone, whatever else the engines hold."""
    snapshot_version: int = 0
    stamp: float = 0.0
    """Monotonic seconds by its own clock."""
    schema_version: int = SCHEMA_VERSION


heartbeat_calls = WireForm(HeartbeatCall, "a call for a heartbeat", limit=4096)
heartbeats = WireForm(Heartbeat, "a heartbeat", limit=MIB)
