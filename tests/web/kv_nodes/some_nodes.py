"""Nodes with reports, for tests of the KV store page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.pool import Pool
from controlplane.history.cache_locality.intake import CacheLocalityIntake
from controlplane.kv_nodes.silence import note_silent_nodes
from controlplane.platform.actor import program
from gateway.bus.bus import InProcessBus
from gateway.contracts.cache_locality_sample import (
    TOPIC,
    CacheLocalitySample,
    PoolCacheLocality,
    SharedPrefix,
    encode_cache_locality,
)
from tests.controlplane.kv_nodes.node_words import reported


def report(scale: int, peers: dict[str, tuple[int, int]], **more: Any) -> dict[str, Any]:
    """Return a report whose counters grow with `scale`. `peers` have (sent, received) MiB."""
    return {
        "tiers": [
            {"medium": "CPU", "slots": 2048, "used_slots": 100 * scale, "hits": 70 * scale, "evicted": 12 * scale},
            {"medium": "STORAGE", "slots": 8192, "used_slots": 300 * scale, "hits": 9 * scale, "evicted": 0},
        ],
        "links": [
            {"peer": peer, "sent_bytes": sent << 20, "received_bytes": got << 20, "bytes_per_s": 5e6 * sent}
            for peer, (sent, got) in peers.items()
        ],
        "blocks": 320 * scale,
        "misses": 21 * scale,
        **more,
    }


def some_pins() -> dict[str, Any]:
    """Return the pins of a report: two tenants, and a number of unlisted ones."""
    of = {"acme": int(2.5 * (1 << 20)), "globex": 64 << 10}
    reported = [
        ("c0ffee00", "acme", 33_000, 2 << 20),
        ("0ddba11a", "acme", 8_192, 1 << 19),
        ("f00dcafe", "globex", 640, 64 << 10),
    ]
    pins = [
        {
            "name": 2 * name,
            "tenant": tenant,
            "tokens": tokens,
            "bytes": size,
            "left_s": 3599.0,
            "tenant_bytes": of[tenant],
        }
        for name, tenant, tokens, size in reported
    ]
    return {"pins": pins, "more_pins": 3, "pin_quota_bytes": int(6.4 * (1 << 20))}


def two_nodes(pool: Pool, now: datetime | None = None) -> None:
    """Store two serving nodes, with two reports ten seconds apart, and four engines that use them."""
    actor = program("test")
    for number in range(1, 5):
        register_engine(
            pool,
            f"e-{number:02d}",
            f"http://127.0.0.1:{21000 + number}",
            actor=actor,
            engine_id=f"e-{number:02d}",
            kv_node=f"kv-{(number - 1) % 2 + 1}",
        )
    sizes = {"slot_bytes": 32 << 10, "dram_bytes": 64 << 20, "ssd_bytes": 256 << 20}
    one = {"127.0.0.1:21001": (410, 96), "127.0.0.1:21002": (37, 0), "127.0.0.1:21003": (222, 88)}
    two = {"127.0.0.1:21002": (180, 90), "127.0.0.1:21004": (305, 71), "kv-1": (4, 0)}
    now = now or timezone.now()
    for name, scale, peers in (("kv-1", 18, one), ("kv-2", 12, two)):
        earlier = report(scale, {peer: (mib - 1, got) for peer, (mib, got) in peers.items()})
        reported(name, now=now - timedelta(seconds=10), report=earlier, **sizes)
    reported("kv-1", now=now, report=report(19, one, disk_busy=0.644, **some_pins()), **sizes)
    reported("kv-2", now=now, report=report(13, two), address="127.0.0.1:9470", **sizes)


def all_states(pool: Pool) -> None:
    """Store a node in each state. The silent one has corrupt copies."""
    now = timezone.now()
    two_nodes(pool, now)
    ill = report(5, {})
    ill["tiers"][0]["corrupt"] = 2
    reported("kv-3", now=now - timedelta(seconds=60), report=ill, slot_bytes=32 << 10)
    note_silent_nodes(now)
    reported("kv-4", now=now, report={}, state="draining")
    reported("kv-5", now=now, report={}, state="gone")


def intake_of(pool: Pool) -> CacheLocalityIntake:
    """Return the intake of a gateway that knows three prefixes of the pool and the nodes with copies of them."""
    bus = InProcessBus()
    intake = CacheLocalityIntake(bus)
    shared = [
        SharedPrefix("aaaaaaaa00000000", -1, 0, 1, 4, 90, ("e-01", "e-02"), dram_nodes=("kv-1", "kv-2")),
        SharedPrefix("bbbbbbbb00000000", 0, 1, 5, 20, 30, ("e-01",), dram_nodes=("kv-1",), ssd_nodes=("kv-2",)),
        SharedPrefix("cccccccc00000000", -1, 0, 1, 2, 6),
    ]
    bus.publish(TOPIC, encode_cache_locality(sample_of(pool, shared, timezone.now().timestamp())))
    return intake


def sample_of(pool: Pool, shared: Sequence[SharedPrefix], at: float) -> CacheLocalitySample:
    """Return a gateway's sample with these prefixes."""
    locality = PoolCacheLocality(
        pool_id=pool.slug, placement="mooncake", policy_version=1, block_tokens=512, requests=120, sampled=120,
        span_s=60.0, engines=(), accepting=(), rings=None, keys={}, widened=0, prefixes=tuple(shared),
    )  # fmt: skip
    return CacheLocalitySample(at=at, pools=(locality,))
