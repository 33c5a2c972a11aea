"""Stores revocations in a file that reserves its space at the start, so that a full disk cannot prevent one.

Slots of equal size are overwritten in place. Each slot carries its length and a digest; a slot cut off by a kill counts
as free. Processes that share a state directory lock the file.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from gateway.access.key_revocation import MAX_BYTES, KeyRevocation, decode_revocation, encode_revocation
from gateway.base.event_log import log_event
from gateway.contracts.wire import UnreadableMessageError

FILE_NAME = "revoked-keys"
SLOTS = 128
SLOT_BYTES = 2048
_HEAD = struct.Struct("<I16s")
_DIGEST_BYTES = 16

if _HEAD.size + MAX_BYTES > SLOT_BYTES:
    raise AssertionError("a revocation must fit into its slot")


class RevocationFile:
    """A revocation file in `state_dir`, readable only by its owner. Calls block on disk I/O and raise OSError on
    failure.
    """

    def __init__(self, state_dir: Path) -> None:
        self.path = state_dir / FILE_NAME

    def load(self) -> list[KeyRevocation]:
        """Return the revocations in the file; create the file if it is missing."""
        with self._opened() as file:
            return [slot for slot in self._slots(file) if slot is not None]

    def save(self, revocation: KeyRevocation) -> bool:
        """Save a revocation in place of an earlier one of the same key; return False if the file is full.

        Revocations that the database has stored can be overwritten.
        """
        with self._opened() as file:
            slots = list(self._slots(file))
            # In this order: a revocation that the database lacks is never overwritten by another key's.
            candidates = (
                *(number for number, slot in enumerate(slots) if slot and slot.sha256 == revocation.sha256),
                *(number for number, slot in enumerate(slots) if slot is None),
                *(number for number, slot in enumerate(slots) if slot and slot.stored_as_of),
            )
            if not candidates:
                return False
            payload = encode_revocation(revocation)
            head = _HEAD.pack(len(payload), blake2b(payload, digest_size=_DIGEST_BYTES).digest())
            os.pwrite(file, (head + payload).ljust(SLOT_BYTES, b"\0"), candidates[0] * SLOT_BYTES)
            os.fsync(file)
        return True

    @contextmanager
    def _opened(self) -> Iterator[int]:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Several processes may share the state directory.
            fcntl.flock(file, fcntl.LOCK_EX)
            missing = SLOTS * SLOT_BYTES - os.fstat(file).st_size
            if missing > 0:
                # Zeros that are written take their space now; a hole would ask for it later.
                os.pwrite(file, bytes(missing), SLOTS * SLOT_BYTES - missing)
                os.fsync(file)
            yield file
        finally:
            os.close(file)

    def _slots(self, file: int) -> Iterator[KeyRevocation | None]:
        data = os.pread(file, SLOTS * SLOT_BYTES, 0)
        for begin in range(0, SLOTS * SLOT_BYTES, SLOT_BYTES):
            slot = data[begin : begin + SLOT_BYTES]
            length, digest = _HEAD.unpack_from(slot) if len(slot) >= _HEAD.size else (0, b"")
            payload = slot[_HEAD.size : _HEAD.size + length]
            if not length or blake2b(payload, digest_size=_DIGEST_BYTES).digest() != digest:
                yield None
                continue
            try:
                yield decode_revocation(payload)
            except UnreadableMessageError as error:
                log_event("revocation_ignored", level=logging.WARNING, file=str(self.path), reason=str(error))
                yield None
