"""Reads from an engine's event under which cache salt it keeps the blocks.

vLLM names the salt in the extra keys of a prompt's first block: ("cache_salt", s), and s alone up to 0.26.
SGLang has a field for it. Blocks further on inherit it by their parent. The adapter is before it in the extra keys of
each block, by its name alone or as ("lora", name).
"""

from __future__ import annotations

from typing import Any

from kvstore.events.kv_events import BlockStored

_TAG = "cache_salt"


def domain_of(event: BlockStored) -> str | None:
    """Return the salt of the event's blocks; empty: they have none, or their parent says it.

    None: more than tokens, a salt and an adapter's name names them (an image), or the adapter has no name, so that no
    request of ours can hit them.
    """
    if hides_adapter(event):
        return None
    extra = event.extra_keys or ()
    if event.lora_name:
        extra = [_without(event.lora_name, each) for each in extra]
    if any(extra[1:]):
        return None
    first = extra[0] if extra else None
    if not first:
        return event.cache_salt or ""
    return _salt(first) if event.parent_block_hash is None else None


def hides_adapter(event: BlockStored) -> bool:
    """Return whether the blocks are an adapter's that the event names by a number of the engine's own."""
    return event.lora_id is not None and not event.lora_name


def _without(lora: str, extra: Any) -> Any:
    """Return a block's extra keys without the first one, where that is the adapter's."""
    if extra == lora:
        return None
    if not isinstance(extra, list | tuple) or not extra:
        return extra
    first = extra[0]
    return extra[1:] if first == lora or (isinstance(first, list | tuple) and lora in first) else extra


def _salt(extra: Any) -> str | None:
    """Return the salt where it is all that a first block has beside its tokens."""
    if isinstance(extra, list | tuple):
        if len(extra) == 2 and extra[0] == _TAG:
            return _salt(extra[1])
        return _salt(extra[0]) if len(extra) == 1 else None
    return extra if isinstance(extra, str) else None
