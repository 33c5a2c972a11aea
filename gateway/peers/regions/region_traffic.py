"""Counts where this gateway's requests were served: here or in other regions, by why, and with what result."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

from gateway.contracts.fleet_sample import HandOvers, RegionLink, RegionSample
from gateway.peers.regions.region_peers import RegionPeers
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.pools.traffic.traffic_window import COMPLETED, FAILED
from routing.values.hop import Hop

LOCAL, FORWARDED = "local", "forwarded"
WINDOW_S = 15.0
MAX_NOTED = 32_768
MINUTES = 60


class RegionTraffic:
    """Counts over windows.

    Mutable: the events and their times, at most the newest MAX_NOTED; hand-overs by minute, region, reason, and figure.
    """

    def __init__(self, peers: RegionPeers, clock: Callable[[], float] = time.monotonic) -> None:
        self._peers = peers
        self._clock = clock
        self._noted: deque[tuple[float, str, str]] = deque(maxlen=MAX_NOTED)
        self._handed: Counter[tuple[int, str, str, str]] = Counter()

    def note(self, kind: str, region: str) -> None:
        """Record one request: LOCAL, or FORWARDED to a region."""
        self._noted.append((self._clock(), kind, region))

    def forwarded(self, hop: Hop) -> None:
        """Record a request that another region gets."""
        self.note(FORWARDED, hop.destination)
        self._count(hop, requests=1)

    def forward_ended(self, record: DecisionRecord, hop: Hop) -> None:
        """Record the end, or the failed try, of a forwarded request."""
        if record.outcome == COMPLETED and record.ttft_s is not None:
            self._count(hop, late=record.misses_objective(), first_tokens=1, ttft_s=record.ttft_s)
        elif record.outcome in ("", FAILED):
            self._count(hop, failed=1)

    def _count(self, hop: Hop, **more: Any) -> None:
        minute = int(self._clock() // 60)
        for name, number in more.items():
            self._handed[minute, hop.destination, hop.reason, name] += number

    def _hand_overs(self) -> tuple[HandOvers, ...]:
        sums = dict[tuple[str, str], Counter[str]]()
        for key, number in list(self._handed.items()):
            minute, region, reason, name = key
            if minute <= self._clock() // 60 - MINUTES:
                del self._handed[key]
            else:
                sums.setdefault((region, reason), Counter())[name] += number
        return tuple(HandOvers(region=region, reason=reason, **sums[region, reason]) for region, reason in sorted(sums))

    def sample(self) -> RegionSample:
        """Return this gateway's sample for the console."""
        now, peers = self._clock(), self._peers
        while self._noted and self._noted[0][0] < now - WINDOW_S:
            self._noted.popleft()
        # A full deque may have lost a part of the window.
        span_s = max(1.0, now - self._noted[0][0]) if len(self._noted) == MAX_NOTED else WINDOW_S
        counts = Counter((kind, region) for _, kind, region in self._noted)

        def rates(kind: str) -> dict[str, float]:
            return {region: count / span_s for (counted, region), count in sorted(counts.items()) if counted == kind}

        return RegionSample(
            region=peers.region,
            tag=peers.links.me.tag,
            local_per_s=rates(LOCAL).get(peers.region, 0.0),
            forwarded_per_s=rates(FORWARDED),
            links=tuple(self._link(name, now) for name in sorted(peers.gateways)),
            epochs={region: (epoch.number, epoch.region) for region, epoch in sorted(peers.epochs.known.items())},
            hand_overs=self._hand_overs(),
            serves=(*((peers.region,) if peers.epochs.serves(peers.region) else ()), *peers.epochs.adopted),
        )

    def _link(self, name: str, now: float) -> RegionLink:
        gateway = self._peers.gateways[name]
        had_heartbeat = gateway.heartbeat is not None
        return RegionLink(
            region=gateway.region,
            address=gateway.address,
            up=self._peers.is_up(gateway, now),
            dead=self._peers.links.refused(name),
            heartbeat_age_s=now - gateway.heartbeat_s if had_heartbeat else None,
            one_way_s=gateway.one_way_s,
            clock_offset_s=gateway.clock_offset_s,
        )
