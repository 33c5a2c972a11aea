"""An icicle chart of shared prompt prefixes: depth is blocks, width is requests, color is holders. Hashes only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from controlplane.platform.format import count, percent, some_names
from gateway.contracts.cache_locality_sample import PoolCacheLocality, SharedPrefix

Link = Callable[..., str]
"""Returns the page's URL with some query parameters changed."""
ROW_PX = 26
HASH_DIGITS = 6
HOT = 0.25
"""Share of the requests above which the title names a prefix."""
_STEPS = (1, 2, 3, 5, 6, 7, 8)
"""Steps of the heat scale in use. The lowest step is invisible on the panel; text on the fourth is unreadable in one
theme.
"""
_WORDED, _HASHED = 10.0, 5.0
"""Percent of the width above which a cell shows words, and above which it shows its hash."""


def prefix_picture(locality: PoolCacheLocality, wanted: str, link: Link) -> dict[str, Any]:
    """Return the content of the panel; `wanted` is the key of the selected prefix."""
    names = {engine.engine_id: engine.name for engine in locality.engines}
    cells = [
        _cell(locality, prefix, *span, names, wanted)
        for prefix, span in zip(locality.prefixes, _spans(locality), strict=True)
    ]
    for cell in cells:
        cell["link"] = link(prefix="" if cell["chosen"] else cell["prefix"].key)
    first = [item for item in locality.prefixes if item.parent < 0]
    shared = sum(item.requests for item in first) / locality.requests if locality.requests else 0.0
    chosen = next((item for item in cells if item["chosen"]), cells[0] if cells else None)
    return {
        "cells": cells,
        "height": ROW_PX * (1 + max((item.level for item in locality.prefixes), default=0)),
        "readout": chosen["label"] if chosen is not None else "",
        "summary": f"{count(len(cells), 'shared prefix', 'shared prefixes')} of {count(locality.requests, 'request')}; "
        f"{percent(shared)} of requests start with one of them",
        "ticks": [(f"{share}%", str(share)) for share in (0, 25, 50, 75, 100)],
    }


def _spans(locality: PoolCacheLocality) -> list[tuple[float, float]]:
    """Return (start, width) of each prefix as shares of the width; children are side by side below their parent."""
    spans: list[tuple[float, float]] = []
    used: dict[int, float] = {}
    for prefix in locality.prefixes:
        begin = used.get(prefix.parent, spans[prefix.parent][0] if prefix.parent >= 0 else 0.0)
        width = prefix.requests / locality.requests if locality.requests else 0.0
        spans.append((begin, width))
        used[prefix.parent] = begin + width
    return spans


def _cell(
    locality: PoolCacheLocality, prefix: SharedPrefix, begin: float, width: float, names: dict[str, str], wanted: str
) -> dict[str, Any]:
    """Return one prefix's cell: its position in percent of the width and in px, and its words."""
    holders = [names.get(holder, holder) for holder in prefix.holders]
    short = prefix.key[:HASH_DIGITS]
    length = prefix.last_block - prefix.first_block + 1
    wide = 100 * width
    return {
        "prefix": prefix,
        "holders": holders,
        "share": width,
        "chosen": prefix.key == wanted,
        "at": f"{100 * begin:.3f}%",
        "width": f"{wide:.3f}%",
        "y": ROW_PX * prefix.level,
        # Step of the heat scale by holders; -1: no engine holds it.
        "step": _step(len(holders), len(locality.accepting)),
        "words": f"{short}, {length} blk" if wide >= _WORDED else short if wide >= _HASHED else "",
        "label": _label(locality, prefix, short, holders),
    }


def _label(locality: PoolCacheLocality, prefix: SharedPrefix, short: str, holders: list[str]) -> str:
    share = percent(prefix.requests / locality.requests) if locality.requests else "—"
    length = prefix.last_block - prefix.first_block + 1
    words = (
        f"{short}, {length} blk: blocks {prefix.first_block} to {prefix.last_block}, "
        f"{count(prefix.last_block * locality.block_tokens, 'token')} from the start; "
        f"{count(prefix.requests, 'request')}, {share}; held by {some_names(holders, 6) if holders else 'no engine'}"
    )
    return f"{words}; a key of {count(prefix.key_blocks, 'block')} ends here" if prefix.key_blocks else words


def _step(holders: int, engines: int) -> int:
    if not holders:
        return -1
    return _STEPS[min(len(_STEPS) - 1, (holders - 1) * len(_STEPS) // max(1, engines))]


def prefix_finding(locality: PoolCacheLocality) -> str:
    """Return a sentence about the longest prefix that much of the traffic shares; empty if there is none."""
    hot = [item for item in locality.prefixes if locality.requests and item.requests >= HOT * locality.requests]
    if not hot:
        return ""
    prefix = max(hot, key=lambda item: (item.last_block, item.requests))
    blocks = prefix.last_block
    share = "All" if prefix.requests == locality.requests else f"{percent(prefix.requests / locality.requests)} of the"
    holders, engines = len(prefix.holders), len(locality.accepting)
    held = f"all {count(engines, 'engine')}" if holders == engines > 1 else f"{holders} of {count(engines, 'engine')}"
    said = f"which {held} hold" if holders else "which no engine holds"
    return f"{share} requests share their first {count(blocks * locality.block_tokens, 'token')}, {said}."
