"""This gateway's address for other gateways, and the certificates for their connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gateway.base.region_addresses import VARIABLE as REGION_PEERS
from gateway.base.region_addresses import RegionAddresses, host_and_port, region_addresses
from kvstore.transfer.tls import TlsFiles, is_loopback, tls_files

LISTEN = "HEADWAY_PEER_LISTEN"
REGION = "HEADWAY_REGION"
TLS = ("HEADWAY_PEER_TLS_CERTIFICATE", "HEADWAY_PEER_TLS_KEY", "HEADWAY_PEER_TLS_AUTHORITY")
_WILDCARDS = frozenset({"0.0.0.0", "::", "*"})  # noqa: S104 - they are rejected


class PeerSettingsError(ValueError):
    """A setting is wrong or unsafe; the message states the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSettings:
    """Settings of one gateway's connections to other gateways."""

    host: str = "127.0.0.1"
    port: int = 0
    """0: any free port."""
    region: str = ""
    name: str = ""
    """This gateway's name on the bus."""
    regions: RegionAddresses = field(default_factory=dict)
    """The gateways of other regions."""
    tls: TlsFiles | None = None
    """None: for addresses beyond loopback, gateways derive certificates from the fleet secret."""


def peer_settings(environment: Mapping[str, str]) -> PeerSettings:
    """Return the settings in the environment; raise PeerSettingsError, or OSError if a file cannot be read."""
    given = environment.get(LISTEN, "") or "127.0.0.1:0"
    address = host_and_port(given)
    if address is None:
        raise PeerSettingsError(f"{LISTEN}={given!r} is not an address; write host:port.")
    host, port = address
    if host in _WILDCARDS:
        raise PeerSettingsError(f"{LISTEN}={given!r} names no host; write the address that other gateways reach.")
    region = environment.get(REGION, "")
    try:
        regions = region_addresses(environment.get(REGION_PEERS, ""), region)
        tls = tls_files([environment.get(name, "") for name in TLS], TLS)
        if tls is not None:
            # Files that cannot be used end the start, not the first link.
            tls.client()
    except ValueError as error:
        raise PeerSettingsError(str(error)) from error
    far = [
        item
        for addresses in regions.values()
        for item in addresses
        if not is_loopback(urlsplit(f"//{item}").hostname or "")
    ]
    if tls is None and far and is_loopback(host):
        raise PeerSettingsError(
            f"{REGION_PEERS} names {far[0]}, on another machine; set {LISTEN} to an address that it can reach."
        )
    return PeerSettings(host=host, port=port, region=region, regions=regions, tls=tls)
