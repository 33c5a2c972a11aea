"""The last-known-good snapshot on disk, which a gateway serves while no newer one is available.

What placements have learned is in the same file, so that a gateway that restarts does not learn it again.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.base.event_log import log_event
from gateway.contracts.snapshot import MAX_BYTES, Snapshot, decode_snapshot, encode_snapshot
from gateway.contracts.wire import UnreadableMessageError, WireForm

FILE_NAME = "last-known-good.snapshot"


class _Envelope(msgspec.Struct, frozen=True):
    confirmed_at: float
    sha256: bytes
    snapshot: bytes
    learned: Mapping[str, bytes] = {}


_envelope = WireForm(_Envelope, "a stored snapshot", limit=MAX_BYTES)


class SnapshotStore:
    """One file in `state_dir`, readable only by its owner and written atomically."""

    def __init__(self, state_dir: Path, max_age_s: float) -> None:
        self.path = state_dir / FILE_NAME
        self._max_age_s = max_age_s
        self.age_s = 0.0
        """Seconds between the last confirmation of the snapshot and its loading."""
        self.learned: Mapping[str, bytes] = {}
        """Pool → what its placement had learned, in the loaded file."""

    def save(self, snapshot: Snapshot, now_unix: float, learned: Mapping[str, bytes] | None = None) -> None:
        """Replace the file. `now_unix` is when the snapshot was last known to be valid. Blocks on disk I/O."""
        payload = encode_snapshot(snapshot)
        envelope = _Envelope(now_unix, hashlib.sha256(payload).digest(), payload, learned or {})
        self.path.parent.mkdir(parents=True, exist_ok=True)
        for left in self.path.parent.glob(f"{FILE_NAME}.*.tmp"):
            # From a process that was killed while it wrote.
            left.unlink(missing_ok=True)
        draft = self.path.with_name(f"{FILE_NAME}.{os.getpid()}.tmp")
        try:
            _write(draft, _envelope.encode(envelope))
            draft.replace(self.path)
        except OSError:
            # A full disk must not be filled further.
            draft.unlink(missing_ok=True)
            raise
        # The new name is safe from a power cut only once the directory is on the disk.
        directory = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def load(self, now_unix: float) -> Snapshot | None:
        """Return the snapshot, None if it is missing. A damaged or outdated file is logged and also gives None."""
        try:
            return self._read(now_unix)
        except FileNotFoundError:
            return None
        except OSError as error:
            reason = f"it cannot be read: {error.strerror}"
        except UnreadableMessageError as error:
            reason = f"it cannot be used: {error}"
        log_event(
            "last_known_good_ignored",
            level=logging.ERROR,
            file=str(self.path),
            reason=reason,
            remedy="the next published snapshot replaces it; delete the file to silence this",
        )
        return None

    def _read(self, now_unix: float) -> Snapshot:
        if self.path.stat().st_size > MAX_BYTES:
            raise UnreadableMessageError(f"it is over {MAX_BYTES} bytes")
        envelope = _envelope.decode(self.path.read_bytes())
        if hashlib.sha256(envelope.snapshot).digest() != envelope.sha256:
            raise UnreadableMessageError("its checksum does not match")
        age_s = now_unix - envelope.confirmed_at
        if age_s > self._max_age_s:
            raise UnreadableMessageError(
                f"it was last confirmed {age_s:.0f} s ago, over the limit of {self._max_age_s:.0f} s"
            )
        # A clock that was set back must not give the keys more than their time.
        self.age_s = max(0.0, age_s)
        self.learned = envelope.learned
        return decode_snapshot(envelope.snapshot)


def _write(path: Path, data: bytes) -> None:
    """Write a new file that only its owner can read, and sync it to disk."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
