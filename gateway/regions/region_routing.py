"""First routing stage: a request stays in its region or goes to another one, immediately or while it is queued.

The pool's region rule chooses between local engines and other regions. If it chooses a local engine, or that the
request waits, the pool's placement and queue continue. A queued request is evaluated again at each heartbeat.
`Hop.reason` is the reason for a hop, as returned by a rule in routing/regions and named in routing/values/reasons.py.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
import xxhash

from gateway.regions.region_peers import RegionPeers
from routing.chain.region_loads import engine_loads, pool_load
from routing.regions.heartbeat import ServiceFacts
from routing.regions.peer_gateway import PeerGateway
from routing.regions.region_rule import RegionRule
from routing.regions.region_view import PeerLoad, RegionChoice, RegionView
from routing.regions.registry import build_region_rule
from routing.regions.sovereignty import SovereigntyDocument
from routing.values import reasons
from routing.values.decision import Dispatched, Rejected
from routing.values.hop import Hop
from routing.values.inference_request import InferenceRequest
from routing.values.observation import Failed

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool

QUEUE_BUFFER = 4
"""τ: a region with a longer queue accepts no requests from others (SkyWalker Algorithm 1, line 12)."""
_OVERLOAD = frozenset({
    reasons.NO_ENGINE, reasons.QUEUE_FULL, reasons.WAIT_EXPIRED, reasons.INFEASIBLE, reasons.PREFILL_OVERLOAD,
    reasons.DECODE_OVERLOAD, reasons.GATEWAY_LATE,
})  # fmt: skip
"""Rejections that mean that this region has no room."""


class Elsewhere(msgspec.Struct, frozen=True):
    """Another region gets the request: through a gateway there, or through its pool if this gateway serves it."""

    hop: Hop
    gateway: PeerGateway | None = None
    pool: LivePool | None = None
    heartbeat_age_s: float = 0.0
    """Age of the heartbeat at the choice of the region."""


class _Target(msgspec.Struct, frozen=True):
    load: PeerLoad
    gateway: PeerGateway | None = None
    pool: LivePool | None = None
    rule: str = ""


class _Waiting(msgspec.Struct):
    """A request that waits in a pool of this region. Mutable: its other region, set at most once."""

    pool: LivePool
    rule: RegionRule
    request: InferenceRequest
    avoided: frozenset[str]
    elsewhere: asyncio.Future[Elsewhere]


class RegionRouting:
    """Applies the pools' region rules. Mutable: the waiting requests in order of arrival, and the turn."""

    def __init__(
        self,
        peers: RegionPeers,
        pools_of: Callable[[str], Sequence[LivePool]],
        sovereignty: Callable[[], SovereigntyDocument | None],
    ) -> None:
        """`pools_of` returns all pools of a served model in all regions."""
        self.peers = peers
        self._pools_of, self._sovereignty = pools_of, sovereignty
        self._waiting: dict[str, _Waiting] = {}
        self._turn = 0
        peers.after_heartbeat.append(self._scan)

    async def place(
        self,
        pool: LivePool,
        request: InferenceRequest,
        decide: Callable[[], Awaitable[Dispatched | Rejected]],
        avoided: frozenset[str],
    ) -> Dispatched | Rejected | Elsewhere:
        """Return the result of `decide`, or that another region gets the request. Cancellation withdraws it.

        `avoided` are regions that have failed the request.
        """
        rule, now = build_region_rule(pool.entry.policy), self.peers.clock()
        if pool.entry.region != self.peers.region:
            # Another region's pool: the rules decide whether the request may go there.
            gone = self._ask(rule, pool, request, avoided, now) if rule is not None else None
            return gone or _no_engine(pool, request)
        if rule is None or self._is_alone(pool.entry.served_model):
            return await decide()
        if len(self._waiting) < rule.lookahead and (chosen := self._ask(rule, pool, request, avoided, now)):
            return chosen
        waiting = _Waiting(pool, rule, request, avoided, asyncio.get_running_loop().create_future())
        outcome = await self._while_waiting(waiting, decide)
        if isinstance(outcome, Rejected) and outcome.code in _OVERLOAD:
            return self._ask(rule, pool, request, avoided, self.peers.clock(), rejected=True) or outcome
        return outcome

    async def _while_waiting(
        self, waiting: _Waiting, decide: Callable[[], Awaitable[Dispatched | Rejected]]
    ) -> Dispatched | Rejected | Elsewhere:
        """Return the pool's outcome, or the region that `_scan` chooses while the request waits."""
        self._waiting[waiting.request.request_id] = waiting
        placing = asyncio.ensure_future(decide())
        try:
            await asyncio.wait((placing, waiting.elsewhere), return_when=asyncio.FIRST_COMPLETED)
            await _withdraw(placing)
        except asyncio.CancelledError:
            await _withdraw(placing)
            if not placing.cancelled():
                # Its engine was chosen at the very moment in which the client left.
                waiting.pool.observe(Failed(waiting.request.request_id))
            raise
        finally:
            del self._waiting[waiting.request.request_id]
        # It was withdrawn, unless its engine was chosen meanwhile.
        return waiting.elsewhere.result() if placing.cancelled() else placing.result()

    def _is_alone(self, served_model: str) -> bool:
        return not self.peers.gateways and len(self._pools_of(served_model)) == 1

    def _scan(self, now: float) -> None:
        """Decide again on the longest waiting requests, up to the lookahead of their rules."""
        for at, waiting in enumerate(self._waiting.values()):
            if at >= waiting.rule.lookahead:
                return
            if waiting.elsewhere.done():
                continue
            chosen = self._ask(waiting.rule, waiting.pool, waiting.request, waiting.avoided, now)
            if chosen is not None:
                waiting.elsewhere.set_result(chosen)

    def _ask(
        self,
        rule: RegionRule,
        pool: LivePool,
        request: InferenceRequest,
        avoided: frozenset[str],
        now: float,
        *,
        rejected: bool = False,
    ) -> Elsewhere | None:
        """Return the rule's region for the request, None if it stays."""
        targets = self._targets(pool, request, avoided, now)
        if not targets:
            return None
        home = self.peers.region
        engines = engine_loads(pool.router, request, now, pool.load_report) if pool.entry.region == home else ()
        if rejected:
            # The router has rejected it: no engine here has room for it, whatever the loads are.
            engines = tuple([msgspec.structs.replace(engine, has_room=False) for engine in engines])
        loads = tuple([target.load for target in targets])
        if not engines:
            choice = _without_engines(loads)
        else:
            load = pool_load(pool.router, now, pool.load_report)
            self._turn += 1
            view = RegionView(
                request.prompt_tokens,
                xxhash.xxh3_64_intdigest((request.session_id or request.request_id).encode()),
                # Its time here is over, so that no rule's patience keeps it.
                math.inf if rejected else now - request.arrived_s,
                self._turn,
                (load.in_flight + load.queued) / len(engines),
                engines,
                loads,
            )
            choice = rule.choose(view)
        if choice.peer is None:
            return None
        target = targets[choice.peer]
        if target.gateway is not None:
            target.gateway.forwarded(target.load.region, now)
        hop = Hop(home, target.load.region, choice.reason, target.rule)
        age_s = now - target.gateway.heartbeat_s if target.gateway is not None else 0.0
        return Elsewhere(hop, target.gateway, target.pool, age_s)

    def _targets(self, pool: LivePool, request: InferenceRequest, avoided: frozenset[str], now: float) -> list[_Target]:
        """Return the other regions that can get the request: allowed by sovereignty rules, and with heartbeats."""
        home, model, rules = self.peers.region, pool.entry.served_model, self._sovereignty()
        pools = {item.entry.region: item for item in self._pools_of(model) if self._serves_for_another(item)}
        remote = self.peers.serving(model, now)
        targets: list[_Target] = []
        for region in sorted((pools.keys() | remote.keys()) - avoided - {home}):
            allowed_by = ""
            if rules is not None:
                verdict = rules.verdict(request.tenant_id, home, region)
                if not verdict.allowed:
                    continue
                allowed_by = verdict.rule
            if region in pools:
                target = self._served_here(pools[region], request, now)
            else:
                # The prompt passes through the gateway that serves the region, wherever that runs.
                serving = [
                    item
                    for item in remote[region]
                    if rules is None or rules.verdict(request.tenant_id, home, item[0].region).allowed
                ]
                target = _remote(region, serving, request)
            if target is not None:
                targets.append(msgspec.structs.replace(target, rule=allowed_by))
        return targets

    def _serves_for_another(self, pool: LivePool) -> bool:
        return pool.entry.region != self.peers.region and not pool.observes and bool(pool.engines)

    def _served_here(self, pool: LivePool, request: InferenceRequest, now: float) -> _Target | None:
        """Return another region whose engines this gateway serves as a target, for example after a takeover."""
        load = pool_load(pool.router, now, pool.load_report)
        if not load.engines:
            return None
        region = pool.entry.region
        held = max(
            (engine_load.matched_tokens for engine_load in engine_loads(pool.router, request, now, pool.load_report)),
            default=0,
        )
        one_way_s = min((peer.one_way_s for peer in self.peers.of_region(region)), default=0.0)
        in_flight = (load.in_flight + load.queued) / load.engines
        has_room = load.available > 0 and load.queued <= QUEUE_BUFFER
        return _Target(PeerLoad(region, held, has_room, in_flight, one_way_s), pool=pool)


def _remote(region: str, serving: list[tuple[PeerGateway, ServiceFacts]], request: InferenceRequest) -> _Target | None:
    """Return a region as reported by its gateways. Its least loaded gateway receives the request."""
    whole = [item for item in serving if item[1].whole]
    # One that knows of all requests reports the others' too; without such, each reports its own.
    counted = [max(whole, key=lambda item: item[0].heartbeat_s)] if whole else serving
    engines = max((facts.engines for _, facts in serving), default=0)
    if not engines:
        return None
    queued = sum(facts.queued for _, facts in counted)
    untold = sum(gateway.untold(region) for gateway, _ in serving)
    in_flight = sum(facts.in_flight for _, facts in counted) + queued + untold
    available = max(facts.available for _, facts in counted)
    blocks = max(gateway.matched_blocks(region, request.keys) for gateway, _ in serving)
    gateway, _ = min(serving, key=lambda item: _burden(region, *item, whole=bool(whole)))
    load = PeerLoad(
        region,
        min(blocks * request.block_tokens, request.prompt_tokens),
        available > 0 and queued <= QUEUE_BUFFER,
        in_flight / engines,
        gateway.one_way_s,
    )
    return _Target(load, gateway)


def _burden(region: str, gateway: PeerGateway, facts: ServiceFacts, *, whole: bool) -> tuple[int, int, int, float, str]:
    """Return the sort key that chooses the gateway to relay a request."""
    own = (0, 0) if whole else (facts.queued, facts.in_flight)
    return *own, gateway.untold(region), gateway.one_way_s, gateway.name


async def _withdraw(placing: asyncio.Future[Dispatched | Rejected]) -> None:
    if not placing.done():
        placing.cancel()
        await asyncio.wait((placing,))


def _no_engine(pool: LivePool, request: InferenceRequest) -> Rejected:
    rejected = Rejected(request.request_id, reasons.NO_ENGINE, 1.0)
    pool.router.count_outcome(rejected)
    return rejected


def _without_engines(peers: tuple[PeerLoad, ...]) -> RegionChoice:
    """Return the region for a request that no engine here can serve: regions with room first, then the nearest."""
    at = min(
        range(len(peers)),
        key=lambda at: (not peers[at].has_room, -peers[at].matched_tokens, peers[at].one_way_s, at),
    )
    return RegionChoice(reasons.NO_LOCAL_ENGINE, peer=at)
