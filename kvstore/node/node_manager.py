"""One node manager: its store, servers, and background work, started and stopped in order."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import msgspec

from kvstore.keys.keyring import Keyring
from kvstore.node.block_store import BlockStore
from kvstore.node.metrics_port import MetricsPort
from kvstore.node.node_events import NodeEvents
from kvstore.node.node_metrics import NodeMetrics
from kvstore.node.node_reporting import report_of
from kvstore.node.node_service import NodeService
from kvstore.node.pull_pace import PullPace
from kvstore.node.registration import NodeEntry, Registration
from kvstore.node.write_through import ALL, SSD_POLICIES, WriteThrough
from kvstore.tiers.eviction import EVICTIONS
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transfer.tls import TlsFiles
from kvstore.transfer.transfer_client import TransferClient
from kvstore.transfer.transfer_server import TransferServer

_TICK_S = 1.0


class NodeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one node manager. A port of 0 disables the server, except that `port` 0 selects a free one."""

    node_id: str
    keyring: Keyring
    catalog: CatalogSettings
    directory: Path | None = None
    """Directory of the SSD tier, None without one."""
    host: str = "127.0.0.1"
    port: int = 0
    advertise: str = ""
    """Host name under which others reach this node, empty to use `host`."""
    events_port: int = 0
    replay_port: int = 0
    metrics_port: int = 0
    register_url: str = ""
    register_bearer: str = ""
    tls: TlsFiles | None = None
    drain_s: float = 30.0
    ssd_policy: str = ALL
    pull_bytes_per_s: float = 0.0
    """Maximum bytes per second of pulls that no request waits for, 0 for no limit."""


class NodeManager:
    """One node manager. Construction binds its port, so that `port` is known. `stop` drains it."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings, catalog = settings, settings.catalog
        self._stopping = threading.Event()
        # Grows with each start: of two headers with one key, that of the later incarnation is valid.
        incarnation = time.time_ns()
        self.events = NodeEvents(
            settings.host, settings.events_port, settings.replay_port, f"kv@{settings.node_id}", time.time
        )
        self.store = BlockStore(
            catalog,
            settings.directory,
            time.monotonic,
            # Times on SSD are since the epoch, because they outlive the process.
            time.time() - time.monotonic(),
            incarnation,
            self.events.add,
        )
        self.write_through = WriteThrough(self.store)
        self.write_through.policy = settings.ssd_policy
        self.client = TransferClient(settings.keyring, time.monotonic, settings.tls, name=settings.node_id)
        pace = PullPace(settings.pull_bytes_per_s, time.monotonic, self._stopping.wait)
        service = NodeService(self.store, self.client, lambda: self.events.published, pace)
        identity, address = (settings.node_id, incarnation), (settings.host, settings.port)
        self.server = TransferServer(service, settings.keyring, identity, address, time.monotonic, settings.tls)
        self.port = self.server.port
        self.metrics = NodeMetrics(self.store, self.write_through, self.server, self.client)
        self._metrics_port = (
            MetricsPort((settings.host, settings.metrics_port), self.metrics.registry, time.monotonic)
            if settings.metrics_port
            else None
        )
        self._ticker = threading.Thread(target=self._tick, name="kv-tick", daemon=True)
        self._registration = self._registered(incarnation) if settings.register_url else None

    def start(self) -> None:
        """Serve."""
        self.write_through.start()
        self._ticker.start()
        self.server.start()
        if self._metrics_port is not None:
            self._metrics_port.start()
        if self._registration is not None:
            self._registration.start()

    def stop(self) -> bool:
        """Drain: reject new work, finish transfers, and write queued blocks to SSD. Return False on timeout."""
        if self._stopping.is_set():
            return True
        if self._registration is not None:
            # First, so that no new work is sent here while the transfers end.
            self._registration.say("draining")
        ends_at = time.monotonic() + self._settings.drain_s
        well = self.server.drain(self._settings.drain_s)
        well &= self.write_through.stop(max(0.1, ends_at - time.monotonic()))
        # After the drain, during which ticks still close late connections.
        self._stopping.set()
        self._ticker.join(2 * _TICK_S)
        self.client.close()
        self.events.close()
        # Otherwise a thread still uses arena and file, which the end of the process releases.
        if well:
            self.store.close()
        if self._registration is not None:
            self._registration.stop()
        if self._metrics_port is not None:
            self._metrics_port.stop()
        return well

    def _tick(self) -> None:
        while not self._stopping.wait(_TICK_S):
            self.store.tick()
            self.client.close_idle()
            self.server.close_late()

    def follow(self, eviction: str, ssd_policy: str) -> bool:
        """Apply the eviction rule and the SSD policy chosen by an operator; return whether one changed.

        Empty: as started. A name that this version does not know is ignored.
        """
        eviction, ssd_policy = eviction or self._settings.catalog.eviction, ssd_policy or self._settings.ssd_policy
        before = self.store.eviction, self.write_through.policy
        if eviction != before[0] and eviction in EVICTIONS:
            self.store.evict_by(eviction)
        if ssd_policy in SSD_POLICIES:
            self.write_through.policy = ssd_policy
        return before != (self.store.eviction, self.write_through.policy)

    def _registered(self, incarnation: int) -> Registration:
        settings, catalog = self._settings, self._settings.catalog
        host = settings.advertise or settings.host
        entry = NodeEntry(
            name=settings.node_id,
            incarnation=incarnation,
            address=f"{host}:{self.port}",
            events_endpoint=f"tcp://{host}:{settings.events_port}" if settings.events_port else "",
            replay_endpoint=f"tcp://{host}:{settings.replay_port}" if settings.events_port else "",
            metrics_url=f"http://{host}:{settings.metrics_port}/metrics" if settings.metrics_port else "",
            dram_bytes=catalog.dram_slots * catalog.slot_bytes,
            ssd_bytes=catalog.ssd_slots * catalog.slot_bytes,
            slot_bytes=catalog.slot_bytes,
        )
        report = partial(report_of, self.store, self.server, self.write_through, settings.keyring)
        return Registration(
            settings.register_url, settings.register_bearer, entry, report, self.store.unpin, self.follow
        )
