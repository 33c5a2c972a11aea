"""Read a node's counters for its report."""

from __future__ import annotations

from typing import Any

from kvstore.keys.held_secrets import held_secrets
from kvstore.keys.keyring import Keyring
from kvstore.node.block_store import BlockStore
from kvstore.node.disk_room import DiskRoom
from kvstore.node.node_report import MAX_LINKS, MAX_PINS, LinkReport, NodeReport, PinReport, TierReport
from kvstore.node.write_through import WriteThrough
from kvstore.tiers.block_facts import DRAM, SSD
from kvstore.transfer.transfer_server import TransferServer


def _disk(room: DiskRoom) -> dict[str, Any]:
    return {
        "disk_id": room.space.disk_id,
        "disk_bytes": room.space.total_bytes,
        "disk_free_bytes": room.space.free_bytes,
        "disk_reserve_bytes": room.reserve_bytes,
    }


def report_of(store: BlockStore, server: TransferServer, write_through: WriteThrough, keyring: Keyring) -> NodeReport:
    """Return a node's report. If it has too many links, only those with the most bytes are included."""
    links = [
        LinkReport(
            peer=name, sent_bytes=link.sent_bytes, received_bytes=link.received_bytes, bytes_per_s=link.bytes_per_s
        )
        for name, link in server.links.links().items()
    ]
    links.sort(key=lambda link: (-link.sent_bytes - link.received_bytes, link.peer))
    pins = store.pins()
    with store.lock:
        catalog, counts = store.catalog, store.counts
        sizes = ((DRAM, catalog.settings.dram_slots), (SSD, catalog.settings.ssd_slots))
        tiers = [
            TierReport(
                medium=medium,
                slots=slots,
                used_slots=catalog.used_slots(medium),
                withheld_slots=catalog.free_slots(medium).withheld,
                hits=counts.hits[medium],
                evicted=catalog.evicted(medium),
                corrupt=counts.corrupt[medium],
            )
            for medium, slots in sizes
            if slots
        ]
        return NodeReport(
            tiers=tiers,
            links=links[:MAX_LINKS],
            blocks=len(catalog),
            misses=counts.misses,
            stored=counts.stored,
            repaired=counts.repaired,
            rejected=sum(counts.rejected.values()),
            write_through_waiting=write_through.waiting(),
            write_through_failed=counts.write_through_failed,
            **({} if store.room is None else _disk(store.room)),
            disk_busy=store.disk.share(),
            pins=[
                PinReport(
                    name=pin.name.hex(),
                    tenant=pin.tenant,
                    tokens=pin.tokens,
                    bytes=pin.size,
                    left_s=max(0.0, pin.until - store.clock()),
                    tenant_bytes=catalog.usage.pinned_bytes(pin.tenant),
                )
                for pin in pins[:MAX_PINS]
            ],
            more_pins=max(0, len(pins) - MAX_PINS),
            pin_quota_bytes=catalog.usage.pin_quota_bytes,
            eviction=store.eviction,
            ssd_policy=write_through.policy if store.slot_file is not None else "",
            secrets=held_secrets(keyring),
        )
