"""The free slots of one tier, and whose bytes are left in them."""

from __future__ import annotations

from collections.abc import Collection


class FreeSlots:
    """Mutable state: `_free`, a stack; `_withheld`, slots that cannot be used for now; `_residue`, slots of either →
    the tenant whose bytes were not overwritten yet.
    """

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._withheld: dict[int, None] = {}
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

    @property
    def withheld(self) -> int:
        """How many slots cannot be used for now."""
        return len(self._withheld)

    def listed(self) -> list[int]:
        """Return the free slots."""
        return list(self._free)

    def withhold(self, slots: Collection[int]) -> None:
        """Take those of these slots that are free out of use."""
        self._withheld.update(dict.fromkeys(slot for slot in self._free if slot in slots))
        self._free = [slot for slot in self._free if slot not in self._withheld]

    def give_back(self, most: int) -> int | None:
        """Make so many withheld slots free again, the last of which is taken first; returns that one."""
        slot = None
        for _ in range(min(most, len(self._withheld))):
            slot, _ = self._withheld.popitem()
            self._free.append(slot)
        return slot

    def occupy(self, taken: set[int], residue: dict[int, str]) -> None:
        """Begin anew with these slots taken and these tenants' bytes in free ones: what a file was found to hold."""
        self._free = [slot for slot in range(self.slots - 1, -1, -1) if slot not in taken]
        self._withheld.clear()
        self._residue = {slot: tenant for slot, tenant in residue.items() if slot not in taken}

    def take_residue(self, tenant: str) -> list[int]:
        """Take and return the free slots with bytes of this tenant, to be overwritten and given back."""
        found = [slot for slot, owner in self._residue.items() if owner == tenant]
        gone = set(found)
        self._free = [slot for slot in self._free if slot not in gone]
        for slot in found:
            self._withheld.pop(slot, None)
            del self._residue[slot]
        return found

    def check(self, taken: set[int]) -> None:
        """Raise AssertionError unless each slot is either free, withheld or taken."""
        free = {*self._free, *self._withheld}
        if len(free) != len(self._free) + self.withheld or free & taken or len(free) + len(taken) != self.slots:
            raise AssertionError(f"{len(free)} free and {len(taken)} taken slots are not {self.slots}")
        if not set(self._residue) <= free:
            raise AssertionError("a taken slot still has the bytes of a block before it")
