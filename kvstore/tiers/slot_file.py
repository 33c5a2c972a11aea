"""The SSD tier: one file of headers and equal slots. The headers are the only index.

A block becomes visible with its header, which is written last. The header of the slot's previous block is erased first.
So if a process is killed at any byte, or a disk becomes full, every slot holds a whole block or is free. All headers
are at the beginning of the file and are read at once.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from kvstore.tiers.block_header import HEADER_BYTES, BlockHeader, decode_header

_HEAD = struct.Struct("<8sQQ")
_MAGIC = b"SYKVFIL1"
_PAGE = 4096
_HEADERS_PER_READ = 4096
_BLANK = bytes(HEADER_BYTES)
_UNFINISHED = b"unfinished".ljust(HEADER_BYTES, b"\0")


_KEEP_SIZE, _PUNCH_HOLE = 1, 2
"""Modes of fallocate from linux/falloc.h, for which Python has no call."""
_fallocate = getattr(ctypes.CDLL(None, use_errno=True), "fallocate64", None)


class SlotFileInUseError(RuntimeError):
    """Another node manager stores its blocks in this directory."""


class SlotFile:
    """Reads and writes the slots of one file. The catalog decides which block owns which slot."""

    def __init__(self, directory: Path, slots: int, slot_bytes: int) -> None:
        self.slots, self.slot_bytes = slots, slot_bytes
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        # O_NOFOLLOW: a link in the directory could redirect prompts' KV elsewhere.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(directory / "blocks.kv", flags, 0o600)
        try:
            # The kernel ends this lock with the process, however it is killed.
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._file)
            raise SlotFileInUseError(f"another node manager uses {directory}; use another directory") from error
        # The mode above applies to a new file only.
        os.fchmod(self._file, 0o600)
        # Whole pages: punching a hole frees nothing of a page that belongs to another slot too.
        self.stride = -(-slot_bytes // _PAGE) * _PAGE
        """Bytes of disk space per slot."""
        self._payloads_at = -(-(_PAGE + slots * HEADER_BYTES) // _PAGE) * _PAGE
        self._take_over()

    def scan(self) -> Iterator[tuple[int, BlockHeader]]:
        """Yield each slot with an intact header, including free ones with the name of their last tenant.

        A slot whose header is neither intact nor blank holds bytes of an unknown tenant, and is overwritten.
        """
        for first in range(0, self.slots, _HEADERS_PER_READ):
            many = min(_HEADERS_PER_READ, self.slots - first)
            data = memoryview(os.pread(self._file, many * HEADER_BYTES, self._header_at(first)))
            for number in range(len(data) // HEADER_BYTES):
                one = data[number * HEADER_BYTES : (number + 1) * HEADER_BYTES]
                header = decode_header(one, self.slot_bytes)
                if header is not None:
                    yield first + number, header
                elif one != _BLANK:
                    self.scrub(first + number)

    def write(self, slot: int, header: BlockHeader, payload: memoryview) -> None:
        """Store a block. Raises OSError if the disk is full or failing; the slot then holds no block."""
        before = decode_header(os.pread(self._file, HEADER_BYTES, self._header_at(slot)), self.slot_bytes)
        left_over = before.facts.length - len(payload) if before else 0
        # First, so that a crash leaves no header over the bytes of another block.
        self._write(_UNFINISHED, self._header_at(slot))
        if left_over > 0:
            # A block of another tenant may have been longer.
            self._write(bytes(left_over), self._payload_at(slot) + len(payload))
        # The header is written last, because it makes the block visible. No fsync: after a loss of power, the checksum
        # reveals a header that outlived its bytes.
        self._write(payload, self._payload_at(slot))
        self._write(header.encode(), self._header_at(slot))

    def describe(self, slot: int, header: BlockHeader) -> None:
        """Overwrite the header of a stored block."""
        self._write(header.encode(), self._header_at(slot))

    def read_into(self, slot: int, view: memoryview) -> bool:
        """Fill `view` from a slot. Return False if the file is too short. The caller verifies the checksum."""
        done, begin = 0, self._payload_at(slot)
        while done < len(view):
            count = os.preadv(self._file, [view[done:]], begin + done)
            if not count:
                return False
            done += count
        return True

    def written_slots(self) -> bytearray:
        """Return for each slot 1 if it has disk space, because it held a block before, else 0."""
        written, begin = bytearray(self.slots), self._payloads_at
        while (data_at := self._next(begin, os.SEEK_DATA)) is not None:
            begin = self._next(data_at, os.SEEK_HOLE) or data_at + self.stride
            first, end = (
                -(-(data_at - self._payloads_at) // self.stride),
                -(-(begin - self._payloads_at) // self.stride),
            )
            end = min(end, self.slots)
            written[first:end] = b"\1" * max(0, end - first)
        return written

    def punch(self, slot: int) -> None:
        """Release a slot's disk space. Raises OSError if the file system cannot."""
        # The header goes first, so that a crash leaves none over a hole.
        self._blank(self._header_at(slot), HEADER_BYTES)
        where = (ctypes.c_int64(self._payload_at(slot)), ctypes.c_int64(self.stride))
        if _fallocate is None:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        if _fallocate(self._file, _PUNCH_HOLE | _KEEP_SIZE, *where):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    def fileno(self) -> int:
        """Return the file's descriptor."""
        return self._file

    def release(self, slot: int, header: BlockHeader) -> None:
        """Erase a block's header but keep the tenant of the slot's remaining bytes."""
        freed = BlockHeader(header.facts, stored=False, incarnation=header.incarnation, sequence=header.sequence)
        self._write(freed.encode(), self._header_at(slot))

    def scrub(self, slot: int) -> None:
        """Overwrite a written slot and its header with zeros.

        Blank ones are skipped: a full disk has no space for them.
        """
        self._blank(self._payload_at(slot), self.slot_bytes)
        self._blank(self._header_at(slot), HEADER_BYTES)

    def close(self) -> None:
        """Close the file. The next node manager can open it."""
        os.close(self._file)

    def _take_over(self) -> None:
        """Keep the blocks of a file with the same sizes, otherwise create an empty file."""
        head = _HEAD.pack(_MAGIC, self.slots, self.slot_bytes)
        # With other sizes, every offset would be wrong.
        if os.pread(self._file, _HEAD.size, 0) != head:
            os.ftruncate(self._file, 0)
            self._write(head, 0)

    def _blank(self, begin: int, length: int) -> None:
        end = begin + length
        while begin < end and (data_at := self._next(begin, os.SEEK_DATA)) is not None and data_at < end:
            begin = min(self._next(data_at, os.SEEK_HOLE) or end, end)
            self._write(bytes(begin - data_at), data_at)

    def _next(self, begin: int, whence: int) -> int | None:
        """Return where the next data or hole begins, or None."""
        try:
            return os.lseek(self._file, begin, whence)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return None
            raise

    def _header_at(self, slot: int) -> int:
        return _PAGE + slot * HEADER_BYTES

    def _payload_at(self, slot: int) -> int:
        return self._payloads_at + slot * self.stride

    def _write(self, data: bytes | memoryview, begin: int) -> None:
        view, done = memoryview(data), 0
        while done < len(view):
            done += os.pwrite(self._file, view[done:], begin + done)
