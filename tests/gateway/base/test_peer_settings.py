"""Addresses that a gateway offers to other gateways, set by its environment.

Gateways of other regions, set by the environment.
"""

from __future__ import annotations

import pytest

from gateway.base.peer_settings import (
    LISTEN,
    MAX_GATEWAYS,
    REGION,
    TLS,
    PeerSettingsError,
    peer_settings,
    region_addresses,
)


def test_the_default_is_a_free_loopback_port() -> None:
    settings = peer_settings({})
    assert (settings.host, settings.port, settings.region, settings.tls) == ("127.0.0.1", 0, "", None)


@pytest.mark.parametrize("given", ["127.0.0.1:7946", "localhost:7946", "[::1]:7946"])
def test_loopback_needs_no_certificates(given: str) -> None:
    settings = peer_settings({LISTEN: given, REGION: "eu"})
    assert (settings.host, settings.port, settings.region) == (given.rpartition(":")[0].strip("[]"), 7946, "eu")


@pytest.mark.parametrize("given", ["10.0.0.7:7946", "gateway-1.internal:7946", "[fd00::7]:7946"])
def test_an_external_address_needs_no_certificates_either(given: str) -> None:
    settings = peer_settings({LISTEN: given})
    assert (settings.host, settings.tls) == (given.rpartition(":")[0].strip("[]"), None)


@pytest.mark.parametrize("given", ["7946", "127.0.0.1", "127.0.0.1:many", "127.0.0.1:1/peer", "0.0.0.0:7946"])
def test_an_address_that_peers_cannot_reach_is_rejected(given: str) -> None:
    with pytest.raises(PeerSettingsError, match="write"):
        peer_settings({LISTEN: given})


def test_an_incomplete_set_of_tls_files_is_rejected() -> None:
    with pytest.raises(PeerSettingsError, match="TLS needs all of"):
        peer_settings({TLS[0]: "/nowhere/certificate.pem"})


def test_a_region_can_have_several_gateways() -> None:
    assert region_addresses("us=10.0.0.1:7, asia=[::1]:8,us=10.0.0.2:7", "eu") == {
        "us": ("10.0.0.1:7", "10.0.0.2:7"),
        "asia": ("[::1]:8",),
    }
    assert region_addresses("", "") == {}


@pytest.mark.parametrize(
    ("text", "region", "said"),
    [
        ("us", "eu", "write region=host:port"),
        ("us=10.0.0.1", "eu", "write region=host:port"),
        ("us=http://10.0.0.1:7", "eu", "write region=host:port"),
        ("us=10.0.0.1:70000", "eu", "write region=host:port"),
        ("eu=10.0.0.1:7", "eu", "own region"),
        ("us=10.0.0.1:7", "", "HEADWAY_REGION"),
        (",".join(f"us=10.0.0.1:{port}" for port in range(1, MAX_GATEWAYS + 2)), "eu", "at most"),
    ],
)
def test_invalid_addresses_are_rejected_with_the_reason(text: str, region: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        region_addresses(text, region)


def test_a_gateway_with_remote_regions_listens_beyond_loopback() -> None:
    environment = {"HEADWAY_REGION": "eu", "HEADWAY_REGION_PEERS": "us=10.0.0.1:7"}
    with pytest.raises(PeerSettingsError, match=r"10\.0\.0\.1:7.*set HEADWAY_PEER_LISTEN"):
        peer_settings(environment)
    assert peer_settings({**environment, "HEADWAY_PEER_LISTEN": "10.0.0.2:7"}).regions == {"us": ("10.0.0.1:7",)}
    assert peer_settings({**environment, "HEADWAY_REGION_PEERS": "us=127.0.0.1:7"}).regions == {"us": ("127.0.0.1:7",)}
