"""Payloads, links and the queue of blocks to be stored."""

from __future__ import annotations

import threading
from array import array
from typing import Any

import pytest

from kvstore.connector.engine_params import LoadInstruction
from kvstore.transfer.frames import Done, TransferRejected
from simulator.engine_server.node_store import block_saver
from simulator.engine_server.node_store.block_loader import ScaledLink
from simulator.engine_server.node_store.block_saver import ComputedBlocks, SimulatedBlockSaver
from simulator.engine_server.node_store.payloads import Payloads, chain_hashes

TOKENS = array("I", range(64))


def test_a_hash_depends_on_all_earlier_tokens_and_no_later_ones() -> None:
    whole = chain_hashes(TOKENS, 16, 4)
    assert chain_hashes(TOKENS, 16, 2) == whole[:2]
    other = array("I", TOKENS)
    other[17] += 1
    changed = chain_hashes(other, 16, 4)
    assert [a == b for a, b in zip(whole, changed, strict=True)] == [True, False, False, False]


def test_payloads_are_derived_from_the_hash_and_differ() -> None:
    one, two = Payloads("m", 16, 64), Payloads("m", 16, 64)
    names = chain_hashes(TOKENS, 16, 4)
    assert [one.payload(name) for name in names] == [two.payload(name) for name in names]
    assert len({bytes(one.payload(name)) for name in names}) == 4
    assert {len(one.payload(name)) for name in names} == {16 * 64}


def test_keys_depend_on_salt_and_payload_size() -> None:
    [name] = chain_hashes(TOKENS, 16, 1)
    keys = {
        Payloads(model, 16, size).keys(salt).key(name) for model in "mn" for size in (64, 128) for salt in ("", "s")
    }
    assert len(keys) == 8


def test_a_link_never_exceeds_its_rate() -> None:
    link = ScaledLink(1000.0, latency_s=0.5)
    assert link.transfer("a", 2000, 10.0) == pytest.approx(2.5)
    assert link.transfer("a", 1000, 11.0) == pytest.approx(2.5), "it waits for the transfer before it"
    assert link.transfer("b", 1000, 11.0) == pytest.approx(1.5)
    assert link.transfer("a", 1000, 100.0) == pytest.approx(1.5)
    assert ScaledLink(0.0).transfer("a", 1 << 40, 0.0) == 0.0


class Node:
    """A client whose node responds on request."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.puts: list[int] = []
        self.answer: Any = Done()

    def put(self, _address: str, blocks: list[Any], *_: Any) -> Any:
        self.entered.set()
        assert self.open.wait(30.0)
        self.puts.append(len(blocks))
        return self.answer


def stored(first: int, end: int, **order: Any) -> ComputedBlocks:
    return ComputedBlocks(TOKENS, first, end, "", LoadInstruction(**order))


def test_the_oldest_blocks_are_dropped_if_the_queue_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_saver, "MAX_WAITING", 2)
    client = Node()
    saver = SimulatedBlockSaver(client, "n:1", Payloads("m", 16, 64))  # type: ignore[arg-type]
    saver.add(stored(0, 1))
    assert client.entered.wait(30.0)
    for end in (2, 3, 4):
        saver.add(stored(0, end))
    client.open.set()
    assert saver.settled(30.0)
    assert client.puts == [1, 3, 4]
    assert (saver.counts.dropped, saver.counts.saved) == (2, 8)
    saver.close(30.0)


def test_rejections_of_a_node_are_counted_and_large_prompts_are_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_saver, "_PIECE_BYTES", 2 * 16 * 64)
    client = Node()
    client.answer = TransferRejected("quota")
    client.open.set()
    saver = SimulatedBlockSaver(client, "n:1", Payloads("m", 16, 64))  # type: ignore[arg-type]
    saver.add(stored(1, 4))
    assert saver.settled(30.0)
    assert client.puts == [2, 1]
    assert (saver.counts.rejected, saver.counts.saved) == (3, 0)
    saver.close(30.0)
