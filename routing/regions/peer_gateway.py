"""State of one gateway of another region: its last heartbeat, distance, and prefixes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from routing.regions.heartbeat import Heartbeat, HeartbeatCall, RegionEpoch
from routing.regions.prefix_snapshot import HeldPrefixes, PrefixSnapshot

_SMOOTHING = 0.2
MAX_UNTOLD = 4096
SENT_KEYS = 16_384
"""Maximum block keys remembered of the prompts that we forwarded to one region through one gateway: about 3 MB."""
SILENCE_S = 2.0
"""A gateway whose last heartbeat is older is unavailable, and work for it ends."""


class PeerGateway:
    """A gateway address in another region. Times are monotonic seconds.

    Mutable: the last heartbeat and when it was requested, its prefixes, the prompts that we forwarded, and our own
    forwards that no heartbeat includes yet.
    """

    def __init__(self, name: str, region: str, address: str) -> None:
        self.name, self.region, self.address = name, region, address
        self.heartbeat: Heartbeat | None = None
        self.heartbeat_s = float("-inf")
        """When the last heartbeat was requested, so that its facts are newer."""
        self.one_way_s = 0.0
        self.clock_offset_s = 0.0
        """Seconds by which its clock is ahead of ours."""
        self.held: dict[str, HeldPrefixes] = {}
        """Region whose engines hold the prefixes → prefixes."""
        self._forwarded: deque[tuple[float, str]] = deque(maxlen=MAX_UNTOLD)
        self._sent: dict[str, PrefixSnapshot] = {}
        """Region → prompts forwarded to its engines. A peer's snapshot has no room for all of a busy region."""

    def question(self, epochs: Mapping[str, RegionEpoch]) -> HeartbeatCall:
        """Return the next heartbeat request."""
        tag = self.heartbeat.tag if self.heartbeat is not None else ""
        versions = {region: held.version for region, held in self.held.items()}
        return HeartbeatCall(tag, versions, dict(epochs), self.stamp)

    @property
    def stamp(self) -> float:
        """Return its newest stamp received, 0 if none."""
        return self.heartbeat.stamp if self.heartbeat is not None else 0.0

    def receive(self, heartbeat: Heartbeat, asked_s: float, now: float, wall: float) -> bool:
        """Apply a heartbeat. One requested before the last one changes nothing; return False for it."""
        if asked_s <= self.heartbeat_s:
            return False
        before = self.heartbeat
        # Another process counts the versions of its prefixes from the start.
        if before is None or before.tag != heartbeat.tag:
            self.held = {}
            self._sent = {}
        measured_s = (now - asked_s) / 2
        # The shortest way there and back is the network's; the rest is queueing.
        nearer = before is None or measured_s < self.one_way_s
        self.one_way_s = measured_s if nearer else self.one_way_s + _SMOOTHING * (measured_s - self.one_way_s)
        self.clock_offset_s = heartbeat.at - (wall - measured_s)
        self.held = {region: self.held.get(region, HeldPrefixes()) for region in heartbeat.prefixes}
        for region, delta in heartbeat.prefixes.items():
            self.held[region].apply(delta)
        self.heartbeat, self.heartbeat_s = heartbeat, asked_s
        while self._forwarded and self._forwarded[0][0] <= asked_s:
            self._forwarded.popleft()
        return True

    def matched_blocks(self, region: str, keys: Sequence[int]) -> int:
        """Return the number of a prompt's leading blocks that the region's engines hold, as far as known: according to
        this gateway, or because we forwarded them.
        """
        known = (self.held.get(region), self._sent.get(region))
        return max([part.matched_blocks(keys) for part in known if part is not None], default=0)

    def is_fresh(self, now: float) -> bool:
        """Return whether its last heartbeat is at most SILENCE_S old."""
        return now - self.heartbeat_s <= SILENCE_S

    def forwarded(self, region: str, keys: Sequence[int], now: float) -> None:
        """Record a request that was just sent to this gateway for an engine of `region`."""
        self._forwarded.append((now, region))
        self._sent.setdefault(region, PrefixSnapshot(SENT_KEYS)).note(keys)

    def untold(self, region: str) -> int:
        """Return the number of our forwards for the region that no heartbeat includes yet."""
        return sum(1 for _, forwarded_to in self._forwarded if forwarded_to == region)
