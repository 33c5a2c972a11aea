"""Three regions on loopback: engines and a gateway in each, and a fault proxy on every link between gateways.

Everything runs in separate processes except the proxy, which runs in the caller's event loop so that the caller
controls it.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.live.live_fleet import API_KEY, MODEL, engine_command, wait_for
from bench.live.loopback_ports import free_ports
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot
from routing.policy.policy_document import RoutingPolicy
from simulator.fault_proxy import FaultyLink

REGIONS = ("us", "eu", "asia")
ONE_WAY_S = {frozenset(("us", "eu")): 0.045, frozenset(("us", "asia")): 0.08, frozenset(("eu", "asia")): 0.1}
_SECRET = "a secret of the regions on loopback"  # noqa: S105 - of a fleet that lives as long as the bench


@dataclass
class RegionFleet:
    """Addresses of the parts, and methods to break them."""

    folder: Path
    snapshot: Snapshot
    ports: dict[str, int]
    peer_ports: dict[str, int]
    links: dict[tuple[str, str], FaultyLink]
    gateways: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    engines: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def url(self, region: str) -> str:
        """Return the public address of a region's gateway."""
        return f"http://127.0.0.1:{self.ports[region]}"

    def log(self, region: str) -> Path:
        """Return the log file of a region's gateway."""
        return self.folder / f"{region}.log"

    def start_engines(self, ports: list[list[int]], options: list[str]) -> None:
        """Start all engines."""
        self.engines = [subprocess.Popen(engine_command(numbers, options)) for numbers in ports]

    def start_gateway(self, region: str) -> None:
        """Start a region's gateway."""
        state_dir = self.folder / region
        SnapshotStore(state_dir, 3600.0).save(self.snapshot, time.time())
        peers = ",".join(f"{other}=127.0.0.1:{self.links[region, other].port}" for other in REGIONS if other != region)
        environment = {
            **os.environ,
            "HEADWAY_FLEET_SECRET": _SECRET,
            "HEADWAY_REGION": region,
            "HEADWAY_PEER_LISTEN": f"127.0.0.1:{self.peer_ports[region]}",
            "HEADWAY_REGION_PEERS": peers,
            # The history of requests is read from debug events.
            "HEADWAY_LOG_LEVEL": "DEBUG",
        }
        command = [sys.executable, "-m", "gateway", "--state-dir", str(state_dir), "--port", str(self.ports[region])]
        with self.log(region).open("ab") as log:
            self.gateways[region] = subprocess.Popen(command, env=environment, stderr=log)

    def kill_gateway(self, region: str) -> None:
        """Kill a region's gateway, as a crash would."""
        self.gateways[region].send_signal(signal.SIGKILL)
        self.gateways[region].wait()

    def cut(self, region: str, other: str, *, cut: bool = True) -> None:
        """Block all bytes from one region's gateway to another's, or unblock them."""
        # The links are stalled, not reset: a partition shows only as silence.
        self.links[region, other].there.stall(cut)
        self.links[other, region].back.stall(cut)

    def isolate(self, region: str, *, cut: bool = True) -> None:
        """Cut a region off from all others in both directions."""
        for other in REGIONS:
            if other != region:
                self.cut(region, other, cut=cut)
                self.cut(other, region, cut=cut)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the gateways' log events, each with the region of its gateway, in order of time."""
        logged: list[dict[str, Any]] = []
        for region in REGIONS:
            lines = self.log(region).read_text().splitlines()
            logged += [{**json.loads(line), "gateway": region} for line in lines if line.startswith("{")]
        logged.sort(key=lambda event: str(event["at"]))
        yield from logged


@asynccontextmanager
async def region_fleet(
    folder: Path,
    *,
    engines: int = 2,
    policy: RoutingPolicy | None = None,
    block_tokens: int = 64,
    engine_options: Sequence[str] = (),
) -> AsyncIterator[RegionFleet]:
    """Run the regions with this many engines each during the context. Without a `policy`, pools are new ones."""
    count = len(REGIONS) * engines
    ports = free_ports(3 * count + 2 * len(REGIONS) + len(REGIONS) * (len(REGIONS) - 1))
    engine_ports = [ports[3 * number : 3 * number + 3] for number in range(count)]
    rest = iter(ports[3 * count :])
    public, peers = {name: next(rest) for name in REGIONS}, {name: next(rest) for name in REGIONS}
    links = {
        (one, other): FaultyLink(next(rest), f"127.0.0.1:{peers[other]}", ONE_WAY_S[frozenset((one, other))])
        for one in REGIONS
        for other in REGIONS
        if one != other
    }
    snapshot = _snapshot(engine_ports, engines, policy or RoutingPolicy(), block_tokens)
    fleet = RegionFleet(folder, snapshot, public, peers, links)
    try:
        fleet.start_engines(engine_ports, ["--block-size", str(block_tokens), *engine_options])
        for numbers in engine_ports:
            await asyncio.to_thread(wait_for, f"http://127.0.0.1:{numbers[0]}/health")
        for link in links.values():
            link.start()
        for name in REGIONS:
            fleet.start_gateway(name)
        for name in REGIONS:
            await asyncio.to_thread(wait_for, f"{fleet.url(name)}/ready")
        yield fleet
    finally:
        for process in [*fleet.engines, *fleet.gateways.values()]:
            process.kill()
            process.wait()
        for link in links.values():
            await link.stop()


def _snapshot(engine_ports: list[list[int]], engines: int, policy: RoutingPolicy, block_tokens: int) -> Snapshot:
    key = ApiKeyEntry(key_id="key", sha256=hashlib.sha256(API_KEY.encode()).hexdigest(), tenant_id="tenant")
    return Snapshot(
        version=1,
        published_at=time.time(),
        pools=tuple(
            PoolEntry(
                pool_id=name,
                name=name,
                region=name,
                served_model=MODEL,
                block_tokens=block_tokens,
                policy_version=1,
                policy=policy,
            )
            for name in REGIONS
        ),
        engines=tuple(
            EngineEntry(
                engine_id=f"{REGIONS[number // engines]}-{number % engines + 1}",
                name=f"e{number + 1}",
                pool_id=REGIONS[number // engines],
                url=f"http://127.0.0.1:{http}",
                kv_events_endpoint=f"tcp://127.0.0.1:{events}",
                kv_replay_endpoint=f"tcp://127.0.0.1:{replay}",
            )
            for number, (http, events, replay) in enumerate(engine_ports)
        ),
        api_keys=(key,),
    )
