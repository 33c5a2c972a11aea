"""Tokens allow advisories of one session for a limited time, and unsigned tokens are rejected."""

from __future__ import annotations

import random

import msgspec
import pytest

from gateway.contracts.snapshot import ApiKeyEntry, Snapshot
from gateway.requests.advisories.advisory_token import AdvisoryTokens, TokenClaims
from kvstore.keys.keyring import Keyring

CLAIMS = TokenClaims("reference", "s-1", "llama", 1000.0)
TOKENS = AdvisoryTokens(Keyring.of(b"the fleet's secret"))


def test_a_token_carries_its_claims_until_it_expires() -> None:
    token = TOKENS.token(CLAIMS)
    assert TOKENS.claims(token, 999.0) == CLAIMS
    assert TOKENS.claims(token, 1000.0) is None


def test_a_token_of_another_fleet_is_rejected() -> None:
    assert TOKENS.claims(AdvisoryTokens(Keyring.of(b"another secret")).token(CLAIMS), 0.0) is None


def test_during_rotation_tokens_of_both_secrets_are_valid_and_old_ones_counted() -> None:
    old = AdvisoryTokens(Keyring.of(b"before")).token(CLAIMS)
    keyring = Keyring.of(b"after", b"before")
    within = AdvisoryTokens(keyring)
    assert within.claims(old, 0.0) == within.claims(within.token(CLAIMS), 0.0) == CLAIMS
    assert {purpose: use.count for purpose, use in keyring.uses.items()} == {"advisory tokens": 1}
    finished = AdvisoryTokens(Keyring.of(b"after"))
    assert finished.claims(within.token(CLAIMS), 0.0) == CLAIMS
    assert finished.claims(old, 0.0) is None


def test_tampered_tokens_are_rejected() -> None:
    token, rng = TOKENS.token(CLAIMS), random.Random(3)
    for _ in range(500):
        at = rng.randrange(len(token))
        changed = token[:at] + rng.choice("abcXYZ019-_.=") + token[at + 1 :]
        # The last character of the MAC has bits that mean nothing; they are compared all the same.
        assert changed == token or TOKENS.claims(changed, 0.0) is None


@pytest.mark.parametrize("text", ["", "at_", "at_.", "at_e30.x", "hw_key", "at_" + "x" * 5000, "at_é.x"])
def test_malformed_tokens_are_rejected(text: str) -> None:
    assert TOKENS.claims(text, 0.0) is None


def test_only_gateways_can_read_the_api_key_of_a_token() -> None:
    keys = [ApiKeyEntry(key_id=f"key-{n}", sha256=str(n), tenant_id="acme") for n in range(3)]
    published = Snapshot(version=1, published_at=0.0, pools=(), engines=(), api_keys=tuple(keys))
    claims = TokenClaims(TOKENS.reference(keys[1]), "s-1", "llama", 1000.0)
    assert "key-1" not in claims.key
    assert TOKENS.key_id(claims, published) == "key-1"
    assert AdvisoryTokens(Keyring.of(b"another secret")).key_id(claims, published) == ""
    moved = msgspec.structs.replace(keys[1], tenant_id="other")
    assert TOKENS.key_id(claims, msgspec.structs.replace(published, api_keys=(keys[0], moved))) == ""
    assert TOKENS.key_id(claims, None) == ""
