"""The prompt of a request in one of the forms callers have: chat, text, token ids or block hashes."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from gateway.formats.media import without_media
from gateway.http.json_body import BadBodyError
from routing.values.prepared_struct import prepared

_TEMPLATE_FIELDS = ("tools", "chat_template", "chat_template_kwargs", "add_generation_prompt", "continue_final_message")
_TokenIds = list[Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]]


class ChatPrompt(msgspec.Struct, frozen=True):
    """Messages, and everything else that the chat template reads."""

    messages: list[Any]
    """Without media: a digest stands for each such part (gateway.formats.media)."""
    template: dict[str, Any]
    media_tokens: int = 0
    """Assumed length of the media."""


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


class UnmatchedPrompt(msgspec.Struct, frozen=True):
    """Text that is not looked for in any cache: lengths in bytes, of the longest prompt and of the others together."""

    text_bytes: int
    further_bytes: int = 0


Prompt = ChatPrompt | TextPrompt | TokenPrompt | HashedPrompt | UnmatchedPrompt


def chat_prompt(body: dict[str, Any]) -> ChatPrompt:
    """Read `messages` and the template's inputs from a chat body; raises BadBodyError."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadBodyError("bad_field", "Send messages as a non-empty list of objects.", param="messages")
    return chat_of(messages, body)


def chat_of(messages: list[Any], body: dict[str, Any], *, tools: list[Any] | None = None) -> ChatPrompt:
    """Return the prompt of these messages with what else the template reads in the body; `tools` replaces its tools."""
    template = {name: body[name] for name in _TEMPLATE_FIELDS if name in body}
    if tools is not None:
        template.pop("tools", None)
        if tools:
            template["tools"] = tools
    plain, media_tokens = without_media(messages)
    return ChatPrompt(plain, template, media_tokens)


def completion_prompt(prompt: object, param: str = "prompt") -> TextPrompt | TokenPrompt:
    """Read OpenAI's `prompt` (or `param`): text or token ids, or a list of these, of which the first decides the route.

    All of them are work for the engine, so the lengths of the others are kept. Raises BadBodyError.
    """
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    if isinstance(prompt, array):
        return TokenPrompt(prompt)
    if isinstance(prompt, list) and prompt:
        first = prompt[0]
        if not isinstance(first, str | list | array):
            return TokenPrompt(_token_ids(prompt, param))
        if isinstance(first, str) and all(isinstance(each, str) for each in prompt):
            return TextPrompt(first, sum(len(each.encode()) for each in prompt[1:]))
        if not isinstance(first, str) and all(isinstance(each, list | array) for each in prompt):
            return TokenPrompt(_token_ids(first, param), sum(len(each) for each in prompt[1:]))
    raise BadBodyError(
        "bad_field", f"Send {param} as a string, a list of token ids, or a list of either alone.", param=param
    )


def _token_ids(values: Sequence[int], param: str) -> Sequence[int]:
    if isinstance(values, array):
        return values
    try:
        return msgspec.convert(values, prepared(_TokenIds))
    except msgspec.ValidationError:
        message = f"Every entry of a list {param} must be a token id, 0 to 4294967295."
        raise BadBodyError("bad_field", message, param=param) from None
