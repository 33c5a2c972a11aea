"""Engines of a pool by address: allowed networks, the API key that is sent, connections, and the search by URL."""

from __future__ import annotations

import http.client
from ipaddress import ip_address, ip_network
from urllib.parse import urlsplit

from django.conf import settings
from django.db.models import Q

from controlplane.fleet.engine_url import EngineUrlRules
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from gateway.base.engine_api_keys import FLEET_KEY
from gateway.pools.engines.engine_tls import engine_tls


def engine_url_rules(pool: Pool | None = None) -> EngineUrlRules:
    """Return the address rules: the pool's networks if an admin set them, otherwise the installation's networks."""
    own = pool.engine_networks if pool is not None else ""
    return EngineUrlRules(
        networks=tuple(ip_network(part.strip()) for part in own.split(",")) if own else settings.ENGINE_NETWORKS,
        allow_loopback=settings.ALLOW_LOOPBACK_ENGINES,
        own_services=frozenset(_own_services()),
    )


def key_variable(engine: Engine) -> str:
    """Return the name of the environment variable with the engine's API key; empty: no key is sent.

    The fleet's key is sent only to addresses in the networks of the engine's pool.
    """
    if engine.pool.engine_api_key_env:
        return engine.pool.engine_api_key_env
    parts = urlsplit(engine.connect_url)
    # Its certificate names its host, whose addresses were checked when it was registered.
    if parts.scheme == "https":
        return FLEET_KEY
    try:
        address = ip_address(parts.hostname or "")
    except ValueError:
        # A connection would resolve a name again, to an address that may differ by then.
        return ""
    return FLEET_KEY if engine_url_rules(engine.pool).allows(address) else ""


def connection_to(url: str, timeout_s: float) -> http.client.HTTPConnection:
    """Return a connection to the engine at this URL, not opened yet. It trusts the authorities of engines."""
    address = urlsplit(url)
    host, port = address.hostname or "", address.port
    if address.scheme == "https":
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=engine_tls().context())
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def at_url(url: str) -> Q:
    """Return the condition for the engine with this URL, or for the ranks of the process there."""
    return Q(url=url) | Q(url__startswith=f"{url}#")


def _own_services() -> list[tuple[str, int]]:
    database = settings.DATABASES["default"]
    services = []
    if database.get("HOST"):
        services.append((str(database["HOST"]), int(database.get("PORT") or 5432)))
    redis = urlsplit(settings.REDIS_URL)
    if redis.hostname:
        services.append((redis.hostname, redis.port or 6379))
    return services
