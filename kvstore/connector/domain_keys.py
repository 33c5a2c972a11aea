"""Payload keys of one engine's requests, which differ by adapter and isolation domain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from kvstore.keys.payload_key import PayloadFormat, PayloadKeys

_MAX_DOMAINS = 4096


class Domain(msgspec.Struct, frozen=True, gc=False):
    """Properties by which a request's blocks differ from blocks of the same tokens."""

    lora: str = ""
    """Name and path of the adapter; empty: none."""
    salt: str = ""
    """The request's `cache_salt`; empty: the shared domain."""


class DomainKeys:
    """Mutable state: `_keys`, the most recently used key makers; for one thread."""

    def __init__(self, payload_format: PayloadFormat) -> None:
        self._format = payload_format
        self._keys: OrderedDict[Domain, PayloadKeys] = OrderedDict()

    def keys(self, domain: Domain, chain_hashes: Sequence[bytes]) -> list[bytes]:
        """Return the payload keys of blocks; raises ValueError on engine hashes that are too short."""
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
