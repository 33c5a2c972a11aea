"""Discovers an engine per SRV record, at its target and port, as published by Consul and headless services."""

from __future__ import annotations

import dns.exception
import dns.name
import dns.resolver

from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine, plain_name
from controlplane.fleet.discovery.setting import DiscoverySource

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
