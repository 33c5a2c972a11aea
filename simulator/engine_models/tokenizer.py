"""The simulated engines' tokenizer and chat template: four UTF-8 bytes are one token.

A token id is the little-endian uint32 of its four bytes, so tokenizing is a memory copy, and two prompts share exactly
the tokens of the text that they share. Text is padded with zero bytes only at its end, after the chat template has
joined the messages, so a longer conversation starts with the whole tokens of the shorter one.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable

TOKEN_BYTES = 4
_ROLE_HEADERS = {
    "system": "<|syst|>",
    "developer": "<|syst|>",
    "user": "<|user|>",
    "assistant": "<|asst|>",
    "tool": "<|tool|>",
    "function": "<|tool|>",
}
_ANSWER_HEADER = "<|asst|>"


class UnknownRoleError(ValueError):
    """The chat template has no header for this role."""


def tokenize(text: str) -> array[int]:
    """Return the token ids of `text`; raise UnicodeEncodeError for lone surrogates."""
    return token_ids(text.encode())


def token_ids(data: bytes) -> array[int]:
    """Return the token ids of UTF-8 text; the last one is padded."""
    tokens = array("I")
    tokens.frombytes(data + bytes(-len(data) % TOKEN_BYTES))
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def detokenize(tokens: Iterable[int]) -> str:
    """Return the text of the tokens without the padding at its end; invalid UTF-8 is replaced."""
    data = b"".join(token.to_bytes(TOKEN_BYTES, "little") for token in tokens)
    return data.rstrip(b"\0").decode(errors="replace")


def render_chat(messages: Iterable[tuple[str, str]]) -> str:
    """Return the prompt text of (role, content) pairs, which ends with the header of the assistant's reply."""
    parts: list[str] = []
    for role, content in messages:
        header = _ROLE_HEADERS.get(role)
        if header is None:
            raise UnknownRoleError(f"unknown role {role[:40]!r}; known roles: {', '.join(sorted(_ROLE_HEADERS))}")
        parts.append(header)
        parts.append(content)
    parts.append(_ANSWER_HEADER)
    return "".join(parts)
