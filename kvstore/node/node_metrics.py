"""A node's metrics in Prometheus' format, read from its counters on each scrape. Tiers are named as in KV events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from typing_extensions import override

from kvstore.node.block_store import BlockStore
from kvstore.node.write_through import WriteThrough
from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transfer.transfer_client import TransferClient
from kvstore.transfer.transfer_server import TransferServer

_Family = type[CounterMetricFamily | GaugeMetricFamily]
_Series = tuple[_Family, str, str, str, Mapping[str, float]]
"""Kind, name, help, label, and values by label value (an empty label means one value)."""

_COUNTED = {
    "misses": "Blocks asked for that were not there, or corrupt.",
    "repaired": "Corrupt copies of blocks that another tier of the node had.",
    "stored": "Blocks committed.",
    "pulled": "Blocks fetched from other nodes.",
    "shrunk": "Cold copies given up; another node has the blocks.",
    "purged": "Blocks purged with their tenant.",
    "write_through_failed": "Blocks that the disk did not take.",
    "write_through_skipped": "Blocks not written to SSD because the queue was full.",
}


class NodeMetrics(Collector):
    """All metrics of one node."""

    def __init__(
        self, store: BlockStore, write_through: WriteThrough, server: TransferServer, client: TransferClient
    ) -> None:
        self.registry = CollectorRegistry()
        self._store, self._write_through, self._server, self._client = store, write_through, server, client
        self.registry.register(self)

    @override
    def collect(self) -> Iterable[Metric]:
        with self._store.lock:
            # Read completely under the lock, written out after it.
            series = [(*tier[:4], dict(tier[4])) for tier in (*self._tiers(), *self._counts(), *self._links())]
        for kind, name, text, label, rows in series:
            family = kind(f"headway_kv_{name}", text, labels=(label,) if label else ())
            for value in sorted(rows):
                family.add_metric((value,) if label else (), rows[value])
            yield family

    def _tiers(self) -> Iterator[_Series]:
        catalog, counts = self._store.catalog, self._store.counts
        slots: dict[str, int] = {DRAM: catalog.settings.dram_slots, SSD: catalog.settings.ssd_slots}
        used: dict[str, int] = {medium: catalog.used_slots(medium) for medium in (DRAM, SSD)}
        evicted: dict[str, int] = {medium: catalog.evicted(medium) for medium in (DRAM, SSD)}
        yield GaugeMetricFamily, "slots", "Slots of a tier.", "medium", slots
        yield GaugeMetricFamily, "slots_used", "Slots of a tier that are taken.", "medium", used
        withheld: dict[str, int] = {medium: catalog.free_slots(medium).withheld for medium in (DRAM, SSD)}
        text = "Slots that the disk has no space for above the reserve."
        yield GaugeMetricFamily, "slots_withheld", text, "medium", withheld
        yield CounterMetricFamily, "evicted", "Copies that left a tier to make room.", "medium", evicted
        yield CounterMetricFamily, "hits", "Blocks read, by the tier they lay in.", "medium", counts.hits
        yield CounterMetricFamily, "corrupt", "Copies whose checksum disagreed.", "medium", counts.corrupt

    def _counts(self) -> Iterator[_Series]:
        counts, server = self._store.counts, self._server
        for name, text in _COUNTED.items():
            yield CounterMetricFamily, name, text, "", {"": getattr(counts, name)}
        yield CounterMetricFamily, "rejected", "Requests rejected, by reason.", "reason", counts.rejected
        text = "Connections closed: unproved, late, displaced or crowded in the greeting; slow: within a payload."
        yield CounterMetricFamily, "connections_rejected", text, "reason", server.rejected
        yield GaugeMetricFamily, "connections", "Connections of clients.", "", {"": len(server)}
        yield GaugeMetricFamily, "blocks", "Blocks held.", "", {"": len(self._store.catalog)}
        yield GaugeMetricFamily, "tenants", "Tenants with blocks.", "", {"": len(self._store.catalog.usage)}
        yield GaugeMetricFamily, "transactions", "Open transactions.", "", {"": len(self._store.transactions)}
        waiting = self._write_through.waiting()
        busy = self._store.disk.share()
        room = self._store.room
        space = {"": room.space.free_bytes} if room else {}
        reserve = {"": room.reserve_bytes} if room else {}
        yield GaugeMetricFamily, "disk_free_bytes", "Free bytes of the SSD tier's file system.", "", space
        yield GaugeMetricFamily, "disk_reserve_bytes", "Of these, left to others.", "", reserve
        yield GaugeMetricFamily, "disk_busy_share", "Share of the last minute in which the disk worked.", "", {"": busy}
        yield GaugeMetricFamily, "write_through_waiting", "Blocks that wait to be written to SSD.", "", {"": waiting}

    def _links(self) -> Iterator[_Series]:
        # A copy: a transfer may add a link meanwhile.
        links = dict(self._client.links)
        rates = {peer: link.bytes_per_s for peer, link in links.items()}
        latencies = {peer: link.latency_s for peer, link in links.items()}
        received = {peer: link.transferred_bytes for peer, link in links.items()}
        text = "Blocks from other nodes whose checksum disagreed."
        yield CounterMetricFamily, "corrupt_received", text, "", {"": self._client.corrupt}
        yield GaugeMetricFamily, "link_bytes_per_second", "Learned rate of a link.", "peer", rates
        yield GaugeMetricFamily, "link_latency_seconds", "Learned latency of a link.", "peer", latencies
        yield CounterMetricFamily, "link_bytes", "Bytes received over a link.", "peer", received
        sent = {peer: link.sent_bytes for peer, link in self._server.links.links().items()}
        yield CounterMetricFamily, "client_sent_bytes", "Bytes sent to a client.", "peer", sent
