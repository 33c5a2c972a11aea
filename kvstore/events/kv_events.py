"""Wire structs of the KV events that vLLM and SGLang engines publish.

A batch is the msgpack array [ts, [events], data_parallel_rank]. Each event is a map with `type` (vLLM from 0.24.0 and
current SGLang) or an array [tag, field, …] (vLLM up to 0.23, SGLang's array encoding); one batch can contain both.
Unknown keys are ignored and unknown event types skipped, because both engines add fields and types between releases.
Trailing fields of arrays can be missing, and fields after the last known one are ignored.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL


class StoredMetadata(msgspec.Struct, frozen=True):
    """SGLang's map at position 7, since 0.5.18: there vLLM has the adapter's name (engine notes, KV events)."""

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

ENGINE_MEDIUM = "GPU"
"""Medium of the memory in which an engine computes. Other media are lower tiers."""
_TIER_OF = {"CPU": CPU, "CPU_PINNED": CPU, "STORAGE": DISK, "DISK": DISK, "EXTERNAL": EXTERNAL}
"""Known media below engine memory, of vLLM, SGLang, and (in lower case) LMCache."""
DENSE_KINDS = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
"""Cache group kinds whose events list every block of their token ids. Others omit skipped blocks."""
MAX_EVENTS_PER_BATCH = 65_536
MAX_BLOCKS_PER_EVENT = 65_536


class UnreadableEventError(ValueError):
    """The payload is not a batch of KV events."""


class PairedTokensError(UnreadableEventError):
    """The engine's cache keys are pairs of tokens, for which we have no block keys."""

    def __init__(self) -> None:
        super().__init__(
            "token ids are pairs, as SGLang with EAGLE speculative decoding sends them; "
            "give the pool approximate keys, or run the engine without EAGLE"
        )


class BlockStored(msgspec.Struct, frozen=True, tag_field="type", tag="BlockStored", omit_defaults=True):
    """Blocks stored in the engine's cache after `parent_block_hash` (None: they start a prompt).

    Events of lower tiers (medium CPU, STORAGE, …), from engines and nodes, can omit token ids and parent.
    """

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    medium: str | None = "GPU"
    lora_name: str | None = None
    lora_id: int | str | None = None
    """Older engines name an adapter only by this."""
    cache_salt: str | None = None
    extra_keys: list[Any] | None = None
    """Additional hashed values per block, including the cache salt (kvstore.events.event_salt)."""
    group_idx: int | None = None
    """Cache group of a hybrid model (kvstore.events.cache_groups), also in removals."""
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    """Size of the group's window in tokens."""
    locality: str | None = None
    """REMOTE if the blocks are not on the engine's machine."""

    @property
    def is_dense(self) -> bool:
        """Whether the event lists every block of its token ids."""
        return self.kv_cache_spec_kind in DENSE_KINDS


class BlockRemoved(msgspec.Struct, frozen=True, tag_field="type", tag="BlockRemoved", omit_defaults=True):
    """Blocks removed from the engine's cache."""

    block_hashes: list[int | bytes]
    medium: str | None = "GPU"
    extra_keys: list[Any] | None = None
    """A node manager's facts per block (kvstore.events.node_blocks). Engines send none."""
    group_idx: int | None = None
    locality: str | None = None


class AllBlocksCleared(msgspec.Struct, frozen=True, tag_field="type", tag="AllBlocksCleared"):
    """The engine cleared its whole cache."""


def in_engine_memory(event: BlockStored | BlockRemoved) -> bool:
    """Return whether the engine can use the event's blocks without loading them."""
    return event.medium in (None, ENGINE_MEDIUM) and event.locality != "REMOTE"


def tier_of(event: BlockStored | BlockRemoved) -> str | None:
    """Return the event's tier below engine memory, None for engine memory or an unknown medium."""
    tier = _TIER_OF.get((event.medium or "").upper())
    return EXTERNAL if tier is not None and event.locality == "REMOTE" else tier


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """One message of an engine: seconds since the epoch, events in order, and data-parallel rank."""

    ts: float
    events: list[KvEvent]
    data_parallel_rank: int | None = None


class _ArrayBatch(msgspec.Struct, frozen=True, array_like=True):
    ts: float
    events: list[ArrayEvent]
    data_parallel_rank: int | None = None


class _RawBatch(msgspec.Struct, frozen=True, array_like=True):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


_NOTHING = msgspec.Raw(msgspec.msgpack.encode(None))


class _AnyMap(msgspec.Struct, frozen=True):
    type: str
    token_ids: msgspec.Raw = _NOTHING


class _AnyArray(msgspec.Struct, frozen=True, array_like=True):
    type: str
    block_hashes: msgspec.Raw = _NOTHING
    parent_block_hash: msgspec.Raw = _NOTHING
    token_ids: msgspec.Raw = _NOTHING


_KNOWN = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
# Hostile bytes raise the last two: strings that are not UTF-8, and nesting that is too deep.
_FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_encoder = msgspec.msgpack.Encoder()
_batch_decoder = msgspec.msgpack.Decoder(EventBatch)
_array_batch_decoder = msgspec.msgpack.Decoder(_ArrayBatch)
_raw_decoder = msgspec.msgpack.Decoder(_RawBatch)
_map_type_decoder = msgspec.msgpack.Decoder(_AnyMap)
_array_type_decoder = msgspec.msgpack.Decoder(_AnyArray)
_event_decoder: msgspec.msgpack.Decoder[KvEvent] = msgspec.msgpack.Decoder(KvEvent)
_array_decoder: msgspec.msgpack.Decoder[ArrayEvent] = msgspec.msgpack.Decoder(ArrayEvent)
_pairs_decoder = msgspec.msgpack.Decoder(list[tuple[int, int]])


def encode_batch(batch: EventBatch) -> bytes:
    """Return the batch encoded with maps, as current engines send it."""
    return _encoder.encode(batch)


def decode_batch(data: bytes, skipped: list[str] | None = None) -> EventBatch:
    """Decode one batch in either encoding. Raises UnreadableEventError on garbage or if a limit above is exceeded.

    With `skipped`, only a payload that is no batch raises. An event that cannot be read, or whose unknown type concerns
    blocks, is skipped, and its error is appended to `skipped`.
    """
    batch = _decode_whole(data) or _decode_known(data, skipped)
    if len(batch.events) > MAX_EVENTS_PER_BATCH:
        raise UnreadableEventError(f"{len(batch.events)} events in one batch are over {MAX_EVENTS_PER_BATCH}")
    whole = [event for event in batch.events if _is_whole(event, skipped)]
    return batch if len(whole) == len(batch.events) else msgspec.structs.replace(batch, events=whole)


def _is_whole(event: KvEvent, skipped: list[str] | None) -> bool:
    try:
        _check(event)
    except UnreadableEventError as error:
        if skipped is None:
            raise
        skipped.append(str(error))
        return False
    return True


def _decode_whole(data: bytes) -> EventBatch | None:
    """Decode a batch of known events in one encoding, the usual case, else return None."""
    try:
        # One decoding of the whole batch is the fast path; which form an engine sends shows only by trying.
        return _batch_decoder.decode(data)
    except _FAULTS:
        pass
    try:
        arrays = _array_batch_decoder.decode(data)
    except _FAULTS:
        return None
    return EventBatch(arrays.ts, [_as_map(event) for event in arrays.events], arrays.data_parallel_rank)


def _decode_known(data: bytes, skipped: list[str] | None) -> EventBatch:
    """Decode event by event, so that encodings can be mixed and unknown types are skipped."""
    try:
        raw = _raw_decoder.decode(data)
    except _FAULTS as error:
        raise UnreadableEventError(f"not a batch of KV events: {error}") from error
    events = []
    for item in raw.events:
        try:
            event = _decode_event(item, skipped)
        except (*_FAULTS, PairedTokensError) as error:
            if skipped is not None:
                skipped.append(str(error))
                continue
            if isinstance(error, PairedTokensError):
                raise
            raise UnreadableEventError(f"not a batch of KV events: {error}") from error
        if event is not None:
            events.append(event)
    return EventBatch(raw.ts, events, raw.data_parallel_rank)


def _decode_event(item: msgspec.Raw, skipped: list[str] | None) -> KvEvent | None:
    is_array = _is_array(item)
    envelope: _AnyArray | _AnyMap = (_array_type_decoder if is_array else _map_type_decoder).decode(item)
    if envelope.type not in _KNOWN:
        # An unknown event about blocks may make the index wrong; any other is of no concern.
        if skipped is not None and envelope.type.startswith("Block"):
            skipped.append(f"events of type “{envelope.type[:32]}” are unknown")
        return None
    try:
        return _as_map(_array_decoder.decode(item)) if is_array else _event_decoder.decode(item)
    except msgspec.ValidationError:
        if envelope.type == "BlockStored" and _are_pairs(envelope.token_ids):
            raise PairedTokensError from None
        raise


def _is_array(item: msgspec.Raw) -> bool:
    first = memoryview(item)[0]
    # MessagePack: fixarray, array 16, and array 32.
    return 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)


def _are_pairs(token_ids: msgspec.Raw) -> bool:
    try:
        return len(_pairs_decoder.decode(token_ids)) > 0
    except _FAULTS:
        return False


def _as_map(array: ArrayEvent) -> KvEvent:
    """Return the event in its map encoding."""
    if isinstance(array, RemovedArray):
        return BlockRemoved(array.block_hashes, array.medium, group_idx=_number(array.group_idx))
    if isinstance(array, ClearedArray):
        return AllBlocksCleared()
    more = array.metadata
    return BlockStored(
        array.block_hashes,
        array.parent_block_hash,
        array.token_ids,
        array.block_size,
        medium=array.medium,
        lora_name=more.lora_name,
        lora_id=array.lora_id,
        cache_salt=more.cache_salt,
        extra_keys=array.extra_keys or more.extra_keys,
        group_idx=_number(array.group_idx),
        kv_cache_spec_kind=kind if isinstance(kind := array.kv_cache_spec_kind, str) else None,
        kv_cache_spec_sliding_window=_number(array.kv_cache_spec_sliding_window),
    )


def _number(value: Any) -> int | None:
    """Return a field that only some engines send at its position."""
    # Not isinstance: a boolean would pass as a number.
    return value if type(value) is int else None


def _check(event: KvEvent) -> None:
    if isinstance(event, AllBlocksCleared):
        return
    if len(event.block_hashes) > MAX_BLOCKS_PER_EVENT:
        raise UnreadableEventError(f"{len(event.block_hashes)} blocks in one event are over {MAX_BLOCKS_PER_EVENT}")
    if isinstance(event, BlockStored):
        expected: Any = len(event.block_hashes) * event.block_size
        # Below engine memory token ids may be missing, and sparse groups list fewer hashes (vllm#44451).
        # Blocks that their engine prefetched have our keys instead (kvstore.events.node_blocks).
        is_keyed = in_engine_memory(event) and event.is_dense and bool(event.token_ids or not event.extra_keys)
        if is_keyed and (event.block_size < 1 or len(event.token_ids) != expected):
            raise UnreadableEventError(
                f"{len(event.token_ids)} token ids do not fill {len(event.block_hashes)} blocks of {event.block_size}"
            )
        # Keys pack token ids as uint32, which must not raise later, when the event is applied.
        if event.token_ids and not 0 <= min(event.token_ids) <= max(event.token_ids) < 1 << 32:
            raise UnreadableEventError("token ids are outside 0 … 2³²−1")
