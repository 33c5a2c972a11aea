"""Corrects or removes figures in an engine's answer that reveal its cached blocks.

A caller who must not see hits gets the answer of a cache miss: no count of cached tokens, no time that shrinks with
them, and no list as long as the computed part. The names are those in answers of vLLM 0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

from typing import Any

import msgspec

HIDDEN = -1
"""Used instead of a number of cached tokens if the answer must reveal none."""
_PROMPT_DETAILS, _INPUT_DETAILS = "prompt_tokens_details", "input_tokens_details"
_MESSAGES_COUNTS = ("cache_read_input_tokens", "cache_creation_input_tokens")
_REVEALING = frozenset((
    "cached_tokens", "created_cache_tokens", "cache_write_tokens", "cached_tokens_per_turn", "cached_tokens_details",
    "num_cached_tokens", *_MESSAGES_COUNTS, "cache_creation", "sglext", "meta_info", "metrics", "hidden_states",
    "kv_transfer_params", "ec_transfer_params",
))  # fmt: skip
"""sglext, meta_info, and metrics contain several counts and times. SGLang's hidden states cover the computed tokens
only. Transfer parameters list the prompt's blocks.
"""
_OWN = frozenset(("input", "arguments", "tools", "text"))
"""Objects written by the model or the client. Names in them have no meaning here."""
HIT_MARKS = (
    b"cache", b"tokens_details", b'"sglext"', b'"meta_info"', b'"metrics"', b'"hidden_states"', b'_transfer_params"',
)  # fmt: skip
"""Every JSON text with a revealing name contains one of these marks, and few stream events do."""

_decode = msgspec.json.decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class HitsUnreadableError(ValueError):
    """An answer may reveal hits that cannot be removed because it is no JSON object."""


def reveals_hits(data: bytes) -> bool:
    """Return whether the data may contain a revealing name. False is certain."""
    data = bytes(data)  # Raw has no search of its own.
    for mark in HIT_MARKS:  # noqa: SIM110 - a generator would cost more than the search in a stream's event
        if mark in data:
            return True
    return False


def with_cached_tokens(body: bytes, cached_tokens: int) -> bytes:
    """Return the answer with this number of cached prompt tokens in its usage, unchanged if it has no usage.

    A decode engine counts tokens from another engine as cached, although they were computed there. HIDDEN removes
    everything that reveals hits; raise HitsUnreadableError if that is impossible.
    """
    if cached_tokens == HIDDEN:
        return _without_hits(body) if reveals_hits(body) else body
    try:
        answer = _decode(body)
    except _UNREADABLE:
        return body
    if not isinstance(answer, dict):
        return body
    holders = (answer, answer.get("response"), answer.get("message"))
    usages = [
        holder["usage"] for holder in holders if isinstance(holder, dict) and isinstance(holder.get("usage"), dict)
    ]
    for usage in usages:
        _correct(usage, cached_tokens)
    return msgspec.json.encode(answer) if usages else body


def _correct(usage: dict[str, Any], cached_tokens: int) -> None:
    """Set the cached tokens of a usage, and drop the engine's own counts of written cache tokens, which reveal hits."""
    if "input_tokens" not in usage:
        usage[_PROMPT_DETAILS] = {**_kept(usage.get(_PROMPT_DETAILS)), "cached_tokens": cached_tokens}
    elif isinstance(usage.get(_INPUT_DETAILS), dict):
        usage[_INPUT_DETAILS] = {"cached_tokens": cached_tokens}
    elif isinstance(usage["input_tokens"], int):
        _count_as_input(usage)
        cached = min(cached_tokens, usage["input_tokens"])
        usage["input_tokens"] -= cached
        usage["cache_read_input_tokens"] = cached


def _count_as_input(usage: dict[str, Any]) -> None:
    """Count the complete prompt as input in a messages usage, which excludes tokens read from or written to a cache."""
    apart = [usage.pop(name, None) for name in _MESSAGES_COUNTS]
    usage["input_tokens"] += sum(item for item in apart if isinstance(item, int))


def _without_hits(body: bytes) -> bytes:
    """Return the answer of a cache miss.

    Parts that reveal nothing keep their bytes, because an embedding can be megabytes long.
    """
    try:
        members: dict[str, Any] = _members(body)
        for name, raw in members.items():
            if name not in _OWN and (name in _REVEALING or reveals_hits(raw)):
                members[name] = _decode(raw)
    except _UNREADABLE:
        raise HitsUnreadableError from None
    return msgspec.json.encode(members) if _hide(members) else body


def _hide(answer: dict[str, Any]) -> bool:
    """Remove everything that reveals hits from a decoded answer; return whether there was any."""
    hidden, pending = False, list[Any]((answer,))
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        elif isinstance(value, dict):
            if isinstance(usage := value.get("usage"), dict):
                hidden = _hide_in_usage(usage) or hidden
            # The names of a client's own metadata are free; its values are strings.
            for name in [name for name in _REVEALING & value.keys() if not isinstance(value[name], str)]:
                del value[name]
                hidden = True
            pending += [member for name, member in value.items() if name not in _OWN and name != _INPUT_DETAILS]
    return hidden


def _hide_in_usage(usage: dict[str, Any]) -> bool:
    """Change a usage to its form after a cache miss; return whether it changed."""
    before = dict(usage)
    if kept := _kept(usage.pop(_PROMPT_DETAILS, None)):
        usage[_PROMPT_DETAILS] = kept
    if _INPUT_DETAILS in usage:
        # Clients of the responses API count on this figure.
        usage[_INPUT_DETAILS] = {**_kept(usage[_INPUT_DETAILS]), "cached_tokens": 0}
    elif isinstance(usage.get("input_tokens"), int):
        _count_as_input(usage)
    return usage != before


def _kept(details: object) -> dict[str, Any]:
    named = details if isinstance(details, dict) else {}
    return {name: value for name, value in named.items() if name not in _REVEALING}
