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
from gateway.peers.peer_link import PeerLinks
from gateway.pool.request_listener import RequestListener
from gateway.regions.forward_client import ForwardClient
from gateway.regions.forward_server import ForwardServer
from gateway.regions.region_peers import RegionPeers
from gateway.regions.region_routing import RegionRouting
from gateway.regions.region_takeover import RegionTakeover
from gateway.regions.region_traffic import LOCAL, RECEIVED, RegionTraffic

if TYPE_CHECKING:
    from gateway.contracts.snapshot import EngineEntry
    from gateway.pool.live_pool import LivePool
    from gateway.pool.recent_decisions import DecisionRecord
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
    ) -> None:
        self.peers = RegionPeers(links, addresses, pools, changed=changed, epochs_path=state_dir / "region-epochs.json")
        self.region = self.peers.region
        self._addresses = addresses
        self.routing = RegionRouting(
            self.peers,
            lambda model: [pool for pool in pools() if pool.entry.served_model == model],
            sovereignty,
        )
        self.takeover = RegionTakeover(self.peers, self._engines_answer, claims_here)
        self.traffic = RegionTraffic(self.peers)
        self.server = ForwardServer(self.peers, lambda origin: self.traffic.note(RECEIVED, origin))
        self.client = ForwardClient(links, self.peers.clock)
        self._engines_of, self._session, self._pools = engines_of, session, pools

    @property
    def names(self) -> frozenset[str]:
        """Return all known regions."""
        return frozenset({self.region, *self._addresses, *(pool.entry.region for pool in self._pools())})

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


def _released(record: DecisionRecord) -> None:
    log_event("released", level=logging.DEBUG, decision_id=record.decision.decision_id)


async def _answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.get(f"{url.rstrip('/')}/health", timeout=aiohttp.ClientTimeout(total=_HEALTH_S)) as answer:
            return answer.status == 200
    except (aiohttp.ClientError, OSError):
        return False
