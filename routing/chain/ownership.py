"""The owner of one pool's queue as one gateway knows it: a state machine without clock or I/O."""

from __future__ import annotations

import msgspec

from routing.chain.owner_messages import OwnerEpoch

LEASE_S = 1.5
"""Seconds after its last renewal at which the owner's claim on the bus ends."""
RENEW_S = 0.5
SILENT_S = 1.0
"""Seconds of silence after which an owner is not asked."""

OWNER, ASKS, ALONE, ONLY = "owner", "asks", "alone", "only"
"""Decides for all; asks the owner; decides alone although it may reach others; is the only gateway, or reaches no
other.
"""

NO_OWNER = "no gateway owns the pool yet"
GONE = "the owner has ended"
SILENT = "the owner is silent"
LATE = "the owner answers too late"
LAPSED = "the lease expired before it was renewed"
TAKEN = "another gateway owns the pool"
UNREACHED = "the addresses that other gateways announce refuse connections"


class Around(msgspec.Struct, frozen=True):
    """One gateway's knowledge of the other gateways at one time."""

    peers: frozenset[str]
    """Tags of the region's known gateways."""
    connected: frozenset[str]
    gone: frozenset[str]
    """Peers whose address refuses connections."""
    unreached: frozenset[str]
    """The `gone` peers that still announce themselves: they are alive, but unreachable from here."""
    bus: bool
    """Whether claims can be made."""


class Ownership:
    """One gateway's knowledge of a pool's owner.

    Mutable: `seen` (the highest epoch received), the role with its reason and start, the end of our own lease, its
    other holder, when the owner last sent a message, and when the next claim is allowed.
    """

    def __init__(self, me: str, now: float) -> None:
        self.seen = OwnerEpoch()
        self.promised = OwnerEpoch()
        """The highest promised epoch."""
        self.role = ONLY
        self.reason = ""
        self.since_s = now
        self.received_s = float("-inf")
        self._late_until_s = float("-inf")
        self._me = me
        self._held_until_s = float("-inf")
        self._renew_s = float("-inf")
        self._free_since_s: float | None = None
        self._holder = ""
        """Holder of the lease at our last failed claim; empty once an owner is reachable."""

    @property
    def owner(self) -> str:
        """Return the tag of the gateway that decides for us, empty if we decide alone."""
        return self.seen.owner if self.role in (OWNER, ASKS) else ""

    def receive(self, epoch: OwnerEpoch, speaker: str, now: float) -> bool:
        """Record an epoch; return False if it is stale. An owner that receives a greater epoch loses its role."""
        if epoch < self.seen:
            return False
        # Another gateway that repeats the epoch does not show that its owner lives.
        if epoch > self.seen or speaker == epoch.owner:
            self.received_s, self._holder = now, ""
        self.seen = epoch
        return True

    def promise(self, proposed: OwnerEpoch) -> OwnerEpoch:
        """Return the epoch that a peer proposes for its ownership, or the epoch that prevents it.

        Each number is promised to only one gateway.
        """
        known = max(self.promised, self.seen)
        if proposed.number > known.number:
            self.promised = known = proposed
        return known

    def late(self, now: float, seconds: float = SILENT_S) -> None:
        """Stop asking the owner for `seconds`, because it did not answer in time, or messages may be lost."""
        self._late_until_s = now + seconds

    def owns(self, now: float) -> bool:
        """Return whether this gateway can decide for others now."""
        return self.role == OWNER and self.seen.owner == self._me and now <= self._held_until_s

    def settle(self, around: Around, now: float) -> bool:
        """Set the role that follows from the known facts; return whether it changed."""
        role, reason = self._role(around, now)
        changed = role != self.role
        if changed or (role == ONLY and reason != self.reason):
            self.since_s = now
        self.role, self.reason = role, reason
        return changed

    def _role(self, around: Around, now: float) -> tuple[str, str]:
        owner = self.seen.owner
        if owner == self._me and owner:
            if not around.bus and (around.connected or not around.peers):
                # No peer can be elected; it stays with us while any peer reaches us.
                self._held_until_s = max(self._held_until_s, now + LEASE_S)
            return (OWNER, "") if now <= self._held_until_s else (ALONE, LAPSED)
        if owner and owner in around.peers and owner not in around.gone:
            if now < self._late_until_s:
                return ALONE, LATE
            return (ASKS, "") if now - self.received_s <= SILENT_S else (ALONE, SILENT)
        if not around.peers - around.gone:
            return ONLY, UNREACHED if around.unreached else ""
        return (ALONE, GONE) if owner else (ALONE, NO_OWNER)

    # -- the lease

    def claims(self, around: Around, rank: int, now: float) -> tuple[bool, str]:
        """Return (whether to claim the pool now, the holder to replace). The holder is "" if only a free pool can be
        claimed.

        `rank` 0 claims immediately; others wait a while.
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
        return True, self._instead_of(around)

    def _instead_of(self, around: Around) -> str:
        """Return the holder whose lease this gateway can replace.

        That is an owner that has ended, or a holder that refuses our connections while we reach most gateways: it may
        be alive, but no gateway can ask it. If two groups cannot reach each other, at most one of them is the larger.
        """
        reaches_most = 2 * (1 + len(around.connected)) > 1 + len(around.peers)
        if self._holder in around.gone and reaches_most:
            return self._holder
        owner = self.seen.owner
        return owner if owner in around.gone or owner not in around.peers else ""

    def claimed(self, asked_s: float) -> None:
        """Postpone the next claim."""
        self._renew_s = asked_s + (RENEW_S if self.seen.owner == self._me else 0.2)

    def renewed(self, asked_s: float) -> None:
        """Record that the bus confirmed our lease, which starts at `asked_s`."""
        # From the question on: the bus counts from its arrival, so that our lease ends here first.
        self._held_until_s, self._holder = asked_s + LEASE_S, ""

    def lost(self, holder: str, now: float) -> None:
        """Give up the pool, because another gateway has claimed it on the bus."""
        self._holder = holder
        if self.seen.owner == self._me:
            self.seen = OwnerEpoch(self.seen.number, "")
            self._held_until_s = float("-inf")
            self._free_since_s = now

    def elected(self, epoch: OwnerEpoch, asked_s: float) -> None:
        """Take ownership of the pool, under an epoch above all that any peer has seen."""
        self.seen = epoch
        self._free_since_s = None
        self.renewed(asked_s)
