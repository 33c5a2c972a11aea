"""Figures in an engine's answer that reveal its cached blocks: corrected after a handover, or removed.

A caller who may not see hits gets the answer of a cache miss: no count of cached tokens, no time that shrinks with
them, and no list as long as the computed part. The names are those in answers of vLLM 0.32 and SGLang 0.5.23.
"""

from __future__ import annotations

from typing import Any

import msgspec

HIDDEN = -1
"""In place of a number of cached tokens: the answer reveals none."""
_PROMPT_DETAILS, _INPUT_DETAILS = "prompt_tokens_details", "input_tokens_details"
_MESSAGES_COUNTS = ("cache_read_input_tokens", "cache_creation_input_tokens")
_REVEALING = frozenset((
    "cached_tokens", "created_cache_tokens", "cache_write_tokens", "cached_tokens_per_turn", "cached_tokens_details",
    "num_cached_tokens", *_MESSAGES_COUNTS, "cache_creation", "sglext", "meta_info", "metrics", "hidden_states",
    "kv_transfer_params", "ec_transfer_params",
))  # fmt: skip
"""sglext, meta_info, and metrics hold counts and times of several kinds. SGLang's hidden states are those of the
computed tokens. Transfer parameters list the prompt's blocks.
"""
_OWN = frozenset(("input", "arguments", "tools", "text"))
"""Objects that the model or the client wrote: their names mean nothing here."""
_MARKS = (
    b"cache", b"tokens_details", b'"sglext"', b'"meta_info"', b'"metrics"', b'"hidden_states"', b'_transfer_params"',
)  # fmt: skip
"""Every JSON text with a revealing name has one of them, and few events of a stream have any."""

_decode = msgspec.json.decode
_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class HitsUnreadableError(ValueError):
    """An answer may reveal hits that cannot be removed because it is no JSON object."""


def reveals_hits(data: bytes) -> bool:
    """Return whether the data may have a revealing name; if not, it has none."""
    data = bytes(data)  # Raw has no search of its own.
    for mark in _MARKS:  # noqa: SIM110 - a generator would cost more than the search in a stream's event
        if mark in data:
            return True
    return False


def with_cached_tokens(body: bytes, cached_tokens: int) -> bytes:
    """Return an answer whose usage names this many cached prompt tokens; one without a usage is returned unchanged.

    A decode engine counts tokens from another engine as cached, although they were computed there. HIDDEN hides all
    that reveals hits; raises HitsUnreadableError where that is impossible.
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
    """Set the cached tokens of a usage; the count of tokens written to the cache would reveal the engine's own."""
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
    """Count all of the prompt as input in a usage of messages, which exclude tokens read from or written to a cache."""
    apart = [usage.pop(name, None) for name in _MESSAGES_COUNTS]
    usage["input_tokens"] += sum(item for item in apart if isinstance(item, int))


def _without_hits(body: bytes) -> bytes:
    """Return an answer as of a cache miss. Parts that reveal nothing keep their bytes: an embedding may be megabytes
    long.
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
    """Remove from a decoded answer what reveals hits; return whether it had any."""
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
    """Give a usage the form that it has after a miss; return whether it changed."""
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
