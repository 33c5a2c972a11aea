"""The proxy's endpoints, one row each: how the prompt is read, what limits the answer, how it is streamed.

gateway.formats.engine_usage reads each form of usage.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from gateway.requests.formats.audio_form import audio_prompt
from gateway.requests.formats.handoff_bodies import ONE_TOKEN
from gateway.requests.formats.media import without_media
from gateway.requests.formats.messages_prompt import messages_prompt
from gateway.requests.formats.prompt import Prompt, UnmatchedPrompt, chat_prompt, completion_of
from gateway.requests.formats.rerank_prompt import input_lengths, rerank_prompt
from gateway.requests.formats.responses_prompt import responses_prompt
from gateway.server.http.engine_paths import CLASSIFY, DETOKENIZE, POOLING, RERANK, RERANK_2, SCORE, TOKENIZE
from gateway.server.http.error_formats import ANTHROPIC, MESSAGES, OPENAI, RESPONSES, ErrorFormat

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
EMBEDDINGS = "/v1/embeddings"
RESPONSES_PATH = "/v1/responses"
AUDIO = "/v1/audio/"


class Endpoint(msgspec.Struct, frozen=True):
    """One path, which is the same at the gateway and its engines."""

    path: str
    summary: str
    """Title in the API document."""
    prompt: Callable[[dict[str, Any]], Prompt]
    """Reads the prompt that is used for routing."""
    limits: tuple[str, ...] = ()
    """Fields that limit the answer's tokens; the first one present counts. Empty: no token is generated."""
    errors: ErrorFormat = OPENAI
    asks_for_usage: bool = False
    """Whether a stream reports its usage only if `stream_options` requests it."""
    answers_json: bool = True
    """False: an answer can be plain text."""
    is_form: bool = False
    """The body is a form (gateway.requests.formats.audio_form) instead of JSON."""
    routed: bool = True
    """False: any engine can serve it, and no decision is made."""
    operation: str = "chat"
    """OpenTelemetry GenAI name of the operation, for spans."""
    one_token: Mapping[str, Any] | None = None
    """Fields that turn its body into the body of a prefill leg; None: it cannot be handed over."""

    @property
    def generates(self) -> bool:
        """Return whether the endpoint decodes tokens and can therefore be streamed."""
        return bool(self.limits)


def _unread(body: dict[str, Any]) -> Prompt:
    """Check only the media, which engines load even to count tokens."""
    if isinstance(messages := body.get("messages"), list):
        without_media(messages)
    return UnmatchedPrompt(0)


def _input(body: dict[str, Any]) -> Prompt:
    """Read the text, token ids or messages to embed."""
    if "messages" not in body:
        return completion_of(body, "input")
    # The engines' default where nothing is generated.
    return chat_prompt({"add_generation_prompt": False, **body})


_chat = partial(chat_prompt, named=True)
_LIMITS = ("max_completion_tokens", "max_tokens")
_PAIRS = ((RERANK, "Rerank documents.", "rerank"), (SCORE, "Score pairs of texts.", "score"))

ENDPOINTS = (
    Endpoint(CHAT, "OpenAI's chat completions.", _chat, _LIMITS, asks_for_usage=True, one_token=ONE_TOKEN),
    Endpoint(
        COMPLETIONS,
        "OpenAI's completions.",
        completion_of,
        _LIMITS,
        asks_for_usage=True,
        operation="text_completion",
        one_token=ONE_TOKEN,
    ),
    Endpoint(
        RESPONSES_PATH,
        "OpenAI's responses.",
        responses_prompt,
        ("max_output_tokens",),
        RESPONSES,
        one_token={"max_output_tokens": 1, "stream": False, "store": False, "background": False},
    ),
    Endpoint(
        MESSAGES,
        "Anthropic's messages.",
        messages_prompt,
        ("max_tokens",),
        ANTHROPIC,
        one_token={"max_tokens": 1, "stream": False},
    ),
    Endpoint(EMBEDDINGS, "OpenAI's embeddings.", _input, operation="embeddings"),
    *(
        Endpoint(version + path, summary, rerank_prompt, operation=operation)
        for path, summary, operation in _PAIRS
        for version in ("", "/v1")
    ),
    Endpoint(RERANK_2, "Rerank documents, in Cohere's second version.", rerank_prompt, operation="rerank"),
    Endpoint(POOLING, "Pool the hidden states of inputs.", input_lengths, operation="pooling"),
    Endpoint(CLASSIFY, "Classify inputs.", input_lengths, operation="classify"),
    *(
        Endpoint(
            AUDIO + path,
            summary,
            audio_prompt,
            ("max_completion_tokens",),
            answers_json=False,
            is_form=True,
            operation=path,
        )
        for path, summary in (
            ("transcriptions", "OpenAI's transcriptions of audio."),
            ("translations", "OpenAI's translations of audio into English."),
        )
    ),
    Endpoint(TOKENIZE, "Turn a prompt into token ids.", _unread, routed=False, operation="tokenize"),
    Endpoint(DETOKENIZE, "Turn token ids into text.", _unread, routed=False, operation="detokenize"),
    Endpoint(
        MESSAGES + "/count_tokens",
        "Count the tokens of Anthropic's messages.",
        messages_prompt,
        errors=ANTHROPIC,
        routed=False,
        operation="count_tokens",
    ),
)
BY_PATH = {endpoint.path: endpoint for endpoint in ENDPOINTS}
