"""Read the cache salt of an engine's blocks, and the media in them, from its events.

vLLM names the salt in the extra keys of a prompt's first block: ("cache_salt", s), or s alone up to 0.26. SGLang has a
separate field. Later blocks inherit it from their parent. The adapter precedes it in the extra keys of each block, by
its name alone or as ("lora", name).

vLLM also names the media of each block there: (name, offset of its first token from the block's first), preceded by
"mm" within the engine. The name is the `uuid` sent with the request, or else a hash of the content.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec.structs import replace

from kvstore.events.kv_events import BlockStored

_TAG = "cache_salt"


class Medium(NamedTuple):
    """A medium in a block: the engine's name for it, and the block's index among the medium's blocks, from 0."""

    name: str
    position: int


def media_of(event: BlockStored) -> list[list[Medium]]:
    """Return the media in each of the event's blocks, an empty list without media."""
    keys = event.extra_keys or []
    if event.block_size < 1 or not any(_offset(item) is not None for extra in keys for item in _listed(extra)):
        return []
    media: list[list[Medium]] = []
    for extra in keys:
        offsets = [(item[-2], offset) for item in _listed(extra) if (offset := _offset(item)) is not None]
        # An offset falls by the block size from block to block, and is 0 or less from a medium's second block on.
        media.append([Medium(name, -(offset // event.block_size)) for name, offset in offsets])
    return media


def before_media(event: BlockStored, media: list[list[Medium]]) -> BlockStored:
    """Return the event with only the blocks before the first medium, and the salt of its first block."""
    end = next((index for index, media_there in enumerate(media) if media_there), len(media))
    extra = [[item for item in _listed(extra) if _offset(item) is None] for extra in event.extra_keys or []]
    tokens = event.token_ids[: end * event.block_size]
    return replace(event, block_hashes=event.block_hashes[:end], token_ids=tokens, extra_keys=extra[: max(1, end)])


def _listed(extra: Any) -> list[Any] | tuple[Any, ...]:
    return extra if isinstance(extra, list | tuple) else [] if extra is None else [extra]


def _offset(extra: Any) -> int | None:
    """Return a medium's offset from its block, None if this names no medium."""
    tagged = isinstance(extra, list | tuple) and (len(extra) == 2 or (len(extra) == 3 and extra[0] == "mm"))
    return extra[-1] if tagged and isinstance(extra[-2], str) and type(extra[-1]) is int else None


def domain_of(event: BlockStored) -> str | None:
    """Return the salt of the event's blocks, empty if they have none or inherit their parent's.

    None if no request of ours can hit the blocks: their keys also depend on something other than tokens, a salt, and an
    adapter's name (such as embeddings), or the adapter has no name.
    """
    if hides_adapter(event):
        return None
    extra = event.extra_keys or ()
    if event.lora_name:
        extra = [_without(event.lora_name, item) for item in extra]
    # The salt is in a prompt's first block alone, so that keys of later blocks are something else.
    if any(extra[1:]):
        return None
    first = extra[0] if extra else None
    if not first:
        return event.cache_salt or ""
    return _salt(first) if event.parent_block_hash is None else None


def hides_adapter(event: BlockStored) -> bool:
    """Return whether the event names the blocks' adapter only by an engine-specific number."""
    return event.lora_id is not None and not event.lora_name


def _without(lora: str, extra: Any) -> Any:
    """Return a block's extra keys without the adapter at the front, if any."""
    if extra == lora:
        return None
    if not isinstance(extra, list | tuple) or not extra:
        return extra
    first = extra[0]
    return extra[1:] if first == lora or (isinstance(first, list | tuple) and lora in first) else extra


def _salt(extra: Any) -> str | None:
    """Return the salt if a first block has nothing else besides its tokens."""
    if isinstance(extra, list | tuple):
        if len(extra) == 2 and extra[0] == _TAG:
            return _salt(extra[1])
        return _salt(extra[0]) if len(extra) == 1 else None
    return extra if isinstance(extra, str) else None
