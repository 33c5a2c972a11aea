"""An append-only journal of usage on the local disk, which survives a kill of the process at any instruction.

A journal is a folder of segments, which are mapped into memory: an append is a copy, and the kernel writes the pages
even if the process is killed. `sync` is for a loss of power. Each record has its length and CRC; a record cut off by a
kill ends its segment. Each segment begins with the number of its first entry and with the requests that are open, so
that an older segment can be deleted once its entries are acknowledged.
"""

from __future__ import annotations

import fcntl
import logging
import mmap
import os
import struct
import uuid
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from zlib import crc32

from gateway.base.event_log import log_event

SEGMENT_BYTES = 1 << 20
MAX_SEGMENTS = 256
"""Limit of segments. Beyond it, the oldest entries are lost and counted."""
MAX_OPEN = 65_536
"""Limit of open requests. Further ones are recorded only when they end."""
START_GAP = 1 << 20
"""Numbers that each start leaves out: more than the entries that a loss of power can take with it."""
MAX_RECORD = 4096
"""Limit of a record in bytes. Names are bounded, so that a usual record has about 150."""
FOLDER = "usage"
_HEAD = struct.Struct("<II")
_PACK, _HEAD_BYTES = _HEAD.pack, _HEAD.size
_LENGTHS = [bytes((length,)) for length in range(256)]
_NUMBER = struct.Struct("<Q")
_FIRST, _OPEN, _ENTRY = b"F", b"O", b"E"
_SUFFIX = ".segment"


class JournalSegment:
    """One mapped segment. Mutable: `end`, the offset of the next record, and the offsets of the entries."""

    def __init__(self, data: mmap.mmap, first: int, path: Path | None, file: int | None = None) -> None:
        self.data = data
        self.first = first
        self.path = path
        """None: a segment in memory, because the disk is full."""
        self.file = file
        self.end = 0
        self.size = len(data)
        self.offsets = array("I")

    @property
    def last(self) -> int:
        """Return the number of its last entry, first - 1 without entries."""
        return self.first + len(self.offsets) - 1

    def write(self, kind: bytes, name: bytes, payload: bytes) -> None:
        """Add a record, which the caller knows to fit. It runs twice per request."""
        body = kind + _LENGTHS[len(name)] + name + payload
        at, length = self.end, len(body)
        # The length of the next record, 0, is the end of the segment, so nothing is written behind this one.
        self.end = end = at + _HEAD_BYTES + length
        self.data[at:end] = _PACK(length, crc32(body)) + body
        if kind is _ENTRY:
            self.offsets.append(at)

    def records(self) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        """Yield (offset, kind, name, payload) of each whole record, up to the first damaged one."""
        at, data = 0, self.data
        while at + _HEAD_BYTES + 2 <= len(data):
            length, checksum = _HEAD.unpack_from(data, at)
            begin = at + _HEAD_BYTES
            if not 2 <= length <= MAX_RECORD or begin + length > len(data):
                return
            body = data[begin : begin + length]
            if crc32(body) != checksum:
                return
            split = 2 + body[1]
            yield at, body[:1], body[2:split], body[split:]
            at = begin + length

    def payload(self, number: int) -> bytes:
        """Return an entry's payload."""
        at = self.offsets[number - self.first]
        length, _ = _HEAD.unpack_from(self.data, at)
        begin = at + _HEAD_BYTES
        return self.data[begin + 2 + self.data[begin + 1] : begin + length]

    def close(self, *, delete: bool = False) -> None:
        """Unmap the segment, and delete its file on request."""
        self.data.close()
        if self.file is not None:
            os.close(self.file)
        if delete and self.path is not None:
            self.path.unlink(missing_ok=True)


class UsageJournal:
    """The journal of one gateway process, used on its event loop.

    Mutable: the segments, `last`, `mark`, and the payloads of the open requests by id. `lost` counts entries that were
    dropped because of MAX_SEGMENTS.
    """

    def __init__(self, state_dir: Path, *, ends: Callable[[bytes, int], bytes | None]) -> None:
        """Open the state directory's first journal that no other process uses, or a new one. It blocks on disk I/O.

        `ends` returns the entry (payload of the open request, number) of a request that an earlier process left open,
        None if it stays open.
        """
        self._folder: Path | None = None
        self._lock: int | None = None
        self.name = uuid.uuid4().hex
        try:
            self._folder, self._lock = _free_folder(state_dir / FOLDER)
            self.name = self._folder.name
        except OSError as error:
            _log_in_memory(error)
        self.last = self.mark = self.lost = 0
        self._segments: list[JournalSegment] = []
        self.open: dict[bytes, bytes] = {}
        self._index = 0
        self._read()
        # After a loss of power the end may be missing, and its numbers must not be used twice.
        self.last += START_GAP
        self._begin_segment(ends)
        self._synced = self.last

    @property
    def waiting(self) -> int:
        """Return the number of entries above the mark."""
        return sum(max(0, item.last - max(self.mark, item.first - 1)) for item in self._segments)

    def begin(self, request_id: str, payload: bytes) -> None:
        """Record that a request is open."""
        name = request_id.encode()
        if name not in self.open and len(self.open) < MAX_OPEN:
            self.open[name] = payload
            self._segment_for(len(name) + len(payload)).write(_OPEN, name, payload)

    def add(self, payload: bytes, request_id: str = "") -> None:
        """Record the entry with the number last + 1, which ends the request `request_id` if that is open."""
        name = request_id.encode()
        was_open = self.open.pop(name, None) is not None
        segment = self._segment_for(len(name) + len(payload))
        segment.write(_ENTRY, name if was_open else b"", payload)
        self.last += 1

    def entries(self, after: int, at_most: int) -> tuple[int, list[bytes]]:
        """Return (number before the first, payloads) of the oldest entries above `after`."""
        payloads: list[bytes] = []
        begin = end = after
        for segment in self._segments:
            first = max(end + 1, segment.first)
            if segment.last < first:
                continue
            if first != end + 1:
                if payloads:
                    break
                # No entry between the two exists any more.
                earlier = [item.last for item in self._segments if item.offsets and item.last < first]
                begin = max(earlier, default=0)
            end = min(segment.last, first + at_most - len(payloads) - 1)
            payloads += [segment.payload(number) for number in range(first, end + 1)]
            if len(payloads) >= at_most:
                break
        return begin, payloads

    def acknowledge(self, mark: int) -> None:
        """Take the mark of the control plane, and delete segments whose entries are all stored there."""
        self.mark = max(self.mark, mark)
        # A mark above the last entry is of a journal whose end was lost with the disk's power.
        self.last = max(self.last, mark)
        while len(self._segments) > 1 and self._segments[0].last <= self.mark:
            self._segments.pop(0).close(delete=True)
        if self._segments[-1].last < self.last:
            self._begin_segment()

    def unsynced(self) -> int | None:
        """Return the file to sync, None if nothing was added since the last call."""
        if self._synced == self.last:
            return None
        self._synced = self.last
        return self._segments[-1].file

    def close(self) -> None:
        """Release the journal. A later process continues it."""
        for segment in self._segments:
            segment.close()
        if self._lock is not None:
            os.close(self._lock)

    def _segment_for(self, length: int) -> JournalSegment:
        """Return the segment for a record with this length of name and payload."""
        last = self._segments[-1]
        if last.end + _HEAD_BYTES + 2 + length <= last.size:
            return last
        self._begin_segment()
        return self._segments[-1]

    def _read(self) -> None:
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")) if self._folder is not None else ():
            self._index = int(path.stem)
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            size = os.fstat(file).st_size
            segment = JournalSegment(mmap.mmap(file, size, access=mmap.ACCESS_READ), self.last + 1, path, file)
            for at, kind, name, payload in segment.records():
                if kind == _FIRST:
                    segment.first = max(_NUMBER.unpack(payload)[0], self.last + 1)
                    self.open = {}
                elif kind == _OPEN:
                    self.open[name] = payload
                else:
                    segment.offsets.append(at)
                    self.open.pop(name, None)
            self.last = max(self.last, segment.last)
            self._segments.append(segment)

    def _begin_segment(self, ends: Callable[[bytes, int], bytes | None] = lambda _open, _number: None) -> None:
        """Begin a segment with the open requests, and with the entries that `ends` makes of them."""
        self._index += 1
        carried = sum(2 * len(payload) + 3 * len(name) + 256 for name, payload in self.open.items())
        segment = JournalSegment(mmap.mmap(-1, SEGMENT_BYTES + 2 * carried), self.last + 1, None)
        segment.write(_FIRST, b"", _NUMBER.pack(self.last + 1))
        for name, payload in self.open.items():
            segment.write(_OPEN, name, payload)
        for name, payload in list(self.open.items()):
            entry = ends(payload, self.last + 1)
            if entry is not None:
                segment.write(_ENTRY, name, entry)
                self.last += 1
                del self.open[name]
        self._segments.append(self._on_disk(segment))
        if len(self._segments) > MAX_SEGMENTS:
            dropped = self._segments.pop(0)
            self.lost += dropped.last - max(dropped.first - 1, self.mark)
            dropped.close(delete=True)

    def _on_disk(self, segment: JournalSegment) -> JournalSegment:
        """Return the segment as a file that appears with all its records; the same segment if the disk is full."""
        if self._folder is None:
            return segment
        path = self._folder / f"{self._index:010}{_SUFFIX}"
        draft = path.with_suffix(".draft")
        try:
            file = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                # A hole would ask for its space later, and a full disk would then kill the process.
                os.posix_fallocate(file, 0, len(segment.data))
                os.pwrite(file, segment.data[: segment.end], 0)
                mapped = JournalSegment(mmap.mmap(file, len(segment.data)), segment.first, path, file)
                draft.rename(path)
            except OSError:
                os.close(file)
                raise
        except OSError as error:
            _log_in_memory(error)
            return segment
        mapped.end, mapped.offsets = segment.end, segment.offsets
        segment.data.close()
        return mapped


def _log_in_memory(error: OSError) -> None:
    log_event(
        "usage_journal_in_memory",
        level=logging.ERROR,
        reason=error.strerror or type(error).__name__,
        remedy="make the state directory writable; until then, a crash loses usage that is not delivered",
    )


def _free_folder(parent: Path) -> tuple[Path, int]:
    """Return (folder, locked file) of the first journal that no process uses, or of a new one."""
    parent.mkdir(parents=True, exist_ok=True)
    # The least recently used first: of several left behind, each is delivered after some start.
    known = sorted((item for item in parent.iterdir() if item.is_dir()), key=lambda item: item.stat().st_mtime_ns)
    for folder in [*known, parent / uuid.uuid4().hex]:
        folder.mkdir(exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        return folder, lock
    raise RuntimeError("a new journal is used by another process")
