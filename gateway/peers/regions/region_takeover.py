"""Takes over the engines of a region whose gateways have died, and returns them when one is back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gateway.contracts.wire import UnreadableMessageError, WireForm
from gateway.peers.links.peer_link import PeerFailedError, PeerGoneError, PeerSilentError
from gateway.peers.links.peer_proof import PeerIdentity
from gateway.peers.regions.region_epochs import is_granted
from gateway.peers.regions.region_peers import RegionPeers

KIND = "regions/claim"
DEAD_S = 1.0
"""A region counts as dead after its addresses have refused connections for this long."""
STARTING_S = 15.0
"""DEAD_S of a region that was silent since this gateway's start, because the fleet may still be starting."""
STEP_S = 1.0
"""The next nearest region waits this much longer, in case the nearest cannot reach the engines."""
VOTE_S = 1.0
_RETRY_S = 0.5

EnginesAnswer = Callable[[str], Awaitable[bool]]


class Claim(msgspec.Struct, frozen=True):
    """Requests a region's next epoch."""

    region: str
    number: int


class Vote(msgspec.Struct, frozen=True):
    """The answer to a claim."""

    granted: bool


_CLAIMS = WireForm(Claim, "a claim", limit=4096)
_VOTES = WireForm(Vote, "a vote", limit=4096)


class RegionTakeover:
    """Watches the other regions. Mutable: since when each refuses connections, and the running claim."""

    def __init__(
        self, peers: RegionPeers, engines_answer: EnginesAnswer, claims_here: Callable[[], bool] = lambda: True
    ) -> None:
        """`engines_answer` returns whether an engine of the region answers.

        `claims_here` returns whether this gateway is the one in its region that claims.
        """
        self._peers = peers
        self._engines_answer, self._claims_here = engines_answer, claims_here
        self._dead_since: dict[str, float] = {}
        self._regions = sorted({gateway.region for gateway in peers.gateways.values()})
        self._claim: asyncio.Task[None] | None = None
        self._retry_s = 0.0
        peers.after_heartbeat.append(self._check)
        peers.links.on_call(KIND, self._vote)

    async def stop(self) -> None:
        """Stop making claims."""
        if self._claim is not None:
            self._claim.cancel()
            await asyncio.gather(self._claim, return_exceptions=True)

    def _check(self, now: float) -> None:
        for region in self._regions:
            if not self._peers.is_dead(region):
                self._dead_since.pop(region, None)
                continue
            dead_s = now - self._dead_since.setdefault(region, now)
            busy = self._claim is not None and not self._claim.done()
            if busy or now < self._retry_s or not self._is_orphan(region) or not self._claims_here():
                continue
            if dead_s >= self._patience_s(region) + STEP_S * self._nearer(region, now):
                self._retry_s = now + _RETRY_S
                self._claim = asyncio.create_task(self._take(region), name=f"claim of {region}")

    def _patience_s(self, region: str) -> float:
        had_heartbeat = any(peer.heartbeat is not None for peer in self._peers.of_region(region))
        return DEAD_S if had_heartbeat else STARTING_S

    def _is_orphan(self, region: str) -> bool:
        """Return whether no live region serves the dead one, because the region that took it over has died or
        restarted.
        """
        epoch = self._peers.epochs.known.get(region)
        if epoch is None or epoch.region == region:
            return True
        if self._peers.epochs.serves(region):
            return False
        if epoch.region == self._peers.region:
            # A gateway of our own region, most likely this one before its restart.
            return True
        holder = self._peers.by_tag(epoch.holder)
        if holder is not None:
            return self._peers.links.refused(holder.name)
        return all(self._peers.is_up(peer, self._peers.clock()) for peer in self._peers.of_region(epoch.region))

    def _nearer(self, region: str, now: float) -> int:
        """Return the number of live regions that are nearer to the dead one than ours."""
        ours = min((peer.one_way_s for peer in self._peers.of_region(region)), default=0.0)
        away: dict[str, float] = {}
        for gateway in self._peers.gateways.values():
            heartbeat = gateway.heartbeat
            if heartbeat is not None and self._peers.is_up(gateway, now):
                one_way_s = heartbeat.one_way_s.get(region, float("inf"))
                away[gateway.region] = min(one_way_s, away.get(gateway.region, one_way_s))
        return sum((one_way_s, name) < (ours, self._peers.region) for name, one_way_s in away.items())

    async def _take(self, region: str) -> None:
        # A region that does not reach the engines leaves them to one that does.
        if not await self._engines_answer(region):
            return
        epochs = self._peers.epochs
        number = epochs.next_number(region)
        # Our own vote first, so that no other claim gets this number from us meanwhile.
        if not epochs.grant(region, number, self._peers.is_dead(region)):
            return
        voters = [item for item in self._regions if item != region and not self._peers.is_dead(item)]
        votes = await asyncio.gather(*(self._ask(voter, Claim(region, number)) for voter in voters))
        # Its gateway may have returned during the votes.
        if is_granted([True, *votes]) and self._peers.is_dead(region):
            epochs.take(region, number)

    async def _ask(self, voter: str, claim: Claim) -> bool:
        """Return whether a region grants the claim: one or more of its gateways answer, and all of these grant it."""
        votes = await asyncio.gather(*(self._ask_gateway(peer.name, claim) for peer in self._peers.of_region(voter)))
        cast = [vote for vote in votes if vote is not None]
        return bool(cast) and all(cast)

    async def _ask_gateway(self, name: str, claim: Claim) -> bool | None:
        try:
            return _VOTES.decode(await self._peers.links.ask(name, KIND, _CLAIMS.encode(claim), VOTE_S)).granted
        except (PeerGoneError, PeerSilentError, PeerFailedError, UnreadableMessageError):
            return None

    async def _vote(self, _peer: PeerIdentity, body: bytes) -> bytes:
        claim = _CLAIMS.decode(body)
        dead = claim.region in self._regions and self._peers.is_dead(claim.region)
        return _VOTES.encode(Vote(self._peers.epochs.grant(claim.region, claim.number, dead)))
