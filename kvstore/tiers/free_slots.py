"""The free slots of one tier, and whose bytes are left in them."""

from __future__ import annotations


class FreeSlots:
    """Mutable state: `_free`, a stack; `_residue`, free slots → the tenant whose bytes were not overwritten yet."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._residue: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int | None:
        """Return a slot, or None where all are taken."""
        if not self._free:
            return None
        slot = self._free.pop()
        self._residue.pop(slot, None)
        return slot

    def give(self, slot: int, tenant: str | None) -> None:
        """Take a slot back; `tenant` owns the bytes left in it (None: there are none)."""
        self._free.append(slot)
        if tenant is not None:
            self._residue[slot] = tenant

    def occupy(self, taken: set[int], residue: dict[int, str]) -> None:
        """Begin anew with these slots taken and these tenants' bytes in free ones: what a file was found to hold."""
        self._free = [slot for slot in range(self.slots - 1, -1, -1) if slot not in taken]
        self._residue = {slot: tenant for slot, tenant in residue.items() if slot not in taken}

    def take_residue(self, tenant: str) -> list[int]:
        """Take and return the free slots with bytes of this tenant, to be overwritten and given back."""
        found = [slot for slot, owner in self._residue.items() if owner == tenant]
        gone = set(found)
        self._free = [slot for slot in self._free if slot not in gone]
        for slot in found:
            del self._residue[slot]
        return found

    def check(self, taken: set[int]) -> None:
        """Raise AssertionError unless each slot is either free or taken."""
        free = set(self._free)
        if len(free) != len(self._free) or free & taken or len(free) + len(taken) != self.slots:
            raise AssertionError(f"{len(self._free)} free and {len(taken)} taken slots are not {self.slots}")
        if not set(self._residue) <= free:
            raise AssertionError("a taken slot still has the bytes of a block before it")
