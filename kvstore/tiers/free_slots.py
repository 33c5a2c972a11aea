"""The free slots of one tier: usable ones, ones that still need disk space, and the tenants of remaining bytes."""

from __future__ import annotations

from collections.abc import Iterable

from kvstore.tiers.eviction import EvictionOrder


class FreeSlots:
    """Free slots.

    Mutable state: `_ready`, a stack of slots with disk space; `_blank`, a stack of slots without it, of which
    `_allowed` can be used; `_residue`, free slot → the tenant whose bytes were not overwritten.
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
        """Return a slot, None if all are taken or withheld."""
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
        """Return a slot to the free ones. `tenant` owns its remaining bytes (None: there are none)."""
        self._ready.append(slot)
        if tenant is not None:
            self._residue[slot] = tenant

    def give_blank(self, slots: Iterable[int]) -> None:
        """Return slots whose disk space was released."""
        self._blank += slots

    @property
    def withheld(self) -> int:
        """Number of slots that cannot be used at present."""
        return len(self._blank) - min(self._allowed, len(self._blank))

    def listed(self) -> list[int]:
        """Return the free slots with disk space."""
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
        """Allow the use of `slots` slots without disk space. The others are withheld."""
        self._allowed = slots

    def allow_next(self) -> int | None:
        """Make one slot without disk space the next to be taken, and return it."""
        if not self._blank:
            return None
        self._ready.append(self._blank.pop())
        return self._ready[-1]

    def occupy(self, taken: set[int], residue: dict[int, str]) -> None:
        """Reset to these taken slots and these remaining bytes by tenant, from an existing file."""
        self._ready = [slot for slot in range(self.slots - 1, -1, -1) if slot not in taken]
        self._blank.clear()
        self._residue = {slot: tenant for slot, tenant in residue.items() if slot not in taken}

    def take_residue(self, tenant: str) -> list[int]:
        """Take and return the free slots with bytes of this tenant, to overwrite and return."""
        slots = [slot for slot, owner in self._residue.items() if owner == tenant]
        gone = set(slots)
        self._ready = [slot for slot in self._ready if slot not in gone]
        for slot in slots:
            del self._residue[slot]
        return slots

    def check(self, taken: set[int]) -> None:
        """Raise AssertionError unless each slot is either free, withheld, or taken."""
        free = {*self._ready, *self._blank}
        if len(free) != len(self._ready) + len(self._blank) or free & taken or len(free) + len(taken) != self.slots:
            raise AssertionError(f"{len(free)} free and {len(taken)} taken slots are not {self.slots}")
        if not set(self._residue) <= set(self._ready):
            raise AssertionError("a taken slot still has the bytes of a block before it")


class Tier:
    """One tier. Mutable; only the catalog changes it."""

    def __init__(self, slots: int, order: EvictionOrder) -> None:
        self.free = FreeSlots(slots)
        self.order = order
        self.evicted = 0
