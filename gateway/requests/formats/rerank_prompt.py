"""Prompts that use no prefix cache: pairs of texts (`/score`, `/rerank`), and inputs to pool or classify."""

from __future__ import annotations

from typing import Any

from gateway.requests.formats.media import check_media, is_media
from gateway.requests.formats.prompt import UnmatchedPrompt
from gateway.server.http.json_body import BadBodyError
from gateway.server.http.large_body import held_text

_FIRST = ("query", "queries", "text_1", "data_1")
_TOKEN_BYTES = 4
_SECOND = ("documents", "items", "text_2", "data_2")


def rerank_prompt(body: dict[str, Any]) -> UnmatchedPrompt:
    """Read the lengths of all pairs of texts, under vLLM's field names; raise BadBodyError.

    One text is paired with each of the others; two lists are paired item by item.
    """
    firsts, seconds = _sizes(body, _FIRST), _sizes(body, _SECOND)
    if len(firsts) == 1:
        firsts *= len(seconds)
    pairs = [first + second for first, second in zip(firsts, seconds, strict=False)]
    longest = max(pairs)
    return UnmatchedPrompt(longest, sum(pairs) - longest)


def input_lengths(body: dict[str, Any]) -> UnmatchedPrompt:
    """Read the lengths of inputs to pool or classify: texts, token ids, or one chat; raise BadBodyError."""
    if "messages" in body:
        return UnmatchedPrompt(_bytes(body["messages"]))
    sizes = _sizes(body, ("input", "data"))
    longest = max(sizes)
    return UnmatchedPrompt(longest, sum(sizes) - longest)


def _sizes(body: dict[str, Any], names: tuple[str, ...]) -> list[int]:
    for name in names:
        value = body.get(name)
        if value is not None and value != []:
            return [_bytes(item) for item in value] if isinstance(value, list) else [_bytes(value)]
    shown = f"{', '.join(names[:-1])} or {names[-1]}"
    raise BadBodyError("bad_field", f"Send {shown} as a text or a non-empty list of texts.", param=names[0])


def _bytes(value: Any) -> int:
    """Return the bytes of all texts in a nested value. A token id counts as four bytes."""
    if isinstance(value, str):
        held = held_text(value)
        return held[1] if held else len(value.encode())
    if isinstance(value, int):
        return _TOKEN_BYTES
    if isinstance(value, dict):
        if is_media(value):
            check_media(value)
        return sum(_bytes(item) for item in value.values())
    return sum(_bytes(item) for item in value) if isinstance(value, list) else 0
