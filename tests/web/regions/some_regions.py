"""Samples of three regions: one is full, one has no running gateway, and links are in every state."""

from __future__ import annotations

import msgspec

from gateway.contracts.fleet_sample import FleetSample, RegionLink, RegionSample
from tests.web.fake_fleet import FakeFleet

NAMES = ("asia", "eu", "us")


def link(region: str, *, up: bool = True, dead: bool = False, one_way_s: float = 0.045) -> RegionLink:
    return RegionLink(
        region=region,
        address="127.0.0.1:1",
        up=up,
        dead=dead,
        heartbeat_age_s=0.08 if up else 31.0,
        one_way_s=one_way_s,
        clock_offset_s=0.003,
    )


def gateway(
    region: str,
    local_per_s: float,
    forwarded: dict[str, float],
    links: tuple[RegionLink, ...],
    epochs: dict[str, tuple[int, str]] | None = None,
) -> RegionSample:
    return RegionSample(
        region=region,
        tag=f"{region}-tag",
        local_per_s=local_per_s,
        forwarded_per_s=forwarded,
        links=links,
        epochs=epochs or {name: (1, name) for name in NAMES},
        serves=(region,),
    )


def sample(*regions: RegionSample) -> FleetSample:
    """Return a fleet of three pools, one per region, with the reports of these gateways."""
    made = FakeFleet(engines=9, pools=2, events=False).sample_at(30.0, 1_700_000_000.0)
    pools = tuple(
        msgspec.structs.replace(made.pools[0], pool_id=f"pool-{name}", name=f"chat {name}", region=name)
        for name in NAMES
    )
    engines = tuple(
        msgspec.structs.replace(engine, pool_id=f"pool-{NAMES[number % 3]}")
        for number, engine in enumerate(made.engines)
    )
    return msgspec.structs.replace(made, pools=pools, engines=engines, regions=regions)


def busy() -> FleetSample:
    """Return a fleet in which us forwards to both others, and the link from asia to us is down."""
    return sample(
        gateway("asia", 17.0, {}, (link("eu", one_way_s=0.1), link("us", up=False))),
        gateway("eu", 42.8, {"asia": 1.2}, (link("asia", one_way_s=0.1), link("us"))),
        gateway("us", 77.8, {"eu": 10.3, "asia": 3.9}, (link("asia", one_way_s=0.08), link("eu"))),
    )


def orphaned() -> FleetSample:
    """Return a fleet in which us has taken over the engines of eu."""
    epochs = {"asia": (1, "asia"), "eu": (4, "us"), "us": (1, "us")}
    return sample(
        gateway("asia", 17.0, {}, (link("eu", up=False, dead=True), link("us")), epochs),
        gateway("us", 77.8, {"eu": 10.3}, (link("asia"), link("eu", up=False, dead=True)), epochs),
    )
