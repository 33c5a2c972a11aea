"""The prompt of a request in one of the forms callers have: chat, text, token ids or block hashes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gateway.http.json_body import BadBodyError
from routing.values.prepared_struct import prepared

_TEMPLATE_FIELDS = ("tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
_TokenIds = list[Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]]


class ChatPrompt(msgspec.Struct, frozen=True):
    """Messages, and everything else that the chat template reads."""

    messages: list[Any]
    template: dict[str, Any]


class TextPrompt(msgspec.Struct, frozen=True):
    """Text as it is, and how many bytes further prompts of the same request have."""

    text: str
    further_bytes: int = 0


class TokenPrompt(msgspec.Struct, frozen=True):
    """Token ids, 0 … 2³²−1, and how many further prompts of the same request have."""

    token_ids: Sequence[int]
    further_tokens: int = 0


class HashedPrompt(msgspec.Struct, frozen=True):
    """Unsalted, already chained block hashes, with the prompt's length in tokens (None: whole blocks)."""

    block_hashes: Sequence[int]
    prompt_tokens: int | None


Prompt = ChatPrompt | TextPrompt | TokenPrompt | HashedPrompt


def chat_prompt(body: dict[str, Any]) -> ChatPrompt:
    """Read `messages` and the template's inputs from a chat body; raises BadBodyError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadBodyError("bad_field", "Send messages as a non-empty list of objects.", param="messages")
    return ChatPrompt(messages, {name: body[name] for name in _TEMPLATE_FIELDS if name in body})


def completion_prompt(prompt: object) -> TextPrompt | TokenPrompt:
    """Read OpenAI's `prompt`: text or token ids, or a list of these, of which the first decides the route.

    All of them are work for the engine, so the lengths of the others are kept. Raises BadBodyError.
    """
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    if isinstance(prompt, array):
        return TokenPrompt(prompt)
    if isinstance(prompt, list) and prompt:
        first = prompt[0]
        if not isinstance(first, str | list | array):
            return TokenPrompt(_token_ids(prompt))
        if isinstance(first, str) and all(isinstance(each, str) for each in prompt):
            return TextPrompt(first, sum(len(each.encode()) for each in prompt[1:]))
        if not isinstance(first, str) and all(isinstance(each, list | array) for each in prompt):
            return TokenPrompt(_token_ids(first), sum(len(each) for each in prompt[1:]))
    raise BadBodyError(
        "bad_field", "Send prompt as a string, a list of token ids, or a list of either alone.", param="prompt"
    )


def _token_ids(values: Sequence[int]) -> Sequence[int]:
    if isinstance(values, array):
        return values
    try:
        return msgspec.convert(values, prepared(_TokenIds))
    except msgspec.ValidationError:
        message = "Every entry of a list prompt must be a token id, 0 to 4294967295."
        raise BadBodyError("bad_field", message, param="prompt") from None
