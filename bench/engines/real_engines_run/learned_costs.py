"""Publish a gateway's learned engine costs back to it, in snapshots as a control plane would."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec

from gateway.bus.local_hub import LocalHub, hub_url
from gateway.bus.redis_bus import RedisBus
from gateway.contracts.snapshot import Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.reports.cost_reports import TOPIC, decode_cost_report
from kvstore.keys.keyring import Keyring


class LearnedCosts:
    """The bus of one gateway. Mutable state: the snapshot with the newest costs, replaced as a whole under a lock."""

    def __init__(self, socket: Path, secret: str, snapshot: Snapshot) -> None:
        self.url = hub_url(socket)
        self._hub = LocalHub(socket)
        self._hub.start()
        self._bus = RedisBus(self.url, Keyring.of(secret.encode()))
        self._lock = threading.Lock()
        self._snapshot = snapshot
        self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))
        self._bus.subscribe(TOPIC, lambda _, report: self._take(report))

    def close(self) -> None:
        """Close the bus."""
        self._bus.close()
        self._hub.stop()

    def _take(self, report: bytes) -> None:
        learned = decode_cost_report(report).pools
        with self._lock:
            before = self._snapshot
            pools = tuple(
                msgspec.structs.replace(pool, costs=learned.get(pool.pool_id, pool.costs)) for pool in before.pools
            )
            self._snapshot = msgspec.structs.replace(
                before, version=before.version + 1, published_at=time.time(), pools=pools
            )
            self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(self._snapshot))
