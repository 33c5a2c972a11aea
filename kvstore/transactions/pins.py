"""A node's pins as shown to operators: each pinned prefix once, under its last block.

A pinned prompt is a chain of pinned blocks. Prompts with a common beginning share its blocks, so a pin's own blocks are
those after the last block that another pin also needs. Only these are freed when the pin ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from kvstore.transactions.block_record import BlockRecord

_NAME_BYTES = 8


class PinnedPrefix(msgspec.Struct, frozen=True):
    """One pin. Payloads of several ranks with one gateway key count as one."""

    name: bytes
    """Key of its last block: the gateway's key (8 bytes), or the payload's if no gateway has named the block."""
    tenant: str
    tokens: int
    """Tokens of the whole prefix."""
    size: int
    """Bytes of its own blocks."""
    until: float
    keys: tuple[bytes, ...]
    """Its own blocks."""


def pinned_prefixes(pinned: Mapping[bytes, BlockRecord]) -> list[PinnedPrefix]:
    """Return the pins formed by these pinned blocks (by key), largest first."""
    children: dict[bytes, int] = {}
    for record in pinned.values():
        children[record.facts.parent] = children.get(record.facts.parent, 0) + 1
    depths: dict[bytes, int] = {}
    prefixes: dict[tuple[str, bytes], PinnedPrefix] = {}
    for key, record in pinned.items():
        if key not in children:
            one = _prefix(record, _own(record, pinned, children), _tokens(key, pinned, depths))
            # The ranks of an engine store one payload each under the gateway's one key.
            other = prefixes.get((one.tenant, one.name))
            prefixes[one.tenant, one.name] = one if other is None else _together(one, other)
    return sorted(prefixes.values(), key=lambda item: (-item.size, item.tenant, item.name))


def _prefix(last: BlockRecord, own: Sequence[BlockRecord], tokens: int) -> PinnedPrefix:
    facts = last.facts
    return PinnedPrefix(
        facts.routing_key.to_bytes(_NAME_BYTES, "big") if facts.routing_key else facts.key,
        facts.tenant,
        tokens,
        sum(item.facts.length for item in own),
        last.pinned_until,
        tuple(item.facts.key for item in own),
    )


def _own(last: BlockRecord, pinned: Mapping[bytes, BlockRecord], children: Mapping[bytes, int]) -> list[BlockRecord]:
    own, above = [last], pinned.get(last.facts.parent)
    # A block with several children belongs to other pins too.
    while above is not None and children[above.facts.key] == 1:
        own.append(above)
        above = pinned.get(above.facts.parent)
    return own


def _tokens(key: bytes, pinned: Mapping[bytes, BlockRecord], depths: dict[bytes, int]) -> int:
    """Return the tokens up to a block. Keys come from clients, so they can form a cycle."""
    path: dict[bytes, int] = {}
    # `path` ends the walk in a cycle.
    while key in pinned and key not in depths and key not in path:
        path[key] = pinned[key].facts.tokens
        key = pinned[key].facts.parent
    tokens = depths.get(key, 0)
    for item in reversed(path):
        tokens += path[item]
        depths[item] = tokens
    return tokens


def _together(one: PinnedPrefix, other: PinnedPrefix) -> PinnedPrefix:
    return PinnedPrefix(
        one.name,
        one.tenant,
        max(one.tokens, other.tokens),
        one.size + other.size,
        max(one.until, other.until),
        other.keys + one.keys,
    )
