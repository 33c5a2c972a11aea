"""Wire structs of KV events as arrays: vLLM up to 0.23 and SGLang's array encoding.

An event is the msgpack array [tag, field, …]. Trailing fields can be missing, and fields after the last known one are
ignored. Since 0.5.18, SGLang sends a map of metadata at the position of vLLM's adapter name (engine notes, KV events).
"""

from __future__ import annotations

from typing import Any

import msgspec


class StoredMetadata(msgspec.Struct, frozen=True):
    """SGLang's map at position 7. Unknown keys are ignored."""

    cache_salt: str | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None


class StoredArray(msgspec.Struct, frozen=True, array_like=True, tag="BlockStored"):
    """["BlockStored", hashes, parent, token ids, block size, lora id, medium, name or metadata, extra keys, …]."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    lora_id: int | str | None = None
    medium: str | None = "GPU"
    name_or_metadata: str | StoredMetadata | None = None
    extra_keys: list[Any] | None = None
    # Any: only vLLM has these fields, and whatever another engine sends here must not fail the event.
    group_idx: Any = None
    kv_cache_spec_kind: Any = None
    kv_cache_spec_sliding_window: Any = None

    @property
    def metadata(self) -> StoredMetadata:
        """Position 7 as metadata, from either encoding."""
        value = self.name_or_metadata
        return value if isinstance(value, StoredMetadata) else StoredMetadata(lora_name=value)


class RemovedArray(msgspec.Struct, frozen=True, array_like=True, tag="BlockRemoved"):
    """["BlockRemoved", hashes, medium, group, …]."""

    block_hashes: list[int | bytes]
    medium: str | None = "GPU"
    group_idx: Any = None


class ClearedArray(msgspec.Struct, frozen=True, array_like=True, tag="AllBlocksCleared"):
    """["AllBlocksCleared", …]."""


ArrayEvent = StoredArray | RemovedArray | ClearedArray
