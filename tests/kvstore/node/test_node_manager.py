"""A node manager as seen by its clients."""

from __future__ import annotations

import itertools
import os
import socket
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
from prometheus_client import generate_latest

from bench.live.loopback_ports import free_ports
from kvstore.events.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, EventBatch, decode_batch
from kvstore.events.node_blocks import NodeBlock, node_blocks, payload_id
from kvstore.node.node_report import NodeReport
from kvstore.transfer.connection import Connection
from kvstore.transfer.frames import (
    ContentsPage,
    Describe,
    Done,
    Get,
    Held,
    Lookup,
    PageOf,
    Pin,
    Pull,
    Purge,
    TransferRejected,
)
from kvstore.transfer.handshake import CONNECTIONS
from kvstore.transfer.transfer_client import Wanted
from tests.kvstore.kv_blocks import KEYRING, a_client, address, block, facts, key, node, on_ssd, payload
from tests.kvstore.node.registry import registry
from tests.kvstore.transfer.test_transfer import contents, put
from tests.patience import wait_until

BATCH = msgspec.msgpack.Decoder(EventBatch)


def test_blocks_on_ssd_survive_the_node(tmp_path: Path) -> None:
    with a_client() as client:
        with node(tmp_path) as manager:
            put(client, manager, "a", "b")
        with node(tmp_path) as manager:
            assert contents(client, [address(manager)], ["a", "b"]) == [bytes(payload("a")), bytes(payload("b"))]
            assert manager.store.counts.hits == {"CPU": 0, "STORAGE": 2}
            assert contents(client, [address(manager)], ["a"]) == [bytes(payload("a"))]
            assert manager.store.counts.hits == {"CPU": 1, "STORAGE": 2}


def test_blocks_evicted_from_dram_are_read_from_ssd(tmp_path: Path) -> None:
    with node(tmp_path, slots={"dram_slots": 2}) as manager, a_client() as client:
        for name in range(6):
            put(client, manager, name)
            wait_until(lambda name=name: on_ssd(manager, name))
        assert contents(client, [address(manager)], list(range(6))) == [bytes(payload(name)) for name in range(6)]
        assert manager.store.catalog.evicted("CPU") > 0


def test_a_block_damaged_on_ssd_is_a_counted_miss(tmp_path: Path) -> None:
    with a_client() as client:
        with node(tmp_path) as manager:
            put(client, manager, "a", "b")
        path = tmp_path / "blocks.kv"
        data = path.read_bytes()
        path.write_bytes(data.replace(bytes(payload("a")[:32]), bytes(32)))
        with node(tmp_path) as manager:
            assert contents(client, [address(manager)], ["a", "b"]) == [None, bytes(payload("b"))]
            assert manager.store.counts.corrupt == {"CPU": 0, "STORAGE": 1}
            assert manager.store.catalog.find(key("a")) is None


def test_a_full_disk_costs_only_the_ssd_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node(tmp_path) as manager, a_client() as client:

        def full(*_: object) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        put(client, manager, "a")
        wait_until(lambda: manager.store.counts.write_through_failed == 1)
        assert contents(client, [address(manager)], ["a"]) == [bytes(payload("a"))]
        assert not on_ssd(manager, "a")
        monkeypatch.undo()
        names = itertools.count()

        def one_more_is_taken() -> bool:
            name = f"b-{next(names)}"
            put(client, manager, name)
            wait_until(lambda: not manager.write_through.waiting())
            return on_ssd(manager, name)

        wait_until(one_more_is_taken)


def test_an_ephemeral_prompt_is_not_stored() -> None:
    with node() as manager, a_client() as client:
        assert client.put(address(manager), [block("a")], "ephemeral") == TransferRejected("ephemeral")
        assert contents(client, [address(manager)], ["a"]) == [None]


def test_a_context_cache_survives_evictions_and_a_restart(tmp_path: Path) -> None:
    slots = {"dram_slots": 2, "ssd_slots": 4}
    with a_client() as client:
        with node(tmp_path, slots=slots) as manager:
            client.put(address(manager), [block("pinned")], "context_cache", 3600.0)
            wait_until(lambda: on_ssd(manager, "pinned"))
        with node(tmp_path, slots=slots) as manager:
            for name in range(12):
                put(client, manager, name)
                wait_until(lambda name=name: on_ssd(manager, name))
            assert contents(client, [address(manager)], ["pinned"]) == [bytes(payload("pinned"))]
            assert client.call(address(manager), Pin([key("pinned")], 0.0)) == Done(1)


def test_a_later_pin_survives_the_process_too(tmp_path: Path) -> None:
    with a_client() as client:
        with node(tmp_path) as manager:
            put(client, manager, "a")
            wait_until(lambda: on_ssd(manager, "a"))
            assert client.call(address(manager), Pin([key("a"), key("x")], 3600.0)) == Done(1)
        with node(tmp_path) as manager:
            record = manager.store.catalog.find(key("a"))
            assert record is not None
            assert record.pinned_until > time.monotonic() + 3000.0


def test_a_pin_during_the_copy_to_ssd_survives_the_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with node(tmp_path) as manager, a_client() as client:
        file = manager.store.slot_file
        assert file is not None
        write = file.write

        def pinned_before(*arguments: Any) -> None:
            assert manager.store.pin([key("a")], 60.0) == 1
            write(*arguments)

        monkeypatch.setattr(file, "write", pinned_before)
        put(client, manager, "a")
        wait_until(lambda: on_ssd(manager, "a"))
    with node(tmp_path) as manager:
        record = manager.store.catalog.find(key("a"))
        assert record is not None
        assert record.pinned_until > 0


def test_a_node_fetches_from_another_under_locks_on_both() -> None:
    with node() as source, node() as destination, a_client() as client:
        put(client, source, "a", "b")
        blocks = [facts("a"), facts("b", "a")]
        assert client.call(address(destination), Pull(address(source), blocks)) == Done(2, [])
        assert contents(client, [address(destination)], ["a", "b"]) == [bytes(payload("a")), bytes(payload("b"))]
        assert client.call(address(destination), Pull(address(source), blocks)) == Done(0, [key("a"), key("b")])
        for manager in (source, destination):
            assert len(manager.store.transactions) == 0


def test_a_failed_fetch_leaves_nothing_behind() -> None:
    with node() as source, node() as destination, a_client() as client:
        put(client, source, "a")
        answer = client.call(address(destination), Pull(address(source), [facts("a"), facts("x")]))
        assert answer == TransferRejected("holder", [key("a"), key("x")])
        assert client.call(address(destination), Pull("127.0.0.1:1", [facts("a")])) == TransferRejected(
            "holder", [key("a")]
        )
        assert (len(destination.store.catalog), destination.store.catalog.used_slots("CPU")) == (0, 0)


def test_a_block_stored_without_a_routing_key_gets_it_later_and_keeps_it(tmp_path: Path) -> None:
    plain, data = block("a")
    changes: list[Any] = []
    with node(tmp_path) as manager, a_client() as client:
        client.put(address(manager), [(plain, data)])
        wait_until(lambda: on_ssd(manager, "a"))
        manager.store._on_changes = changes.extend
        for routing_key in (5, 5, 6):
            named = msgspec.structs.replace(plain, routing_key=routing_key)
            assert client.put(address(manager), [(named, data)]) == Done(0, [key("a")])
        client.put(address(manager), [(plain, data)])
        assert [(item.kind, item.facts.routing_key, item.medium) for item in changes] == [
            ("stored", 5, "CPU"),
            ("stored", 5, "STORAGE"),
            ("removed", 5, "CPU"),
            ("removed", 5, "STORAGE"),
            ("stored", 6, "CPU"),
            ("stored", 6, "STORAGE"),
        ]
    with node(tmp_path) as manager, a_client() as client:
        page = client.call(address(manager), ContentsPage(0, 10))
        assert isinstance(page, PageOf)
        assert [facts.routing_key for facts, _ in page.blocks] == [6]
        assert contents(client, [address(manager)], ["a"]) == [bytes(data)]


def test_pages_and_lookups_list_held_blocks(tmp_path: Path) -> None:
    with node(tmp_path) as manager, a_client() as client:
        put(client, manager, "a", "b", "c")
        wait_until(lambda: on_ssd(manager, "a", "b", "c"))
        page = client.call(address(manager), ContentsPage(0, 2))
        assert isinstance(page, PageOf)
        rest = client.call(address(manager), ContentsPage(page.next_after, 2))
        assert isinstance(rest, PageOf)
        held = [(facts.key, media) for facts, media in [*page.blocks, *rest.blocks]]
        assert held == [(key(name), ["CPU", "STORAGE"]) for name in "abc"]
        answer = client.call(address(manager), Lookup([key("a"), key("x")]))
        assert answer == Held([(1000, ["CPU", "STORAGE"]), (-1, [])])


def test_events_have_the_format_of_engines_and_are_replayed(tmp_path: Path) -> None:
    events_port, replay_port = free_ports(2)
    context = zmq.Context()
    sub, dealer = context.socket(zmq.SUB), context.socket(zmq.DEALER)
    sub.setsockopt(zmq.SUBSCRIBE, b"")
    sub.rcvtimeo = dealer.rcvtimeo = 5000
    try:
        with node(tmp_path, events_port=events_port, replay_port=replay_port) as manager, a_client() as client:
            sub.connect(f"tcp://127.0.0.1:{events_port}")
            put(client, manager, "a")
            wait_until(lambda: on_ssd(manager, "a"))
            client.call(address(manager), Purge("acme"))
            dealer.connect(f"tcp://127.0.0.1:{replay_port}")
            dealer.send_multipart([b"", (0).to_bytes(8, "big")])
            batches = []
            while (frames := dealer.recv_multipart())[3]:
                assert frames[1] == b"kv@n1"
                batches.append((int.from_bytes(frames[2], "big"), BATCH.decode(frames[3])))
            assert frames[2] == (-1).to_bytes(8, "big", signed=True)
            assert [number for number, _ in batches] == list(range(len(batches)))
            name = int.from_bytes(key("a")[-8:], "big")
            assert [event for _, batch in batches for event in batch.events] == [
                AllBlocksCleared(),
                BlockStored([name], None, [], 16, medium="CPU"),
                BlockStored([name], None, [], 16, medium="STORAGE"),
                BlockRemoved([name], "CPU"),
                BlockRemoved([name], "STORAGE"),
            ]
        while (last := BATCH.decode(sub.recv_multipart()[2]).events) != [AllBlocksCleared()]:
            assert last
    finally:
        sub.close(0)
        dealer.close(0)
        context.term()


def test_a_restarted_node_lists_its_blocks_by_routing_keys(tmp_path: Path) -> None:
    [events_port, replay_port] = free_ports(2)
    known, data = block("a")
    known = msgspec.structs.replace(known, routing_key=77)
    with node(tmp_path) as manager, a_client() as client:
        client.put(address(manager), [(known, data)])
        wait_until(lambda: on_ssd(manager, "a"))
    context = zmq.Context()
    dealer = context.socket(zmq.DEALER)
    dealer.rcvtimeo = 5000
    try:
        with node(tmp_path, events_port=events_port, replay_port=replay_port) as manager, a_client() as client:
            page = client.call(address(manager), ContentsPage(0, 10))
            assert isinstance(page, PageOf)
            assert [(facts.routing_key, media) for facts, media in page.blocks] == [(77, ["STORAGE"])]
            dealer.connect(f"tcp://127.0.0.1:{replay_port}")
            dealer.send_multipart([b"", (0).to_bytes(8, "big")])
            batches = []
            while (frames := dealer.recv_multipart())[3]:
                batches.append(decode_batch(frames[3]))
            assert len(batches) == page.events
            stored = batches[-1].events[0]
            assert isinstance(stored, BlockStored)
            assert node_blocks(stored) == [NodeBlock(77, payload_id(key("a")))]
    finally:
        dealer.close(0)
        context.term()


def test_metrics_count_the_nodes_operations() -> None:
    [port] = free_ports(1)
    with node(metrics_port=port) as manager, a_client() as client:
        put(client, manager, "a")
        contents(client, [address(manager)], ["a", "x"])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        assert generate_latest(manager.metrics.registry)
        for line in (
            'headway_kv_slots{medium="CPU"} 8.0',
            'headway_kv_slots_used{medium="CPU"} 1.0',
            'headway_kv_hits_total{medium="CPU"} 1.0',
            "headway_kv_misses_total 1.0",
            "headway_kv_stored_total 1.0",
            "headway_kv_transactions 0.0",
        ):
            assert line in lines


def test_a_node_registers_at_the_configured_url_and_reports_draining_and_end() -> None:
    with registry() as (url, entries), node(register_url=url, register_bearer="hw_1") as manager:
        wait_until(lambda: entries)
        assert entries[0]["address"] == address(manager)
        assert entries[0]["authorization"] == "Bearer hw_1"
        manager.stop()
        assert [item["state"] for item in entries][-1] == "gone"


def test_the_report_contains_counts_per_client() -> None:
    with registry() as (url, entries), node(register_url=url) as manager, a_client(name="engine-1") as client:
        put(client, manager, "a")
        contents(client, [address(manager)], ["a", "x"])
        manager.stop()
        report = msgspec.convert(entries[-1]["report"], NodeReport)
        assert (report.blocks, report.stored, report.misses) == (1, 1, 1)
        assert [(tier.medium, tier.slots, tier.used_slots, tier.hits) for tier in report.tiers] == [
            ("CPU", 8, 1, 1),
            ("STORAGE", 16, 0, 0),
        ]
        [link] = report.links
        assert (link.peer, link.sent_bytes, link.received_bytes) == ("engine-1", 1000, 1000)
        assert entries[-1]["name"] == "n1"


def test_a_node_learns_the_rate_of_a_link_from_its_receiver() -> None:
    size = 1 << 20
    with node(slots={"slot_bytes": size}) as manager, a_client(name="engine-1") as client:
        put(client, manager, "a", length=size)
        rates = []
        for _ in range(3):
            rates.append(client.links[address(manager)].bytes_per_s if client.links else 0.0)
            contents(client, [address(manager)], ["a"])
            wait_until(lambda: manager.server.links.links()["engine-1"].sent_bytes == len(rates) * size)
            assert manager.server.links.links()["engine-1"].bytes_per_s == rates[-1]
        assert rates[0] == 0.0 < rates[1] != rates[2]


def test_a_client_without_a_name_is_named_by_its_host() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, "a")
        wait_until(manager.server.links.links)
        assert list(manager.server.links.links()) == ["127.0.0.1"]


def test_a_drain_lets_a_transfer_end_and_rejects_new_ones() -> None:
    size = 32 << 20
    with node(slots={"dram_slots": 1, "slot_bytes": size}) as manager, a_client() as client:
        put(client, manager, "a", length=size)
        with socket.create_connection(("127.0.0.1", manager.port)) as sock:
            connection = Connection(sock, 5.0)
            connection.greet_node(KEYRING.keys(CONNECTIONS))
            connection.send(Get([key("a")], size))
            wait_until(lambda: manager.store.counts.hits["CPU"])
            well: list[bool] = []
            stopping = threading.Thread(target=lambda: well.append(manager.stop()))
            stopping.start()
            _, count = connection.receive()
            view = memoryview(bytearray(count))
            assert connection.receive_payload(view) == facts("a", length=size).checksum
            stopping.join()
        assert well == [True]
        assert client.get([address(manager)], [Wanted(key("a"))]).blocks == [None]


def test_a_node_describes_its_blocks_by_the_keys_that_gateways_use(tmp_path: Path) -> None:
    named = [(msgspec.structs.replace(block(name)[0], routing_key=number), block(name)[1]) for number, name in
             enumerate("abc", 1)]  # fmt: skip
    with node(tmp_path) as manager, a_client() as client:
        assert client.put(address(manager), named) == Done(3, [])
        answer = client.call(address(manager), Describe([3, 9, 1]))
        assert isinstance(answer, PageOf)
        assert [(facts.key, facts.routing_key) for facts, _ in answer.blocks] == [(key("c"), 3), (key("a"), 1)]
        assert client.call(address(manager), Purge("acme")) == Done(3)
        assert client.call(address(manager), Describe([1, 2, 3])) == PageOf([], 0, manager.events.published)


def test_a_pull_without_a_holder_moves_blocks_from_ssd_to_dram(tmp_path: Path) -> None:
    with node(tmp_path, slots={"dram_slots": 2}) as manager, a_client() as client:
        put(client, manager, "a", "b")
        wait_until(lambda: on_ssd(manager, "a", "b"))
        put(client, manager, "c")
        wait_until(lambda: on_ssd(manager, "c"))
        put(client, manager, "d")
        wait_until(lambda: on_ssd(manager, "d"))
        names = ["a", "b"]
        held = client.call(address(manager), Lookup([key(name) for name in names]))
        assert held == Held([(1000, ["STORAGE"]), (1000, ["STORAGE"])])
        hits = dict(manager.store.counts.hits)
        assert client.call(address(manager), Pull("", [facts(name) for name in [*names, "x"]])) == Done(2, [key("x")])
        held = client.call(address(manager), Lookup([key(name) for name in names]))
        assert held == Held([(1000, ["CPU", "STORAGE"])] * 2)
        assert manager.store.counts.hits == hits
