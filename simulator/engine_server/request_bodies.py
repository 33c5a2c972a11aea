"""The request bodies that the engine accepts, and the prompts they contain."""

from __future__ import annotations

import os
import re
import zlib
from array import array
from collections.abc import Sequence
from email.parser import BytesParser
from email.policy import HTTP
from hashlib import sha256
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta
from typing_extensions import override

from kvstore.connector.engine_params import LoadInstruction
from kvstore.keys.block_keys import TOKEN_BYTES, extend_key, pack_tokens
from routing.values.prepared_struct import prepared
from simulator.engine_models.tokenizer import UnknownRoleError, render_chat, tokenize
from simulator.engine_server.api_error import EngineApiError
from simulator.engine_server.faults import Fault

_MARK = f"\0{os.urandom(16).hex()}\0"
"""Placeholder for a medium in a rendered chat; clients cannot write it."""
_MARKED = re.compile(re.escape(_MARK))
# No text has this token: the byte 0xFF does not occur in UTF-8.
_PLACEHOLDER = 0xFFFFFFFF
_PositiveInt = Annotated[int, Meta(ge=1)]
AudioFormat = Literal["json", "text", "srt", "vtt", "verbose_json"]
AUDIO_BYTES_PER_S, AUDIO_TOKENS_PER_S = 16_000, 50
"""Bytes per second of audio at 128 kbit/s, and the tokens per second of Whisper's encoder."""
_Salt = Annotated[str, Meta(min_length=1, max_length=1024)]


_Name = Annotated[str, Meta(min_length=1, max_length=512)]


class KvTransferParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The transfer that a request asks for or a response offers, in the fields of vLLM's NIXL connector; those of other
    connectors are ignored.

    A prefill request has `do_remote_decode`. Its response contains all other fields, which the decode request carries
    unchanged.
    """

    do_remote_decode: bool = False
    do_remote_prefill: bool = False
    remote_engine_id: _Name | None = None
    remote_request_id: _Name | None = None
    remote_host: _Name | None = None
    remote_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    remote_block_ids: list[list[int]] | None = None
    remote_num_tokens: Annotated[int, Meta(ge=0)] | None = None
    remote_prefill_cached_tokens: Annotated[int, Meta(ge=0)] | None = None
    tp_size: Annotated[int, Meta(ge=1)] | None = None
    headway: LoadInstruction | None = None
    """Which blocks can be loaded from nodes, and the names of the prompt's blocks (kvstore.connector.engine_params)."""


class StreamOptions(msgspec.Struct, frozen=True):
    """OpenAI's stream_options."""

    include_usage: bool = False


class ContentPart(msgspec.Struct, frozen=True):
    """One part of a message's content: text, or a medium with the client's name for it."""

    type: str
    text: str | None = None
    image_url: Any = None
    audio_url: Any = None
    video_url: Any = None
    input_audio: Any = None
    uuid: str | None = None

    @property
    def medium(self) -> str:
        """The medium's identity in vLLM: its name, or else a hash of its content. Empty for text."""
        content = [self.image_url, self.audio_url, self.video_url, self.input_audio]
        if all(item is None for item in content):
            return ""
        return self.uuid or sha256(msgspec.json.encode(content)).hexdigest()


class PlacedMedium(NamedTuple):
    """The position of a medium in a prompt, in tokens."""

    name: str
    offset: int
    length: int


class ChatTokens(NamedTuple):
    """The tokens of a conversation, with placeholders for media."""

    tokens: array[int]
    media: tuple[PlacedMedium, ...]


class ChatMessage(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: str
    content: str | list[ContentPart] | None = None


class GenerationBody(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of /v1/completions and /v1/chat/completions; unknown fields are ignored."""

    model: str | None = None
    max_tokens: _PositiveInt | None = None
    max_completion_tokens: _PositiveInt | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    ignore_eos: bool = False
    cache_salt: _Salt | None = None
    priority: int | None = None
    n: int | None = None
    kv_transfer_params: KvTransferParams | None = None
    bootstrap_host: str | None = None
    bootstrap_port: Annotated[int, Meta(ge=1, le=65_535)] | None = None
    bootstrap_room: Annotated[int, Meta(ge=0)] | None = None
    """The number, besides host and port, by which SGLang's prefill and decode engines find each other's prompt."""

    @property
    def wanted_tokens(self) -> int | None:
        """Requested number of output tokens; None if the model decides."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def wants_usage_chunk(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return self.stream_options is not None and self.stream_options.include_usage


class CompletionBody(GenerationBody, frozen=True, kw_only=True):
    """Body of /v1/completions; `prompt` is text, one text in a list, or token ids."""

    prompt: str | list[Any]


class ChatBody(GenerationBody, frozen=True, kw_only=True):
    """Body of /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], Meta(min_length=1)]


class ResponsesBody(GenerationBody, frozen=True, kw_only=True):
    """Body of /v1/responses."""

    input: str | Annotated[list[dict[str, Any]], Meta(min_length=1)]
    instructions: str | None = None
    max_output_tokens: _PositiveInt | None = None

    @property
    @override
    def wanted_tokens(self) -> int | None:
        return self.max_output_tokens


class AnthropicMessage(msgspec.Struct, frozen=True):
    """One message of a conversation, in Anthropic's form."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class CountTokensBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /v1/messages/count_tokens."""

    model: str | None = None
    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    system: str | list[dict[str, Any]] | None = None


class MessagesBody(GenerationBody, frozen=True, kw_only=True):
    """Body of Anthropic's /v1/messages; max_tokens is required there."""

    max_tokens: _PositiveInt
    messages: Annotated[list[AnthropicMessage], Meta(min_length=1)]
    system: str | list[dict[str, Any]] | None = None


class PoolingBody(msgspec.Struct, frozen=True, kw_only=True):
    """Common fields of endpoints that generate no text."""

    model: str | None = None
    cache_salt: _Salt | None = None
    priority: int | None = None


class EmbeddingBody(PoolingBody, frozen=True, kw_only=True):
    """Body of /v1/embeddings."""

    input: str | Annotated[list[Any], Meta(min_length=1)]
    encoding_format: Literal["float", "base64"] = "float"


class ScoreBody(PoolingBody, frozen=True, kw_only=True):
    """Body of /score."""

    text_1: str | Annotated[list[str], Meta(min_length=1)]
    text_2: str | Annotated[list[str], Meta(min_length=1)]


class RerankBody(PoolingBody, frozen=True, kw_only=True):
    """Body of /rerank."""

    query: str
    documents: Annotated[list[str], Meta(min_length=1)]
    top_n: Annotated[int, Meta(ge=0)] = 0


class DetokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /detokenize."""

    model: str | None = None
    tokens: list[Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]]


class TokenizeBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /tokenize: a prompt or messages."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None


class FaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /handoff_fault: the deliberate fault of hand-offs; empty for none."""

    fault: Literal["", "fail", "hang", "lose"]


class EngineFaultBody(msgspec.Struct, frozen=True, kw_only=True):
    """Body of /fault: the engine's deliberate fault; empty for none."""

    fault: Fault


_Body = TypeVar("_Body", bound=msgspec.Struct)


def parse_body(data: bytes, kind: type[_Body]) -> _Body:
    """Parse a JSON body as leniently as vLLM; raise EngineApiError 400 that names the invalid field."""
    try:
        return msgspec.json.decode(data, type=prepared(kind), strict=False)
    except msgspec.ValidationError as error:
        raise EngineApiError(400, str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise EngineApiError(400, f"the body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise EngineApiError(400, "the body is nested too deeply") from error


def chat_tokens(messages: list[ChatMessage]) -> array[int]:
    """Return the prompt tokens of a conversation; raise EngineApiError 400 for an unknown role or a non-text part."""
    return media_chat(messages, 0).tokens


def media_chat(messages: list[ChatMessage], media_tokens: int) -> ChatTokens:
    """Return the tokens of a conversation; raise EngineApiError 400 for an unknown role or part.

    Each medium has `media_tokens` tokens; with 0, media are unknown parts.
    """
    names: list[str] = []
    try:
        text = render_chat((message.role, _text(message, names if media_tokens else None)) for message in messages)
    except UnknownRoleError as error:
        raise EngineApiError(400, str(error), "messages") from error
    first, *others = _MARKED.split(text)
    tokens, media = tokenize(first), []
    for name, after in zip(names, others, strict=True):
        media.append(PlacedMedium(name, len(tokens), media_tokens))
        tokens.extend([_PLACEHOLDER] * media_tokens)
        tokens.extend(tokenize(after))
    return ChatTokens(tokens, tuple(media))


def extra_keys(media: Sequence[PlacedMedium], start: int, size: int) -> list[list[Any]]:
    """Return a block's media as vLLM hashes and publishes them: their names, and their offsets from the block's
    start.
    """
    within = [item for item in media if item.offset < start + size and start < item.offset + item.length]
    return [[item.name, item.offset - start] for item in within]


def prompt_keys(seed: int, tokens: array[int], media: Sequence[PlacedMedium], size: int) -> tuple[int, ...]:
    """Return the engine's keys of the prompt's blocks; different media give different keys."""
    data, keys = pack_tokens(tokens), [seed]
    for start in range(0, len(tokens) - size + 1, size):
        extra = extra_keys(media, start, size)
        block = data[start * TOKEN_BYTES : (start + size) * TOKEN_BYTES]
        # Any text that differs with the media serves: an engine's hashes are its own.
        keys.append(extend_key(keys[-1], block + repr(extra).encode() if extra else block))
    return tuple(keys[1:])


def completion_tokens(prompt: str | list[Any]) -> array[int]:
    """Return the prompt tokens of a completion; raise EngineApiError 400 for several prompts or an empty prompt."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    tokens = tokenize(prompt) if isinstance(prompt, str) else _token_ids(prompt)
    if not tokens:
        raise EngineApiError(400, "the prompt is empty", "prompt")
    return tokens


def _token_ids(prompt: list[Any]) -> array[int]:
    # A bool is an instance of int, but no token id.
    if any(type(token) is not int for token in prompt):
        raise EngineApiError(400, "send one prompt per request: a text, one text in a list, or token ids", "prompt")
    try:
        return array("I", prompt)
    except OverflowError as error:
        raise EngineApiError(400, "token ids must be from 0 to 4294967295", "prompt") from error


def _text(message: ChatMessage, media: list[str] | None) -> str:
    """Return the message's text with a mark for each medium. Append the medium's name to `media` (None: media not
    allowed).
    """
    if message.content is None:
        return ""
    if isinstance(message.content, str):
        return message.content
    texts = []
    for part in message.content:
        if media is not None and part.medium:
            media.append(part.medium)
            texts.append(_MARK)
        elif part.type == "text" and part.text is not None:
            texts.append(part.text)
        else:
            raise EngineApiError(
                400, f"content part {part.type[:40]!r} is not text; this model reads text only", "messages"
            )
    return "".join(texts)


class AudioBody(GenerationBody, frozen=True, kw_only=True):
    """Body of /v1/audio/transcriptions and /v1/audio/translations."""

    file: bytes
    response_format: AudioFormat = "json"


def audio_body(form: bytes, content_type: str) -> AudioBody:
    """Parse the body from a form; raise EngineApiError 400 if it is invalid."""
    # The standard library reads multipart forms only as mail, headers first.
    message = BytesParser(policy=HTTP).parsebytes(b"Content-Type: " + content_type.encode() + b"\r\n\r\n" + form)
    fields: dict[str, object] = {}
    for part in message.iter_parts() if message.is_multipart() else ():
        name = part.get_param("name", header="content-disposition")
        held = part.get_payload(decode=True)
        if isinstance(name, str) and isinstance(held, bytes):
            fields[name] = held if part.get_filename() is not None else held.decode(errors="replace")
    fields["stream"] = str(fields.get("stream", "")).lower() in ("true", "1")
    try:
        return msgspec.convert(fields, prepared(AudioBody), strict=False)
    except msgspec.ValidationError as error:
        raise EngineApiError(400, str(error)) from None


def audio_tokens(file: bytes) -> array[int]:
    """Return the tokens of audio. Their number depends on its length, their values on its content."""
    seed = zlib.crc32(file)
    return array(
        "I", [(seed + number) % 50_000 for number in range(max(1, len(file) * AUDIO_TOKENS_PER_S // AUDIO_BYTES_PER_S))]
    )
