"""What a store of KV payloads does for those who use it, whoever keeps the bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from kvstore.backends.node_backend import NodeBackend
from kvstore.tiers.block_facts import BlockFacts
from kvstore.transfer.frames import CacheHint


class KvBackend(Protocol):
    """A get returns what was put under the key, or nothing; losing a block is allowed, changing one is not."""

    def put(self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint, pin_s: float) -> bool:
        """Store blocks of one tenant, all or none; False: they are not stored, and the caller goes on without."""

    def get(self, wanted: Sequence[tuple[bytes, memoryview | None]]) -> list[memoryview | None]:
        """Return blocks by key, each in the buffer given for it or in a new one; None: a miss."""

    def exist(self, keys: Sequence[bytes]) -> list[bool]:
        """Return which blocks are there right now."""

    def purge(self, tenant: str) -> bool:
        """Forget and overwrite what a tenant has; False: not everywhere."""

    def close(self) -> None:
        """Give connections back."""


BACKENDS: Mapping[str, Callable[[Sequence[str], bytes, Callable[[], float]], KvBackend]] = {"node": NodeBackend}
"""Name → backend over these addresses, with the shared secret and a monotonic clock."""
