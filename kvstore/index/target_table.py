"""Bit numbers of targets in the prefix index: one per engine incarnation, reused only after a sweep."""

from __future__ import annotations


class TargetTable:
    """Name of a target → bit number. A released bit is not reused until `sweep` frees it.

    Mutable state: `_bits`, `_resting` (released, possibly still in the index) and `_free`.
    """

    def __init__(self) -> None:
        self._bits: dict[str, int] = {}
        self._resting: list[int] = []
        self._free: list[int] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._bits)

    def assign(self, name: str) -> int:
        """Return the bit of `name`, assigning one at the first call."""
        bit = self._bits.get(name)
        if bit is None:
            bit = self._free.pop() if self._free else self._next
            self._next = max(self._next, bit + 1)
            self._bits[name] = bit
        return bit

    def release(self, name: str) -> int | None:
        """Release the bit of `name` and return it, None if it has none."""
        bit = self._bits.pop(name, None)
        if bit is not None:
            self._resting.append(bit)
        return bit

    def sweep(self) -> list[int]:
        """Free the released bits and return them. The caller must have cleared them from the index."""
        swept, self._resting = self._resting, []
        # `assign` pops the lowest, so that bitsets stay as short as the fleet is small.
        self._free = sorted({*self._free, *swept}, reverse=True)
        return swept

    def check(self) -> None:
        """Raise AssertionError unless each bit is in exactly one state."""
        everywhere = [*self._bits.values(), *self._resting, *self._free]
        if sorted(everywhere) != list(range(self._next)):
            raise AssertionError(f"bits {sorted(everywhere)} are not 0 … {self._next - 1}")
