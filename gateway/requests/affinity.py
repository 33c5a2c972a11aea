"""The common part of a conversation's requests, which keeps them on one pool of their service."""

from __future__ import annotations

import msgspec

from gateway.requests.formats.prompt import ChatPrompt, HashedPrompt, Prompt, TextPrompt, TokenPrompt
from kvstore.keys.block_keys import pack_tokens

_HEAD_TOKENS, _HEAD_BYTES, _HEAD_HASHES = 1024, 4096, 4
# Equal messages have equal bytes, whatever the order of their members.
_encode = msgspec.json.Encoder(order="deterministic").encode


def affinity_of(session_id: str, prompt: Prompt | None) -> bytes:
    """Return the common part of a conversation's requests: the session, or else the prompt's head."""
    if session_id:
        return session_id.encode()
    match prompt:
        case ChatPrompt():
            # Up to the first turn of the user: many conversations share the part before it.
            turns = enumerate(prompt.messages, 1)
            head = next((n for n, message in turns if message.get("role") == "user"), len(prompt.messages))
            return _encode(prompt.messages[:head])
        case TextPrompt():
            return prompt.text[:_HEAD_BYTES].encode("utf-8", "surrogatepass")
        case TokenPrompt():
            return pack_tokens(prompt.token_ids[:_HEAD_TOKENS])
        case HashedPrompt():
            return _encode(list(prompt.block_hashes[:_HEAD_HASHES]))
    return b""
