"""Addresses that a gateway offers to other gateways, set by its environment."""

from __future__ import annotations

import pytest

from gateway.base.peer_settings import LISTEN, REGION, TLS, PeerSettingsError, peer_settings


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
