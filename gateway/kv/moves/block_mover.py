"""Makes a node fetch blocks from another node, or drop blocks that another node keeps. Blocks the calling thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from typing_extensions import override

from gateway.contracts.kv_move import FAILED, FREED, KEPT, MISSING, MOVED, Ending
from gateway.kv.nodes.kv_nodes import CLIENT
from kvstore.tiers.block_facts import DRAM, BlockFacts
from kvstore.transfer.connection import PeerError
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import Describe, Done, PageOf, Pull, Shrink, TransferRejected
from kvstore.transfer.shared_secret import NodeAccess
from kvstore.transfer.transfer_client import TransferClient, TransferSettings
from planning.kv_moves.replica_count import UNREAD_S

PART_BLOCKS = 64
"""Blocks per part of a move. A cancelled move stops after its current part."""
KEEP_S = 60.0
"""Minimum seconds for which a node keeps an advisory's blocks. Afterwards they are evicted first."""
_TIMEOUT_S = 5.0


class Part(NamedTuple):
    """Result for some blocks of a move."""

    keys: tuple[int, ...]
    """Routing keys of the blocks that were transferred, without those already present."""
    bytes: int
    outcome: Ending


class Mover(Protocol):
    """Moves blocks outside of the event loop's thread."""

    def move(
        self, source: str, target: str, keys: Sequence[int], priority: FlowPriority, expected_s: float = 0.0
    ) -> Part:
        """Move at most PART_BLOCKS blocks from one address to another. Equal addresses mean from SSD to DRAM.

        An advisory expects their use in `expected_s` seconds.
        """

    def shrink(self, keeper: str, target: str, keys: Sequence[int]) -> Part:
        """Make the target drop its copies of at most PART_BLOCKS blocks. The keeper keeps its copies."""

    def close(self) -> None:
        """Close all connections."""


class BlockMover(Mover):
    """Moves blocks over connections to the nodes. Any number of threads can use it."""

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
    """Return (payloads of the blocks before the first missing one, whether none is missing)."""
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
