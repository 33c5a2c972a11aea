"""One gateway's report on regions for the console: forwarded requests, links to other regions, who serves which."""

from __future__ import annotations

import msgspec


class RegionLink(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway of another region, as this one sees it. Times in seconds."""

    region: str
    address: str
    up: bool
    """Whether requests may be sent there."""
    dead: bool = False
    """It rejects connections: no process listens."""
    heartbeat_age_s: float | None = None
    one_way_s: float = 0.0
    clock_offset_s: float = 0.0


class RegionSample(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway of one region. Rates are requests per second over the sample's window."""

    region: str
    tag: str
    local_per_s: float
    """Of those that arrived here first: served by engines of this region."""
    forwarded_per_s: dict[str, float]
    """Region → sent there."""
    received_per_s: dict[str, float]
    """Region of the first contact → served for it."""
    links: tuple[RegionLink, ...]
    epochs: dict[str, tuple[int, str]]
    """Region → epoch, and the region whose gateway serves it."""
    serves: tuple[str, ...]
    """Regions whose engines this gateway dispatches to."""
