"""Services by the names that clients send: the pools of one model, or a named service with pools in order.

A named service's pools are tried in order. Neighbors that serve one model form one step, in which the requests are
shared as among the pools of any model. Behind the last step, an external provider may answer
(docs/decisions/0075-services-have-names-and-a-fallback.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import aiohttp
from typing_extensions import override

from gateway.contracts.snapshot import ProviderEntry, ServiceEntry
from gateway.pools.pool.service import Service, service_of_name
from gateway.pools.services.provider import Provider, provider_session

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool


class NamedService(Service):
    """A service with steps, at least one. It is rebuilt with each snapshot."""

    __slots__ = ("_ordered", "entry", "provider", "steps")

    def __init__(
        self, entry: ServiceEntry, pools: Sequence[LivePool], home: str | None = None, provider: Provider | None = None
    ) -> None:
        super().__init__(pools, home)
        # Pools of other regions are reached by the region rule of a pool here.
        near = [pool for pool in pools if pool.entry.region == home] or pools
        groups = groupby(near, key=lambda pool: pool.entry.served_model)
        self.entry = entry
        self._ordered = tuple(pools)
        self.steps = tuple(Service(list(step), home) for _, step in groups)
        self.provider = provider

    @override
    def in_region(self, region: str) -> NamedService | None:
        pools = [pool for pool in self._ordered if pool.entry.region == region]
        return NamedService(self.entry, pools, region) if pools else None

    @override
    def choose(self, affinity: Callable[[], bytes], now: float) -> LivePool:
        """Return a pool of the first step with an engine that accepts work; of the first step if there is none."""
        able = (step for step in self.steps if any(_serves(pool) for pool in step.pools))
        return next(able, self.steps[0]).choose(affinity, now)

    def untried(self, affinity: Callable[[], bytes], now: float, tried: Collection[str]) -> LivePool | None:
        """Return the next pool to try, None if all were tried. Observe-only pools are left out."""
        for step in self.steps:
            left = [pool for pool in step.pools if pool.entry.pool_id not in tried and not pool.observes]
            if left:
                return Service(left).choose(affinity, now)
        return None

    def granted(self, served_models: Collection[str]) -> NamedService | None:
        """Return the service as a key may use it; empty `served_models`: all.

        A key that lists the service may use all of it. One that lists only served models gets their pools and no
        provider.
        """
        if not served_models or not {self.entry.name, *self.entry.aliases}.isdisjoint(served_models):
            return self
        pools = [pool for pool in self._ordered if pool.entry.served_model in served_models]
        return NamedService(self.entry, pools) if pools else None


def _serves(pool: LivePool) -> bool:
    return bool(pool.router.view.roster.accepting) and not pool.observes


class Services:
    """The services of one gateway.

    Mutable: replaced with each snapshot, except providers that stay the same; the session, opened by the first request.
    """

    def __init__(self) -> None:
        self._of_model: dict[str, Service] = {}
        self._named: dict[str, NamedService] = {}
        self._providers: dict[ProviderEntry, Provider] = {}
        self._session: aiohttp.ClientSession | None = None

    def rebuild(self, pools: Mapping[str, LivePool], entries: Iterable[ServiceEntry], home: str | None) -> None:
        """Apply the snapshot's services. One without a pool at this gateway is left out."""
        serving: dict[str, list[LivePool]] = {}
        for pool in pools.values():
            serving.setdefault(pool.entry.served_model, []).append(pool)
        self._of_model = {model: Service(several, home) for model, several in serving.items()}
        entries = list(entries)
        wanted = {entry.provider for entry in entries if entry.provider is not None}
        # A provider keeps its pause as long as it is the same.
        self._providers = {entry: self._providers.get(entry) or Provider(entry, self._connected) for entry in wanted}
        self._named = {}
        for entry in entries:
            named = [pools[pool_id] for pool_id in entry.pools if pool_id in pools]
            if named:
                provider = self._providers[entry.provider] if entry.provider is not None else None
                service = NamedService(entry, named, home, provider)
                self._named |= dict.fromkeys((entry.name, *entry.aliases), service)

    def of(self, model: str, granted: Collection[str], pools: Iterable[LivePool], home: str | None) -> Service | None:
        """Return the service of a name that a key may use, None if there is none. A named service comes first."""
        named = self._named.get(model)
        if named is not None:
            return named.granted(granted)
        service = self._of_model.get(model)
        if service is not None:
            return None if granted and model not in granted else service
        return service_of_name(pools, model, granted, home)

    def model_in(self, pool: LivePool, name: str) -> str:
        """Return the name of the model that the pool's engines know: the served model if `name` is a service's."""
        return pool.entry.served_model if name in self._named else name

    def names(self) -> dict[str, NamedService]:
        """Return the named services by each of their names."""
        return self._named

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = provider_session()
        return self._session

    async def close(self) -> None:
        """Close the providers' connections."""
        if self._session is not None:
            await self._session.close()
