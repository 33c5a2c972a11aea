"""Blocks, catalogs and nodes for tests of the store."""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvstore.keys.keyring import KV, Keyring
from kvstore.node.node_manager import NodeManager, NodeSettings
from kvstore.tiers.block_facts import SSD, BlockFacts, checksum_of
from kvstore.transactions.block_catalog import BlockCatalog
from kvstore.transactions.catalog_settings import CatalogSettings
from kvstore.transfer.transfer_client import TransferClient

SECRET = b"a secret that KV nodes share in tests"
KEYRING = Keyring.of(SECRET, kind=KV)
SLOT = 4096


def key(name: object) -> bytes:
    return hashlib.sha256(str(name).encode()).digest()


def payload(name: object, length: int = 1000) -> memoryview:
    return memoryview(random.Random(str(name)).randbytes(length))


def block(
    name: object, parent: object = None, tenant: str = "acme", length: int = 1000
) -> tuple[BlockFacts, memoryview]:
    data = payload(name, length)
    above = b"" if parent is None else key(parent)
    return BlockFacts(key(name), length, key(name), above, 16, tenant, checksum_of(data)), data


def facts(name: object, parent: object = None, tenant: str = "acme", length: int = 1000) -> BlockFacts:
    return block(name, parent, tenant, length)[0]


def catalog_settings(**changes: Any) -> CatalogSettings:
    return CatalogSettings(
        **{
            "dram_slots": 8,
            "ssd_slots": 16,
            "slot_bytes": SLOT,
            "disk_reserve_bytes": 0,
            "tenant_quota_bytes": 1 << 30,
            "pin_quota_bytes": 1 << 30,
            **changes,
        }
    )


def catalog(**changes: Any) -> BlockCatalog:
    return BlockCatalog(catalog_settings(**changes), random.Random(1))


@contextmanager
def node(
    directory: Path | None = None, *, slots: dict[str, Any] | None = None, **changes: Any
) -> Iterator[NodeManager]:
    sizes = catalog_settings(**(slots or {}))
    manager = NodeManager(
        NodeSettings(
            **{"node_id": "n1", "keyring": KEYRING, "catalog": sizes, "directory": directory, "drain_s": 5.0, **changes}
        )
    )
    manager.start()
    try:
        yield manager
        with manager.store.lock:
            manager.store.catalog.check()
            manager.store.transactions.check()
    finally:
        manager.stop()


@contextmanager
def a_client(
    keyring: Keyring | None = KEYRING, *, clock: Callable[[], float] = time.monotonic, **changes: Any
) -> Iterator[TransferClient]:
    client = TransferClient(keyring, clock, **changes)
    try:
        yield client
    finally:
        client.close()


def address(manager: NodeManager) -> str:
    return f"127.0.0.1:{manager.port}"


def on_ssd(manager: NodeManager, *names: object) -> bool:
    records = [manager.store.catalog.find(key(name)) for name in names]
    return all(record is not None and SSD in record.slots for record in records)


def failing(*_: object) -> None:
    raise OSError(28, "No space left on device")
