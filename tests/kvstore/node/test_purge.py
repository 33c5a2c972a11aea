"""A purge of a tenant leaves no bytes in any tier, despite concurrent work.

A pin ended by an operator: the node receives the end in the response to a report.
"""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kvstore.node.node_report import NodeReport
from kvstore.tiers.block_facts import SSD
from kvstore.transfer.frames import Done, Purge, TransferRejected
from tests.kvstore.kv_blocks import a_client, address, block, failing, key, node, on_ssd, payload
from tests.kvstore.node.registry import registry
from tests.kvstore.transfer.test_transfer import contents, put
from tests.patience import wait_until


def test_a_purge_leaves_no_byte_of_the_tenant(tmp_path: Path) -> None:
    with a_client() as client:
        with node(tmp_path, slots={"dram_slots": 2, "ssd_slots": 3}) as manager:
            for name in range(5):
                put(client, manager, name, length=1000 - 100 * name)
                wait_until(lambda name=name: on_ssd(manager, name))
            client.put(address(manager), [block("theirs", tenant="other")])
            wait_until(lambda: on_ssd(manager, "theirs"))
            assert client.call(address(manager), Purge("acme")) == Done(2)
            kept = b"".join(bytes(manager.store.arena.view(slot, 4096)) for slot in range(2))
            kept += (tmp_path / "blocks.kv").read_bytes()
            whole = [bytes(payload(name, 1000 - 100 * name)) for name in range(5)]
            assert not [item for item in whole if item[:64] in kept or item[-64:] in kept]
            assert bytes(payload("theirs")) in kept
        with node(tmp_path, slots={"dram_slots": 2, "ssd_slots": 3}) as manager:
            assert contents(client, [address(manager)], list(range(5))) == [None] * 5
            assert contents(client, [address(manager)], ["theirs"]) == [bytes(payload("theirs"))]


def test_a_purge_reports_a_failing_disk_and_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node(tmp_path) as manager, a_client() as client:
        put(client, manager, "a")
        wait_until(lambda: on_ssd(manager, "a"))
        with monkeypatch.context() as ill:
            ill.setattr(manager.store.slot_file, "scrub", failing)
            assert client.call(address(manager), Purge("acme")) == TransferRejected("disk")
            assert client.call(address(manager), Purge("acme")) == TransferRejected("disk")
        assert bytes(payload("a")) in (tmp_path / "blocks.kv").read_bytes()
        assert client.call(address(manager), Purge("acme")) == Done(0)
        assert bytes(payload("a")) not in (tmp_path / "blocks.kv").read_bytes()
        assert manager.store.catalog.used_slots(SSD) == 0


def test_slots_that_could_not_be_overwritten_are_retried_and_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with node(tmp_path) as manager, a_client() as client:
        with monkeypatch.context() as ill:
            ill.setattr(manager.store.slot_file, "write", failing)
            ill.setattr(manager.store.slot_file, "scrub", failing)
            put(client, manager, "a")
            wait_until(lambda: manager.store.catalog.unclean == 1)
        manager.store.tick()
        assert manager.store.catalog.unclean == 0
        assert manager.store.catalog.used_slots(SSD) == 0


def test_a_put_whose_tenant_is_purged_meanwhile_keeps_no_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    with node() as manager, a_client() as client:
        begin_write = manager.store.begin_write

        def purged_before(tx_id: str, keys: list[bytes]) -> object:
            with manager.store.lock:
                manager.store.catalog.purge("acme")
            return begin_write(tx_id, keys)

        monkeypatch.setattr(manager.store, "begin_write", purged_before)
        assert client.put(address(manager), [block("a")]) == TransferRejected("missing")
        assert len(manager.store.transactions) == 0


def test_a_purge_ends_after_the_last_read_of_a_block_and_leaves_no_byte() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, "a")
        with manager.store.reading([key("a")], 1 << 20):
            purging = threading.Thread(target=client.call, args=(address(manager), Purge("acme")))
            purging.start()
            wait_until(lambda: manager.store.counts.purged)
            assert purging.is_alive()
        purging.join()
        assert not any(manager.store.arena.view(0, 4096))


def all_pins(entry: dict[str, Any]) -> bytes:
    """Respond that every pin is to end."""
    pins = [{"name": item["name"], "tenant": item["tenant"]} for item in entry["report"]["pins"]]
    return json.dumps({"name": entry["name"], "revision": 3, "unpin": pins}).encode()


def test_a_report_lists_pins_without_their_content() -> None:
    with registry() as (url, entries), node(register_url=url) as manager, a_client() as client:
        client.put(address(manager), [block("a"), block("b", "a")], "context_cache", 60.0)
        client.put(address(manager), [block("c")])
        manager.stop()
        report = msgspec.convert(entries[-1]["report"], NodeReport)
        (pin,) = report.pins
        assert (pin.name, pin.tenant, pin.tokens, pin.bytes) == (key("b").hex(), "acme", 32, 2000)
        assert (pin.tenant_bytes, report.pin_quota_bytes, report.more_pins) == (2000, 1 << 30, 0)
        assert 50.0 < pin.left_s <= 60.0


def test_a_node_ends_a_pin_that_an_operator_has_ended(tmp_path: Path) -> None:
    with registry(all_pins) as (url, entries), a_client() as client:
        with node(tmp_path, register_url=url) as manager:
            wait_until(lambda: entries)
            client.put(address(manager), [block("a"), block("b", "a")], "context_cache", 3600.0)
            wait_until(lambda: on_ssd(manager, "a", "b"))
            # It reports every 5 s, and at once when a pin has ended so.
            wait_until(lambda: len(entries) > 1 and entries[-2]["report"]["pins"] and not entries[-1]["report"]["pins"])
            assert manager.store.pins() == []
        with node(tmp_path) as manager:
            assert on_ssd(manager, "a", "b")
            assert manager.store.pins() == []


def test_a_malformed_response_does_not_end_the_node() -> None:
    for answer in (b"not json", b'{"unpin": [{"name": "../..", "tenant": ""}]}', b'{"unpin": 7}'):
        with registry(lambda _, answer=answer: answer) as (url, entries), node(register_url=url) as manager:
            wait_until(lambda entries=entries: entries)
            with a_client() as client:
                client.put(address(manager), [block("a")], "context_cache", 60.0)
            assert manager.store.pins()
