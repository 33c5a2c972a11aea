"""Three connected gateways on loopback, each of its own region with one scripted engine."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from itertools import permutations
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from bench.live.loopback_ports import free_port
from bench.live.region_history import problems, seconds
from gateway.app import AppSettings
from gateway.base.peer_settings import PeerSettings
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import EngineEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.peers.regions.region_epochs import RegionEpochs
from gateway.peers.regions.region_peers import RegionPeers
from gateway.peers.regions.regions import Regions
from gateway.proxy.region_relay import RegionRelay
from kvstore.transfer.tls import TlsFiles
from routing.policy.dispatch_limit_document import DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy
from routing.regions.heartbeat import RegionEpoch, ServiceFacts
from simulator.fault_proxy import FaultyLink
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, ServedGateway, served, snapshot
from tests.patience import until


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


REGIONS = ("us", "eu", "asia")
ONE_AT_A_TIME = RoutingPolicy(dispatch_limit=DispatchLimitDocument(mode="in_flight", in_flight_limit=1))

_LAST_READS_S = 0.05


class ThreeRegions:
    """The gateways and engines by region; a gateway can be restarted."""

    def __init__(self, state_dir: Path, document: Snapshot, ports: dict[str, int]) -> None:
        self._state_dir, self._document = state_dir, document
        self.ports = ports
        self.links: dict[tuple[str, str], FaultyLink] = {}
        """From a region to another, through a proxy between them."""
        self.gateways: dict[str, ServedGateway] = {}
        self.buses: dict[str, InProcessBus] = {}
        self.engines: dict[str, ScriptedEngine] = {}
        self.running: dict[str, AsyncExitStack] = {}
        self.events = RegionEvents()
        """Events of all of them; checked at the end."""
        self.settings: AppSettings | None = None
        self.tls: TlsFiles | None = None

    async def start(self, region: str) -> ServedGateway:
        """Start a region's gateway."""
        bus = self.buses[region] = InProcessBus()
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(self._document))
        others = {name: (self._address(region, name),) for name in self.ports if name != region}
        peers = PeerSettings(port=self.ports[region], region=region, regions=others, tls=self.tls)
        running = self.running[region] = AsyncExitStack()
        self.gateways[region] = await running.enter_async_context(
            served(
                [],
                self._state_dir / region,
                settings=self.settings,
                bus=bus,
                gateway_settings=GatewaySettings(probe_interval_s=0.1, peers=peers),
            )
        )
        return self.gateways[region]

    def _address(self, region: str, other: str) -> str:
        link = self.links.get((region, other))
        return f"127.0.0.1:{self.ports[other] if link is None else link.port}"

    def cut(self, region: str, other: str, *, cut: bool = True) -> None:
        """Block traffic from one region's gateway to another's, or unblock it."""
        self.links[region, other].there.stall(cut)
        self.links[other, region].back.stall(cut)

    async def stop(self, region: str) -> None:
        """End a region's gateway; its port then refuses connections."""
        if region in self.running:
            await self.running.pop(region).aclose()
            self.events.ended(region)

    def peers(self, region: str) -> RegionPeers:
        """Return a region's state of its peers."""
        regions = self.gateways[region].gateway.regions
        assert regions is not None
        return regions.peers

    def facts(self, at: str, region: str) -> ServiceFacts:
        """Return a region's facts about another region's engines."""
        peers = self.peers(at)
        return peers.serving(MODEL, peers.clock())[region][0][1]

    def epoch(self, at: str, region: str) -> RegionEpoch:
        """Return a region's epoch as another region's gateway sees it."""
        return self.peers(at).epochs.known[region]

    async def meet(self) -> None:
        """Return when all running gateways know each other."""
        await until(lambda: all(self._knows_all(name) for name in self.gateways))

    def _knows_all(self, region: str) -> bool:
        peers = self.peers(region)
        known = peers.serving(MODEL, peers.clock())
        return known.keys() == set(REGIONS) - {region}

    async def chat(self, region: str, text: str, *, stream: bool = False, **fields: Any) -> tuple[int, str, str]:
        """Send a chat request to a region's gateway; return status, content and decision id.

        One that is rejected because this machine is late (429) is sent again.
        """
        gateway = self.gateways[region]
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "stream": stream, **fields}
        headers = {"authorization": f"Bearer {KEY}"}
        url = f"{gateway.url}/v1/chat/completions"
        async with asyncio.timeout(120):
            while True:
                async with gateway.client.post(url, json=body, headers=headers) as response:
                    answer = await response.text()
                    if response.status != 429:
                        return response.status, answer, response.headers.get("x-headway-decision", "")
                await asyncio.sleep(0.5)

    async def explain(self, region: str, decision_id: str) -> dict[str, Any]:
        """Return a region's explanation of a decision."""
        status, answer = await self.gateways[region].get(f"/api/v1/explain/{decision_id}")
        assert status == 200, answer
        return json.loads(json.dumps(answer))


def three_pools(urls: dict[str, str], policy: RoutingPolicy = ONE_AT_A_TIME) -> Snapshot:
    """Return a snapshot with a pool and an engine for each region."""
    made = snapshot(list(urls.values()))
    pools = tuple(
        msgspec.structs.replace(made.pools[0], pool_id=name, name=name, region=name, policy=policy) for name in urls
    )
    engines = tuple(
        EngineEntry(engine_id=f"engine-{name}", name=name, pool_id=name, url=url) for name, url in urls.items()
    )
    return msgspec.structs.replace(made, pools=pools, engines=engines)


async def _sockets_ended() -> None:
    """Return when the loop watches only its own pipe.

    A gateway or link that has just stopped may have accepted a last connection, whose end the loop has to read.
    """
    watched = asyncio.get_running_loop()._selector.get_map()  # type: ignore[attr-defined]
    for _ in range(100):
        await asyncio.sleep(_LAST_READS_S)
        if len(watched) < 2:
            return


@asynccontextmanager
async def three_regions(
    state_dir: Path,
    policy: RoutingPolicy = ONE_AT_A_TIME,
    *,
    behind_proxy: bool = False,
    settings: AppSettings | None = None,
    tls: TlsFiles | None = None,
) -> AsyncIterator[ThreeRegions]:
    """Run the regions during the block, then check their history."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_sockets_ended)
        events = stack.enter_context(recorded())
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in REGIONS}
        ports = {name: free_port() for name in REGIONS}
        document = three_pools({name: engine.url for name, engine in engines.items()}, policy)
        regions = ThreeRegions(state_dir, document, ports)
        regions.events, regions.engines, regions.settings, regions.tls = events, engines, settings, tls
        if behind_proxy:
            for one, other in permutations(REGIONS, 2):
                link = regions.links[one, other] = FaultyLink(free_port(), f"127.0.0.1:{ports[other]}")
                link.start()
                stack.push_async_callback(link.stop)
        await asyncio.gather(*(regions.start(name) for name in REGIONS))
        try:
            await regions.meet()
            yield regions
        finally:
            await asyncio.gather(*(regions.stop(name) for name in REGIONS))
