"""The free slots of one tier: those that may be used, those that need disk space first, and whose bytes are left in
them.
"""

from __future__ import annotations

from collections.abc import Iterable


class FreeSlots:
    """Mutable state: `_ready`, a stack of slots that have their space; `_blank`, a stack of slots that would take disk
    space, of which `_allowed` may be used; `_residue`, slots of either → the tenant whose bytes were not
    overwritten.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._ready = list(range(slots - 1, -1, -1))
        self._blank: list[int] = []
        self._allowed = 0
        self._residue: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._ready) + min(self._allowed, len(self._blank))

    def take(self) -> int | None:
        """Return a slot, or None where all are taken or withheld."""
        # First those that take no space from the disk.
        if self._ready:
            slot = self._ready.pop()
        elif self._blank and self._allowed:
            self._allowed -= 1
            slot = self._blank.pop()
        else:
            return None
        self._residue.pop(slot, None)
        return slot

    def give(self, slot: int, tenant: str | None) -> None:
        """Take a slot back; `tenant` owns the bytes left in it (None: there are none)."""
        self._ready.append(slot)
        if tenant is not None:
            self._residue[slot] = tenant

    def give_blank(self, slots: Iterable[int]) -> None:
        """Take slots back whose disk space was released."""
        self._blank += slots

    @property
    def withheld(self) -> int:
        """Number of slots that cannot be used at present."""
        return len(self._blank) - min(self._allowed, len(self._blank))

    def listed(self) -> list[int]:
        """Return the slots that have their space."""
        return list(self._ready)

    def without_space(self, slots: Iterable[int]) -> None:
        """Mark the free ones among these slots as without disk space."""
        gone = set(slots)
        moved = [slot for slot in self._ready if slot in gone]
        if moved:
            self._ready = [slot for slot in self._ready if slot not in gone]
            self._blank += moved
            for slot in moved:
                self._residue.pop(slot, None)

    def allow(self, slots: int) -> None:
        """Allow the use of `slots` slots without space; the others are withheld."""
        self._allowed = slots

    def allow_next(self) -> int | None:
        """Make one slot without space the next to be taken; returns it."""
        if not self._blank:
            return None
        self._ready.append(self._blank.pop())
        return self._ready[-1]

    def occupy(self, taken: set[int], residue: dict[int, str]) -> None:
        """Reset to these taken slots, and these tenants' bytes in free ones: the contents of an existing file."""
        self._ready = [slot for slot in range(self.slots - 1, -1, -1) if slot not in taken]
        self._blank.clear()
        self._residue = {slot: tenant for slot, tenant in residue.items() if slot not in taken}

    def take_residue(self, tenant: str) -> list[int]:
        """Take and return the free slots with bytes of this tenant, to be overwritten and given back."""
        slots = [slot for slot, owner in self._residue.items() if owner == tenant]
        gone = set(slots)
        self._ready = [slot for slot in self._ready if slot not in gone]
        for slot in slots:
            del self._residue[slot]
        return slots

    def check(self, taken: set[int]) -> None:
        """Raise AssertionError unless each slot is either free, withheld or taken."""
        free = {*self._ready, *self._blank}
        if len(free) != len(self._ready) + len(self._blank) or free & taken or len(free) + len(taken) != self.slots:
            raise AssertionError(f"{len(free)} free and {len(taken)} taken slots are not {self.slots}")
        if not set(self._residue) <= set(self._ready):
            raise AssertionError("a taken slot still has the bytes of a block before it")
