"""One gateway's report on regions: forwarded requests, links to other regions, and which region serves which."""

from __future__ import annotations

import msgspec


class RegionLink(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway of another region, as seen by this one. Times in seconds."""

    region: str
    address: str
    up: bool
    """Whether requests can be sent there."""
    dead: bool = False
    """It refuses connections: no process listens."""
    heartbeat_age_s: float | None = None
    one_way_s: float = 0.0
    clock_offset_s: float = 0.0


class RegionSample(msgspec.Struct, frozen=True, kw_only=True):
    """Region figures of one gateway. Rates are requests per second over the sample's window."""

    region: str
    tag: str
    local_per_s: float
    """Requests that arrived here first and were served by engines of this region."""
    forwarded_per_s: dict[str, float]
    """Region → requests sent there."""
    received_per_s: dict[str, float]
    """Region of first contact → requests served for it."""
    links: tuple[RegionLink, ...]
    epochs: dict[str, tuple[int, str]]
    """Region → (epoch, region whose gateway serves it)."""
    serves: tuple[str, ...]
    """Regions to whose engines this gateway dispatches."""
