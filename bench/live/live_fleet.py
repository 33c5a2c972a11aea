"""A real fleet on loopback for benchmarks and end-to-end tests: simulated engines and a gateway, each a process."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.error import URLError
from urllib.request import urlopen

from bench.live.loopback_ports import free_ports
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot
from routing.policy.policy_document import RoutingPolicy

API_KEY = "hw_key_of_a_fleet_on_loopback"
MODEL = "loopback-8b"
FLEET_SECRET = "a secret of the fleet on loopback"  # noqa: S105 - of processes on this machine that end with the bench
_START_S = 180.0


@dataclass(slots=True)
class LiveFleet:
    """Addresses of the fleet's parts, and methods to stop and start its engines."""

    url: str
    state_dir: Path
    snapshot: Snapshot
    commands: list[list[str]]
    engines: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def kill_engine(self, position: int) -> None:
        """Kill an engine, as a crash would."""
        self.engines[position].send_signal(signal.SIGKILL)
        self.engines[position].wait()

    def start_engine(self, position: int) -> None:
        """Start an engine that is not running."""
        self.engines[position] = subprocess.Popen(self.commands[position])


def loopback_pool(policy: RoutingPolicy, block_tokens: int) -> PoolEntry:
    """Return the single pool of a benchmark."""
    return PoolEntry(
        pool_id="pool",
        name="loopback",
        region="local",
        served_model=MODEL,
        block_tokens=block_tokens,
        policy_version=1,
        policy=policy,
    )


def stored_snapshot(
    state_dir: Path,
    policy: RoutingPolicy,
    block_tokens: int,
    entries: Sequence[EngineEntry],
    more_keys: Sequence[ApiKeyEntry] = (),
) -> Snapshot:
    """Store a snapshot of one pool with these engines, which API_KEY may use, for a gateway that starts there."""
    hashed = hashlib.sha256(API_KEY.encode()).hexdigest()
    snapshot = Snapshot(
        version=1,
        published_at=time.time(),
        pools=(loopback_pool(policy, block_tokens),),
        engines=tuple(entries),
        api_keys=(ApiKeyEntry(key_id="key", sha256=hashed, tenant_id="tenant"), *more_keys),
    )
    SnapshotStore(state_dir, 3600.0).save(snapshot, time.time())
    return snapshot


@contextmanager
def live_fleet(
    state_dir: Path,
    policy: RoutingPolicy,
    *,
    engines: int = 4,
    time_scale: float = 1.0,
    block_tokens: int = 512,
    num_blocks: int = 1953,
    roles: Sequence[Literal["mixed", "prefill", "decode"]] = (),
    more_keys: Sequence[ApiKeyEntry] = (),
) -> Iterator[LiveFleet]:
    """Run `engines` simulated engines behind one gateway with `policy` during the context.

    `roles` are the roles of the first engines. The others are mixed.
    """
    role_of = dict(enumerate(roles))
    ports = free_ports(3 * engines + 1)
    entries = [engine_entry(number, ports, time_scale, role_of.get(number, "mixed")) for number in range(engines)]
    snapshot = stored_snapshot(state_dir, policy, block_tokens, entries, more_keys)
    options = ["--time-scale", str(time_scale), "--block-size", str(block_tokens), "--num-blocks", str(num_blocks)]
    commands = [
        engine_command(ports[3 * number : 3 * number + 3], [*options, "--role", role_of.get(number, "mixed")])
        for number in range(engines)
    ]
    fleet = LiveFleet(f"http://127.0.0.1:{ports[-1]}", state_dir, snapshot, commands)
    gateway = None
    try:
        fleet.engines = [subprocess.Popen(command) for command in commands]
        for entry in entries:
            wait_for(f"{entry.url}/health")
        gateway = start_gateway(state_dir, ports[-1])
        wait_for(f"{fleet.url}/ready")
        yield fleet
    finally:
        for process in [*fleet.engines, *([gateway] if gateway is not None else [])]:
            process.kill()
            process.wait()


def engine_entry(number: int, ports: Sequence[int], speed: float, role: str = "mixed") -> EngineEntry:
    """Return the entry of one engine, `ports` being three for each engine."""
    http, events, replay = ports[3 * number : 3 * number + 3]
    return EngineEntry(
        engine_id=f"engine-{number + 1:02}",
        name=f"e-{number + 1:02}",
        pool_id="pool",
        url=f"http://127.0.0.1:{http}",
        kv_events_endpoint=f"tcp://127.0.0.1:{events}",
        kv_replay_endpoint=f"tcp://127.0.0.1:{replay}",
        speed=speed,
        role=role,
    )


def engine_command(ports: list[int], options: list[str]) -> list[str]:
    """Return the command line of one simulated engine on (HTTP, events, replay) ports."""
    http, events, replay = (str(port) for port in ports)
    return [
        sys.executable, "-m", "simulator.engine_server", "--port", http, "--kv-events-port", events,
        "--kv-replay-port", replay, "--served-model-name", MODEL, "--parent-pid", str(os.getpid()), *options,
    ]  # fmt: skip


def start_gateway(state_dir: Path, port: int, bus_url: str = "") -> subprocess.Popen[bytes]:
    """Start a gateway process with the snapshot in `state_dir`, and connect it to a bus."""
    command = [sys.executable, "-m", "gateway", "--state-dir", str(state_dir), "--port", str(port)]
    environment = {**os.environ, "HEADWAY_FLEET_SECRET": FLEET_SECRET, "REDIS_URL": bus_url}
    return subprocess.Popen(command, env=environment)


PARTS = "controlplane.project.processes."
"""Package of the gateway, web, and jobs modules."""


def resident_bytes(pid: int) -> int:
    """Return a process's resident memory. Raises FileNotFoundError or ProcessLookupError if it is gone."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def program_pids(pid: int) -> list[int]:
    """Return the active processes of `manage.py up`: itself and its parts, without a standby gateway."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(int(child) for child in children if _works(Path("/proc", child)))]


def _works(process: Path) -> bool:
    try:
        command = (process / "cmdline").read_text().split("\0")
        # A standby process has no threads yet.
        return command[1] == "-m" and command[2].startswith(PARTS) and len(list((process / "task").iterdir())) > 1
    except (OSError, IndexError):
        return False


def wait_for(url: str, process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until `url` answers 200. Raises TimeoutError, and RuntimeError if the process that answers has ended."""
    until = time.monotonic() + _START_S
    while time.monotonic() < until:
        try:
            with urlopen(url, timeout=10) as answer:  # noqa: S310 - our own loopback address
                if answer.status == 200:
                    return
        except (URLError, OSError):
            if process is not None and process.poll() is not None:
                raise RuntimeError(f"it ended with status {process.returncode}; see stderr") from None
            time.sleep(0.05)
    raise TimeoutError(f"{url} did not answer 200 within {_START_S:.0f} s")
