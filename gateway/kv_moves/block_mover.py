"""Makes a node fetch blocks from another node, or drop blocks that another node keeps. Blocks the calling thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from typing_extensions import override

from gateway.contracts.kv_move import FAILED, FREED, KEPT, MISSING, MOVED, Ending
from gateway.kv_nodes.kv_nodes import CLIENT
from kvstore.tiers.block_facts import DRAM, BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import Describe, Done, PageOf, Pull, Shrink, TransferRejected
from kvstore.transfer.shared_secret import NodeAccess
from kvstore.transfer.transfer_client import TransferClient, TransferSettings
from planning.kv_moves.replica_count import UNREAD_S

PART_BLOCKS = 64
"""Blocks that move at a time: a cancelled order ends after these."""
KEEP_S = 60.0
"""Shortest time for which a node believes an advisory; its blocks leave first afterwards."""
_TIMEOUT_S = 5.0


class Part(NamedTuple):
    """Result for some blocks of an order."""

    keys: tuple[int, ...]
    """Routing keys of the blocks that came, without those that were there."""
    bytes: int
    outcome: Ending


class Mover(Protocol):
    """Moves blocks, off the event loop's thread."""

    def move(
        self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
    ) -> Part:
        """Move PART_BLOCKS blocks at most from one address to another; the same one: from SSD to DRAM.

        An advisory expects their use in `expected_s` seconds.
        """

    def shrink(self, keeper: str, target: str, keys: Sequence[int]) -> Part:
        """Have the target drop its copies of PART_BLOCKS blocks at most; the keeper keeps its own."""

    def close(self) -> None:
        """Close all connections."""


class BlockMover(Mover):
    """For any number of threads; it has no state but its connections."""

    def __init__(self, access: NodeAccess) -> None:
        limits = TransferSettings(timeout_s=_TIMEOUT_S)
        self._client = TransferClient(access.keyring, time.monotonic, access.tls, limits, CLIENT)

    @override
    def move(
        self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
    ) -> Part:
        try:
            described = self._client.call(source, Describe(list(keys)))
            if not isinstance(described, PageOf):
                return Part((), 0, FAILED)
            leading, whole = _leading(keys, described)
            if source == target:
                leading = [(facts, media) for facts, media in leading if DRAM not in media]
            if not leading:
                return Part((), 0, MOVED if whole else MISSING)
            blocks = [facts for facts, _ in leading]
            keep_s = max(KEEP_S, 2 * expected_s) if priority == FlowPriority.ADVISORY else 0.0
            pull = Pull("" if source == target else source, blocks, int(priority), expected_s, keep_s)
            answer = self._client.call(target, pull)
        except PeerError:
            return Part((), 0, FAILED)
        if isinstance(answer, TransferRejected):
            return Part((), 0, MISSING if answer.reason == "holder" else FAILED)
        if not isinstance(answer, Done):
            return Part((), 0, FAILED)
        came = _came(blocks, answer)
        names = tuple(dict.fromkeys(facts.routing_key for facts in came))
        return Part(names, sum(facts.length for facts in came), MOVED if whole else MISSING)

    @override
    def shrink(self, keeper: str, target: str, keys: Sequence[int]) -> Part:
        try:
            described = self._client.call(target, Describe(list(keys)))
            if not isinstance(described, PageOf):
                return Part((), 0, FAILED)
            blocks = [facts for facts, _ in described.blocks]
            answer = self._client.call(target, Shrink(keeper, [facts.key for facts in blocks], UNREAD_S))
        except PeerError:
            return Part((), 0, FAILED)
        if not isinstance(answer, Done):
            return Part((), 0, KEPT if isinstance(answer, TransferRejected) and answer.keys else FAILED)
        went = _came(blocks, answer)
        names = tuple(dict.fromkeys(facts.routing_key for facts in went))
        return Part(names, sum(facts.length for facts in went), FREED if len(went) == len(blocks) else KEPT)

    @override
    def close(self) -> None:
        self._client.close()


def _leading(keys: Sequence[int], described: PageOf) -> tuple[list[tuple[BlockFacts, Sequence[str]]], bool]:
    """Return the payloads of the blocks before the first that is missing, and whether none is."""
    by_name: dict[int, list[tuple[BlockFacts, Sequence[str]]]] = {}
    for facts, media in described.blocks:
        by_name.setdefault(facts.routing_key, []).append((facts, media))
    leading: list[tuple[BlockFacts, Sequence[str]]] = []
    for key in keys:
        if key not in by_name:
            return leading, False
        leading += by_name[key]
    return leading, True


def _came(blocks: Sequence[BlockFacts], answer: Done) -> list[BlockFacts]:
    present = set(answer.present)
    return [facts for facts in blocks if facts.key not in present]
