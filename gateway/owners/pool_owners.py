"""Determines which gateway decides for each pool: leases, elections, heartbeats, and messages to and from owners.

A pool's owner holds its lease on the bus, and an epoch above all that any peer has seen. While the bus is down, the
owner keeps its role and no election takes place. Without peers there is no owner, and this module adds nothing to a
request's path.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import xxhash

from gateway.advisories.advisories import Advisories
from gateway.base.event_log import log_event
from gateway.base.metrics import GatewayMetrics
from gateway.bus.bus import Bus, BusAwayError
from gateway.contracts.wire import MIB, UnreadableMessageError, WireForm
from gateway.owners.peer_directory import PeerDirectory
from gateway.peers.peer_link import PeerFailedError, PeerGoneError, PeerLinks, PeerSilentError
from gateway.peers.peer_proof import PeerIdentity
from gateway.pool.live_pool import LivePool
from routing.chain.owner_decider import OwnerDecider
from routing.chain.owner_messages import Ask, Batch, Beat, OwnedPool, OwnerAnswered, OwnerEpoch, OwnerMessage
from routing.chain.ownership import ALONE, ASKS, LEASE_S, OWNER, Around, Ownership
from routing.chain.region_loads import pool_load_report
from routing.regions.region_view import PoolLoadReport
from routing.values.decision import ChainOutcome

TICK_S = 0.1
BEAT_S = 0.25
ELECT_S = 0.3
"""Seconds for peers to report the epochs that they have seen. Silent peers are not waited for."""
MAX_BATCH = 256
"""Number of messages that are sent before the loop step ends."""
BATCHES, BEATS, PROPOSALS = "owner batch", "owner beat", "owner proposal"

BATCH: WireForm[Batch] = WireForm(Batch, "a batch about queues", limit=4 * MIB)
BEAT: WireForm[Beat] = WireForm(Beat, "a heartbeat", limit=MIB)


class SharedPool:
    """A pool that several gateways share, and the link of its chain."""

    def __init__(self, pool: LivePool, decider: OwnerDecider) -> None:
        self.pool = pool
        self.decider = decider
        self.claiming = False

    @property
    def ownership(self) -> Ownership:
        """This gateway's knowledge of the owner."""
        return self.decider.ownership

    def deliver(self, outcomes: list[ChainOutcome], now: float) -> None:
        """Deliver outcomes of the link to waiting requests."""
        self.pool.driver.deliver(outcomes, now, above=self.decider)


class PoolPeers:
    """The other gateways of one pool's link (OwnerPeers)."""

    def __init__(self, owners: PoolOwners, pool: LivePool, metrics: GatewayMetrics, advisories: Advisories) -> None:
        self.session, self.name_of, self.has_same_keys = owners.session, owners.name_of, owners.has_same_keys
        self.advisory_followed, self.take_advisory = advisories.decided, advisories.outcome
        self._pool, self._metrics = pool, metrics

    def unreachable_here(self) -> frozenset[str]:
        """Return the engines that only this gateway cannot reach."""
        return self._pool.unreachable_here

    def count(self, result: str) -> None:
        """Count one result of an ask."""
        self._metrics.owner_asks.count((self._pool.entry.pool_id, result))


class PoolOwners:
    """Pool ownership at one gateway. Everything runs on its event loop.

    `shares` returns which pools this region's gateways serve together.

    Mutable: one SharedPool per pool, the messages of this loop step by peer, and the time of the last heartbeat.
    """

    def __init__(
        self,
        bus: Bus,
        links: PeerLinks,
        directory: PeerDirectory,
        pools: Callable[[], Iterable[LivePool]],
        metrics: GatewayMetrics,
        advisories: Advisories,
        shares: Callable[[LivePool], bool] = lambda _pool: True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.directory = directory
        self._advisories = advisories
        self.shared: dict[str, SharedPool] = {}
        self._me = links.me.tag
        self._key_space = links.me.key_space
        self._shares = shares
        self._bus, self._links, self._pools, self._metrics = bus, links, pools, metrics
        self.clock = clock
        """Monotonic seconds."""
        self._outgoing: dict[str, list[OwnerMessage]] = {}
        self._beat_s = float("-inf")
        self._tasks: set[asyncio.Task[None]] = set()
        self._gone: frozenset[str] = frozenset()
        links.on_notice(BATCHES, self._on_batch)
        links.on_notice(BEATS, self._on_beat)
        links.on_call(PROPOSALS, self._on_proposal)

    async def stop(self) -> None:
        """End the running tasks."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def tick(self) -> None:
        """Announce this gateway, update each pool's role, claim pools, and send heartbeats. Call it every TICK_S."""
        now = self.clock()
        self.directory.tick(now)
        self._follow_pools(now)
        around = self._around()
        if around.gone != self._gone:
            self._gone = around.gone
            for shared in self.shared.values():
                # A router uses the time of this machine, whatever clock leases use.
                shared.deliver(shared.decider.forget(time.monotonic(), around.gone), time.monotonic())
        for pool_id, shared in self.shared.items():
            shared.deliver(shared.decider.sweep(time.monotonic(), now), time.monotonic())
            self._settle(shared, around, now)
            rank = self._rank(pool_id, around)
            claims, instead_of = shared.ownership.claims(around, rank, now)
            if claims and not shared.claiming:
                shared.claiming = True
                self._start(self._claim(pool_id, shared, instead_of, now))
        if now - self._beat_s >= BEAT_S:
            self._beat_s = now
            self._beat(around, now)

    def link(self, pool: LivePool) -> None:
        """Put the link to the pool's owner into a new pool's chain. Without an owner it changes nothing."""
        peers = PoolPeers(self, pool, self._metrics, self._advisories)
        decider = OwnerDecider(pool.router, pool.driver.router, Ownership(self._me, self.clock()), peers)
        pool.owner = decider
        pool.driver.put_before(decider)

        def send() -> None:
            for tag, message in decider.take_messages():
                self.send(tag, message)

        pool.driver.after_call = send

    def _follow_pools(self, now: float) -> None:
        pools = {pool.entry.pool_id: pool for pool in self._pools() if not pool.observes and self._shares(pool)}
        for pool_id in [gone for gone, shared in self.shared.items() if pools.get(gone) is not shared.pool]:
            shared = self.shared.pop(pool_id)
            shared.decider.ownership = Ownership(self._me, now)
            shared.pool.load_report = None
            self._ask(shared, None)
        for pool_id, pool in pools.items():
            if pool_id not in self.shared and pool.owner is not None:
                self.shared[pool_id] = SharedPool(pool, pool.owner)

    def _ask(self, shared: SharedPool, epoch: OwnerEpoch | None) -> None:
        """Let the pool's requests be decided under this epoch; None: here."""
        now = time.monotonic()
        # The ids of a gateway end with its tag (TaggedIds): these are our own requests.
        shared.deliver(shared.decider.follow(epoch, lambda name: name.endswith(self._me), now), now)

    def _around(self) -> Around:
        tags = frozenset(self.directory.tags)
        gone = frozenset(tag for tag in tags if self._links.refused(tag))
        return Around(
            tags,
            frozenset(tag for tag in tags if self._links.connected(tag)),
            gone,
            gone & self.directory.announcing(self.clock()),
            self._bus.connected,
        )

    def _rank(self, pool_id: str, around: Around) -> int:
        """Return our rank among the gateways that claim this pool. Ranks differ per pool, so that pools spread over
        gateways.
        """
        tags = (self._me, *around.connected)
        return sorted(tags, key=lambda tag: xxhash.xxh3_64_intdigest(f"{pool_id}\n{tag}".encode())).index(self._me)

    # -- ownership

    def _settle(self, shared: SharedPool, around: Around, now: float) -> None:
        ownership = shared.ownership
        before = ownership.role
        changed = ownership.settle(around, now)
        asked = ownership.seen if ownership.role == ASKS else None
        if changed or asked != shared.decider.epoch:
            shared.pool.load_report = None
            if before == OWNER:
                shared.deliver(shared.decider.forget(time.monotonic()), time.monotonic())
            self._ask(shared, asked)
            self._log_owner(shared)

    def _log_owner(self, shared: SharedPool) -> None:
        ownership, pool_id = shared.ownership, shared.pool.entry.pool_id
        self._metrics.owner_epoch.set(pool_id, value=ownership.seen.number)
        log_event(
            "pool_owner",
            pool_id=pool_id,
            role=ownership.role,
            owner=self.directory.name(ownership.seen.owner) if ownership.seen.owner else "",
            epoch=ownership.seen.number,
            reason=ownership.reason,
        )

    async def _claim(self, pool_id: str, shared: SharedPool, instead_of: str, now: float) -> None:
        """Renew our lease, or try to get the lease and be elected."""
        ownership = shared.ownership
        try:
            ownership.claimed(now)
            claim = self._bus.claim(
                f"owner/{self._links.me.region}/{pool_id}", self._me, instead_of=instead_of, seconds=LEASE_S
            )
            async with asyncio.timeout(LEASE_S):
                held = await asyncio.wrap_future(claim)
            if held != self._me:
                ownership.lost(held, self.clock())
            elif ownership.owns(self.clock()):
                ownership.renewed(now)
            else:
                await self._elect(pool_id, ownership, now)
            self._settle(shared, self._around(), self.clock())
            if self._beat_s < 0:
                self._beat(self._around(), self.clock())
        except (BusAwayError, TimeoutError):
            return
        finally:
            shared.claiming = False

    async def _elect(self, pool_id: str, ownership: Ownership, claimed_s: float) -> None:
        """Announce an epoch above all that peers have seen. Meanwhile, no other gateway holds the lease."""
        if self._unmet():
            # A newly discovered peer may know an owner.
            await asyncio.sleep(ELECT_S)
        highest = max(ownership.seen, ownership.promised).number
        while self.clock() < claimed_s + LEASE_S:
            epoch = OwnerEpoch(highest + 1, self._me)
            body = BEAT.encode(Beat([OwnedPool(pool_id, epoch)]))
            peers = [tag for tag in self.directory.tags if self._links.connected(tag)]
            answers = await asyncio.gather(*(self._propose(tag, body) for tag in peers))
            # Our own promise comes last: a peer's claim may have reached us while the others were asked.
            known = [item for item in (*answers, ownership.promise(epoch)) if item.number]
            if all(item == epoch for item in known):
                ownership.elected(epoch, claimed_s)
                # The heartbeat that announces the epoch goes out at once.
                self._beat_s = float("-inf")
                return
            highest = max(item.number for item in known)

    def _unmet(self) -> bool:
        around = self._around()
        return bool(around.peers - around.connected - around.gone)

    async def _propose(self, tag: str, body: bytes) -> OwnerEpoch:
        try:
            answer = BEAT.decode(await self._links.ask(tag, PROPOSALS, body, ELECT_S))
            return answer.pools[0].epoch
        except (PeerGoneError, PeerSilentError, PeerFailedError, UnreadableMessageError, IndexError):
            return OwnerEpoch()

    async def _on_proposal(self, _peer: PeerIdentity, body: bytes) -> bytes:
        known = []
        for pool in BEAT.decode(body).pools:
            shared = self.shared.get(pool.pool_id)
            known.append(pool if shared is None else OwnedPool(pool.pool_id, shared.ownership.promise(pool.epoch)))
        return BEAT.encode(Beat(known))

    def _receive(self, owned: OwnedPool, speaker: str) -> OwnerEpoch:
        """Process an epoch; return the highest epoch known here."""
        shared = self.shared.get(owned.pool_id)
        if shared is None:
            return owned.epoch
        now = self.clock()
        before = shared.ownership.seen
        shared.ownership.receive(owned.epoch, speaker, now)
        # One that decides alone asks again as soon as it knows the owner.
        if shared.ownership.seen != before or shared.ownership.role == ALONE:
            self._settle(shared, self._around(), now)
        if shared.ownership.role == ASKS and owned.epoch == shared.ownership.seen and owned.load is not None:
            shared.pool.load_report = owned.load
        return shared.ownership.seen

    def _beat(self, around: Around, now: float) -> None:
        owned = [
            OwnedPool(pool_id, shared.ownership.seen, self._load_report(shared.pool))
            for pool_id, shared in self.shared.items()
            if shared.ownership.owns(now)
        ]
        if owned and around.connected:
            body = BEAT.encode(Beat(owned))
            for tag in around.connected:
                self._links.notify(tag, BEATS, body)

    def _load_report(self, pool: LivePool) -> PoolLoadReport | None:
        # A router uses the time of this machine, whatever clock leases use.
        return pool_load_report(pool.router, time.monotonic()) if self._links.me.region else None

    def _on_beat(self, peer: PeerIdentity, body: bytes) -> None:
        stale = []
        try:
            for pool in BEAT.decode(body).pools:
                seen = self._receive(pool, peer.tag)
                if seen > pool.epoch:
                    stale.append(OwnedPool(pool.pool_id, seen))
        except UnreadableMessageError:
            return
        if stale:
            self._links.notify(peer.tag, BEATS, BEAT.encode(Beat(stale)))

    def decides(self, pool_id: str) -> bool:
        """Return whether this gateway decides on its own requests to a pool."""
        shared = self.shared.get(pool_id)
        return shared is None or shared.ownership.role != ASKS

    # -- messages

    def session(self, tag: str) -> object | None:
        """Return the connection to the gateway with this tag, None if messages do not reach it."""
        return self._links.session(tag)

    def name_of(self, tag: str) -> str:
        """Return the name of the gateway with this tag."""
        return self.directory.name(tag)

    def has_same_keys(self, tag: str) -> bool:
        """Return whether the block keys of the gateway with this tag identify the same blocks as ours."""
        return self.directory.key_space(tag) == self._key_space

    def send(self, tag: str, message: OwnerMessage) -> None:
        """Send to the gateway with this tag at the end of the loop step. Without a connection, the message is lost."""
        if not self._links.connected(tag):
            return
        waiting = self._outgoing.setdefault(tag, [])
        waiting.append(message)
        if len(waiting) == 1:
            asyncio.get_running_loop().call_soon(self._flush, tag)
        elif len(waiting) >= MAX_BATCH:
            self._flush(tag)

    def _flush(self, tag: str) -> None:
        messages = self._outgoing.pop(tag, None)
        if messages:
            self._links.notify(tag, BATCHES, BATCH.encode(Batch(tag, messages)))

    def _on_batch(self, peer: PeerIdentity, body: bytes) -> None:
        try:
            batch = BATCH.decode(body)
        except UnreadableMessageError as error:
            log_event("peer_message_rejected", peer=peer.tag, reason=str(error))
            return
        # The address may be that of another process by now, whose pools these messages do not concern.
        if batch.to != self._me:
            return
        now = time.monotonic()
        for message in batch.messages:
            shared = self.shared.get(message.pool_id)
            if shared is None:
                if isinstance(message, Ask):
                    self.send(peer.tag, OwnerAnswered(message.ask_id, message.pool_id, OwnerEpoch()))
            elif isinstance(message, OwnerAnswered):
                if message.epoch.number:
                    self._receive(OwnedPool(message.pool_id, message.epoch), peer.tag)
                shared.deliver(shared.decider.answered(message, now), now)
            elif shared.ownership.owns(self.clock()) and message.epoch == shared.ownership.seen:
                same_keys = peer.key_space == self._key_space
                shared.deliver(shared.decider.receive(peer.tag, message, now, same_keys=same_keys), now)
            elif isinstance(message, Ask):
                shared.decider.reject(peer.tag, message, shared.ownership.seen)
                shared.deliver([], now)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work, name="claim of a pool")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
