"""Short-lived tokens with which a browser may send the advisories of one session, and do nothing else.

The customer's backend obtains one with its API key. A token names its session and its end; a MAC under the fleet secret
proves that a gateway made it, so no gateway stores any. Tokens are never logged. The API key appears in it as a keyed
digest: gateways find the key by it, and others learn neither its id nor its tenant. Other senders of advisories:
gateway/api/advisory_api.py.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b, sha256

import msgspec

from gateway.contracts.snapshot import ApiKeyEntry, Snapshot
from kvstore.keys.keyring import Keyring

PURPOSE = "advisory tokens"
PREFIX = "at_"
MAX_LIFETIME_S = 3600.0
MAX_TOKEN_BYTES = 2048
_MAC_BYTES = 16
_REFERENCE = b"api key"


class TokenClaims(msgspec.Struct, frozen=True, array_like=True):
    """Permission of a token: advisories of this session only."""

    key: str
    """Reference of the API key that it was made with."""
    session_id: str
    served_model: str
    expires_at: float
    """Unix seconds."""


class AdvisoryTokens:
    """Creates and reads tokens. Mutable: the ids of the last snapshot's API keys by their references."""

    def __init__(self, keyring: Keyring) -> None:
        self._keys = keyring.keys(PURPOSE)
        self._snapshot: Snapshot | None = None
        self._key_ids: dict[str, str] = {}

    def reference(self, key: ApiKeyEntry) -> str:
        """Return the API key's digest, which is in all of its tokens."""
        return _reference(self._keys.used, key)

    def key_id(self, claims: TokenClaims, snapshot: Snapshot | None) -> str:
        """Return the id of the API key that a token was made with; empty: the snapshot does not have it."""
        if snapshot is not self._snapshot:
            keys: Sequence[ApiKeyEntry] = snapshot.api_keys if snapshot is not None else ()
            known = {_reference(secret, key): key.key_id for secret in self._keys.every for key in keys}
            self._snapshot, self._key_ids = snapshot, known
        return self._key_ids.get(claims.key, "")

    def token(self, claims: TokenClaims) -> str:
        """Return the token of these claims."""
        body = urlsafe_b64encode(_encode(claims)).rstrip(b"=")
        return f"{PREFIX}{body.decode()}.{_mac(self._keys.used, body)}"

    def claims(self, token: str, unix_now: float) -> TokenClaims | None:
        """Return what a token allows; None: no gateway of this fleet made it, or its time is over."""
        # compare_digest raises TypeError for a text that is not ASCII.
        if not token.startswith(PREFIX) or len(token) > MAX_TOKEN_BYTES or not token.isascii():
            return None
        body, _, mac = token.removeprefix(PREFIX).partition(".")
        # The MAC goes first, so that only a gateway's own bytes are decoded.
        if self._keys.matching(lambda key: hmac.compare_digest(mac, _mac(key, body.encode()))) is None:
            return None
        try:
            claims = _decode(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
        except (msgspec.DecodeError, binascii.Error, UnicodeDecodeError):
            return None
        return claims if unix_now < claims.expires_at else None


def _reference(secret: bytes, key: ApiKeyEntry) -> str:
    named = f"{key.key_id}\0{key.tenant_id}".encode()
    return blake2b(named, digest_size=_MAC_BYTES, key=secret, person=_REFERENCE).hexdigest()


def _mac(key: bytes, body: bytes) -> str:
    digest = hmac.new(key, body, sha256).digest()[:_MAC_BYTES]
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TokenClaims).decode
