"""The latency that a decision adds to a request through nginx, compared with sglang-router.

`python -m bench.gateway.proxy --json OUT` runs two engines that answer immediately and one client on one keep-alive
connection, with bodies of 2 KB and 48 KB and 64 prompts in 16 prefix groups. In turn: engines directly, plain nginx,
nginx with Headway's decision (deploy/nginx with its agent, including feedback), sglang-router cache_aware. Added
latency is the p50 of nginx with the decision minus that of plain nginx, and the p50 of sglang-router minus that of the
engine. The figures compare quietest rounds, and medians. Needs nginx with njs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path

from bench.gateway.proxy_run.instant_engine import MODEL
from bench.gateway.proxy_run.nginx_folder import nginx_folder
from bench.gateway.proxy_run.round_trips import p50_us, requests
from bench.live.live_fleet import API_KEY, start_gateway, wait_for
from bench.live.loopback_ports import free_ports
from bench.peers.environment import peer_python
from bench.peers.rounds import LEAST_ROUNDS, quietest_and_median
from bench.report import Target, command_line, write_report
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot

PEER = "sglang-router==0.3.2"
SIZES_KB = (2, 48)
REPEATS = 4
"""Repeats of all prompts of one size on each path, per round."""


@contextmanager
def process(command: Sequence[str | Path], **environment: str) -> Iterator[None]:
    """Run a command during the context."""
    running = subprocess.Popen(command, env={**os.environ, **environment})
    try:
        yield
    finally:
        running.terminate()
        running.wait()


def keep_snapshot(state_dir: Path, ports: Sequence[int]) -> None:
    """Write the gateway's snapshot: a pool with prompts keyed by their text, as the peer does."""
    engines = tuple(
        EngineEntry(engine_id=f"engine-{port}", name=f"e{port}", pool_id="pool", url=f"http://127.0.0.1:{port}")
        for port in ports
    )
    pool = PoolEntry(pool_id="pool", name="pool", region="here", served_model=MODEL, key_source="approximate")
    key = ApiKeyEntry(
        key_id="bench",
        sha256=sha256(API_KEY.encode()).hexdigest(),
        tenant_id="bench",
        scopes=("infer", "route", "manage"),
    )
    snapshot = Snapshot(version=1, published_at=time.time(), pools=(pool,), engines=engines, api_keys=(key,))
    SnapshotStore(state_dir, 3600.0).save(snapshot, time.time())


def plain_nginx(folder: Path, port: int, engines: Sequence[int]) -> Path:
    """Write the configuration of an nginx that only forwards requests, otherwise with our settings."""
    servers = " ".join(f"server 127.0.0.1:{engine};" for engine in engines)
    (folder / "nginx.conf").write_text(
        f"""worker_processes 2; daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log warn;
events {{ worker_connections 4096; }}
http {{
    access_log {folder}/access.log;
    upstream engines {{ {servers} keepalive 32; }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 8m; client_body_buffer_size 8m; client_body_in_single_buffer on;
        proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
        location / {{ proxy_pass http://engines; }}
    }}
}}
"""
    )
    return folder / "nginx.conf"


@contextmanager
def ways(scratch: Path) -> Iterator[Mapping[str, int]]:
    """Start all processes. Yields the port of each path to an engine."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        raise RuntimeError("bench.gateway.proxy needs nginx with njs (Debian: nginx, libnginx-mod-http-js)")
    peer = peer_python("sglang-router", PEER)
    one, two, gateway, plain, decided, routed, metrics = free_ports(7)
    folders = {name: scratch / name for name in ("state", "plain", "decided")}
    for folder in folders.values():
        folder.mkdir()
    keep_snapshot(folders["state"], (one, two))
    changes = {"worker_processes auto;": "worker_processes 2; daemon off;"}
    ours = nginx_folder(folders["decided"], decided, f"127.0.0.1:{gateway}", changes)
    feedback, upstreams = folders["decided"] / "headway-nginx.sock", folders["decided"] / "upstreams.conf"
    command = [nginx, "-p", str(ours.parent), "-c", str(ours)]
    agent: list[str | Path] = [
        sys.executable, "-m", "deploy.nginx", "--url", f"http://127.0.0.1:{gateway}",
        "--management-url", f"http://127.0.0.1:{one}", "--upstreams", upstreams, "--feedback", feedback,
        "--reload", " ".join([*command, "-s", "reload"]),
    ]  # fmt: skip
    router: list[str | Path] = [
        peer, "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port", str(routed),
        "--worker-urls", f"http://127.0.0.1:{one}", f"http://127.0.0.1:{two}", "--policy", "cache_aware",
        "--prometheus-port", str(metrics), "--prometheus-host", "127.0.0.1", "--log-level", "error",
    ]  # fmt: skip
    with ExitStack() as stack:
        for ports in ((one, two), (two, one)):
            engine = [sys.executable, "-m", "bench.gateway.proxy_run.instant_engine", *map(str, ports)]
            stack.enter_context(process(engine))
        for port in (one, two):
            wait_for(f"http://127.0.0.1:{port}/health")
        live = start_gateway(folders["state"], gateway)
        stack.callback(live.wait)
        stack.callback(live.terminate)
        wait_for(f"http://127.0.0.1:{gateway}/ready")
        stack.enter_context(process(agent, HEADWAY_API_KEY=API_KEY))
        while not upstreams.exists():
            time.sleep(0.05)
        stack.enter_context(process(command, HEADWAY_API_KEY=API_KEY))
        stack.enter_context(process([nginx, "-c", str(plain_nginx(folders["plain"], plain, (one, two)))]))
        stack.enter_context(process(router))
        wait_for(f"http://127.0.0.1:{plain}/health")
        wait_for(f"http://127.0.0.1:{routed}/health")
        yield {"engine": one, "nginx": plain, "nginx_decided": decided, "sglang_router": routed}


def one_round(ports: Mapping[str, int]) -> dict[str, float]:
    """Return the p50 of each path and size, in microseconds."""
    figures = {}
    for size in SIZES_KB:
        asked = requests(size) * REPEATS
        for name, port in ports.items():
            figures[f"{name}_{size}kb_us"] = p50_us(port, asked)
    return figures


def added(figures: Mapping[str, float]) -> dict[str, float]:
    """Return the latency added by the decision and by the peer, and the ratio of both, by size."""
    added_us: dict[str, float] = {}
    for size in SIZES_KB:
        for of in ("", "_median"):
            ours = figures[f"nginx_decided_{size}kb_us{of}"] - figures[f"nginx_{size}kb_us{of}"]
            theirs = figures[f"sglang_router_{size}kb_us{of}"] - figures[f"engine_{size}kb_us{of}"]
            added_us |= {f"added_{size}kb_us{of}": ours, f"peer_added_{size}kb_us{of}": theirs}
            added_us[f"added_{size}kb_over_peer{of}"] = ours / theirs
    return added_us


def main() -> None:
    """Measure and write the report."""
    parser = command_line("proxy", __doc__)
    parser.add_argument("--rounds", type=int, default=11)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # nginx's workers run as another user
        with ways(Path(scratch)) as ports:
            rounds = [one_round(ports) for _ in range(max(arguments.rounds, LEAST_ROUNDS) + 1)][1:]
    figures = quietest_and_median(rounds)
    figures |= added(figures)
    limits = {2: 3.0, 48: 1.0}
    targets = {
        f"added_{size}kb_over_peer": Target(value=figures[f"added_{size}kb_over_peer"], op="<=", target=limits[size])
        for size in SIZES_KB
    }
    write_report("proxy", figures, targets, arguments.json)


if __name__ == "__main__":
    main()
