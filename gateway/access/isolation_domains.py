"""Isolation domains: whose cached prefixes a caller's prompts may hit.

A domain is the very salt that engines keep its blocks under, so that the salt in an engine's own event says
which block keys are meant: at any gateway, and after any restart.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TypeVar

from gateway.contracts.snapshot import PoolEntry
from kvstore.keys.block_keys import key_seed

SHARED = ""
"""The domain of blocks without a salt."""
_SALT_CONTEXT = b"switchyard cache salt\0"
_MAX_KNOWN = 4096

_Name = TypeVar("_Name")
_Made = TypeVar("_Made")


def cache_salt(fleet_secret: bytes, tenant_id: str, own_salt: str = "") -> str:
    """Return the salt of a tenant's blocks, or of those it set apart by a salt of its own.

    Nobody without the secret can guess it.
    """
    # Tenant ids hold no NUL, so the two never run together.
    own = b"\0" + own_salt.encode() if own_salt else b""
    return hmac.new(fleet_secret, _SALT_CONTEXT + tenant_id.encode() + own, sha256).hexdigest()[:32]


class IsolationDomains:
    """The domains of one pool's callers, and their key seeds. Mutable: the entry, and what was worked out before."""

    def __init__(self, fleet_secret: bytes, entry: PoolEntry) -> None:
        self._fleet_secret = fleet_secret
        self._salts: dict[tuple[str, str], str] = {}
        self._seeds: dict[str, int] = {}
        self.entry = entry

    def of(self, tenant_id: str, own_salt: str | None = None) -> str:
        """Return the domain of a caller that sent this salt, or none."""
        entry = self.entry
        if not own_salt and (not entry.isolated or tenant_id == entry.unsalted_tenant):
            return SHARED
        name = tenant_id, own_salt or ""
        salt = self._salts.get(name)
        if salt is None:
            salt = _keep(self._salts, name, cache_salt(self._fleet_secret, *name))
        return salt

    def seed(self, domain: str = SHARED) -> int:
        """Return the seed of the block keys in this domain."""
        seed = self._seeds.get(domain)
        if seed is None:
            seed = _keep(self._seeds, domain, key_seed(self._fleet_secret, self.entry.served_model, "", domain))
        return seed

    def forget(self) -> None:
        """Work everything out anew, as for another model."""
        self._salts.clear()
        self._seeds.clear()


def _keep(table: dict[_Name, _Made], name: _Name, made: _Made) -> _Made:
    """Put what was worked out into the table, which begins anew when it is full."""
    if len(table) >= _MAX_KNOWN:
        table.clear()
    table[name] = made
    return made
