"""Protocol between an engine's connector and the store that holds its KV blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from kvstore.keys.keyring import Keyring
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.frames import CacheHint
from kvstore.transfer.tls import TlsFiles


class BackendSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address of the store, and the settings with which an engine uses it."""

    address: str = ""
    """host:port of the engine's own node manager, or of Mooncake's master; empty: blocks come from others only."""
    timeout_s: float = 10.0
    """Longest silence of a node."""
    keyring: Keyring | None = None
    """Of node managers; Mooncake has none."""
    tls: TlsFiles | None = None
    host: str = "127.0.0.1"
    """Address by which other members of Mooncake Store reach this one."""
    segment_bytes: int = 0
    """Memory that this one contributes to Mooncake Store."""
    protocol: Literal["tcp", "rdma"] = "tcp"
    devices: str = ""
    """Network devices that Mooncake uses, separated by commas."""


class KvBackend(Protocol):
    """For any number of threads. A get returns the bytes put under the key, or nothing: losing a block is allowed,
    changing one is not. Calls raise PeerError or TimeoutError where the store does not answer.
    """

    def put(
        self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint = "default", pin_s: float = 0.0
    ) -> bool:
        """Store blocks of one tenant; False: some are not stored, and the caller continues without them."""

    def get(self, wanted: Sequence[tuple[bytes, memoryview | None]], holder: str = "") -> list[memoryview | None]:
        """Return blocks by key, each in the buffer given for it or in a new one; None: a miss, or no answer.

        `holder` is the node to ask; empty: the engine's own. A store without nodes has one for all.
        """

    def exist(self, keys: Sequence[bytes], holder: str = "") -> list[bool]:
        """Return which blocks are present right now."""

    def pin(self, keys: Sequence[bytes], seconds: float) -> None:
        """Keep blocks that are already present for `seconds`, where the store can do that."""

    def close(self) -> None:
        """Release connections."""
