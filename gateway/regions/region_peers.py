"""This gateway's connection to other regions: requests heartbeats from their gateways, and answers theirs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from gateway.base import background
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from gateway.peers.peer_link import PeerFailedError, PeerGoneError, PeerLinks, PeerSilentError
from gateway.peers.peer_proof import PeerIdentity
from gateway.regions.region_epochs import RegionEpochs
from gateway.regions.work_lease import LEASE_MARGIN_S, WorkLease
from routing.chain.region_loads import pool_load
from routing.regions.heartbeat import Heartbeat, HeartbeatCall, ServiceFacts
from routing.regions.peer_gateway import SILENCE_S, PeerGateway
from routing.regions.prefix_snapshot import PrefixSnapshot

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool

KIND = "regions/heartbeat"
HEARTBEAT_S = 0.1
SPOKE_S = 5 * HEARTBEAT_S
"""A region that sent a request within this time is alive, even if its addresses refuse connections."""
MAX_ASKED = 32
"""Limit of unanswered heartbeat requests to one gateway."""
SETTLE_S = 1.0
"""Seconds that a starting gateway waits for the first heartbeats of others, which may serve its region."""

heartbeat_calls = WireForm(HeartbeatCall, "a call for a heartbeat", limit=4096)
heartbeats = WireForm(Heartbeat, "a heartbeat", limit=MIB)


class RegionGateway(PeerGateway):
    """A gateway of another region with the lease under which it works for us."""

    def __init__(self, name: str, region: str, address: str) -> None:
        super().__init__(name, region, address)
        self.lease = WorkLease(SILENCE_S + LEASE_MARGIN_S)
        """Renewed by each heartbeat. After it has expired, the gateway's work for us has ended."""

    @override
    def receive(self, heartbeat: Heartbeat, asked_s: float, now: float, wall: float) -> bool:
        newer = super().receive(heartbeat, asked_s, now, wall)
        if newer:
            # From the receipt of the stamp, which is after its creation: the work there ends before our lease.
            self.lease.renew(now, now)
        return newer


class RegionPeers:
    """The gateways of other regions. Mutable: the known facts of each, and the prefix snapshots that it sends."""

    def __init__(
        self,
        links: PeerLinks,
        addresses: Mapping[str, Sequence[str]],
        pools: Callable[[], Iterable[LivePool]],
        *,
        changed: Callable[[], None] = lambda: None,
        epochs_path: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.region = links.me.region
        self.links = links
        self._prefixes: dict[str, PrefixSnapshot] = {}
        self._changed = changed
        self._spoke_s: dict[str, float] = {}
        """Region → when it last sent us a request."""
        self._leases: dict[str, WorkLease] = {}
        """Leases by the tag of the gateway that we work for."""
        self.epochs = RegionEpochs(links.me.tag, links.me.region, addresses, self._serves_others, epochs_path)
        self.gateways = {
            name: RegionGateway(name, region, address)
            for region, listed in sorted(addresses.items())
            for address in listed
            for name in [f"{region}={address}"]
        }
        self.after_heartbeat: list[Callable[[float], None]] = []
        """Called with the time after each heartbeat received, and at least every HEARTBEAT_S."""
        self._pools = pools
        self.clock, self._wall = clock, wall
        self._asking: dict[str, int] = dict.fromkeys(self.gateways, 0)
        self._questions: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        links.on_call(KIND, self._answer)

    async def start(self) -> None:
        """Start to request heartbeats. Return when all reachable gateways have answered, within SETTLE_S."""
        self.links.set_peers({name: peer.address for name, peer in self.gateways.items()}, "regions")
        self._task = background.start("heartbeats of regions", self._run)
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLE_S):
                # Until they answer, it is unknown whether another region serves ours.
                while any(
                    gateway.heartbeat is None and not self.links.refused(gateway.name)
                    for gateway in self.gateways.values()
                ):
                    self._news.clear()
                    await self._news.wait()

    async def stop(self) -> None:
        """Stop requesting heartbeats."""
        tasks = [*self._questions, *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def note(self, region: str, keys: Sequence[int]) -> None:
        """Record a prompt that an engine of the region received."""
        self._prefixes.setdefault(region, PrefixSnapshot()).note(keys)

    def _serves_others(self) -> None:
        """Drop the blocks of engines that returned to their region, and report the change of served regions."""
        for region, snapshot in self._prefixes.items():
            if region != self.region and not self.epochs.serves(region):
                snapshot.forget()
        self._changed()

    # -- known facts

    def of_region(self, region: str) -> list[RegionGateway]:
        """Return the gateways of a region."""
        return [gateway for gateway in self.gateways.values() if gateway.region == region]

    def by_tag(self, tag: str) -> RegionGateway | None:
        """Return the gateway that last used this tag."""
        known = (
            gateway
            for gateway in self.gateways.values()
            if gateway.heartbeat is not None and gateway.heartbeat.tag == tag
        )
        return next(known, None)

    def is_up(self, gateway: PeerGateway, now: float) -> bool:
        """Return whether requests can be sent to the gateway. A stale gateway never receives one."""
        return gateway.is_fresh(now) and self.links.connected(gateway.name)

    def is_dead(self, region: str) -> bool:
        """Return whether no process listens at any of the region's addresses and none sends requests. Silence proves
        nothing.
        """
        if self.clock() - self._spoke_s.get(region, float("-inf")) <= SPOKE_S:
            return False
        gateways = self.of_region(region)
        return bool(gateways) and all(self.links.refused(gateway.name) for gateway in gateways)

    def serving(self, served_model: str, now: float) -> dict[str, list[tuple[RegionGateway, ServiceFacts]]]:
        """Return, per reachable other region, the gateways that serve the model there, with its facts."""
        services: dict[str, list[tuple[RegionGateway, ServiceFacts]]] = {}
        for gateway in self.gateways.values():
            heartbeat = gateway.heartbeat
            if heartbeat is None or not self.is_up(gateway, now):
                continue
            for facts in heartbeat.services:
                if (
                    facts.served_model == served_model
                    and facts.region != self.region
                    and self.epochs.holds(facts.region, heartbeat.tag, gateway.region)
                ):
                    services.setdefault(facts.region, []).append((gateway, facts))
        return services

    # -- heartbeats

    async def _run(self) -> None:
        while True:
            now = self.clock()
            for gateway in self.gateways.values():
                gateway.lease.end_overdue(now)
                if self.links.connected(gateway.name) and self._asking[gateway.name] < MAX_ASKED:
                    task = asyncio.create_task(self._ask(gateway), name=f"heartbeat of {gateway.name}")
                    self._questions.add(task)
                    task.add_done_callback(self._questions.discard)
            for tag, lease in list(self._leases.items()):
                lease.end_overdue(now)
                if lease.is_over(now) and not lease:
                    del self._leases[tag]
            self._publish(now)
            await asyncio.sleep(HEARTBEAT_S)

    async def _ask(self, gateway: RegionGateway) -> None:
        asked_s = self.clock()
        question = heartbeat_calls.encode(gateway.question(self.epochs.known))
        self._asking[gateway.name] += 1
        try:
            heartbeat = heartbeats.decode(await self.links.ask(gateway.name, KIND, question, SILENCE_S))
        except (PeerGoneError, PeerSilentError, PeerFailedError, UnreadableMessageError):
            return
        finally:
            self._asking[gateway.name] -= 1
        if heartbeat.region != gateway.region:
            # The address is another region's: its own statement counts, not the setting's.
            return
        now = self.clock()
        gateway.receive(heartbeat, asked_s, now, self._wall())
        self.epochs.receive(heartbeat.epochs)
        self._publish(now)

    def _publish(self, now: float) -> None:
        self._news.set()
        for listener in self.after_heartbeat:
            listener(now)

    async def _answer(self, peer: PeerIdentity, body: bytes) -> bytes:
        call = heartbeat_calls.decode(body)
        self._spoke_s[peer.region] = self.clock()
        self.lease_of(peer.tag, call.stamp)
        for gateway in self.of_region(peer.region):
            # A gateway that asks lives, although the last try to connect was refused: it has just come back.
            self.links.lives(gateway.name)
        self.epochs.receive(call.epochs)
        return heartbeats.encode(self.heartbeat(call))

    def lease_of(self, tag: str, stamp: float) -> WorkLease:
        """Return the lease under which we work for the gateway that returns this stamp of ours."""
        lease = self._leases.setdefault(tag, WorkLease(SILENCE_S))
        now = self.clock()
        if stamp <= now:
            lease.renew(stamp, now)
        return lease

    def heartbeat(self, call: HeartbeatCall) -> Heartbeat:
        """Return this gateway's facts, as changes since the versions that the peer has."""
        now = self.clock()
        return Heartbeat(
            self.links.me.tag,
            self.region,
            self._wall(),
            tuple(service_facts(self._pools(), self.epochs.serves, now)),
            self.epochs.known,
            {gateway.region: gateway.one_way_s for gateway in self.gateways.values() if gateway.heartbeat is not None},
            {
                # Versions that an earlier process gave mean nothing here: the whole snapshot goes out.
                region: snapshot.since(call.prefixes.get(region, 0) if call.tag == self.links.me.tag else 0)
                for region, snapshot in self._prefixes.items()
                if self.epochs.serves(region)
            },
            stamp=now,
        )


def service_facts(pools: Iterable[LivePool], serves: Callable[[str], bool], now: float) -> list[ServiceFacts]:
    """Return the facts of the pools that this gateway serves, one per region and model, for other regions."""
    sums: dict[tuple[str, str], list[int]] = {}
    partial: set[tuple[str, str]] = set()
    for pool in pools:
        if pool.observes or not serves(pool.entry.region):
            continue
        load = pool_load(pool.router, now, pool.load_report)
        name = pool.entry.region, pool.entry.served_model
        counts = sums.setdefault(name, [0, 0, 0, 0, 0])
        if not pool.knows_all:
            partial.add(name)
        for at, count in enumerate((load.engines, load.available, load.queued, load.in_flight)):
            counts[at] += count
        counts[4] = max(counts[4], pool.entry.policy_version)
    return [
        ServiceFacts(*name, engines, available, queued, in_flight, version, name not in partial)
        for name, (engines, available, queued, in_flight, version) in sorted(sums.items())
    ]
