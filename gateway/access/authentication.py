"""Authenticates callers by an API key in `Authorization: Bearer hw_…`; the process stores only the key's SHA-256.

Clients of Anthropic's API send the key in `X-Api-Key`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Protocol

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.server.http.openai_error import ApiError

KEY_PREFIX = b"hw_"
MAX_KEY_BYTES = 512
_BEARER = b"bearer "

INFER = "infer"
"""Scope of /v1: inference through the proxy."""
ROUTE = "route"
"""Scope of the decision API: routes and their feedback."""
FORWARD = "forward"
"""Scope of trusted proxies, which decide on behalf of the API keys that their clients send."""
CLIENT_AUTHORIZATION = b"x-headway-client-authorization"
"""The header in which such a proxy forwards the Authorization header of its client."""


MANAGE = "manage"
"""Scope of the management API: an operator's key, which can see all tenants' traffic."""


class PoolTenants:
    """Maps the tenants of a snapshot's API keys to the models whose pools they can use."""

    def __init__(self, keys: Sequence[ApiKeyEntry]) -> None:
        self.only_one = len({key.tenant_id for key in keys}) < 2
        placing = [key for key in keys if INFER in key.scopes or ROUTE in key.scopes]
        self._everywhere = {key.tenant_id for key in placing if not key.served_models}
        self._granted: defaultdict[str, set[str]] = defaultdict(set)
        for key in placing:
            for model in key.served_models:
                self._granted[model].add(key.tenant_id)

    def share(self, served_model: str) -> bool:
        """Return whether several tenants can use the pools of this model."""
        return len(self._everywhere | self._granted.get(served_model, set())) > 1


class KeyDirectory(Protocol):
    """Finds API keys by their hash. The Gateway implements it."""

    def api_key(self, sha256: str) -> ApiKeyEntry | None:
        """Return the key with this SHA-256 (hex)."""
        ...


class UnauthenticatedError(ApiError):
    """The caller sent no valid key. `cause` is the label under which the rejection is counted."""

    def __init__(self, cause: str, message: str) -> None:
        super().__init__(401, message, cause)
        self.cause = cause


class OutOfScopeError(ApiError):
    """The caller's key is valid but does not permit this path."""

    def __init__(self, wanted: Sequence[str], scopes: tuple[str, ...]) -> None:
        has = ", ".join(scopes) or "none"
        message = f"This API key lacks the scope {' or '.join(wanted)} (it has: {has}); use a key that has it."
        super().__init__(403, message, "missing_scope")


def authorization_of(headers: Mapping[bytes, bytes]) -> bytes | None:
    """Return the Authorization header, or its equivalent if only X-Api-Key carries the key."""
    authorization = headers.get(b"authorization")
    if authorization is None and (key := headers.get(b"x-api-key")) is not None:
        return b"Bearer " + key
    return authorization


def authenticate(authorization: bytes | None, directory: KeyDirectory, unix_now: float) -> ApiKeyEntry:
    """Return the caller's API key entry; raise UnauthenticatedError with a message that states the remedy.

    No message or log contains the key or its hash.
    """
    if authorization is None:
        raise UnauthenticatedError("missing_api_key", "Send your API key as 'Authorization: Bearer hw_…'.")
    # A scheme's name is case-insensitive (RFC 9110, §11.1).
    if authorization[:7].lower() != _BEARER:
        raise UnauthenticatedError("invalid_authorization", "The Authorization header must be 'Bearer hw_…'.")
    key = authorization[7:].strip()
    if not key.startswith(KEY_PREFIX) or len(key) > MAX_KEY_BYTES:
        raise UnauthenticatedError("invalid_api_key", "This is not a Headway API key; keys start with 'hw_'.")
    # Hashed before it is compared, so that the lookup time reveals nothing about stored keys.
    entry = directory.api_key(sha256(key).hexdigest())
    if entry is None:
        raise UnauthenticatedError("invalid_api_key", "This API key is unknown or revoked; create one in the console.")
    if has_expired(entry, unix_now):
        raise UnauthenticatedError("expired_api_key", "This API key has expired; create a new one in the console.")
    return entry


def decides_for(
    headers: Mapping[bytes, bytes], key: ApiKeyEntry, directory: KeyDirectory, unix_now: float, *scopes: str
) -> ApiKeyEntry:
    """Return the key whose limits and rights apply: the client's if a trusted proxy forwards one, else `key` itself.

    A proxy whose key lacks these scopes and has only `forward` needs a client's key for each request. From all other
    callers, the header has no effect. Raise UnauthenticatedError or OutOfScopeError, as the gateway's own proxy does.
    """
    if FORWARD in key.scopes:
        client = headers.get(CLIENT_AUTHORIZATION)
        if client is not None or not any(scope in key.scopes for scope in scopes):
            entry = authenticate(client, directory, unix_now)
            require_scope(entry, INFER)
            return entry
    require_scope(key, *scopes)
    return key


def has_expired(key: ApiKeyEntry, unix_now: float) -> bool:
    """Return whether the key has expired."""
    return key.expires_at is not None and key.expires_at <= unix_now


def require_scope(key: ApiKeyEntry, *scopes: str) -> None:
    """Raise OutOfScopeError unless the key has one of these scopes."""
    if not any(scope in key.scopes for scope in scopes):
        raise OutOfScopeError(scopes, key.scopes)
