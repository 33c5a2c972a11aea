"""The routers of bench.engines.real_engines, each a process in front of the same two engines."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from bench.engines.real_engines_run.learned_costs import LearnedCosts
from bench.engines.real_engines_run.speed import Speed
from bench.gateway.openai_proxy import started
from bench.gateway.proxy import PEER
from bench.live.live_fleet import API_KEY, FLEET_SECRET, start_gateway, wait_for
from bench.live.loopback_ports import free_ports
from bench.peers.environment import peer_python
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot
from routing.policy.policy_document import RoutingPolicy
from tests.vllm.real_engine import BLOCK_TOKENS, MODEL, RealEngine

VLLM_ROUTER = "vllm-router==0.1.17"
OURS, UNQUEUED, APPROXIMATE = "headway", "headway_unqueued", "headway_approximate"
OUR_WAYS = (OURS, UNQUEUED, APPROXIMATE)
ROUND_ROBIN = "round_robin"
RIVALS = (ROUND_ROBIN, "sglang_router", "vllm_router")
READY_S = 300.0
"""Time limit for engines to become idle and register with a router."""


def keep_snapshot(
    state_dir: Path, engines: Sequence[RealEngine], policy: RoutingPolicy, key_source: str = "exact"
) -> Snapshot:
    """Write and return the snapshot that one of our gateways starts from."""
    entries = tuple(
        EngineEntry(
            engine_id=f"engine-{number}", name=f"e{number}", pool_id="pool", url=engine.url,
            kv_events_endpoint=engine.events, kv_replay_endpoint=engine.replay,
        )
        for number, engine in enumerate(engines)
    )  # fmt: skip
    pool = PoolEntry(
        pool_id="pool", name="pool", region="here", served_model=MODEL, block_tokens=BLOCK_TOKENS, policy=policy,
        key_source=key_source,
    )  # fmt: skip
    key = ApiKeyEntry(key_id="bench", sha256=sha256(API_KEY.encode()).hexdigest(), tenant_id="bench")
    snapshot = Snapshot(version=1, published_at=time.time(), pools=(pool,), engines=entries, api_keys=(key,))
    state_dir.mkdir()
    SnapshotStore(state_dir, 3600.0).save(snapshot, time.time())
    return snapshot


@contextmanager
def ways(scratch: Path, engines: Sequence[RealEngine], speed: Speed) -> Iterator[Mapping[str, Sequence[str]]]:
    """Start the routers. Yields the addresses of each."""
    urls = [engine.url for engine in engines]
    sglang, vllm = peer_python("sglang-router", PEER), peer_python("vllm-router", VLLM_ROUTER)
    ports = dict(zip((*OUR_WAYS, *RIVALS[1:]), free_ports(5), strict=True))
    metrics = free_ports(2)
    sources: list[str] = []
    for engine in engines:
        sources += ["--kv-event-source", f"{engine.url}={engine.events}"]
        sources += ["--kv-event-replay-source", f"{engine.url}={engine.replay}"]
    with ExitStack() as stack:
        for name in OUR_WAYS:
            keys = "approximate" if name == APPROXIMATE else "exact"
            snapshot = keep_snapshot(scratch / name, engines, speed.policy(queues=name != UNQUEUED), keys)
            costs = LearnedCosts(FLEET_SECRET, snapshot)
            stack.callback(costs.close)
            live = start_gateway(scratch / name, ports[name], costs.url)
            stack.callback(live.wait)
            stack.callback(live.terminate)
        common = [
            "--host",
            "127.0.0.1",
            "--worker-urls",
            *urls,
            "--prometheus-host",
            "127.0.0.1",
            "--log-level",
            "error",
        ]
        started(stack, [
            sglang, "-m", "sglang_router.launch_router", *common, "--policy", "cache_aware",
            "--port", str(ports["sglang_router"]), "--prometheus-port", str(metrics[0]),
        ])  # fmt: skip
        started(stack, [
            vllm, "-m", "vllm_router.launch_router", *common, "--policy", "kv_aware", *sources,
            "--kv-event-block-size", str(BLOCK_TOKENS), "--kv-event-model", MODEL,
            "--port", str(ports["vllm_router"]), "--prometheus-port", str(metrics[1]),
        ])  # fmt: skip
        for name, port in ports.items():
            wait_for(f"http://127.0.0.1:{port}/{'health' if name in RIVALS else 'ready'}")
        register(f"http://127.0.0.1:{ports['sglang_router']}/workers", urls)
        yield {ROUND_ROBIN: urls, **{name: [f"http://127.0.0.1:{port}"] for name, port in ports.items()}}


def register(workers: str, urls: Sequence[str]) -> None:
    """Wait until sglang-router has both engines: it drops an engine that does not answer its first requests in time."""
    until = time.monotonic() + READY_S
    while True:
        with urllib.request.urlopen(workers, timeout=60) as answer:  # noqa: S310 - our own loopback address
            known = {item["url"].rstrip("/") for item in json.load(answer)["workers"]}
        missing = [url for url in urls if url not in known]
        if not missing:
            return
        if time.monotonic() > until:
            raise TimeoutError(f"sglang-router does not take {missing}")
        for url in missing:
            body, head = json.dumps({"url": url}).encode(), {"content-type": "application/json"}
            request = urllib.request.Request(workers, body, head)  # noqa: S310 - our own loopback address
            with suppress(urllib.error.HTTPError):  # an earlier request still registers it
                urllib.request.urlopen(request, timeout=60).close()  # noqa: S310
        time.sleep(5)
