"""Keeps API keys revoked that were revoked while the database could not be written.

A gateway receives these revocations from the bus, saves them on disk, and removes their keys from each snapshot older
than the stored revocation. If the bus has lost one, for example after all processes of a machine restarted, the gateway
reports it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from gateway.access.key_revocation import (
    LOST_TOPIC,
    TOPIC_PREFIX,
    KeyRevocation,
    decode_revocation,
    encode_revocation,
)
from gateway.access.revocation_file import RevocationFile
from gateway.base import background
from gateway.base.event_log import log_event
from gateway.bus.bus import Bus
from gateway.contracts.snapshot import Snapshot
from gateway.contracts.wire import UnreadableMessageError

MAX_KNOWN = 10_000
"""Limit of known revocations. Beyond it, those that the database has stored are dropped, the oldest first."""
REPORT_S = 5.0
_REMEDY = "make the state directory and the database writable; until then, a restart of all processes loses revocations"


class RevokedKeys:
    """Revocations that snapshots do not reflect yet. `changed` is called on the loop when an active key is revoked.

    Thread-safe. Mutable, under `_lock`: the revocations by the key's SHA-256, which ones the bus holds, which ones the
    disk lacks, and the active keys.
    """

    def __init__(self, bus: Bus, state_dir: Path, changed: Callable[[], None]) -> None:
        self._bus, self._file, self._changed = bus, RevocationFile(state_dir), changed
        self._lock = threading.Lock()
        self._known: dict[str, KeyRevocation] = {}
        self._on_bus: set[str] = set()
        self._unsaved: dict[str, KeyRevocation] = {}
        self._in_force: frozenset[str] = frozenset()
        self._disk_failed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = asyncio.Event()
        self._end: Callable[[], None] = lambda: None

    async def start(self) -> asyncio.Task[None]:
        """Load revocations from the disk, then follow the bus; return the task that updates the disk."""
        self._loop = asyncio.get_running_loop()
        await asyncio.to_thread(self._load)
        self._end = self._bus.subscribe(TOPIC_PREFIX, self._take)
        return background.start("revoked keys", self._keep)

    def stop(self) -> None:
        """Stop following the bus."""
        self._end()

    def without(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot without the keys that were revoked after its version."""
        with self._lock:
            gone = {sha256 for sha256, revocation in self._known.items() if revocation.holds_for(snapshot.version)}
            left = tuple(key for key in snapshot.api_keys if key.sha256 not in gone)
            self._in_force = frozenset(key.sha256 for key in left)
        if len(left) == len(snapshot.api_keys):
            return snapshot
        return msgspec.structs.replace(snapshot, api_keys=left)

    def _load(self) -> None:
        try:
            revocations = self._file.load()
        except OSError as error:
            self._report_disk(error)
            return
        with self._lock:
            self._known.update({item.sha256: item for item in revocations})

    def _take(self, _topic: str, value: bytes) -> None:
        """Store a revocation received from the bus. Can run in any thread."""
        try:
            revocation = decode_revocation(value)
        except UnreadableMessageError as error:
            log_event("revocation_ignored", level=logging.WARNING, reason=str(error))
            return
        with self._lock:
            self._on_bus.add(revocation.sha256)
            known = self._known.get(revocation.sha256)
            if not revocation.follows(known):
                return
            self._known[revocation.sha256] = self._unsaved[revocation.sha256] = revocation
            self._make_room()
            in_force = known is None and revocation.sha256 in self._in_force
        log_event("api_key_revoked", key_id=revocation.key_id, stored=revocation.stored_as_of > 0)
        # The bus's thread may outlive the loop.
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._hurry, in_force)

    def _hurry(self, in_force: bool) -> None:
        self._news.set()
        if in_force:
            self._changed()

    def _make_room(self) -> None:
        over = len(self._known) - MAX_KNOWN
        # Only stored ones: no snapshot has these keys any more, so forgetting them opens nothing.
        for sha256 in [item.sha256 for item in self._known.values() if item.stored_as_of][: max(0, over)]:
            del self._known[sha256]
            self._on_bus.discard(sha256)

    async def _keep(self) -> None:
        while True:
            try:
                async with asyncio.timeout(REPORT_S):
                    await self._news.wait()
            except TimeoutError:
                self._report_lost()
            self._news.clear()
            await asyncio.to_thread(self._save)

    def _save(self) -> None:
        with self._lock:
            unsaved = list(self._unsaved.values())
        # Without the lock, which the event loop takes for each snapshot: a disk may be slow.
        for item in unsaved:
            try:
                if not self._file.save(item):
                    log_event("revocations_full", level=logging.ERROR, file=str(self._file.path), remedy=_REMEDY)
            except OSError as error:
                self._report_disk(error)
                return
            with self._lock:
                # A newer one of the key may have come during the write.
                if self._unsaved.get(item.sha256) is item:
                    del self._unsaved[item.sha256]
        self._disk_failed = False

    def _report_disk(self, error: OSError) -> None:
        if not self._disk_failed:
            reason = error.strerror or type(error).__name__
            log_event("revocations_not_saved", level=logging.ERROR, reason=reason, remedy=_REMEDY)
        self._disk_failed = True

    def _report_lost(self) -> None:
        """Report revocations that the bus has lost, so that the control plane publishes and stores them."""
        with self._lock:
            lost = [item for item in self._known.values() if not item.stored_as_of and item.sha256 not in self._on_bus]
        for item in lost if self._bus.connected else ():
            self._bus.append(LOST_TOPIC, encode_revocation(item))
