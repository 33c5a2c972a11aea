"""Addresses of other regions' gateways, from HEADWAY_REGION_PEERS."""

from __future__ import annotations

from urllib.parse import urlsplit

VARIABLE = "HEADWAY_REGION_PEERS"
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
        raise ValueError(f"{VARIABLE} needs HEADWAY_REGION, the region of this gateway.")
    if len(entries) > MAX_GATEWAYS:
        raise ValueError(f"{VARIABLE} names {len(entries)} gateways; at most {MAX_GATEWAYS} are allowed.")
    for entry in entries:
        region, _, address = entry.partition("=")
        if not region or host_and_port(address) is None:
            raise ValueError(f"{VARIABLE}: {entry!r} is not a peer; write region=host:port.")
        if region == own_region:
            raise ValueError(f"{VARIABLE} names this gateway's own region, {region!r}; name only others.")
        addresses[region] = (*addresses.get(region, ()), address)
    return addresses
