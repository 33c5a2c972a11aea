"""Discovers engines by DNS: at each address of a host name, or at the target and port of each SRV record."""

from __future__ import annotations

import dns.exception
import dns.name
import dns.resolver

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


ANSWER_S = 3.0
"""Time limit of all DNS queries together."""


def engines_of_service(source: DiscoverySource, resolver: dns.resolver.Resolver | None = None) -> list[FoundEngine]:
    """Return an engine per SRV record. Raises DiscoveryOutageError if there are none.

    Priority and weight are ignored, because the router chooses engines.
    """
    try:
        asked = resolver or dns.resolver.Resolver()
        answer = asked.resolve(source.location, "SRV", search=False, lifetime=ANSWER_S)
    except (dns.exception.DNSException, OSError) as error:
        raise DiscoveryOutageError(
            f"{source.location} has no SRV record: {str(error) or type(error).__name__}"
        ) from error
    # A target of "." states that the service is not offered (RFC 2782).
    records = [record for record in answer if record.target != dns.name.root]
    if not records:
        raise DiscoveryOutageError(f"{source.location} reports no such service")
    addresses = sorted({(record.target.to_text(omit_final_dot=True).lower(), record.port) for record in records})
    return [FoundEngine(plain_name(f"{host}-{port}"), f"http://{host}:{port}") for host, port in addresses]
