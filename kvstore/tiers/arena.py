"""The DRAM tier: one arena of equal slots, mapped and pre-faulted before the first block is stored."""

from __future__ import annotations

import mmap

# Populated at the start, so that no transfer waits for page faults.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)


class Arena:
    """`slots` slots of `slot_bytes` each. The catalog decides which block owns which slot."""

    def __init__(self, slots: int, slot_bytes: int) -> None:
        self.slot_bytes = slot_bytes
        self._map = mmap.mmap(-1, slots * slot_bytes, flags=_FLAGS)
        if hasattr(mmap, "MADV_DONTDUMP"):
            # KV can be turned back into prompts, so a core dump must not contain it.
            self._map.madvise(mmap.MADV_DONTDUMP)
        self._view = memoryview(self._map)
        self._used = [0] * slots

    def view(self, slot: int, length: int) -> memoryview:
        """Return the first `length` bytes of a slot, to read or fill in place."""
        begin = slot * self.slot_bytes
        return self._view[begin : begin + length]

    def claim(self, slot: int, length: int) -> memoryview:
        """Return a slot's view for a new block. Remaining bytes of a longer earlier block are overwritten."""
        if self._used[slot] > length:
            self.view(slot, self._used[slot])[length:] = bytes(self._used[slot] - length)
        self._used[slot] = length
        return self.view(slot, length)

    def scrub(self, slot: int) -> None:
        """Overwrite a slot with zeros."""
        self.claim(slot, 0)

    def close(self) -> None:
        """Release the memory after its last view is released."""
        self._view.release()
        try:
            self._map.close()
        # A view is still in use; the mapping ends with the process.
        except BufferError:
            return
