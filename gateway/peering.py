"""State that gateways share: their links, the owners of pools' queues, and other regions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import aiohttp

from gateway.access.key_quota import KeyQuotas
from gateway.base import background
from gateway.base.event_log import log_event
from gateway.base.metrics import GatewayMetrics
from gateway.base.peer_settings import PeerSettings
from gateway.bus.bus import Bus
from gateway.contracts.fleet_sample import RegionSample
from gateway.contracts.snapshot import EngineEntry, Snapshot
from gateway.peers.links.peer_link import PeerLinks
from gateway.peers.links.peer_proof import PeerIdentity
from gateway.peers.owners.peer_directory import PeerDirectory
from gateway.peers.owners.pool_owners import TICK_S, PoolOwners
from gateway.peers.owners.quota_shares import REPORT_S, QuotaShares
from gateway.peers.regions.regions import Regions
from gateway.pools.pool.live_pool import LivePool
from gateway.requests.advisories.advisories import Advisories
from kvstore.keys.keyring import Keyring
from kvstore.transfer.tls import FileTls, LiveTls, is_loopback

CERTIFICATES_S = 10.0
"""Interval at which due certificates are renewed, and changed certificate files are read."""


class Peering:
    """One gateway's connection to its fleet. `settings` None: it knows no other gateways, and all else is None too."""

    def __init__(
        self,
        bus: Bus,
        settings: PeerSettings | None,
        tag: str,
        keyring: Keyring,
        state_dir: Path,
        metrics: GatewayMetrics,
    ) -> None:
        self._bus, self._settings, self._state_dir, self._metrics = bus, settings, state_dir, metrics
        self._tls: LiveTls | None = None
        self.links: PeerLinks | None = None
        if settings is not None:
            me = PeerIdentity(tag, settings.region, settings.name, keyring.used.fingerprint)
            self._tls = _tls(settings, keyring)
            self.links = PeerLinks(me, keyring, self._tls, metrics.peer_connections_rejected.inc)
        self._address = ""
        self.owners: PoolOwners | None = None
        self._quota_shares: QuotaShares | None = None
        self.regions: Regions | None = None
        """None: this gateway serves all regions alike."""

    def share(
        self,
        pools: Callable[[], Iterable[LivePool]],
        snapshot: Callable[[], Snapshot | None],
        session: Callable[[], aiohttp.ClientSession | None],
        changed: Callable[[], None],
        quotas: Sequence[KeyQuotas],
        advisories: Advisories,
    ) -> None:
        """Set the shared state. `changed` is called when the set of regions that this gateway serves changes."""
        links, settings = self.links, self._settings
        if links is None or settings is None:
            return
        directory = PeerDirectory(self._bus, links)
        self.owners = PoolOwners(self._bus, links, directory, pools, self._metrics, advisories, self._shares)
        self._quota_shares = QuotaShares(self.owners, links, quotas)
        if settings.region:
            self.regions = Regions(
                links,
                settings.regions,
                pools=pools,
                engines_of=lambda region: _engines_of(snapshot(), region),
                session=session,
                sovereignty=lambda: now.sovereignty if (now := snapshot()) is not None else None,
                changed=changed,
                claims_here=self._is_first,
                state_dir=self._state_dir,
                metrics=self._metrics,
            )

    def link(self, pool: LivePool) -> None:
        """Build a new pool's decision chain: its router decides alone unless gateways or regions are shared."""
        if self.owners is not None:
            self.owners.link(pool)
        if self.regions is not None:
            self.regions.link(pool)

    def decides(self, pool_id: str) -> bool:
        """Return whether this gateway, and no other, decides on its requests to a pool."""
        return self.owners is None or self.owners.decides(pool_id)

    def serves(self, region: str) -> bool:
        """Return whether this gateway sends requests to the engines of a region."""
        return self.regions is None or self.regions.serves(region)

    def _shares(self, pool: LivePool) -> bool:
        """Return whether the gateways of our region share the pool. Another region's pool has only one holder."""
        return self.regions is None or self.regions.peers.epochs.together(pool.entry.region)

    def _is_first(self) -> bool:
        """Return whether this is the first reachable gateway of our region."""
        links, owners = self.links, self.owners
        if links is None or owners is None:
            return True
        return all(links.me.tag < tag for tag in owners.directory.tags if links.connected(tag))

    @property
    def home(self) -> str | None:
        """Return the gateway's own region, None if regions are not distinguished."""
        return self.regions.region if self.regions is not None else None

    def region_samples(self) -> tuple[RegionSample, ...]:
        """Return the regions of the fleet sample."""
        return (self.regions.traffic.sample(),) if self.regions is not None else ()

    async def listen(self) -> None:
        """Accept peers. Return after the peers of other regions have reported their addresses, or a timeout."""
        settings = self._settings
        if self.links is not None and settings is not None:
            port = await self.links.start(settings.host, settings.port)
            self._address = f"[{settings.host}]:{port}" if ":" in settings.host else f"{settings.host}:{port}"
        if self.regions is not None:
            await self.regions.peers.start()

    def join(self) -> list[asyncio.Task[None]]:
        """Announce this gateway to its region; return the tasks that run until it leaves."""
        if self.owners is None or self._quota_shares is None:
            return []
        self.owners.directory.start(self._address)
        return [
            background.every("certificates of gateways", CERTIFICATES_S, self._refresh_certificates),
            background.every("pool owners", TICK_S, self.owners.tick, at_once=True),
            background.every("quota shares", REPORT_S, self._quota_shares.tick, at_once=True),
        ]

    def _refresh_certificates(self) -> None:
        if self._tls is None:
            return
        try:
            if self._tls.refresh():
                log_event("peer_certificates_taken")
        except OSError as error:
            log_event(
                "peer_certificates_unusable",
                level=logging.ERROR,
                reason=str(error),
                remedy="the previous certificates stay in use; provide a matching certificate, key, and authority",
            )

    async def leave(self) -> None:
        """Close all links."""
        if self.regions is not None:
            await self.regions.stop()
        if self.links is not None and self.owners is not None:
            self.owners.directory.stop()
            await self.owners.stop()
            await self.links.stop()


def _engines_of(snapshot: Snapshot | None, region: str) -> Sequence[EngineEntry]:
    """Return the engines of a region, whichever gateway serves them."""
    if snapshot is None:
        return ()
    pools = {pool.pool_id for pool in snapshot.pools if pool.region == region}
    return [engine for engine in snapshot.engines if engine.pool_id in pools]


def _tls(settings: PeerSettings, keyring: Keyring) -> LiveTls | None:
    """Return the TLS settings of links, None if the links stay on this machine."""
    if settings.tls is not None:
        return FileTls(settings.tls)
    if is_loopback(settings.host):
        return None
    # 9 MB of code that only these gateways need.
    from gateway.peers.links.fleet_certificates import FleetTls

    return FleetTls(keyring, settings.host)
