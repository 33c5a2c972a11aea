"""Messages between gateways of different regions: the heartbeat request every 100 ms, and the heartbeat.

The requester dates the response by the time of its request. A response delayed by a stalled connection therefore has
its true age, and a response proves both directions of the connection.
"""

from __future__ import annotations

import msgspec

from routing.regions.prefix_snapshot import PrefixDelta

SCHEMA_VERSION = 1


class RegionEpoch(msgspec.Struct, frozen=True, order=True):
    """The gateway that serves a region's engines. The higher number wins."""

    number: int
    holder: str
    """Tag of the holder."""
    region: str
    """Region of the holder."""


class HeartbeatCall(msgspec.Struct, frozen=True):
    """Requests a peer's facts."""

    tag: str = ""
    """The peer's tag, if the caller knows it."""
    prefixes: dict[str, int] = {}
    """Region that the peer serves → version of its prefix snapshot that the caller has."""
    epochs: dict[str, RegionEpoch] = {}
    """Epochs as in Heartbeat, so that a returning region learns them immediately."""
    stamp: float = 0.0
    """The newest stamp received from the peer (gateway.regions.work_lease); 0: none."""


class ServiceFacts(msgspec.Struct, frozen=True, gc=False):
    """The engines of one served model in one region, as seen by the gateway that serves them."""

    region: str
    served_model: str
    engines: int
    """Engines that accept work."""
    available: int
    """Engines that would start another request immediately."""
    queued: int
    in_flight: int
    """Requests that are dispatched and not complete."""
    policy_version: int
    whole: bool
    """Whether the figures cover all gateways of the region, not only this gateway's requests."""


class Heartbeat(msgspec.Struct, frozen=True):
    """One gateway's facts at one time."""

    tag: str
    region: str
    at: float
    """Unix seconds of its clock."""
    services: tuple[ServiceFacts, ...]
    epochs: dict[str, RegionEpoch]
    """Region → the gateway that serves it according to this gateway."""
    one_way_s: dict[str, float]
    """Region → one-way seconds to it in the latest measurement."""
    prefixes: dict[str, PrefixDelta]
    """Region that this gateway serves → its prefixes, from this gateway's requests only."""
    snapshot_version: int = 0
    stamp: float = 0.0
    """Monotonic seconds of its clock."""
    schema_version: int = SCHEMA_VERSION
