"""The demo of several regions: a pool of engines and a gateway in each region, and proxies that simulate the link
delays.

The first region receives more requests than it can process.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import combinations, islice
from pathlib import Path

from django.conf import settings

from controlplane.fleet.loopback_ports import engine_ports_in_use, free_ports
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.fleet.topology import create_pool, create_region
from controlplane.platform.bus import bus_url
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import DEFAULT as POLICY
from controlplane.project.first_run.demo_fleet import generated_rate
from controlplane.project.first_run.demo_names import API_KEY_VARIABLE, POOL, SERVED_MODEL
from controlplane.project.first_run.seed import ACTOR, BLOCK_TOKENS, move_from_taken_ports, register_supervised
from controlplane.project.processes import child_program
from controlplane.project.processes.child_process import ChildSpec, parent_option, python
from gateway.base.settings import FLEET_SECRET, FLEET_SECRET_ALSO

NAMES = {"us": "United States", "eu": "Europe", "asia": "Asia"}
ONE_WAY_MS = {frozenset(("us", "eu")): 45, frozenset(("us", "asia")): 80, frozenset(("eu", "asia")): 100}
ENGINES = 3
"""Number of engines in each region."""
QPS = {"us": 7.0, "eu": 1.2, "asia": 1.2}
"""Arrival rates by region. Three engines can process about 4.5 requests per second of the generated trace."""
MAX_INPUT = 20_480


@dataclass(frozen=True, slots=True)
class RegionPorts:
    """Ports of the gateways of the demo's regions, and of the proxies' links between them."""

    public: dict[str, int]
    peers: dict[str, int]
    links: dict[tuple[str, str], int]

    def environment(self, region: str) -> dict[str, str]:
        """Return the settings of a region's gateway."""
        others = (f"{other}=127.0.0.1:{self.links[region, other]}" for other in self.public if other != region)
        return {
            "HEADWAY_REGION": region,
            "HEADWAY_PEER_LISTEN": f"127.0.0.1:{self.peers[region]}",
            "HEADWAY_REGION_PEERS": ",".join(others),
        }


def choose_ports(count: int, first: int, ports_from: int) -> RegionPorts:
    """Return ports for this many regions: public ports from `first`, other ports from `ports_from`."""
    names = list(islice(NAMES, count))
    pairs = [(one, other) for one in names for other in names if one != other]
    public = [first, *free_ports(count - 1, start=first + 1)]
    inner = free_ports(count + len(pairs), start=ports_from, taken=engine_ports_in_use() | set(public))
    return RegionPorts(
        dict(zip(names, public, strict=True)),
        dict(zip(names, inner[:count], strict=True)),
        dict(zip(pairs, inner[count:], strict=True)),
    )


def seed_demo_regions(count: int, ports_from: int) -> list[Engine]:
    """Create the regions, pools, and engines unless they exist, and return the engines to start."""
    policy = Policy.objects.get(slug=POLICY)
    engines: list[Engine] = []
    for slug, name in islice(NAMES.items(), count):
        region = Region.objects.filter(slug=slug).first() or create_region(slug, name, actor=ACTOR)
        pool = Pool.objects.filter(slug=f"{POOL}-{slug}").first()
        if pool is None:
            made = create_pool(
                f"{POOL}-{slug}", f"Demo {name}", region, SERVED_MODEL, policy, actor=ACTOR, block_tokens=BLOCK_TOKENS
            )
            register_supervised(made, [f"{slug}-{number + 1:02d}" for number in range(ENGINES)], ports_from)
            pool = made
        engines += pool.engines.filter(supervised=True).order_by("name")
    move_from_taken_ports(engines, ports_from)
    return engines


def region_children(ports: RegionPorts, api_key: str, speed: float | None) -> list[ChildSpec]:
    """Return a proxy for each two regions, the gateways of all regions except the first, and the traffic generator of
    each region.
    """
    names = list(ports.public)
    children = [_links(ports, one, other) for one, other in combinations(names, 2)]
    children += [_gateway(ports, name) for name in names[1:]]
    children += [_traffic(ports.public[name], name, api_key, speed) for name in names]
    return children


def _links(ports: RegionPorts, one: str, other: str) -> ChildSpec:
    """Return the proxy of the links between two regions: without it, they are cut off from each other."""
    delay_ms = ONE_WAY_MS[frozenset((one, other))]
    pairs = ((one, other), (other, one))
    links = [f"{ports.links[pair]}=127.0.0.1:{ports.peers[pair[1]]}/{delay_ms}" for pair in pairs]
    return ChildSpec(f"links-{one}-{other}", (*python("simulator.fault_proxy"), *links, *parent_option()))


def _gateway(ports: RegionPorts, region: str) -> ChildSpec:
    state_dir = Path(settings.STATE_DIR) / "regions" / region
    argv = [
        *python(child_program.__name__), child_program.GATEWAY, str(os.getpid()),
        "--state-dir", str(state_dir), "--port", str(ports.public[region]), "--name", region,
    ]  # fmt: skip
    secret = {FLEET_SECRET: settings.FLEET_SECRET.decode(), FLEET_SECRET_ALSO: settings.FLEET_SECRET_ALSO.decode()}
    # Its password must not be on the command line.
    bus = {"REDIS_URL": bus_url()}
    return ChildSpec(f"gateway-{region}", tuple(argv), {**ports.environment(region), **secret, **bus})


def _traffic(port: int, region: str, api_key: str, speed: float | None) -> ChildSpec:
    rate = generated_rate(f"replay-{region}", QPS[region], sum(QPS.values()), speed)
    argv = [
        *python("simulator.replay"), *rate, "--max-input", str(MAX_INPUT),
        "--target", f"http://127.0.0.1:{port}", "--model", SERVED_MODEL, "--loop",
        *parent_option(),
    ]  # fmt: skip
    return ChildSpec(f"replay-{region}", tuple(argv), env={API_KEY_VARIABLE: api_key})
