"""Mooncake Store as the store: shared by all engines, located through its master. Its Transfer Engine moves the bytes.

Memory that an engine contributes is part of the store. A payload is followed by its checksum, which each get compares.
Mooncake has no secrets, and no tenants within one member: every client of the master can read and remove all blocks.
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
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import CacheHint
from kvstore.transfer.transfer_client import Fetched, Received, Verdict, Wanted

_METADATA = "P2PHANDSHAKE"
"""Members exchange their metadata directly, without a metadata server."""
_BUFFER_BYTES = 128 << 20
"""Memory for bytes in transfer."""
_PIECE_BLOCKS = 16
"""Blocks in transfer at a time: several loads of 1 MiB blocks fit into the buffer at once."""
_REMEDY = (
    'The backend "mooncake" needs Mooncake Store: pip install mooncake-transfer-engine, without CUDA '
    "mooncake-transfer-engine-non-cuda, and Debian's libibverbs1, librdmacm1, libnl-route-3-200 and libnuma1 "
    "(.ci/setup-mooncake shows how)."
)


class MooncakeMissingError(RuntimeError):
    """Mooncake Store or one of its libraries is not installed. The message names the package to install."""


class MooncakeBackend:
    """A member of the store.

    Mutable: `corrupt`, the number of blocks that arrived with a wrong checksum, and the calls in progress and whether
    it is closed, guarded by `_turn`.
    """

    def __init__(self, settings: BackendSettings, clock: Callable[[], float]) -> None:
        """Join the store. Raises MooncakeMissingError, and PeerError if the master does not answer."""
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
            raise PeerError(f"Mooncake's master at {settings.address} rejects this engine (error {code})")

    def put(
        self, blocks: Sequence[tuple[BlockFacts, memoryview]], hint: CacheHint = "default", pin_s: float = 0.0
    ) -> bool:
        """Store blocks until one is rejected. With `pin_s`, blocks of a context cache are evicted last."""
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

    def get(
        self, wanted: Sequence[Wanted], holders: Sequence[str] = (), priority: FlowPriority = FlowPriority.REQUEST
    ) -> Received:
        """Return blocks from any member of the store. Stops after a piece without any hit."""
        blocks: list[Fetched | None] = []
        with self._in_use():
            for first in range(0, len(wanted), _PIECE_BLOCKS):
                piece = wanted[first : first + _PIECE_BLOCKS]
                handles = self._store.batch_get_buffer([_name(item.key) for item in piece])
                came = [self._checked(item, handle) for item, handle in zip(piece, handles, strict=True)]
                blocks += came
                # Where the master is gone each call takes seconds, and a prompt's later blocks are of no use alone.
                if not any(came):
                    break
        blocks += [None] * (len(wanted) - len(blocks))
        missing = [item.key for item, block in zip(wanted, blocks, strict=True) if block is None]
        return Received(blocks, {"": self._verdict(missing[0])} if missing else {})

    def stream(
        self, wanted: Sequence[Wanted], holders: Sequence[str], ends: Sequence[int], arrived: Callable[[int], None]
    ) -> Received:
        """Return blocks in a single part: Mooncake moves whole payloads."""
        received = self.get(wanted)
        if None not in received.blocks:
            arrived(len(ends) - 1)
        return received

    def _verdict(self, key: bytes) -> Verdict:
        # Mooncake's get returns the same for a miss and for a master that does not answer.
        try:
            self.exist([key])
        except PeerError:
            return "down"
        return "missing"

    def exist(self, keys: Sequence[bytes]) -> list[bool]:
        """Return which blocks the store holds."""
        with self._in_use():
            states: list[int] = self._store.batch_is_exist([_name(key) for key in keys])
        # Negative codes are errors: the caller must not take a store that is gone for one that lacks the blocks.
        if any(item < 0 for item in states):
            raise PeerError("Mooncake's master does not answer")
        return [item > 0 for item in states]

    def describe(self, routing_keys: Sequence[int]) -> list[BlockFacts]:
        """Return nothing: Mooncake does not know the gateway's keys."""
        return []

    def pin(self, keys: Sequence[bytes], seconds: float) -> None:
        """Do nothing: Mooncake can pin a block only when it is stored."""

    def close(self) -> None:
        """Leave the store with its contributed memory, after all calls have ended."""
        with self._turn:
            self._closed = True
        self._leave()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Keep the store open during a call: closing it would crash the process."""
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

    def _checked(self, wanted: Wanted, handle: Any) -> Fetched | None:
        """Return a block whose checksum matches, copied out of the store's buffer. Remove a corrupt one."""
        if handle is None:
            return None
        into = wanted.into
        with memoryview(handle).cast("B") as came:
            length = len(came) - CHECKSUM_BYTES
            checksum = bytes(came[length:]) if length > 0 else b""
            if length <= 0 or checksum_of(came[:length]) != checksum:
                self.corrupt += 1
                self._store.remove(_name(wanted.key), force=True)
                return None
            if into is not None and len(into) < length:
                return None
            view = memoryview(bytearray(length)) if into is None else into[:length]
            view[:] = came[:length]
            return Fetched(view, checksum)


def _module() -> Any:
    try:
        return importlib.import_module("mooncake.store")
    except ImportError as error:
        raise MooncakeMissingError(f"{_REMEDY} Python says: {error}") from error


def _name(key: bytes) -> str:
    return key.hex()
