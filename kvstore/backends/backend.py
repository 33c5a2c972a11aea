"""Protocol between an engine's connector and the store that holds its KV blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

import msgspec

from kvstore.keys.keyring import Keyring
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import CacheHint
from kvstore.transfer.tls import TlsFiles
from kvstore.transfer.transfer_client import Received, Wanted


class BackendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address and settings of the store for one engine."""

    address: str = ""
    """host:port of the engine's own node manager, or of Mooncake's master. Empty: blocks come only from other nodes."""
    timeout_s: float = 10.0
    """Maximum silence of a node."""
    keyring: Keyring | None = None
    """Secrets of node managers. Mooncake has none."""
    tls: TlsFiles | None = None
    host: str = "127.0.0.1"
    """Address under which other members of Mooncake Store reach this one."""
    segment_bytes: int = 0
    """Memory that this member contributes to Mooncake Store."""
    protocol: Literal["tcp", "rdma"] = "tcp"
    devices: str = ""
    """Network devices for Mooncake, separated by commas."""


class KvBackend(Protocol):
    """A store of KV blocks, for any number of threads.

    A get returns the bytes stored under the key, or none: losing a block is allowed, changing one is not. Calls raise
    PeerError or TimeoutError if the store does not answer.
    """

    def put(
        self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint = "default", pin_s: float = 0.0
    ) -> bool:
        """Store blocks of one tenant. Return False if some are not stored; the caller continues without them."""

    def get(
        self, wanted: Sequence[Wanted], holders: Sequence[str] = (), priority: FlowPriority = FlowPriority.REQUEST
    ) -> Received:
        """Return blocks, and why others are missing.

        `holders` are the nodes to query, in order; none for the engine's own. A store without nodes ignores them.
        """

    def stream(
        self, wanted: Sequence[Wanted], holders: Sequence[str], ends: Sequence[int], arrived: Callable[[int], None]
    ) -> Received:
        """Return blocks of one size, from the first holder, in parts if the store supports it and has all blocks.

        Part i ends at byte `ends[i]` of each block. `arrived(i)` is called before its bytes are verified.
        """

    def exist(self, keys: Sequence[bytes]) -> list[bool]:
        """Return which blocks are currently present on the engine's own node, or in the store."""

    def describe(self, routing_keys: Sequence[int]) -> list[BlockFacts]:
        """Return the facts of all payloads that the engine's own node holds of these blocks, in any order."""

    def pin(self, keys: Sequence[bytes], seconds: float) -> None:
        """Keep blocks that are already present for `seconds`, if the store supports it."""

    def close(self) -> None:
        """Release connections."""
