"""Simulated engines and node managers on loopback, each a process, behind one gateway after another.

Payloads and links are scaled as in the demo. Between two gateways, caches of engines and nodes can be emptied.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.request import Request, urlopen

import msgspec

from bench.live.live_fleet import API_KEY, FLEET_SECRET, engine_command, loopback_pool, wait_for
from bench.live.loopback_ports import free_ports
from controlplane.kv_nodes.simulated_scale import BYTES_PER_TOKEN, RATIO
from controlplane.project.processes import child_program
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, KvNodeEntry, Snapshot
from kvstore.keys.keyring import KV, Keyring
from kvstore.transfer.frames import Done, Purge
from kvstore.transfer.shared_secret import VARIABLE as SECRET_VARIABLE
from kvstore.transfer.transfer_client import TransferClient
from routing.policy.policy_document import RoutingPolicy
from simulator.engine_models.engine_profile import EngineProfile, write_profile

TENANT = "tenant"
BLOCK_TOKENS = 512
_SECRET = "a secret of node managers on loopback"  # noqa: S105 - nothing real knows it
_LIMIT_S = 180.0
_FOLLOWED = re.compile(r"^headway_kv_node_followed\{[^}]*\} 1\.0$", re.MULTILINE)


class KvFleetShape(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of nodes and engines. `homes` contains the node number of each engine."""

    homes: tuple[int, ...]
    nodes: int = 2
    dram_mib: int = 64
    ssd_mib: int = 0
    profile: EngineProfile = EngineProfile(recompute_last_block=True)
    speed: float = 1.0
    """Model seconds per real second, for engines and links between machines. Below 1, a busy machine matters less."""


class KvFleet:
    """The fleet. Mutable: the processes, and the current gateway."""

    def __init__(self, folder: Path, shape: KvFleetShape) -> None:
        self.shape, self._folder = shape, folder
        ports = free_ports(4 * shape.nodes + 3 * len(shape.homes) + 1)
        self._node_ports = [ports[4 * at : 4 * at + 4] for at in range(shape.nodes)]
        self._engine_ports = [ports[4 * shape.nodes + 3 * at :][:3] for at in range(len(shape.homes))]
        self.url = f"http://127.0.0.1:{ports[-1]}"
        self._port = ports[-1]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._gateway: subprocess.Popen[bytes] | None = None
        self._client = TransferClient(Keyring.of(_SECRET.encode(), kind=KV), time.monotonic)

    def start(self) -> None:
        """Start nodes and engines."""
        environment = {**os.environ, SECRET_VARIABLE: _SECRET}
        profile = self._folder / "profile.json"
        write_profile(profile, self.shape.profile)
        for name, (port, events, replay, metrics) in zip(self._names(), self._node_ports, strict=True):
            argv = [
                *(
                    sys.executable,
                    "-m",
                    child_program.__name__,
                    child_program.KV_NODE,
                    str(os.getpid()),
                    "--name",
                    name,
                ),
                *("--port", str(port), "--events-port", str(events), "--replay-port", str(replay)),
                *("--metrics-port", str(metrics), "--slot-kib", str(BLOCK_TOKENS * BYTES_PER_TOKEN >> 10)),
                *("--dram-mib", str(self.shape.dram_mib), "--ssd-mib", str(self.shape.ssd_mib)),
                *("--directory", str(self._folder / name), "--drain-s", "1"),
                *("--pull-mib-s", f"{self.shape.speed * self.shape.profile.link_bytes_per_s / RATIO / (1 << 20):.2f}"),
            ]
            self._processes.append(subprocess.Popen(argv, env=environment))
        for at, ports in enumerate(self._engine_ports):
            node = f"127.0.0.1:{self._node_ports[self.shape.homes[at]][0]}"
            options = ["--profile", str(profile), "--kv-node", node, "--kv-bytes-per-token", str(BYTES_PER_TOKEN)]
            options += ["--time-scale", str(self.shape.speed)]
            self._processes.append(subprocess.Popen(engine_command(ports, options), env=environment))
        for ports in self._engine_ports:
            wait_for(f"http://127.0.0.1:{ports[0]}/health")
        for ports in self._node_ports:
            wait_for(f"http://127.0.0.1:{ports[3]}/metrics")

    @contextmanager
    def gateway(
        self,
        policy: RoutingPolicy,
        *,
        engines: Sequence[int] = (),
        loads: bool = True,
        planners: Sequence[str] = ("prefetch", "replicate"),
    ) -> Iterator[None]:
        """Run a gateway over these engines (empty: all). Without `loads` it has no nodes."""
        state = self._folder / "gateway"
        snapshot = self._snapshot(policy, engines or range(len(self.shape.homes)), loads=loads)
        SnapshotStore(state, 3600.0).save(snapshot, time.time())
        argv = [
            *(sys.executable, "-m", "bench.live.gateway_with_planners", ",".join(planners) or "none"),
            *("--state-dir", str(state), "--port", str(self._port)),
        ]
        secrets = {"HEADWAY_FLEET_SECRET": FLEET_SECRET, SECRET_VARIABLE: _SECRET}
        self._gateway = subprocess.Popen(argv, env={**os.environ, **secrets})
        try:
            wait_for(f"{self.url}/ready")
            until = time.monotonic() + _LIMIT_S
            while loads and len(_FOLLOWED.findall(self.metrics())) < self.shape.nodes:
                if time.monotonic() > until:
                    raise TimeoutError("the gateway does not follow the nodes")
                time.sleep(0.1)
            yield
        finally:
            self._gateway.kill()
            self._gateway.wait()
            self._gateway = None

    def forget(self, *, nodes: bool = True) -> None:
        """Empty the engines' caches and, with `nodes`, the nodes."""
        for ports in self._engine_ports:
            urlopen(Request(f"http://127.0.0.1:{ports[0]}/reset_prefix_cache", method="POST"), timeout=10).close()
        for ports in self._node_ports if nodes else ():
            if not isinstance(self._client.call(f"127.0.0.1:{ports[0]}", Purge(TENANT)), Done):
                raise RuntimeError("a node could not be purged")

    def metrics(self) -> str:
        """Return the gateway's metrics page."""
        return _read(f"{self.url}/metrics")

    def gateway_sum(self, name: str, *labels: str) -> float:
        """Return the sum over a gateway's series with these labels."""
        return _sum(self.metrics(), name, labels)

    def sent_bytes(self, node: int) -> float:
        """Return the bytes that a node has sent to engines."""
        engines = [f'peer="127.0.0.1:{ports[0]}"' for ports in self._engine_ports]
        text = _read(f"http://127.0.0.1:{self._node_ports[node][3]}/metrics")
        return sum(_sum(text, "headway_kv_client_sent_bytes_total", (engine,)) for engine in engines)

    def stop(self) -> None:
        """Stop all processes."""
        self._client.close()
        for process in self._processes:
            process.kill()
            process.wait()

    def _names(self) -> list[str]:
        return [f"kv-{number + 1}" for number in range(self.shape.nodes)]

    def _snapshot(self, policy: RoutingPolicy, engines: Sequence[int], *, loads: bool) -> Snapshot:
        return Snapshot(
            version=time.time_ns() // 1_000_000,
            published_at=time.time(),
            pools=(loopback_pool(policy, BLOCK_TOKENS),),
            engines=tuple(self._engine(at, loads=loads) for at in engines),
            kv_nodes=tuple(
                KvNodeEntry(
                    name=name,
                    address=f"127.0.0.1:{ports[0]}",
                    events_endpoint=f"tcp://127.0.0.1:{ports[1]}",
                    replay_endpoint=f"tcp://127.0.0.1:{ports[2]}",
                    slot_bytes=BLOCK_TOKENS * BYTES_PER_TOKEN,
                )
                for name, ports in zip(self._names(), self._node_ports, strict=True)
            ),
            api_keys=(
                ApiKeyEntry(key_id="key", sha256=hashlib.sha256(API_KEY.encode()).hexdigest(), tenant_id=TENANT),
            ),
        )

    def _engine(self, at: int, *, loads: bool) -> EngineEntry:
        http, events, replay = self._engine_ports[at]
        return EngineEntry(
            engine_id=f"engine-{at + 1:02}",
            name=f"e-{at + 1:02}",
            pool_id="pool",
            url=f"http://127.0.0.1:{http}",
            kv_events_endpoint=f"tcp://127.0.0.1:{events}",
            kv_replay_endpoint=f"tcp://127.0.0.1:{replay}",
            kv_node=self._names()[self.shape.homes[at]] if loads else "",
            speed=self.shape.speed,
        )


@contextmanager
def kv_fleet(folder: Path, shape: KvFleetShape) -> Iterator[KvFleet]:
    """Run nodes and engines during the context."""
    fleet = KvFleet(folder, shape)
    try:
        fleet.start()
        yield fleet
    finally:
        fleet.stop()


def _read(url: str) -> str:
    with urlopen(url, timeout=10) as answer:  # noqa: S310 - our own loopback address
        return str(answer.read().decode())


def _sum(text: str, name: str, labels: Sequence[str]) -> float:
    lines = (line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")))
    return sum(float(line.rpartition(" ")[2]) for line in lines if all(label in line for label in labels))
