"""Shares of each API key's limits: the gateways' shares sum up to the limit and follow the key's calls.

The owner of the first pool assigns the parts. A part is raised only by what other gateways have given back, so that the
sum never exceeds the limit. Without other gateways, this gateway has the complete limit and sends nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from gateway.access.key_quota import KeyPart, KeyQuotas
from gateway.contracts.snapshot import ApiKeyEntry
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from gateway.owners.pool_owners import PoolOwners
from gateway.peers.peer_link import PeerLinks
from gateway.peers.peer_proof import PeerIdentity
from routing.chain.ownership import ASKS, OWNER

REPORT_S = 0.5
EVEN = 0.1
"""Share of a limit that is divided evenly, independent of demand, so that a key's first call is not rejected."""
WORTH_MOVING = 0.05
JOINS_S = 5.0
"""A gateway that connects to others within this many seconds of its start has joined them, and begins with empty
buckets.
"""
CUT_OFF_S = 20.0
CUT_OFF_PART = 0.1
"""Factor of its parts that a gateway keeps after a while without peers, because the others will get them."""
USES, PARTS = "quota use", "quota parts"


class KeyUse(msgspec.Struct, frozen=True, array_like=True):
    """One gateway's demand for one key's limits, and its current share."""

    key_id: str
    calls: float
    """Calls since the last report, including rejected ones, plus half of those before, and so on."""
    in_flight: float
    """Requests that run or were rejected for lack of a slot, weighted as `calls`."""
    has: KeyPart


class KeyUses(msgspec.Struct, frozen=True, array_like=True):
    """Demand for all keys at one gateway."""

    keys: list[KeyUse]


_USES: WireForm[KeyUses] = WireForm(KeyUses, "the use of keys", limit=MIB)
_PARTS: WireForm[dict[str, KeyPart]] = WireForm(dict[str, KeyPart], "parts of keys", limit=MIB)


class QuotaShares:
    """One gateway's quota shares. Mutable: the peers' reports, the assigned parts, and when the last peer was lost."""

    def __init__(self, owners: PoolOwners, links: PeerLinks, quotas: Sequence[KeyQuotas]) -> None:
        """`quotas` share the parts. The first one counts the demand."""
        self._owners = owners
        self._links = links
        self._quotas = quotas
        self._reports: dict[str, dict[str, KeyUse]] = {}
        self._given: dict[str, dict[str, KeyPart]] = {}
        self._wanted: dict[str, tuple[float, float]] = {}
        self._cut_off_s: float | None = None
        self._began_s: float | None = None
        links.on_notice(USES, self._on_uses)
        links.on_notice(PARTS, self._on_parts)

    def tick(self) -> None:
        """Report our demand, or assign the parts if this gateway assigns them."""
        now = self._owners.clock()
        known = self._owners.directory.tags
        connected = [tag for tag in known if self._links.connected(tag)]
        gone = [tag for tag in known if self._links.refused(tag)]
        gateways = sorted([self._links.me.tag, *(tag for tag in known if tag not in gone)])
        self._settle(gateways, connected, now)
        uses = self._uses()
        giver = self._giver()
        if giver == self._links.me.tag:
            self._reports[giver] = {use.key_id: use for use in uses}
            self._give(gateways)
        else:
            self._reports.clear()
            self._given.clear()
            if giver and len(gateways) > 1:
                self._links.notify(giver, USES, _USES.encode(KeyUses(uses)))

    def _giver(self) -> str:
        """Return the tag of the gateway that assigns parts, empty if there is none now and all keep their parts."""
        pool_id = min(self._owners.shared, default="")
        if not pool_id:
            return ""
        known = self._owners.shared[pool_id].ownership
        return known.owner if known.role in (OWNER, ASKS) else ""

    def _settle(self, gateways: list[str], connected: list[str], now: float) -> None:
        """Set our index among the gateways, by which limits without assigned parts are divided."""
        position = (gateways.index(self._links.me.tag), len(gateways))
        self._began_s = now if self._began_s is None else self._began_s
        joins = position[1] > 1 and self._quotas[0].position[1] == 1 and now - self._began_s < JOINS_S
        for quotas in self._quotas:
            quotas.share_with(position, now, empty=joins)
        if connected or position[1] == 1:
            self._cut_off_s = None
        elif self._cut_off_s is None:
            self._cut_off_s = now
        elif now - self._cut_off_s >= CUT_OFF_S:
            # Scaled once only, however long it stays cut off.
            self._cut_off_s = math.inf
            self._take({name: part.scaled(CUT_OFF_PART) for name, part in self._parts().items()})

    def _take(self, parts: Mapping[str, KeyPart]) -> None:
        for quotas in self._quotas:
            quotas.take_parts(parts, self._owners.clock())

    def _parts(self) -> dict[str, KeyPart]:
        """Return this gateway's part of every limited key."""
        first = self._quotas[0]
        return {name: first.part_of(key) for name, key in first.limited.items()}

    def _uses(self) -> list[KeyUse]:
        first = self._quotas[0]
        asked = first.asked_since()
        wanted = {}
        for name in self._wanted.keys() | asked.keys():
            calls, slots = self._wanted.get(name, (0.0, 0.0))
            more, running = asked.get(name, (0, 0))
            now_calls, now_slots = calls / 2 + more, max(slots / 2, float(running))
            if name in first.limited and now_calls + now_slots > 0.01:
                wanted[name] = (now_calls, now_slots)
        self._wanted = wanted
        names = wanted.keys() | first.parts.keys()
        return [
            KeyUse(name, *wanted.get(name, (0.0, 0.0)), first.held(first.limited[name]))
            for name in sorted(names)
            if name in first.limited
        ]

    def _on_uses(self, peer: PeerIdentity, body: bytes) -> None:
        try:
            self._reports[peer.tag] = {key.key_id: key for key in _USES.decode(body).keys}
        except UnreadableMessageError:
            return

    def _on_parts(self, peer: PeerIdentity, body: bytes) -> None:
        # A former giver may not know yet that another one gives.
        if peer.tag != self._giver():
            return
        try:
            parts = _PARTS.decode(body)
        except UnreadableMessageError:
            return
        self._take(parts)

    def _give(self, gateways: list[str]) -> None:
        """Assign the parts of all keys with demand, once all gateways have reported their demand."""
        # What a silent gateway uses is unknown, and it may still use it.
        if any(tag not in self._reports for tag in gateways):
            return
        for gone in [tag for tag in self._reports if tag not in gateways]:
            self._reports.pop(gone)
            self._given.pop(gone, None)
        limited = self._quotas[0].limited
        sent: dict[str, dict[str, KeyPart]] = {tag: {} for tag in gateways}
        for name in sorted({name for uses in self._reports.values() for name in uses}):
            key = limited.get(name)
            if key is not None:
                for tag, part in self._parted(key, gateways).items():
                    sent[tag][name] = part
        for tag, parts in sent.items():
            self._given[tag] = parts
            if tag == self._links.me.tag:
                self._take(parts)
            elif parts:
                self._links.notify(tag, PARTS, _PARTS.encode(parts))

    def _parted(self, key: ApiKeyEntry, gateways: list[str]) -> dict[str, KeyPart]:
        """Return each gateway's new part. Reductions apply at once; increases only as far as others have given back."""
        count = len(gateways)
        even = [KeyPart.even(key, index, count) for index in range(count)]
        uses = [self._reports[tag].get(key.key_id) for tag in gateways]
        has = [use.has if use is not None else even[index] for index, use in enumerate(uses)]
        given = [self._given.get(tag, {}).get(key.key_id, has[index]) for index, tag in enumerate(gateways)]
        # A report may be older than what was given since: with the larger of both, the sum never exceeds the limit.
        held = [KeyPart(max(a.rate, b.rate), max(a.slots, b.slots)) for a, b in zip(has, given, strict=True)]
        rates = shared_out([use.calls if use else 0.0 for use in uses])
        slots = whole_slots([use.in_flight if use else 0.0 for use in uses], key.max_in_flight or 0)
        # fsum, because the rounding of a plain sum could appear as a free part.
        free = 1.0 - math.fsum(item.rate for item in held)
        free_slots = (key.max_in_flight or 0) - sum(item.slots for item in held)
        parts = {}
        for index, tag in enumerate(gateways):
            rate, slot = held[index].rate, held[index].slots
            if abs(rates[index] - rate) > WORTH_MOVING or rates[index] < rate:
                more = min(max(free, 0.0), rates[index] - rate)
                free -= max(more, 0.0)
                rate += more
            more_slots = min(max(free_slots, 0), slots[index] - slot)
            free_slots -= max(more_slots, 0)
            parts[tag] = KeyPart(rate, slot + more_slots)
        return parts


def shared_out(wanted: Sequence[float]) -> list[float]:
    """Return each gateway's share (sum 1): mostly in proportion to its demand, a little evenly."""
    total, count = math.fsum(wanted), len(wanted)
    return [(1.0 - EVEN) * item / total + EVEN / count if total else 1.0 / count for item in wanted]


def whole_slots(wanted: Sequence[float], limit: int) -> list[int]:
    """Return each gateway's whole slots of `limit`, by the largest remainder. Among equals, the first gets more."""
    exact = [part * limit for part in shared_out(wanted)]
    slots = [math.floor(item) for item in exact]
    order = sorted(range(len(exact)), key=lambda index: (slots[index] - exact[index], index))
    for index in order[: limit - sum(slots)]:
        slots[index] += 1
    return slots
