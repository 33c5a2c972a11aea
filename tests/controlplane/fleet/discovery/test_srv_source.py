"""Engines of an SRV name, resolved by a name server on loopback."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from controlplane.fleet.discovery.dns_source import engines_of_service
from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine
from controlplane.fleet.discovery.setting import DiscoverySource

NAME = "_vllm._tcp.example.internal"
SOURCE = DiscoverySource("chat", "srv", NAME)


@contextmanager
def name_server(*records: str, code: dns.rcode.Rcode = dns.rcode.NOERROR) -> Iterator[dns.resolver.Resolver]:
    """Respond to each UDP query with these SRV records; yield a resolver that uses this server."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            with suppress(OSError):
                while True:
                    data, client = server.recvfrom(4096)
                    answer = dns.message.make_response(dns.message.from_wire(data))
                    answer.flags |= dns.flags.RA
                    answer.set_rcode(code)
                    if records:
                        answer.answer.append(dns.rrset.from_text(f"{NAME}.", 5, "IN", "SRV", *records))
                    server.sendto(answer.to_wire(), client)

        threading.Thread(target=serve, daemon=True).start()
        resolver = dns.resolver.Resolver(configure=False)
        resolver.nameservers, resolver.port = ["127.0.0.1"], server.getsockname()[1]
        yield resolver


def test_service_lists_one_engine_per_record() -> None:
    records = ("1 10 8000 B.example.internal.", "2 5 8001 a.example.internal.", "1 10 8000 b.example.internal.")
    with name_server(*records) as resolver:
        assert engines_of_service(SOURCE, resolver) == [
            FoundEngine("a-example-internal-8001", "http://a.example.internal:8001"),
            FoundEngine("b-example-internal-8000", "http://b.example.internal:8000"),
        ]


@pytest.mark.parametrize("code", [dns.rcode.NXDOMAIN, dns.rcode.SERVFAIL, dns.rcode.NOERROR])
def test_name_without_records_counts_as_an_outage(code: dns.rcode.Rcode) -> None:
    with name_server(code=code) as resolver, pytest.raises(DiscoveryOutageError, match="no SRV record"):
        engines_of_service(SOURCE, resolver)


def test_service_declared_absent_removes_no_engine() -> None:
    with name_server("0 0 0 .") as resolver, pytest.raises(DiscoveryOutageError, match="no such service"):
        engines_of_service(SOURCE, resolver)
