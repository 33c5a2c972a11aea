"""One row per region: arrivals, served requests, engines, queue, and the gateways that serve its engines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from gateway.contracts.fleet_sample import TAKING_WORK, FleetSample, HandOvers, RegionLink, RegionSample
from routing.values import reasons
from web.fleet.topology.words import owner_words

NO_PEAKS: Mapping[str, float] = MappingProxyType({})
FULL_QUEUE = 4
"""Queue length above which a region accepts no forwarded requests (gateway.regions)."""


@dataclass(frozen=True, slots=True)
class RegionRow:
    """One region. Rates are requests per second."""

    name: str
    shape: str
    words: str
    local_per_s: float
    forwarded_per_s: dict[str, float]
    served_per_s: float
    tokens: int
    running: int
    queued: int
    available: int
    engines: int
    gateways: int
    epoch: int
    served_by: str
    """The region whose gateway serves this region's engines, if it is another one."""
    owners: list[tuple[str, str]]
    """Names of the region's pools, each with the gateway that decides for it, if reported."""
    links: list[RegionLink]
    ttft_p90_s: float | None
    """That of the region's slowest pool; None: no requests."""
    on_time: float | None
    """Lowest share of a pool, 0..1."""
    peak: float | None
    """Engines for the region's own peak; None: the capacity plan has not read its demand."""

    @property
    def down(self) -> set[str]:
        """Return the regions to which its links are down."""
        return {link.region for link in self.links if not link.up}

    @property
    def arriving_per_s(self) -> float:
        """Requests per second that clients send to the region's gateways."""
        return self.local_per_s + sum(self.forwarded_per_s.values())

    @property
    def forwarded_share(self) -> float:
        """Share of the region's arrivals that other regions serve, 0..1."""
        arriving = self.arriving_per_s
        return sum(self.forwarded_per_s.values()) / arriving if arriving else 0.0


def region_rows(sample: FleetSample, peaks: Mapping[str, float] = NO_PEAKS) -> list[RegionRow]:
    """Return the rows of all regions that have gateways or are reported by one, sorted by name.

    Without other regions, gateways report none; the regions of the pools are returned then.
    """
    names = {region.region for region in sample.regions} | {
        link.region for region in sample.regions for link in region.links
    }
    return [_row(name, sample, peaks.get(name)) for name in sorted(names or {pool.region for pool in sample.pools})]


def hand_over_rows(sample: FleetSample) -> list[dict[str, Any]]:
    """Return one row per origin, destination, and reason over the gateways, those with the most requests first."""
    rows: dict[tuple[str, str, str], Counter[str]] = {}
    for gateway in sample.regions:
        for item in gateway.hand_overs:
            figures = rows.setdefault((gateway.region, item.region, item.reason), Counter())
            figures.update({name: getattr(item, name) for name in HandOvers.__struct_fields__[2:]})
    return [
        {"origin": origin, "region": region, "why": reasons.words(reason), **figures}
        for (origin, region, reason), figures in sorted(rows.items(), key=lambda row: (-row[1]["requests"], row[0]))
    ]


def _row(name: str, sample: FleetSample, peak: float | None) -> RegionRow:
    own = [item for item in sample.regions if item.region == name]
    pools = [pool for pool in sample.pools if pool.region == name]
    pool_ids = {pool.pool_id for pool in pools}
    engines = [engine for engine in sample.engines if engine.pool_id in pool_ids]
    available = sum(engine.state in TAKING_WORK for engine in engines)
    forwarded: dict[str, float] = {}
    for gateway in own:
        for region, rate in gateway.forwarded_per_s.items():
            forwarded[region] = forwarded.get(region, 0.0) + rate
    local = sum(item.local_per_s for item in own) if sample.regions else sum(pool.requests_per_s for pool in pools)
    taken = sum(item.forwarded_per_s.get(name, 0.0) for item in sample.regions if item.region != name)
    number, holder = max((item.epochs[name] for item in sample.regions if name in item.epochs), default=(0, name))
    queued = sum(pool.unbound + (pool.bound or 0) for pool in pools)
    served_by = holder if holder != name else ""
    shape, words = _state(bool(own or not sample.regions), served_by, queued, available, bool(sum(forwarded.values())))
    return RegionRow(
        name=name,
        shape=shape,
        words=words,
        local_per_s=local,
        forwarded_per_s=dict(sorted(forwarded.items())),
        served_per_s=local + taken,
        tokens=sum(engine.in_flight_tokens for engine in engines),
        running=sum(engine.running for engine in engines),
        queued=queued,
        available=available,
        engines=len(engines),
        gateways=len(own),
        epoch=number,
        served_by=served_by,
        owners=[(pool.name, words) for pool in pools for words in owner_words(pool)],
        links=_links(name, own),
        ttft_p90_s=max((pool.ttft_p90_s for pool in pools if pool.ttft_p90_s is not None), default=None),
        on_time=min((pool.on_time_share for pool in pools if pool.on_time_share is not None), default=None),
        peak=peak,
    )


def _state(reported: bool, served_by: str, queued: int, available: int, forwards: bool) -> tuple[str, str]:
    """Return the shape and words for a region's state."""
    if served_by:
        return "degraded", f"Its gateway has died; {served_by} serves its engines"
    if not reported:
        return "lost", "No heartbeat from its gateway"
    if not available:
        return "lost", "No engine available"
    if queued > FULL_QUEUE:
        return "hot", "Full, forwards" if forwards else "Full"
    return ("serving", "Forwards some") if forwards else ("serving", "Free capacity")


def _links(name: str, own: Sequence[RegionSample]) -> list[RegionLink]:
    """Return one link per other region: the best one to any of its gateways."""
    best: dict[str, RegionLink] = {}
    for link in (link for item in own for link in item.links):
        known = best.get(link.region)
        if known is None or (link.up, -(link.heartbeat_age_s or 0.0)) > (known.up, -(known.heartbeat_age_s or 0.0)):
            best[link.region] = link
    return [link for region, link in sorted(best.items()) if region != name]
