"""Blocks that are read in parts, over loopback from real nodes."""

from __future__ import annotations

from kvstore.tiers.block_facts import DRAM
from kvstore.transfer.transfer_client import TransferSettings, Wanted
from tests.kvstore.kv_blocks import a_client, address, key, node, payload
from tests.kvstore.transfer.test_transfer import NAMES, put


def streamed(*names: object) -> list[Wanted]:
    return [Wanted(key(name), memoryview(bytearray(1000))) for name in names]


def test_streamed_parts_are_transferred_in_pieces_and_count_as_one_read() -> None:
    settings = TransferSettings(piece_bytes=700)
    with node(slots={"dram_slots": 32}) as manager, a_client(settings=settings) as client:
        put(client, manager, *range(20))
        parts: list[int] = []
        received = client.stream(address(manager), streamed(*range(20)), [300, 600, 1000], parts.append)
        assert [bytes(item.payload) if item else None for item in received.blocks] == [
            bytes(payload(name)) for name in range(20)
        ]
        assert parts == [0, 1, 2]
        assert manager.store.counts.hits[DRAM] == 20


def test_a_stream_with_a_flipped_bit_returns_the_other_blocks_and_the_node_drops_the_corrupt_one() -> None:
    with node() as manager, a_client() as client:
        put(client, manager, *NAMES)
        record = manager.store.catalog.find(key("b"))
        assert record is not None
        manager.store.arena.view(record.slots[DRAM], 1000)[700] ^= 1
        received = client.stream(address(manager), streamed(*NAMES), [500, 1000], lambda _: None)
        assert [item is None for item in received.blocks] == [False, True, False]
        assert received.verdicts == {address(manager): "corrupt"}
        assert (client.corrupt, manager.store.catalog.find(key("b"))) == (1, None)


def test_a_stream_of_blocks_of_another_size_has_no_part() -> None:
    parts: list[int] = []
    with node() as manager, a_client() as client:
        put(client, manager, *NAMES)
        received = client.stream(address(manager), streamed(*NAMES), [500, 1001], parts.append)
        assert (parts, received.blocks) == ([0], [None, None, None])
        gone = client.stream("127.0.0.1:1", streamed("a"), [500, 1000], parts.append)
        assert (gone.reason, parts) == ("failed", [0])
