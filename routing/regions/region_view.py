"""Facts of a region's balancer when it routes one request, and the destinations to choose from."""

from __future__ import annotations

import msgspec


class RegionEngineLoad(msgspec.Struct, frozen=True, gc=False):
    """One engine of the balancer's own region."""

    engine_id: str
    matched_tokens: int
    """Leading prompt tokens held by the engine, from the balancer's index."""
    in_flight: int
    """Requests that the balancer sent to the engine and that have not ended, as far as known."""
    has_room: bool
    """Whether selective pushing allows another request."""
    indexed_tokens: int = 0
    """Size of the balancer's index for the engine (tokens)."""


class RegionLoad(msgspec.Struct, frozen=True, gc=False):
    """Total load of the engines of one pool."""

    engines: int
    """Engines that accept work."""
    available: int
    """Engines with room for another request."""
    queued: int
    in_flight: int
    """Requests dispatched but not complete."""


class EngineLoadReport(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Load of one engine, from the gateway that decides for its pool."""

    engine_id: str
    in_flight: int
    """As in RegionEngineLoad."""
    has_room: bool


class PoolLoadReport(msgspec.Struct, frozen=True, array_like=True):
    """A pool's load from its owner, for the other gateways of the region."""

    queued: int
    in_flight: int
    """Requests dispatched but not complete."""
    engines: tuple[EngineLoadReport, ...]
    """Engines that accept work."""


class PeerLoad(msgspec.Struct, frozen=True, gc=False):
    """Another region that sovereignty rules allow for the request, from its last heartbeat."""

    region: str
    matched_tokens: int
    """Leading prompt tokens held by the region, from its snapshot."""
    has_room: bool
    """Whether an engine there has room and its queue is short."""
    in_flight_per_engine: float
    one_way_s: float


class RegionView(msgspec.Struct, frozen=True, gc=False):
    """One request and all its targets. A request forwarded by another region has no peers: one hop at most."""

    prompt_tokens: int
    session_key: int
    waited_s: float
    turn: int
    """Requests that the balancer has dispatched or forwarded so far."""
    in_flight_per_engine: float
    """The balancer's own requests in flight and queued, per engine."""
    engines: tuple[RegionEngineLoad, ...]
    peers: tuple[PeerLoad, ...] = ()


class RegionChoice(msgspec.Struct, frozen=True, gc=False):
    """The chosen destination as positions in the view. Without an engine and a peer, the request waits."""

    reason: str
    engine: int | None = None
    peer: int | None = None


WAIT = RegionChoice("wait")
