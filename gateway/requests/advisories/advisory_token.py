"""Short-lived tokens that allow a browser to send one session's advisories and nothing else.

The customer's backend obtains a token with its API key. A token names its session and its expiry; a MAC under the fleet
secret proves that a gateway issued it, so gateways store no tokens. Tokens are never logged. A token contains a keyed
digest of its API key: gateways find the key by it, and others learn neither its id nor its tenant. For the senders of
advisories see gateway/api/advisory_api.py.
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
    """The permission in a token: advisories of one session."""

    key: str
    """Reference of the API key that obtained the token."""
    session_id: str
    served_model: str
    expires_at: float
    """Unix seconds."""


class AdvisoryTokens:
    """Issues and verifies tokens. Mutable: the API key ids of the last snapshot by their references."""

    def __init__(self, keyring: Keyring) -> None:
        self._keys = keyring.keys(PURPOSE)
        self._snapshot: Snapshot | None = None
        self._key_ids: dict[str, str] = {}

    def reference(self, key: ApiKeyEntry) -> str:
        """Return the API key's digest, which all of its tokens contain."""
        return _reference(self._keys.used, key)

    def key_id(self, claims: TokenClaims, snapshot: Snapshot | None) -> str:
        """Return the id of the API key that obtained the token, empty if the snapshot lacks that key."""
        if snapshot is not self._snapshot:
            keys: Sequence[ApiKeyEntry] = snapshot.api_keys if snapshot is not None else ()
            known = {_reference(secret, key): key.key_id for secret in self._keys.every for key in keys}
            self._snapshot, self._key_ids = snapshot, known
        return self._key_ids.get(claims.key, "")

    def token(self, claims: TokenClaims) -> str:
        """Return a token for these claims."""
        body = urlsafe_b64encode(_encode(claims)).rstrip(b"=")
        return f"{PREFIX}{body.decode()}.{_mac(self._keys.used, body)}"

    def claims(self, token: str, unix_now: float) -> TokenClaims | None:
        """Return the claims of a token, None if it has expired or no gateway of this fleet issued it."""
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
