"""Publish a gateway's learned engine costs back to it, in snapshots as a control plane would."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import msgspec

from gateway.bus.redis_bus import RedisBus
from gateway.contracts.snapshot import Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.reports.cost_reports import TOPIC, decode_cost_report
from kvstore.keys.keyring import Keyring
from tests.private_redis import private_bus


class LearnedCosts:
    """The bus of one gateway. Mutable state: the snapshot with the newest costs, replaced as a whole under a lock."""

    def __init__(self, secret: str, snapshot: Snapshot) -> None:
        self._end = ExitStack()
        self.url = self._end.enter_context(private_bus()).url
        self._bus = RedisBus(self.url, Keyring.of(secret.encode()))
        self._lock = threading.Lock()
        self._snapshot = snapshot
        self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))
        self._bus.subscribe(TOPIC, lambda _, report: self._take(report))

    def close(self) -> None:
        """Close the bus."""
        self._bus.close()
        self._end.close()

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
