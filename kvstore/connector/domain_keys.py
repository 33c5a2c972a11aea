"""Payload keys of one engine's requests, by adapter and isolation domain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from kvstore.keys.payload_key import PayloadFormat, PayloadKeys

_MAX_DOMAINS = 4096


class Domain(msgspec.Struct, frozen=True, gc=False):
    """Properties that distinguish a request's blocks from other blocks with the same tokens."""

    lora: str = ""
    """Name and revision of the adapter, empty without one."""
    salt: str = ""
    """The request's `cache_salt`, empty for the shared domain."""


class DomainKeys:
    """Payload keys by domain, for one thread. Mutable state: `_keys`, the most recently used key makers."""

    def __init__(self, payload_format: PayloadFormat) -> None:
        self._format = payload_format
        self._keys: OrderedDict[Domain, PayloadKeys] = OrderedDict()

    def keys(self, domain: Domain, chain_hashes: Sequence[bytes]) -> list[bytes]:
        """Return the payload keys of blocks. Raises ValueError if the engine's hashes are too short."""
        keys = self._keys.get(domain)
        if keys is None:
            keys = self._keys[domain] = PayloadKeys(
                msgspec.structs.replace(self._format, lora=domain.lora, isolation_domain=domain.salt)
            )
            # Clients choose salts, so that nothing else limits their number.
            if len(self._keys) > _MAX_DOMAINS:
                self._keys.popitem(last=False)
        else:
            self._keys.move_to_end(domain)
        return [keys.key(chain_hash_) for chain_hash_ in chain_hashes]
