"""Mooncake Store as the store: one for all engines, located through its master, whose Transfer Engine moves the bytes.

Memory that an engine contributes is part of the store. A payload is followed by its checksum, which each get compares.
Mooncake has no secrets, and no tenants within one member: every client of the master may read and remove everything.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kvstore.backends.backend import BackendSettings
from kvstore.tiers.block_facts import CHECKSUM_BYTES, BlockFacts, checksum_of
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import CacheHint

_METADATA = "P2PHANDSHAKE"
"""Members exchange their metadata directly, so that no metadata server is needed."""
_BUFFER_BYTES = 128 << 20
"""Memory for bytes in transfer."""
_PIECE_BLOCKS = 16
"""Blocks under way at a time: several loads of 1 MiB blocks fit into the buffer at once."""
_REMEDY = (
    'The backend "mooncake" needs Mooncake Store: pip install mooncake-transfer-engine, without CUDA '
    "mooncake-transfer-engine-non-cuda, and Debian's libibverbs1, librdmacm1, libnl-route-3-200 and libnuma1 "
    "(.ci/setup-mooncake shows how)."
)


class MooncakeMissingError(RuntimeError):
    """Mooncake Store or one of its libraries is not installed; the message names what to install."""


class MooncakeBackend:
    """A member of the store. Mutable: `corrupt`, blocks that arrived with another checksum; and, guarded by `_turn`,
    the calls under way and whether it is closed.
    """

    def __init__(self, settings: BackendSettings, clock: Callable[[], float]) -> None:
        """Raises MooncakeMissingError, and PeerError where the master does not answer."""
        self._module = _module()
        self._store = self._module.MooncakeDistributedStore()
        self._turn = threading.Lock()
        self._calls, self._closed = 0, False
        self.corrupt = 0
        sizes = settings.segment_bytes, _BUFFER_BYTES
        code = self._store.setup(
            settings.host, _METADATA, *sizes, settings.protocol, settings.devices, settings.address
        )
        if code:
            raise PeerError(f"Mooncake's master at {settings.address} does not take this engine in (error {code})")

    def put(
        self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint = "default", pin_s: float = 0.0
    ) -> bool:
        """Store blocks until one is rejected; for `pin_s` those of a context cache are evicted after all others."""
        if hint == "ephemeral":
            return False
        config = self._module.ReplicateConfig()
        if hint == "context_cache" and pin_s > 0:
            config.soft_pin_action = self._module.SoftPinAction.ENABLE
            config.soft_pin_ttl_ms = int(1000 * pin_s)
        with self._in_use():
            return all(
                self._store.put_parts(_name(facts.key), payload, facts.checksum, config=config) == 0
                for facts, payload in blocks
            )

    def get(self, wanted: Sequence[tuple[bytes, memoryview | None]], holder: str = "") -> list[memoryview | None]:
        """Return blocks from wherever the store has them; the request ends after a piece of which none came."""
        blocks: list[memoryview | None] = []
        with self._in_use():
            for first in range(0, len(wanted), _PIECE_BLOCKS):
                piece = wanted[first : first + _PIECE_BLOCKS]
                handles = self._store.batch_get_buffer([_name(key) for key, _ in piece])
                came = [self._checked(*asked, handle) for asked, handle in zip(piece, handles, strict=True)]
                blocks += came
                # Where the master is gone each call takes seconds, and a prompt's later blocks are of no use alone.
                if not any(came):
                    break
        return blocks + [None] * (len(wanted) - len(blocks))

    def exist(self, keys: Sequence[bytes], holder: str = "") -> list[bool]:
        """Return which blocks the store has."""
        with self._in_use():
            states: list[int] = self._store.batch_is_exist([_name(key) for key in keys])
        # Negative codes are errors: the caller must not take a store that is gone for one that lacks the blocks.
        if any(item < 0 for item in states):
            raise PeerError("Mooncake's master does not answer")
        return [item > 0 for item in states]

    def pin(self, keys: Sequence[bytes], seconds: float) -> None:
        """Do nothing: Mooncake pins a block when it is put, and not later."""

    def close(self) -> None:
        """Leave the store, with the memory contributed to it, once no call is under way."""
        with self._turn:
            self._closed = True
        self._leave()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the store open: a call in a store that is closed meanwhile ends the process."""
        with self._turn:
            if self._closed:
                raise PeerError("the engine has left Mooncake Store")
            self._calls += 1
        try:
            yield
        finally:
            with self._turn:
                self._calls -= 1
            self._leave()

    def _leave(self) -> None:
        with self._turn:
            if not self._closed or self._calls:
                return
            store, self._store = self._store, None
        if store is not None:
            store.close()

    def _checked(self, key: bytes, into: memoryview | None, handle: Any) -> memoryview | None:
        """Return a block that agrees with its checksum, copied out of the store's buffer; a corrupt one is removed."""
        if handle is None:
            return None
        with memoryview(handle).cast("B") as came:
            length = len(came) - CHECKSUM_BYTES
            if length <= 0 or checksum_of(came[:length]) != came[length:]:
                self.corrupt += 1
                self._store.remove(_name(key), force=True)
                return None
            if into is not None and len(into) < length:
                return None
            view = memoryview(bytearray(length)) if into is None else into[:length]
            view[:] = came[:length]
            return view


def _module() -> Any:
    try:
        return importlib.import_module("mooncake.store")
    except ImportError as error:
        raise MooncakeMissingError(f"{_REMEDY} Python says: {error}") from error


def _name(key: bytes) -> str:
    return key.hex()
