"""The prefixes shared by prompts, as a tree for display: depth in blocks, width by requests.

A block's key identifies the complete prefix that ends with it, so prompts that share a key share everything before it.
A node is a run of blocks that all of its prompts share; it ends where they diverge.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

MAX_BLOCKS = 64
"""Depth in blocks to which prompts are compared."""


class IciclePrefix(msgspec.Struct, frozen=True):
    """One shared prefix. Blocks are counted from the start of the prompt."""

    key: int
    """Key of its last block."""
    parent: int
    """Index of its parent in the list; -1: none."""
    level: int
    """Number of nodes above it."""
    first_block: int
    """The block after its parent's last, counted from 1."""
    last_block: int
    requests: int
    prompt: Sequence[int]
    """Keys of one of its prompts from the start."""


def icicle(
    prompts: Sequence[tuple[Sequence[int], int]], *, least: int = 2, most: int = 48, max_level: int = 12
) -> list[IciclePrefix]:
    """Return the `most` widest prefixes shared by at least `least` requests, parents before children.

    Prompts are given as (keys, represented requests). Siblings are in descending order of requests.
    """
    prefixes: list[IciclePrefix] = []
    # By requests, the widest first: groups without room are narrower than all shown.
    pending = _parted(prompts, 0, -1, 0, least)
    while pending and len(prefixes) < most:
        pending.sort(key=lambda item: (-item[0], item[1]))
        requests, _, members, parent, level, first = pending.pop(0)
        last = _together(members, first)
        keys = members[0][0]
        prefixes.append(IciclePrefix(keys[last - 1], parent, level, first + 1, last, requests, keys))
        if level + 1 < max_level:
            pending += _parted(members, last, len(prefixes) - 1, level + 1, least)
    return prefixes


_Group = tuple[int, int, list[tuple[Sequence[int], int]], int, int, int]


def _parted(
    members: Sequence[tuple[Sequence[int], int]], depth: int, parent: int, level: int, least: int
) -> list[_Group]:
    """Return the groups into which these prompts split at block number `depth`."""
    groups: dict[int, list[tuple[Sequence[int], int]]] = {}
    for member in members:
        if depth < min(len(member[0]), MAX_BLOCKS):
            groups.setdefault(member[0][depth], []).append(member)
    counted = ((sum(weight for _, weight in group), key, group) for key, group in groups.items())
    return [(requests, key, group, parent, level, depth) for requests, key, group in counted if requests >= least]


def _together(members: Sequence[tuple[Sequence[int], int]], depth: int) -> int:
    """Return the number of blocks shared by all of these prompts. They share more than `depth` blocks."""
    keys = members[0][0]
    low, high = depth + 1, min(MAX_BLOCKS, *(len(member_keys) for member_keys, _ in members), len(keys))
    while low < high:
        middle = (low + high + 1) // 2
        if all(member_keys[middle - 1] == keys[middle - 1] for member_keys, _ in members):
            low = middle
        else:
            high = middle - 1
    return low
