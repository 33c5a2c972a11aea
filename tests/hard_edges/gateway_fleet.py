"""Standalone gateways that follow a control plane over Redis, with one engine process behind them."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from bench.live.live_fleet import MODEL, engine_command, wait_for
from bench.live.loopback_ports import free_ports
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from kvstore.keys.keyring import Keyring
from tests.patience import PATIENCE_S

SECRET = "a secret of gateways that follow a bus"
API_KEY = "hw_key_of_gateways_that_follow"
_VERSION = re.compile(r"^headway_snapshot_version ([0-9.]+)$", re.MULTILINE)


class GatewayFleet:
    """Engine and gateway processes, and the control plane's connection to the bus."""

    def __init__(self, redis_url: str, directory: Path) -> None:
        *engine_ports, self._first, self._second = free_ports(5)
        self.bus = RedisBus(redis_url, Keyring.of(SECRET.encode()))
        self._redis_url = redis_url
        self._directory = directory
        self._engine_url = f"http://127.0.0.1:{engine_ports[0]}"
        self._engine = subprocess.Popen(engine_command(engine_ports, ["--time-scale", "20"]))
        self.urls = [f"http://127.0.0.1:{port}" for port in (self._first, self._second)]
        self._gateways: list[subprocess.Popen[bytes]] = []

    def publish(self, version: int, policy_version: int | None = None, *, revoked: bool = False) -> None:
        """Publish the topology as this version, with the API key unless it is revoked."""
        key = ApiKeyEntry(key_id="k", sha256=hashlib.sha256(API_KEY.encode()).hexdigest(), tenant_id="t")
        pool = PoolEntry(
            pool_id="pool", name="p", region="here", served_model=MODEL, policy_version=policy_version or version
        )
        engine = EngineEntry(engine_id="e1", name="e1", pool_id="pool", url=self._engine_url)
        snapshot = Snapshot(
            version=version,
            published_at=time.time(),
            pools=(pool,),
            engines=(engine,),
            api_keys=() if revoked else (key,),
        )
        self.bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))

    def start(self) -> None:
        """Start the engine and both gateways, and return once all respond."""
        wait_for(f"{self._engine_url}/health")
        self._gateways = [self._start_gateway(position) for position in (0, 1)]
        for url in self.urls:
            wait_for(f"{url}/ready")

    def kill(self, position: int) -> None:
        """Kill a gateway, which simulates a crash."""
        self._gateways[position].kill()
        self._gateways[position].wait()

    def restart(self, position: int) -> None:
        """Kill a gateway and start it again on its state directory."""
        self.kill(position)
        self._gateways[position] = self._start_gateway(position)
        wait_for(f"{self.urls[position]}/ready")

    def versions(self) -> list[float]:
        """Return the snapshot version that each gateway serves."""
        return [version_of(url) for url in self.urls]

    def log(self, position: int) -> str:
        """Return the log of a gateway."""
        return (self._directory / f"gateway-{position}.log").read_text()

    def close(self) -> None:
        """End all processes."""
        self.bus.close()
        for process in [*self._gateways, self._engine]:
            process.kill()
            process.wait()

    def _start_gateway(self, position: int) -> subprocess.Popen[bytes]:
        state_dir = self._directory / f"gateway-{position}"
        port = (self._first, self._second)[position]
        command = [sys.executable, "-m", "gateway", "--state-dir", str(state_dir), "--port", str(port)]
        environment = {**os.environ, "HEADWAY_FLEET_SECRET": SECRET, "REDIS_URL": self._redis_url}
        with (self._directory / f"gateway-{position}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stderr=log)


def metrics_of(url: str) -> str:
    """Return one gateway's metrics."""
    with urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def version_of(url: str) -> float:
    """Return the snapshot version that one gateway serves."""
    match = _VERSION.search(metrics_of(url))
    return float(match[1]) if match else 0.0


@contextmanager
def gateway_fleet(redis_url: str, directory: Path) -> Iterator[GatewayFleet]:
    """Run two gateways and an engine for the block."""
    fleet = GatewayFleet(redis_url, directory)
    try:
        fleet.publish(1)
        fleet.start()
        yield fleet
    finally:
        fleet.close()
