"""Images, audio, and other media in a prompt, as opaque content: a digest represents each part.

Equal parts have equal digests, so prompts with the same image have the same block keys and those with another one
have not. The bytes themselves go to the engine alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from xxhash import xxh3_128

from gateway.http.json_body import BadBodyError
from gateway.http.large_body import held_text

_KINDS = frozenset(
    (
        "image",
        "image_url",
        "input_image",
        "image_embeds",
        "input_audio",
        "audio_url",
        "audio_embeds",
        "video",
        "video_url",
        "file",
        "input_file",
        "document",
    )
)
_PLACES = frozenset(("url", "image_url", "audio_url", "video_url", "file_url"))
_SCHEMES = ("data:", "http://", "https://")
_FOREIGN = "Send media as a data:, http:, or https: URL. Engines read any other name from files of their own."
_NAMED = "Leave uuid out of media. Engines keep media by it, and would take that of another client for yours."
LINKED_TOKENS = 1024
"""Assumed tokens of a part that is named by an address or an id."""
LEAST_TOKENS, MOST_TOKENS = 256, 4096
"""Bounds of the assumed tokens of a part that is in the body; the engine alone knows how many it makes of it."""
_BYTES_PER_TOKEN = 256
_INLINE_BYTES = 4096


def without_media(messages: list[Any]) -> tuple[list[Any], int]:
    """Return the messages with a text in place of each media part, and the tokens assumed for all of these parts.

    Messages without any are returned as they are, in the list given. Raises BadBodyError for media that the engine
    would not take from the request.
    """
    if not any(_has_media(message) for message in messages):
        return messages, 0
    assumed = 0
    plain: list[Any] = []
    for message in messages:
        if not _has_media(message):
            plain.append(message)
            continue
        parts = []
        for part in message["content"]:
            if is_media(part):
                check_media(part)
                stand_in, tokens = _opaque(part)
                parts.append(stand_in)
                assumed += tokens
            else:
                parts.append(part)
        plain.append({**message, "content": parts})
    return plain, assumed


def _has_media(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(is_media(part) for part in content)


def is_media(part: Any) -> bool:
    """Return whether a part of a message is media."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return (isinstance(kind, str) and kind in _KINDS) or not _KINDS.isdisjoint(part)


def check_media(part: dict[str, Any]) -> None:
    """Raise BadBodyError where a part names a file of the engine, or media that another client may have sent."""
    if part.get("uuid") is not None:
        raise BadBodyError("bad_field", _NAMED, param="uuid")
    pending = [part]
    while pending:
        for name, value in pending.pop().items():
            if isinstance(value, dict):
                pending.append(value)
            elif name in _PLACES and isinstance(value, str) and not value[:8].lower().startswith(_SCHEMES):
                raise BadBodyError("bad_field", _FOREIGN, param=name)


def _opaque(part: dict[str, Any]) -> tuple[dict[str, str], int]:
    digest, size = xxh3_128(), 0
    for text in _strings(part):
        own, length = held_text(text) or _digest(text)
        digest.update(b"%d:" % length)
        digest.update(own)
        size += length
    tokens = LINKED_TOKENS
    if size > _INLINE_BYTES:
        tokens = min(MOST_TOKENS, max(LEAST_TOKENS, size // _BYTES_PER_TOKEN))
    return {"type": "text", "text": f"[media {digest.hexdigest()}]"}, tokens


def _digest(text: str) -> tuple[bytes, int]:
    data = text.encode()
    return xxh3_128(data).digest(), len(data)


def _strings(value: Any) -> Iterator[str]:
    """Yield all of a part in one order, cache hints left out: they change nothing in what the engine computes."""
    if isinstance(value, dict):
        for name in sorted(value):
            if name != "cache_control":
                yield name
                yield from _strings(value[name])
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    else:
        yield value if isinstance(value, str) else repr(value)
