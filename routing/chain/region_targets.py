"""The other regions that can get a request: sovereignty rules allow them, and heartbeats report engines there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from routing.chain.region_loads import engine_loads, pool_load
from routing.regions.heartbeat import ServiceFacts
from routing.regions.peer_gateway import PeerGateway
from routing.regions.region_view import PeerLoad, PoolLoadReport
from routing.regions.sovereignty import SovereigntyDocument
from routing.router import Router
from routing.values.inference_request import InferenceRequest

QUEUE_BUFFER = 4
"""τ: a region with a longer queue accepts no requests from others (SkyWalker Algorithm 1, line 12)."""
Serving = Mapping[str, Sequence[tuple[PeerGateway, ServiceFacts]]]
"""Region → the gateways that serve a model there, with its facts."""


class RegionPool(msgspec.Struct, frozen=True):
    """The engines of one model in one region, as this gateway knows them."""

    region: str
    served_model: str
    router: Router
    report: PoolLoadReport | None = None
    """The load according to the pool's owner; None: the router knows all requests."""


class RegionTarget(msgspec.Struct, frozen=True):
    """One region that can get the request."""

    load: PeerLoad
    gateway: PeerGateway | None = None
    """The gateway that receives the request. None: this gateway serves the region's engines."""
    rule: str = ""
    """The sovereignty rule that allows it."""


class OtherRegions(Protocol):
    """What a gateway knows about the gateways of other regions."""

    region: str
    """Its own region."""

    @property
    def gateways(self) -> Mapping[str, PeerGateway]:
        """The gateways by name, reachable or not."""

    def serving(self, served_model: str, now: float) -> Serving:
        """Return the reachable gateways that serve the model, by the region that they serve."""

    def of_region(self, region: str) -> Sequence[PeerGateway]:
        """Return the gateways of a region."""


class RegionTargets:
    """Lists the regions that a request can go to."""

    def __init__(
        self,
        peers: OtherRegions,
        pools_of: Callable[[str], Sequence[RegionPool]],
        sovereignty: Callable[[], SovereigntyDocument | None],
    ) -> None:
        """`pools_of` returns the pools of a served model whose engines this gateway serves, in all regions."""
        self.peers = peers
        self._pools_of, self._sovereignty = pools_of, sovereignty

    def is_alone(self, served_model: str) -> bool:
        """Return whether no other region can ever serve the model."""
        return not self.peers.gateways and len(self._pools_of(served_model)) <= 1

    def of(
        self, request: InferenceRequest, served_model: str, avoided: frozenset[str], now: float
    ) -> list[RegionTarget]:
        """Return the regions other than `avoided` that can get the request, by name."""
        home, rules = self.peers.region, self._sovereignty()
        pools = {pool.region: pool for pool in self._pools_of(served_model) if pool.region != home}
        remote = self.peers.serving(served_model, now)
        targets: list[RegionTarget] = []
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

    def _served_here(self, pool: RegionPool, request: InferenceRequest, now: float) -> RegionTarget | None:
        """Return another region whose engines this gateway serves as a target, for example after a takeover."""
        load = pool_load(pool.router, now, pool.report)
        if not load.engines:
            return None
        held = max(
            (engine.matched_tokens for engine in engine_loads(pool.router, request, now, pool.report)), default=0
        )
        one_way_s = min((peer.one_way_s for peer in self.peers.of_region(pool.region)), default=0.0)
        in_flight = (load.in_flight + load.queued) / load.engines
        has_room = load.available > 0 and load.queued <= QUEUE_BUFFER
        return RegionTarget(PeerLoad(pool.region, held, has_room, in_flight, one_way_s))


def _remote(
    region: str, serving: Sequence[tuple[PeerGateway, ServiceFacts]], request: InferenceRequest
) -> RegionTarget | None:
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
    return RegionTarget(load, gateway)


def _burden(region: str, gateway: PeerGateway, facts: ServiceFacts, *, whole: bool) -> tuple[int, int, int, float, str]:
    """Return the sort key that chooses the gateway to relay a request."""
    own = (0, 0) if whole else (facts.queued, facts.in_flight)
    return *own, gateway.untold(region), gateway.one_way_s, gateway.name
