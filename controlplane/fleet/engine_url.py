"""Checks which engine addresses the program may connect to.

Gateways and probes connect to every address in the topology, so a malicious address could make them reach internal
services (server-side request forgery). Therefore an address is resolved once, every result must be in an allowed
network, and the checked address is published.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from urllib.parse import SplitResult, urlsplit

from typing_extensions import override

from controlplane.platform.field_problems import FieldProblem, InvalidInputError

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], list[str]]

_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*")
_NUMBER_LABEL = re.compile(r"[0-9]+|0[xX][0-9A-Fa-f]*")
_HTTP: dict[str, int | None] = {"http": 80, "https": 443}
"""URL schemes of engines and their default ports."""
_RANK = re.compile(r"[0-9]{1,3}", re.ASCII)
_PATH = re.compile(r"(/[A-Za-z0-9_.~-]+)*/?")
_METADATA_NAMES = frozenset({"metadata", "metadata.google.internal", "metadata.goog", "instance-data"})
# Services of cloud machines that hand out credentials and answer outside the link-local range.
_METADATA_ADDRESSES = frozenset(
    ipaddress.ip_address(address)
    for address in ("169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254")
)
# IPv6 ranges that embed an IPv4 address, and so a way around rules for IPv4.
_EMBEDDING = tuple(
    ipaddress.ip_network(network)
    for network in ("::ffff:0:0/96", "::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)


class RejectedUrlError(InvalidInputError):
    """The address is not allowed for an engine. The message explains the reason and the fix."""

    field = ""
    """The engine field that contains the address, if known."""

    @property
    @override
    def field_problems(self) -> tuple[FieldProblem, ...]:
        """Return the problem at its field."""
        return (FieldProblem(self.field, f"{self}."),)


class UnresolvedHostError(RejectedUrlError):
    """The host name has no address: it is mistyped or not in DNS yet."""


@dataclass(frozen=True, slots=True)
class EngineUrlRules:
    """Rules of an operator for engine addresses."""

    networks: tuple[IpNetwork, ...]
    allow_loopback: bool = False
    own_services: frozenset[tuple[str, int]] = frozenset()
    """(host or address, port) of Headway's database and Redis."""

    def allows(self, address: IpAddress) -> bool:
        """Return whether the address is in an allowed network, or on this machine if that is allowed."""
        return self.allow_loopback if address.is_loopback else any(address in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class CheckedUrl:
    """An address that passed the checks."""

    url: str
    """Normalized URL as entered: scheme://host:port/path, without a trailing slash."""
    connect_url: str
    """The address to connect to: resolved, except for https, because its certificate names the host."""
    address: str
    port: int
    addresses: tuple[str, ...] = ()
    """All addresses of the host. Each was checked."""


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of a host name as text. Raises UnresolvedHostError if there are none."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UnresolvedHostError(f"{host} has no address: {error}") from error
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def check_engine_url(url: str, rules: EngineUrlRules, resolver: Resolver = resolve) -> CheckedUrl:
    """Check an http or https address, with #rank for one data-parallel rank, and resolve it.

    Raises RejectedUrlError.
    """
    process, rank = _ranked(url)
    checked = _check(process, _HTTP, rules, resolver)
    return replace(checked, url=ranked_url(checked.url, rank))


def ranked_url(url: str, rank: int | None) -> str:
    """Return the URL of one data-parallel rank of an engine."""
    return url if rank is None else f"{url}#{rank}"


def rank_of(url: str) -> int | None:
    """Return the data-parallel rank in an engine's stored address; None: the whole engine."""
    rank = url.partition("#")[2]
    return int(rank) if rank else None


def check_kv_endpoint(endpoint: str, rules: EngineUrlRules, resolver: Resolver = resolve) -> CheckedUrl:
    """Check and resolve the tcp endpoint of KV events. Raises RejectedUrlError."""
    checked = _check(endpoint, {"tcp": None}, rules, resolver)
    if urlsplit(checked.url).path:
        raise RejectedUrlError(f"{endpoint} has a path; a KV event endpoint is tcp://host:port")
    return checked


def check_metrics_url(url: str, rules: EngineUrlRules, resolver: Resolver = resolve) -> CheckedUrl:
    """Check the http or https address that Prometheus scrapes, in a network of engines. Raises RejectedUrlError."""
    return _check(url, _HTTP, rules, resolver)


def is_allowed_metrics_url(url: str, rules: EngineUrlRules) -> bool:
    """Return whether a stored address may be shown. Host names are not resolved."""
    try:
        check_metrics_url(url, rules, lambda _host, _port: [])
    except UnresolvedHostError:
        return True
    except RejectedUrlError:
        return False
    return True


def normal_url(url: str) -> str:
    """Return an engine's address in its stored form, without DNS queries. Raises RejectedUrlError."""
    process, rank = _ranked(url)
    return ranked_url(_written(_parts(process, _HTTP)), rank)


def _ranked(url: str) -> tuple[str, int | None]:
    process, mark, rank = url.partition("#")
    if mark and not _RANK.fullmatch(rank):
        raise RejectedUrlError("write only a data-parallel rank after #, such as #0")
    return process, int(rank) if mark else None


def _written(parts: SplitResult) -> str:
    host = (parts.hostname or "").removesuffix(".")
    return f"{parts.scheme}://{bracketed(host)}:{parts.port or _HTTP.get(parts.scheme)}{parts.path.rstrip('/')}"


def check_webhook_url(url: str, rules: EngineUrlRules, resolver: Resolver = resolve) -> CheckedUrl:
    """Check the http or https address of an operator's service, in any network. Raises RejectedUrlError.

    As for engines, loopback, metadata services, and Headway's database are rejected.
    """
    anywhere = replace(rules, networks=(ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0")))
    # A query does not change which host is called, and engines' URLs may have none.
    return _check(url.partition("?")[0], _HTTP, anywhere, resolver)


def _check(url: str, schemes: dict[str, int | None], rules: EngineUrlRules, resolver: Resolver) -> CheckedUrl:
    parts = _parts(url, schemes)
    port = parts.port or schemes[parts.scheme]
    if not port:
        raise RejectedUrlError(f"{url} names no port")
    # "metadata.google.internal." is the same host as without the dot.
    host = (parts.hostname or "").removesuffix(".")
    literal = _literal_address(host)
    addresses = [literal] if literal else [ipaddress.ip_address(text) for text in resolver(host, port)]
    if not addresses:
        raise UnresolvedHostError(f"{host} has no address")
    for address in addresses:
        _reject_address(host, address, rules)
    _reject_own_service(host, addresses, port, rules.own_services, resolver)
    path = parts.path.rstrip("/")
    first = addresses[0]
    connect_host = host if parts.scheme == "https" else str(first)
    return CheckedUrl(
        url=_written(parts),
        connect_url=f"{parts.scheme}://{bracketed(connect_host)}:{port}{path}",
        address=str(first),
        port=port,
        addresses=tuple(str(item) for item in addresses),
    )


def _parts(url: str, schemes: dict[str, int | None]) -> SplitResult:
    if not url.isascii() or not url.isprintable() or any(character in url for character in " \\%"):
        # Other programs fold such characters into a different host than the one checked here.
        raise RejectedUrlError("the address has characters other than plain ASCII letters, digits and -._~:/[]")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise RejectedUrlError(f"{url} is not a valid address: {error}") from error
    if parts.scheme not in schemes:
        raise RejectedUrlError(f"the scheme {parts.scheme or '(none)'} is not one of {', '.join(schemes)}")
    if "@" in parts.netloc:
        raise RejectedUrlError("the address carries a user name or password; give the engine's key separately")
    if "?" in url or "#" in url:
        raise RejectedUrlError("the address carries a query or fragment; give only scheme, host, port and path")
    if not _PATH.fullmatch(parts.path) or ".." in parts.path.split("/"):
        raise RejectedUrlError(f"the path {parts.path} is not plain")
    if not parts.hostname or port == 0:
        raise RejectedUrlError(f"{url} lacks a host or has port 0")
    return parts


def _literal_address(host: str) -> IpAddress | None:
    """Return the address if the host is one in canonical form; None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if not _HOST.fullmatch(host):
        raise RejectedUrlError(f"{host} is neither a host name nor an address")
    if _NUMBER_LABEL.fullmatch(host.rsplit(".", 1)[-1]):
        # 2130706433, 0x7f.1 and 0177.0.0.1 are 127.0.0.1 to inet_aton, which resolvers still call.
        raise RejectedUrlError(f"write {host} as an address of four decimal numbers")
    if host.lower() in _METADATA_NAMES:
        raise RejectedUrlError(f"{host} is a cloud's metadata service, not an engine")
    return None


def _reject_address(host: str, address: IpAddress, rules: EngineUrlRules) -> None:
    name = _resolved(host, address)
    if address in _METADATA_ADDRESSES or address.is_link_local:
        raise RejectedUrlError(f"{name} is a link-local or metadata address; no engine is there")
    if address.is_multicast or address.is_unspecified:
        raise RejectedUrlError(f"{name} is not a single host's address")
    if address.is_loopback:
        if not rules.allow_loopback:
            raise RejectedUrlError(
                f"{host} is this machine; set HEADWAY_ALLOW_LOOPBACK_ENGINES=true if engines really run here"
            )
        return
    if isinstance(address, ipaddress.IPv6Address) and any(address in network for network in _EMBEDDING):
        raise RejectedUrlError(f"{name}: write the IPv4 address it stands for")
    if not rules.allows(address):
        raise RejectedUrlError(
            f"{name} is outside HEADWAY_ENGINE_NETWORKS and the pool's engine networks; "
            "an admin can allow its network in the pool's settings"
        )


def _resolved(host: str, address: IpAddress) -> str:
    """Return the host with its address if it is a name."""
    return host if host.strip("[]") == str(address) else f"{host} ({address})"


def _reject_own_service(
    host: str,
    addresses: Iterable[IpAddress],
    port: int,
    own_services: frozenset[tuple[str, int]],
    resolver: Resolver,
) -> None:
    mine = {str(address) for address in addresses} | {host.lower()}
    for service_host, service_port in sorted(own_services):
        if port == service_port and mine & {service_host.lower(), *_addresses_of(service_host, port, resolver)}:
            raise RejectedUrlError(f"{host}:{port} is our own database or Redis, not an engine")


def _addresses_of(host: str, port: int, resolver: Resolver) -> list[str]:
    try:
        return resolver(host, port)
    except RejectedUrlError:
        return []


def bracketed(host: str) -> str:
    """Return the host in URL form: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
