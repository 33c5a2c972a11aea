"""Isolation domains: each holds the cached prefixes that its callers' prompts can hit.

A domain's name is the salt under which engines store its blocks. The salt in an engine's event therefore identifies the
block keys at any gateway and after any restart.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from hashlib import sha256
from typing import TypeVar

from gateway.contracts.snapshot import PoolEntry
from kvstore.keys.block_keys import key_seed
from kvstore.keys.keyring import SecretKey

SHARED = ""
"""The domain of blocks without a salt."""
SALTS = "cache salts"
"""Purpose from which the `cache_salt` key is derived (kvstore.keys.keyring)."""
# Callers choose their own salts, so the number of names has no bound of its own.
_MAX_KNOWN = 4096

_Name = TypeVar("_Name")
_Made = TypeVar("_Made")


def cache_salt(key: bytes, tenant_id: str, own_salt: str = "") -> str:
    """Return the salt of a tenant's blocks. `own_salt` separates some of its prompts; `key` is the secret for salts.

    The salt cannot be guessed without the key.
    """
    # Tenant ids hold no NUL, so the two never run together.
    own = b"\0" + own_salt.encode() if own_salt else b""
    return hmac.new(key, tenant_id.encode() + own, sha256).hexdigest()[:32]


class IsolationDomains:
    """The isolation domains of one pool's callers, and their key seeds. Mutable: the entry and the cached values.

    Domains and seeds depend on the current secret. During its rotation, gateways with different secrets have different
    domains and keys.
    """

    def __init__(self, secret: SecretKey, entry: PoolEntry) -> None:
        self._salt_key, self._block_key = secret.derive(SALTS), secret.derive("block keys")
        self._media_key = secret.derive("media names")
        self._salts: dict[tuple[str, str], str] = {}
        self._seeds: dict[tuple[str, str], int] = {}
        self.media_blocks: OrderedDict[str, int] = OrderedDict()
        """Media name → number of blocks that contain it, from engine events."""
        self.entry = entry

    def of(self, tenant_id: str, own_salt: str | None = None) -> str:
        """Return the domain of a caller who sent this salt, or no salt."""
        entry = self.entry
        if not own_salt and (not entry.isolated or tenant_id == entry.unsalted_tenant):
            return SHARED
        name = tenant_id, own_salt or ""
        salt = self._salts.get(name)
        if salt is None:
            salt = _keep(self._salts, name, cache_salt(self._salt_key, *name))
        return salt

    def seed(self, domain: str = SHARED, lora: str = "") -> int:
        """Return the seed of the block keys in this domain, for this adapter or the base model."""
        name = domain, lora
        seed = self._seeds.get(name)
        if seed is None:
            seed = _keep(self._seeds, name, key_seed(self._block_key, self.entry.served_model, lora, domain))
        return seed

    def media_name(self, domain: str, digest: str) -> str:
        """Return the name under which engines store media of this content in this domain only."""
        return hmac.new(self._media_key, f"{domain}\0{digest}".encode(), sha256).hexdigest()[:32]

    def forget(self) -> None:
        """Clear all cached values, for example after the model changed."""
        self._salts.clear()
        self.media_blocks.clear()
        self._seeds.clear()


def _keep(table: dict[_Name, _Made], name: _Name, made: _Made) -> _Made:
    """Store a computed value in the table and return it. A full table is cleared first."""
    if len(table) >= _MAX_KNOWN:
        table.clear()
    table[name] = made
    return made
