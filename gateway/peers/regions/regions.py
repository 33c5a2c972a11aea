"""A gateway's part in a fleet of several regions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp
from typing_extensions import override

from gateway.base.event_log import log_event
from gateway.peers.links.peer_link import PeerLinks
from gateway.peers.regions.forward_client import ForwardClient
from gateway.peers.regions.forward_server import App, ForwardServer
from gateway.peers.regions.region_peers import RegionPeers
from gateway.peers.regions.region_takeover import RegionTakeover
from gateway.peers.regions.region_traffic import LOCAL, RegionTraffic
from gateway.pools.pool.request_listener import RequestListener
from gateway.pools.traffic.traffic_window import FAILED
from routing.chain.region_decider import RegionDecider
from routing.chain.region_targets import RegionPool, RegionTargets

if TYPE_CHECKING:
    from gateway.base.metrics import GatewayMetrics
    from gateway.contracts.snapshot import EngineEntry
    from gateway.pools.pool.live_pool import LivePool
    from gateway.pools.pool.recent_decisions import DecisionRecord
    from routing.regions.sovereignty import SovereigntyDocument
    from routing.values.inference_request import InferenceRequest

_HEALTH_S = 1.0
_ASKED = 4
"""Number of engines in a region that are probed."""


class Regions(RequestListener):
    """Access to regions for the gateway, the proxy and the sampler. It records dispatches for its prefix snapshot."""

    def __init__(
        self,
        links: PeerLinks,
        addresses: Mapping[str, Sequence[str]],
        *,
        pools: Callable[[], Iterable[LivePool]],
        engines_of: Callable[[str], Sequence[EngineEntry]],
        session: Callable[[], aiohttp.ClientSession | None],
        sovereignty: Callable[[], SovereigntyDocument | None],
        changed: Callable[[], None],
        claims_here: Callable[[], bool],
        state_dir: Path,
        metrics: GatewayMetrics,
    ) -> None:
        self.peers = RegionPeers(links, addresses, pools, changed=changed, epochs_path=state_dir / "region-epochs.json")
        self.region = self.peers.region
        self._targets = RegionTargets(self.peers, self._served, sovereignty)
        self.peers.after_heartbeat.append(self._decide_again)
        self.takeover = RegionTakeover(self.peers, self._engines_answer, claims_here)
        self.traffic = RegionTraffic(self.peers)
        self.client = ForwardClient(links, self.peers.clock)
        self._engines_of, self._session, self._pools, self._metrics = engines_of, session, pools, metrics

    def serve(self, app: App) -> None:
        """Serve the requests that other regions forward with this ASGI app. Call it before the peers' port opens."""
        self.server = ForwardServer(self.peers, app)

    def link(self, pool: LivePool) -> None:
        """Put the link to other regions into a new pool's chain."""
        decider = RegionDecider(pool.driver.chain, lambda: _region_pool(pool), self._targets, pool.entry.policy)
        pool.region = decider
        pool.driver.put_before(decider)

    def _served(self, model: str) -> list[RegionPool]:
        return [
            _region_pool(pool)
            for pool in self._pools()
            if pool.entry.served_model == model and not pool.observes and pool.engines
        ]

    def pool_in(self, region: str, model: str) -> LivePool:
        """Return the pool through which this gateway serves another region's engines."""
        pools = (pool for pool in self._pools() if pool.entry.region == region and pool.entry.served_model == model)
        return next(pool for pool in pools if not pool.observes)

    def _decide_again(self, now: float) -> None:
        """Decide again on waiting requests after a heartbeat."""
        for pool in self._pools():
            if pool.region is not None and (outcomes := pool.region.heartbeat(now)):
                pool.driver.deliver(outcomes, now, above=pool.region)

    def serves(self, region: str) -> bool:
        """Return whether this gateway dispatches to the region's engines."""
        return self.peers.epochs.serves(region)

    @override
    def dispatched(self, record: DecisionRecord, request: InferenceRequest, took_s: float, again: bool) -> None:
        self.peers.note(record.pool.entry.region, request.keys)
        if not again and record.hop is None:
            self.traffic.note(LOCAL, self.region)
        decision = record.decision
        log_event("dispatched", level=logging.DEBUG, decision_id=decision.decision_id, engine_id=decision.engine_id)

    @override
    def forward_ended(self, record: DecisionRecord, now: float) -> None:
        if record.hop is not None:
            self.traffic.forward_ended(record, record.hop)
            self._metrics.forwards.inc(record.hop.destination, record.outcome or FAILED)

    @override
    def left(self, record: DecisionRecord, failed: bool) -> None:
        _released(record)

    @override
    def ended(self, record: DecisionRecord, now: float) -> None:
        if record.decision.engine_id:
            _released(record)

    async def stop(self) -> None:
        """End all tasks."""
        await self.takeover.stop()
        await self.peers.stop()

    async def _engines_answer(self, region: str) -> bool:
        engines, session = list(self._engines_of(region))[:_ASKED], self._session()
        if session is None:
            return False
        return any(await asyncio.gather(*(_answers(session, engine.url) for engine in engines)))


def _region_pool(pool: LivePool) -> RegionPool:
    return RegionPool(pool.entry.region, pool.entry.served_model, pool.router, pool.load_report)


def _released(record: DecisionRecord) -> None:
    log_event("released", level=logging.DEBUG, decision_id=record.decision.decision_id)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url.rstrip('/')}/health", timeout=aiohttp.ClientTimeout(total=_HEALTH_S)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError):
        return False
