"""The prompt of a request in one of the APIs' forms: chat, text, token ids or block hashes."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from gateway.requests.formats.media import Media, without_media
from gateway.server.http.json_body import BadBodyError, lax_flag, lax_int
from routing.values.prepared_struct import prepared

MEDIA_FIELDS = ("media_io_kwargs", "mm_processor_kwargs")
"""Chat fields that control how an engine processes media."""
TEMPLATE_FIELDS = (
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
    *MEDIA_FIELDS,
)
"""Chat fields that an engine's /tokenize accepts unchanged."""
TEMPLATE_VARIABLES = ("documents", "reasoning_effort")
"""Chat fields that /tokenize accepts only as the engine's derived `chat_template_kwargs`."""
_UNSET = (None, "auto")
"""Values of such a field that an engine ignores."""
_LIMITS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
_EMBEDS_BYTES = 8192
"""Assumed base64 bytes per token embedding: about 3,000 two-byte numbers. Only the engine knows the actual size."""
_UNCOUNTED_TOKEN_BYTES = 4
_TokenIds = list[Annotated[int, msgspec.Meta(ge=0, le=0xFFFFFFFF)]]


class ChatPrompt(msgspec.Struct, frozen=True):
    """Messages, and all other inputs of the chat template."""

    messages: list[Any]
    """Messages with a digest instead of each media part (gateway.requests.formats.media)."""
    template: dict[str, Any]
    media: tuple[Media, ...] = ()
    """Media in the order of their placeholders in the messages."""
    keeps: int | None = None
    """Number of its tokens that the engine keeps; None: all. Below 0: as many as fit into the model's context beside
    `-1 - keeps` output tokens.
    """

    @property
    def media_tokens(self) -> int:
        """Return the assumed length of the media in tokens."""
        return sum(item.tokens for item in self.media)


class TextPrompt(msgspec.Struct, frozen=True):
    """Unformatted text, and the bytes of further prompts in the same request."""

    text: str
    further_bytes: int = 0
    special_tokens: bool = True
    """Whether the engine adds the tokenizer's begin and end tokens."""
    keeps: int | None = None
    """As in ChatPrompt."""


class TokenPrompt(msgspec.Struct, frozen=True):
    """Token ids, 0 … 2³²−1, and the tokens of further prompts in the same request."""

    token_ids: Sequence[int]
    further_tokens: int = 0
    keeps: int | None = None
    """As in ChatPrompt."""


class HashedPrompt(msgspec.Struct, frozen=True):
    """Unsalted, already chained block hashes, and the prompt's length in tokens (None: whole blocks)."""

    block_hashes: Sequence[int]
    prompt_tokens: int | None


class UnmatchedPrompt(msgspec.Struct, frozen=True):
    """Text that matches no cache: lengths in bytes, of the longest prompt and of the others together."""

    text_bytes: int
    further_bytes: int = 0


Prompt = ChatPrompt | TextPrompt | TokenPrompt | HashedPrompt | UnmatchedPrompt


def chat_prompt(body: dict[str, Any], *, named: bool = False) -> ChatPrompt:
    """Read `messages` and the template's inputs from a chat body; raise BadBodyError.

    `named`: its media can have names set by the client (gateway.requests.formats.media.without_media).
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(message, dict) for message in messages):
        raise BadBodyError("bad_field", "Send messages as a non-empty list of objects.", param="messages")
    return chat_of([_with_reasoning(message) for message in messages], body, named=named)


def _with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with its reasoning under vLLM's current name; only vLLM's chats also accept the older name."""
    reasoning = message.get("reasoning_content")
    return message if reasoning is None or message.get("reasoning") is not None else {**message, "reasoning": reasoning}


def chat_of(messages: list[Any], body: Mapping[str, Any], *, named: bool = False) -> ChatPrompt:
    """Return the prompt of these messages, with the template's other inputs from the body."""
    template = {name: body[name] for name in TEMPLATE_FIELDS if name in body}
    if variables := _variables(body):
        template["chat_template_kwargs"] = variables
    plain, media = without_media(messages, named=named)
    return ChatPrompt(plain, template, media, kept_tokens(body))


def _variables(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template variables if fields set any. They override the request's own `chat_template_kwargs`.

    An effort also turns thinking on or off, for templates that only have this switch (checked against vLLM 0.32).
    """
    given = {name: value for name in TEMPLATE_VARIABLES if (value := body.get(name)) not in _UNSET}
    own = body.get("chat_template_kwargs") or {}
    if not given or not isinstance(own, dict):
        return {}
    if "reasoning_effort" in given and "enable_thinking" not in own:
        given["enable_thinking"] = given["reasoning_effort"] != "none"
    return {**own, **given}


def kept_tokens(body: Mapping[str, Any]) -> int | None:
    """Return the number of prompt tokens that the body allows the engine to keep, as in ChatPrompt."""
    kept = lax_int(body.get("truncate_prompt_tokens"))
    if kept is None or kept >= 0:
        return kept
    return -1 - next((limit for name in _LIMITS if (limit := lax_int(body.get(name)))), 0)


def completion_of(body: Mapping[str, Any], param: str = "prompt") -> TextPrompt | TokenPrompt | UnmatchedPrompt:
    """Read the prompt of a completion and the fields that change its tokens; raise BadBodyError."""
    if param == "prompt" and body.get("prompt_embeds") is not None:
        return _embedded(body)
    prompt, keeps = completion_prompt(body.get(param), param), kept_tokens(body)
    if isinstance(prompt, TextPrompt):
        special_tokens = lax_flag(body.get("add_special_tokens")) is not False
        return msgspec.structs.replace(prompt, special_tokens=special_tokens, keeps=keeps)
    return prompt if keeps is None else msgspec.structs.replace(prompt, keeps=keeps)


def _embedded(body: Mapping[str, Any]) -> UnmatchedPrompt:
    """Return the length of a prompt of embeddings, which have no text, plus the length of a `prompt` beside it."""
    given = body["prompt_embeds"]
    embeds = given if isinstance(given, list) else [given]
    if not embeds or not all(isinstance(embed, str) for embed in embeds):
        raise BadBodyError(
            "bad_field", "Send prompt_embeds as a base64 string, or a list of them.", param="prompt_embeds"
        )
    tokens = sum(max(1, len(embed) // _EMBEDS_BYTES) for embed in embeds)
    size = tokens * _UNCOUNTED_TOKEN_BYTES
    if body.get("prompt") is not None:
        beside = completion_prompt(body["prompt"])
        if isinstance(beside, TextPrompt):
            size += len(beside.text.encode()) + beside.further_bytes
        else:
            size += (len(beside.token_ids) + beside.further_tokens) * _UNCOUNTED_TOKEN_BYTES
    return UnmatchedPrompt(0, size)


def completion_prompt(prompt: object, param: str = "prompt") -> TextPrompt | TokenPrompt:
    """Read OpenAI's `prompt` (or `param`): text or token ids, or a list whose first entry decides the route.

    The lengths of the other entries are kept, because all are work for the engine. Raise BadBodyError.
    """
    if isinstance(prompt, str):
        return TextPrompt(prompt)
    if isinstance(prompt, array):
        return TokenPrompt(prompt)
    if isinstance(prompt, list) and prompt:
        first = prompt[0]
        if not isinstance(first, str | list | array):
            return TokenPrompt(_token_ids(prompt, param))
        if isinstance(first, str) and all(isinstance(item, str) for item in prompt):
            return TextPrompt(first, sum(len(item.encode()) for item in prompt[1:]))
        if not isinstance(first, str) and all(isinstance(item, list | array) for item in prompt):
            return TokenPrompt(_token_ids(first, param), sum(len(item) for item in prompt[1:]))
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
