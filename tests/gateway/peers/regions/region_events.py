"""Ordered request events of gateways in one process: the history that tests check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from unittest.mock import patch

from bench.live.region_history import problems, seconds
from gateway.peers.regions.region_epochs import RegionEpochs
from gateway.peers.regions.regions import Regions
from gateway.proxy.region_relay import RegionRelay


class RegionEvents:
    """The events of all gateways, as in their logs. Mutable: events, and the times when gateways ended."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.ends: dict[str, list[float]] = {}

    def note(self, event: str, gateway: str, **fields: Any) -> None:
        """Record an event of a region's gateway."""
        self.events.append({"event": event, "gateway": gateway, "at": datetime.now(UTC).isoformat(), **fields})

    def ended(self, region: str) -> None:
        """Record the end of a region's gateway with all its running requests."""
        self.ends.setdefault(region, []).append(datetime.now(UTC).timestamp())

    def dispatches(self, decision_id: str) -> int:
        """Return how often a request was dispatched to an engine."""
        events = [
            event for event in self.events if event["event"] == "dispatched" and event["decision_id"] == decision_id
        ]
        return len(events)

    def forwards(self, origin: str) -> Counter[tuple[str, str]]:
        """Return how many requests a region sent to each other region, by outcome."""
        events = [event for event in self.events if event["event"] == "forward_ended" and event["gateway"] == origin]
        return Counter((item["destination"], item["outcome"]) for item in events)

    def check(self) -> None:
        """Raise AssertionError if a request ran in two regions, made two hops, or an epoch had two holders."""
        assert problems(sorted(self.events, key=seconds), self.ends) == []


@contextmanager
def recorded() -> Iterator[RegionEvents]:
    """Record during the block, and check the history at its end."""
    events = RegionEvents()
    dispatched, left, ended = Regions.dispatched, Regions.left, Regions.ended
    relay, epoch = RegionRelay.relay, RegionEpochs._set

    def on_dispatched(self: Regions, record: Any, *rest: Any) -> None:
        decision = record.decision
        events.note("dispatched", self.region, decision_id=decision.decision_id, engine_id=decision.engine_id)
        dispatched(self, record, *rest)

    def on_left(self: Regions, record: Any, failed: bool) -> None:
        events.note("released", self.region, decision_id=record.decision.decision_id)
        left(self, record, failed)

    def on_ended(self: Regions, record: Any, *rest: Any) -> None:
        if record.decision.engine_id:
            events.note("released", self.region, decision_id=record.decision.decision_id)
        ended(self, record, *rest)

    async def on_relay(self: RegionRelay, exchange: Any, record: Any, elsewhere: Any, *rest: Any) -> bool:
        hop, name = elsewhere.hop, record.decision.decision_id
        events.note("forwarded", hop.origin, decision_id=name, destination=hop.destination, heartbeat_age_s=0.0)
        try:
            return await relay(self, exchange, record, elsewhere, *rest)
        finally:
            events.note("forward_ended", hop.origin, destination=hop.destination, outcome=record.outcome)

    def on_epoch(self: RegionEpochs, region: str, number: int, how: str) -> None:
        events.note("region_epoch", self._region, region_name=region, number=number, holder=self._tag)
        epoch(self, region, number, how)

    with (
        patch.object(Regions, "dispatched", on_dispatched),
        patch.object(Regions, "left", on_left),
        patch.object(Regions, "ended", on_ended),
        patch.object(RegionRelay, "relay", on_relay),
        patch.object(RegionEpochs, "_set", on_epoch),
    ):
        yield events
    events.check()
