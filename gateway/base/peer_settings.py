"""This gateway's address for other gateways, those of other regions' gateways, and the certificates for connections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from kvstore.transfer.tls import TlsFiles, is_loopback, tls_files

REGION_PEERS = "HEADWAY_REGION_PEERS"
MAX_GATEWAYS = 64

RegionAddresses = dict[str, tuple[str, ...]]
"""Region → addresses (host:port) of its gateways."""


def host_and_port(text: str) -> tuple[str, int] | None:
    """Return (host, port) of `host:port`, None if the text has another form."""
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host and port is not None and parts.netloc == text and text.endswith(f":{port}") else None


def region_addresses(text: str, own_region: str) -> RegionAddresses:
    """Return the regions in `us=host:port,asia=host:port`; a region can appear several times. Raise ValueError."""
    addresses: RegionAddresses = {}
    entries = [part.strip() for part in text.split(",") if part.strip()]
    if entries and not own_region:
        raise ValueError(f"{REGION_PEERS} needs HEADWAY_REGION, the region of this gateway.")
    if len(entries) > MAX_GATEWAYS:
        raise ValueError(f"{REGION_PEERS} names {len(entries)} gateways; at most {MAX_GATEWAYS} are allowed.")
    for entry in entries:
        region, _, address = entry.partition("=")
        if not region or host_and_port(address) is None:
            raise ValueError(f"{REGION_PEERS}: {entry!r} is not a peer; write region=host:port.")
        if region == own_region:
            raise ValueError(f"{REGION_PEERS} names this gateway's own region, {region!r}; name only others.")
        addresses[region] = (*addresses.get(region, ()), address)
    return addresses


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
