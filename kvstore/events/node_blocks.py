"""Names of a node's blocks in its events: each block's routing key and payload, in `extra_keys`.

Block hashes belong to the engines and mean nothing to a gateway that never saw the block computed. Each hash, stored or
removed, is accompanied by ["headway", routing key, payload id]: the gateway's own 64-bit key of the block, and the
first 64 bits of the payload's key, which distinguish the payloads of one block (from several ranks, or in several
formats). A listener therefore needs no map from hashes: it keeps the set of (payload id, medium) of each routing key,
and a block is held as long as that set is not empty. Engines name prefetched blocks in the same way.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kvstore.events.kv_events import BlockRemoved, BlockStored

TAG = "headway"
_FIELDS = 3
_MAX = 1 << 64


class NodeBlock(NamedTuple):
    """One payload of a block on a node."""

    routing_key: int
    """64 bits, never 0."""
    payload_id: int
    """64 bits."""


def payload_id(payload_key: bytes) -> int:
    """Return the payload id of a payload's key (kvstore.keys.payload_key)."""
    return int.from_bytes(payload_key[:8], "big")


def extra_key(routing_key: int, payload_key: bytes) -> list[Any] | None:
    """Return a block's `extra_keys`, None if its routing key is unknown (0)."""
    return [TAG, routing_key, payload_id(payload_key)] if routing_key else None


def node_blocks(event: BlockStored | BlockRemoved) -> list[NodeBlock]:
    """Return the event's blocks with a routing key, in order. Blocks of engines have none."""
    return [
        NodeBlock(key[1], key[2])
        for key in event.extra_keys or ()
        if isinstance(key, list | tuple) and len(key) == _FIELDS and key[0] == TAG and _are_keys(key[1], key[2])
    ]


def named_keys(event: BlockStored) -> list[int]:
    """Return the routing keys of blocks that their engine has prefetched, so that their event has no token ids."""
    named = [] if event.token_ids else [block.routing_key for block in node_blocks(event)]
    return named if len(named) == len(event.block_hashes) else []


def _are_keys(routing_key: Any, payload: Any) -> bool:
    # Not isinstance: a boolean would pass as a key.
    both_are_integers = type(routing_key) is int and type(payload) is int
    return both_are_integers and 0 < routing_key < _MAX and 0 <= payload < _MAX
