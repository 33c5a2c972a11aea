"""Wire structs of the engines' KV events: what a vLLM or SGLang engine publishes about its cache.

A batch is the msgpack array [ts, [events], data_parallel_rank]; each event is a map with `type`
(vLLM from 0.24.0 and current SGLang). Unknown keys are ignored and unknown event types skipped,
because both engines add fields and types between releases.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_EVENTS_PER_BATCH = 65_536
MAX_BLOCKS_PER_EVENT = 65_536


class UnreadableEventError(ValueError):
    """The payload is not a batch of KV events."""


class BlockStored(msgspec.Struct, frozen=True, tag_field="type", tag="BlockStored", omit_defaults=True):
    """Blocks now in the engine's cache, chained after `parent_block_hash` (None: they start a prompt)."""

    block_hashes: list[int | bytes]
    parent_block_hash: int | bytes | None
    token_ids: list[int]
    block_size: int
    medium: str | None = "GPU"
    lora_name: str | None = None
    cache_salt: str | None = None
    extra_keys: list[Any] | None = None
    """Per block what else the engine hashed, the cache salt among it."""


class BlockRemoved(msgspec.Struct, frozen=True, tag_field="type", tag="BlockRemoved", omit_defaults=True):
    """Blocks no longer in the engine's cache."""

    block_hashes: list[int | bytes]
    medium: str | None = "GPU"


class AllBlocksCleared(msgspec.Struct, frozen=True, tag_field="type", tag="AllBlocksCleared"):
    """The engine's whole cache is gone."""


KvEvent = BlockStored | BlockRemoved | AllBlocksCleared


class EventBatch(msgspec.Struct, frozen=True, array_like=True):
    """One message of an engine: seconds since the epoch, events in order, data-parallel rank."""

    ts: float
    events: list[KvEvent]
    data_parallel_rank: int | None = None


class _RawBatch(msgspec.Struct, frozen=True, array_like=True):
    ts: float
    events: list[msgspec.Raw]
    data_parallel_rank: int | None = None


class _AnyEvent(msgspec.Struct, frozen=True):
    type: str


_KNOWN = {"BlockStored", "BlockRemoved", "AllBlocksCleared"}
_encoder = msgspec.msgpack.Encoder()
_batch_decoder = msgspec.msgpack.Decoder(EventBatch)
_raw_decoder = msgspec.msgpack.Decoder(_RawBatch)
_type_decoder = msgspec.msgpack.Decoder(_AnyEvent)
_event_decoder: msgspec.msgpack.Decoder[KvEvent] = msgspec.msgpack.Decoder(KvEvent)


def encode_batch(batch: EventBatch) -> bytes:
    """Return the batch as an engine would send it."""
    return _encoder.encode(batch)


def decode_batch(data: bytes) -> EventBatch:
    """Read one batch; raises UnreadableEventError on garbage or on more than the limits above."""
    try:
        batch = _batch_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        batch = _decode_known(data)
    if len(batch.events) > MAX_EVENTS_PER_BATCH:
        raise UnreadableEventError(f"{len(batch.events)} events in one batch are over {MAX_EVENTS_PER_BATCH}")
    for event in batch.events:
        _check(event)
    return batch


def _decode_known(data: bytes) -> EventBatch:
    """Decode event by event, so that types this program does not know are skipped."""
    try:
        raw = _raw_decoder.decode(data)
        events = [_event_decoder.decode(item) for item in raw.events if _type_decoder.decode(item).type in _KNOWN]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableEventError(f"not a batch of KV events: {error}") from error
    return EventBatch(raw.ts, events, raw.data_parallel_rank)


def _check(event: KvEvent) -> None:
    if isinstance(event, AllBlocksCleared):
        return
    if len(event.block_hashes) > MAX_BLOCKS_PER_EVENT:
        raise UnreadableEventError(f"{len(event.block_hashes)} blocks in one event are over {MAX_BLOCKS_PER_EVENT}")
    if isinstance(event, BlockStored):
        expected: Any = len(event.block_hashes) * event.block_size
        if event.block_size < 1 or len(event.token_ids) != expected:
            raise UnreadableEventError(
                f"{len(event.token_ids)} token ids do not fill {len(event.block_hashes)} blocks of {event.block_size}"
            )
        if event.token_ids and not 0 <= min(event.token_ids) <= max(event.token_ids) < 1 << 32:
            raise UnreadableEventError("token ids are outside 0 … 2³²−1")
