"""The owner of one pool's queue, as one gateway knows it: a state machine without clock or I/O."""

from __future__ import annotations

import msgspec

from gateway.owners.owner_messages import Epoch

LEASE_S = 1.5
"""The owner's claim on the bus ends so long after its last renewal."""
RENEW_S = 0.5
SILENT_S = 1.0
"""An owner that has said nothing for so long is not asked."""

OWNER, ASKS, ALONE, ONLY = "owner", "asks", "alone", "only"
"""Decides for all; asks the owner; decides alone although there are others; is the only gateway."""

NO_OWNER = "no gateway owns the pool yet"
GONE = "the owner has ended"
SILENT = "the owner is silent"
LATE = "the owner answers too late"
LAPSED = "the lease ran out before it was renewed"
TAKEN = "another gateway owns the pool"


class Around(msgspec.Struct, frozen=True):
    """One gateway's knowledge of the others at one moment."""

    peers: frozenset[str]
    """Tags of known gateways of the region."""
    connected: frozenset[str]
    gone: frozenset[str]
    """Those whose address rejects connections."""
    bus: bool
    """Whether claims can be made."""


class Ownership:
    """One pool's owner in the eyes of one gateway.

    Mutable state: `seen` (the highest epoch that anybody told), the role with its reason and since when, the end of
    our own lease, when the owner last spoke, and when the next claim may be made.
    """

    def __init__(self, me: str, now: float) -> None:
        self.seen = Epoch()
        self.promised = Epoch()
        """The highest epoch that was promised to anybody."""
        self.role = ONLY
        self.reason = ""
        self.since_s = now
        self.heard_s = float("-inf")
        self._late_until_s = float("-inf")
        self._me = me
        self._held_until_s = float("-inf")
        self._renew_s = float("-inf")
        self._free_since_s: float | None = None

    @property
    def owner(self) -> str:
        """The tag of the gateway that decides for us; empty: we decide alone."""
        return self.seen.owner if self.role in (OWNER, ASKS) else ""

    def hear(self, told: Epoch, speaker: str, now: float) -> bool:
        """Note an epoch; False where it is stale. An owner that hears of a greater one is none any more."""
        if told < self.seen:
            return False
        if told > self.seen or speaker == told.owner:
            self.heard_s = now
        self.seen = told
        return True

    def promise(self, proposed: Epoch) -> Epoch:
        """Return the epoch that somebody wants to own the pool under, or the one that stands against it.

        Each number is promised to one gateway.
        """
        known = max(self.promised, self.seen)
        if proposed.number > known.number:
            self.promised = known = proposed
        return known

    def late(self, now: float) -> None:
        """Do not ask the owner for a while: it did not answer in time."""
        self._late_until_s = now + SILENT_S

    def owns(self, now: float) -> bool:
        """Return whether we may decide for others at this moment."""
        return self.role == OWNER and self.seen.owner == self._me and now <= self._held_until_s

    def settle(self, around: Around, now: float) -> bool:
        """Take the role that follows from what is known; True: it changed."""
        role, reason = self._role(around, now)
        changed = role != self.role
        if changed:
            self.since_s = now
        self.role, self.reason = role, reason
        return changed

    def _role(self, around: Around, now: float) -> tuple[str, str]:
        owner = self.seen.owner
        if owner == self._me and owner:
            if not around.bus and (around.connected or not around.peers):
                # Nobody can be elected; it stays with us while somebody reaches us.
                self._held_until_s = max(self._held_until_s, now + LEASE_S)
            return (OWNER, "") if now <= self._held_until_s else (ALONE, LAPSED)
        if owner and owner in around.peers and owner not in around.gone:
            if now < self._late_until_s:
                return ALONE, LATE
            return (ASKS, "") if now - self.heard_s <= SILENT_S else (ALONE, SILENT)
        if not around.peers - around.gone:
            return ONLY, ""
        return (ALONE, GONE) if owner else (ALONE, NO_OWNER)

    # -- the lease

    def claims(self, around: Around, rank: int, now: float) -> tuple[bool, str]:
        """Return whether to claim the pool now, and instead of whom ("": only if it is free).

        `rank` 0 claims at once; the others leave it a while.
        """
        if not around.bus:
            return False, ""
        if self.seen.owner == self._me:
            return now >= self._renew_s, self._me
        if self.role == ASKS or (self.role == ONLY and not self.seen.number):
            self._free_since_s = None
            return False, ""
        if self._free_since_s is None:
            self._free_since_s = now
        if now - self._free_since_s < 0.2 * rank or now < self._renew_s:
            return False, ""
        gone = self.seen.owner in around.gone or self.seen.owner not in around.peers
        return True, self.seen.owner if gone else ""

    def claimed(self, asked_s: float) -> None:
        """Do not ask again at once."""
        self._renew_s = asked_s + (RENEW_S if self.seen.owner == self._me else 0.2)

    def renewed(self, asked_s: float) -> None:
        """The bus says that the pool is ours for a lease from `asked_s`."""
        self._held_until_s = asked_s + LEASE_S

    def lost(self, now: float) -> None:
        """The bus says that somebody else has claimed the pool: we own it no more, whoever that is."""
        if self.seen.owner == self._me:
            self.seen = Epoch(self.seen.number, "")
            self._held_until_s = float("-inf")
            self._free_since_s = now

    def elected(self, epoch: Epoch, asked_s: float) -> None:
        """Own the pool from now on, under an epoch above all that a peer has seen."""
        self.seen = epoch
        self._free_since_s = None
        self.renewed(asked_s)
