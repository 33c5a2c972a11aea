"""Discovers an engine at each address of a host name, such as that of a headless service."""

from __future__ import annotations

from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, plain_name
from controlplane.fleet.discovery.setting import DiscoverySource
from controlplane.fleet.engine_url import Resolver, UnresolvedHostError, bracketed, resolve


def engines_of_name(source: DiscoverySource, resolver: Resolver = resolve) -> list[FoundEngine]:
    """Return an engine per A and AAAA record. Raises DiscoveryOutageError if there are none."""
    try:
        addresses = sorted(set(resolver(source.location, source.port)))
    except UnresolvedHostError as error:
        raise DiscoveryOutageError(str(error)) from error
    # Indistinguishable from a name server that lost its zone.
    if not addresses:
        raise DiscoveryOutageError(f"{source.location} has no address")
    return [
        FoundEngine(plain_name(f"{address}-{source.port}"), f"http://{bracketed(address)}:{source.port}")
        for address in addresses
    ]
