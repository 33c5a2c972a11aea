"""Images, audio, and other media in a prompt as opaque content, represented by a digest per part.

Equal parts have equal digests, so prompts with the same image have the same block keys and others do not. The bytes are
sent only to the engine. In a chat they carry a name (vLLM's `uuid`) derived from the digest and the isolation domain:
engines store media by name and show the names in KV events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from gateway.server.http.json_body import BadBodyError
from gateway.server.http.large_body import held_text

_KINDS = frozenset(
    (
        "image",
        "image_url",
        "input_image",
        "image_embeds",
        "image_pil",
        "input_audio",
        "audio_url",
        "audio_embeds",
        "video",
        "video_url",
        "video_embeds",
        "file",
        "input_file",
        "document",
    )
)
_ADDRESS_FIELDS = frozenset(("url", "image_url", "audio_url", "video_url", "file_url"))
_ADDRESSES = ("http://", "https://")
_SCHEMES = ("data:", *_ADDRESSES)
_FOREIGN = "Send media as a data:, http:, or https: URL. Engines read any other name as a local file."
_NAMED = "Leave uuid out of media. Engines store media by uuid and could use another client's."
_HASH = "content_hash"
"""SGLang's name for a medium, sent beside its URL."""
_HASHED = "Leave content_hash out of media. Engines store media by it and could use another client's."
_NO_NAME = "Send uuid as a non-empty string."
_NO_CONTENT = frozenset(("type", "uuid", "cache_control", "detail"))
"""Fields without content. A part with no other field refers by its uuid to content that was sent before."""
LINKED_TOKENS = 1024
"""Assumed tokens of a part that is given by address or id."""
LEAST_TOKENS, MOST_TOKENS = 256, 4096
"""Bounds of the assumed tokens of a part in the body. Only the engine knows the actual number."""
_BYTES_PER_TOKEN = 256
_INLINE_BYTES = 4096
_encode = msgspec.json.Encoder(order="deterministic").encode


class Media(NamedTuple):
    """One media part of a prompt."""

    digest: str
    """Collision-resistant digest of the complete part, because engines store media by it."""
    tokens: int
    """Assumed length in tokens."""
    linked: bool
    """The part is an address. Its content can change, so engines get no name for it."""

    @property
    def engine_candidate(self) -> str:
        """Return the text that replaces this part in the prompt."""
        return f"[media {self.digest}]"


def without_media(messages: list[Any], *, named: bool = False) -> tuple[list[Any], tuple[Media, ...]]:
    """Return the messages with each media part replaced by a text, and the media parts in order.

    Without media, the given list is returned unchanged. `named`: parts can have a `uuid`, which the engine gets in
    another form. Raise BadBodyError for media that the engine must not take from the request.
    """
    if not any(_has_media(message) for message in messages):
        return messages, ()
    media: list[Media] = []
    plain: list[Any] = []
    for message in messages:
        if not _has_media(message):
            plain.append(message)
            continue
        parts = []
        for part in message["content"]:
            if is_media(part):
                check_media(part, named=named)
                media.append(_media(part))
                parts.append({"type": "text", "text": media[-1].engine_candidate})
            else:
                parts.append(part)
        plain.append({**message, "content": parts})
    return plain, tuple(media)


def with_names(messages: list[Any], names: Sequence[str]) -> list[Any]:
    """Return the messages with these names as the `uuid` of their media parts, in order. An empty name sets none."""
    left = iter(names)
    return [
        {
            **message,
            "content": [_with_name(part, next(left)) if is_media(part) else part for part in message["content"]],
        }
        if _has_media(message)
        else message
        for message in messages
    ]


def _with_name(part: dict[str, Any], name: str) -> dict[str, Any]:
    kept = {field: value for field, value in part.items() if field != "uuid"}
    return {**kept, "uuid": name} if name else kept


def _has_media(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(is_media(part) for part in content)


def is_media(part: Any) -> bool:
    """Return whether a part of a message is media."""
    if not isinstance(part, dict):
        return False
    kind = part.get("type")
    return (isinstance(kind, str) and kind in _KINDS) or not _KINDS.isdisjoint(part)


def check_media(part: dict[str, Any], *, named: bool = False) -> None:
    """Raise BadBodyError if a part names a file of the engine, or media that another client may have sent."""
    name = part.get("uuid")
    if name is not None and not (named and isinstance(name, str) and name):
        raise BadBodyError("bad_field", _NO_NAME if named else _NAMED, param="uuid")
    for field, value in _fields(part):
        if field == _HASH and value is not None:
            raise BadBodyError("bad_field", _HASHED, param=field)
        # Of a data URL of megabytes only the scheme is read, whose case does not matter (RFC 3986, §3.1).
        if field in _ADDRESS_FIELDS and isinstance(value, str) and not value[:8].lower().startswith(_SCHEMES):
            raise BadBodyError("bad_field", _FOREIGN, param=field)


def _fields(part: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield all leaf fields of a part."""
    pending = [part]
    while pending:
        for name, value in pending.pop().items():
            if isinstance(value, dict):
                pending.append(value)
            else:
                yield name, value


def _media(part: dict[str, Any]) -> Media:
    sizes: list[int] = []
    content = {name: value for name, value in part.items() if name not in _NO_CONTENT}
    stable = _stable({**content, "type": part.get("type"), "detail": part.get("detail")}, sizes)
    if part.get("uuid") is not None and not any(_leaves(content)):
        stable = ["uuid", part["uuid"]]
    size, tokens = sum(sizes), LINKED_TOKENS
    if size > _INLINE_BYTES:
        tokens = min(MOST_TOKENS, max(LEAST_TOKENS, size // _BYTES_PER_TOKEN))
    addresses = [value for name, value in _fields(part) if name in _ADDRESS_FIELDS and isinstance(value, str)]
    linked = any(address[:8].lower().startswith(_ADDRESSES) for address in addresses)
    return Media(blake2b(_encode(stable), digest_size=16).hexdigest(), tokens, linked)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    else:
        yield value


def _stable(value: Any, sizes: list[int]) -> Any:
    """Return all of a part with its texts replaced by digests; append their sizes to `sizes`.

    Cache hints are omitted because they do not change the engine's computation.
    """
    if isinstance(value, dict):
        return {name: _stable(member, sizes) for name, member in value.items() if name != "cache_control"}
    if isinstance(value, list):
        return [_stable(item, sizes) for item in value]
    if not isinstance(value, str):
        return value
    digest, size = held_text(value) or _digest(value)
    sizes.append(size)
    return [size, digest.hex()]


def _digest(text: str) -> tuple[bytes, int]:
    data = text.encode()
    return blake2b(data, digest_size=16).digest(), len(data)
