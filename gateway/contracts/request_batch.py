"""Requests that ended at one gateway, as sent to the request log: the shape of each, and some decisions.

Batches are sent as msgpack over the stream topic TOPIC. Both lists stay packed: the log stores traffic without reading
it, and unpacks only the decisions to judge and index them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from gateway.contracts.stored_decision import StoredDecision
from gateway.contracts.traffic_row import TrafficRow
from gateway.contracts.wire import MIB, WireForm

TOPIC = "requests"
"""Stream topic; values are encoded RequestBatches."""
MAX_ROWS = 512
MAX_DECISIONS = 128
"""Maximum decisions per batch: enough to compress well, few enough to unpack for one of them."""
MAX_BYTES = 16 * MIB


class RequestBatch(msgspec.Struct, frozen=True):
    """Requests of one gateway. An empty list has zero bytes."""

    name: str
    """Unique name of the batch, by which the store recognizes a batch that it has stored."""
    requests: int
    """Rows of `traffic`."""
    traffic: bytes
    """Packed TrafficRows of all requests, if traffic is recorded."""
    decisions: bytes
    """Packed StoredDecisions of the requests whose decisions are kept."""


def request_batch(name: str, rows: Sequence[bytes], decisions: Sequence[StoredDecision]) -> RequestBatch:
    """Return the batch of these requests. Each item of `rows` is one packed row."""
    return RequestBatch(name, len(rows), _array(rows), encode_decisions(decisions) if decisions else b"")


def joined_rows(parts: Iterable[bytes]) -> bytes:
    """Return the packed rows of these lists as one list; raise UnreadableMessageError for other content."""
    return _array([pack_row(row) for part in parts for row in decode_rows(part)])


def _array(values: Sequence[bytes]) -> bytes:
    # msgpack: the head of an array with 32 bits for its length, then its values as they are.
    return b"".join((b"\xdd", len(values).to_bytes(4, "big"), *values)) if values else b""


def decode_rows(data: bytes) -> list[TrafficRow]:
    """Read packed rows; raise UnreadableMessageError for other content."""
    return _rows.decode(data) if data else []


def decode_decisions(data: bytes) -> list[StoredDecision]:
    """Read packed decisions; raise UnreadableMessageError for other content."""
    return _decisions.decode(data) if data else []


_pack = msgspec.msgpack.Encoder().encode
encode_decisions: Callable[[Sequence[StoredDecision]], bytes] = _pack
pack_row: Callable[[TrafficRow | tuple[object, ...]], bytes] = _pack
"""Pack a row, or the values of its fields, in one call, because it runs for every request."""
_batch = WireForm(RequestBatch, "a batch of requests", limit=MAX_BYTES)
encode_batch, decode_batch = _batch.encode, _batch.decode
"""The lists in a batch stay packed."""
_rows = WireForm(list[TrafficRow], "a list of traffic rows", limit=MAX_BYTES)
_decisions = WireForm(list[StoredDecision], "a list of decisions", limit=MAX_BYTES)
