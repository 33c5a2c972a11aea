"""A request to the decision API, read from JSON, and the part of a two-engine decision that its caller needs."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta
from typing_extensions import override

from gateway.api.load_instructions import instructed
from gateway.requests.caller_facts import CallerFields
from gateway.requests.formats.endpoints import BY_PATH, Endpoint
from gateway.requests.formats.handoff_bodies import ASK, PREFILL_FRAGMENT, TRANSFER
from gateway.requests.formats.owned_fields import is_comparable, reject_owned
from gateway.requests.formats.prompt import (
    TEMPLATE_FIELDS,
    TEMPLATE_VARIABLES,
    HashedPrompt,
    Prompt,
    TokenPrompt,
    chat_prompt,
    completion_of,
    kept_tokens,
)
from gateway.server.http.json_body import (
    BadBodyError,
    decode_object,
    decode_object_in_turns,
    decode_value_in_turns,
    lax_flag,
    lax_int,
    reject_nul_name,
    typed,
)
from gateway.server.http.large_body import SMALL_BYTES
from routing.values.engine_pair import DecodeCandidate, EnginePair

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine
    from kvstore.connector.engine_params import LoadInstruction


MAX_BATCH = 64
MAX_HASHES = 65_536

Name = Annotated[str, Meta(min_length=1, max_length=256)]
Tokens = Annotated[int, Meta(ge=0, le=100_000_000)]


class RouteRequest(CallerFields, kw_only=True, gc=False):
    """One routing request. Exactly one of messages, prompt, token_ids and block_hashes describes the prompt.

    Unknown fields are ignored, so that a proxy can send a complete chat or completion body.
    """

    model: Name
    messages: list[Any] | None = None
    prompt: str | list[Any] | None = None
    prompt_embeds: str | list[str] | None = None
    """Embeddings as base64, with or without a prompt. Such requests are routed by load."""
    tools: list[Any] | None = None
    documents: list[Any] | None = None
    reasoning_effort: str | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    add_special_tokens: bool | None = None
    media_io_kwargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    truncate_prompt_tokens: int | None = None
    token_ids: list[Annotated[int, Meta(ge=0, le=0xFFFFFFFF)]] | None = None
    block_hashes: Annotated[list[Annotated[int, Meta(ge=-(2**63))]], Meta(max_length=MAX_HASHES)] | None = None
    prompt_tokens: Tokens | None = None
    max_tokens: Tokens | None = None
    cache_salt: Annotated[str, Meta(max_length=1024)] | None = None
    """Separates the prompt from the tenant's other prompts. The answer's body has the salt for the engine."""
    comparable: bool = True
    """False: the engine's reported hits do not match the prompt's cached blocks and are not compared with the index.
    Fields such as prompt_logprobs and echo have the same effect.
    """
    wait: bool = True
    merges: bool = True
    """False: the caller does not merge the answer's `body` into its request, so that the engine loads no blocks."""

    @property
    def sequences(self) -> int:
        """Return the number of answers decoded for the prompt."""
        return 1


class EndpointRequest(RouteRequest, kw_only=True, gc=False):
    """The whole body of a client, read as the client's endpoint reads it."""

    read_prompt: Prompt
    generates: bool

    @property
    @override
    def sequences(self) -> int:
        """Return the number of answers; 0 for embeddings, scores and counts."""
        return 1 if self.generates else 0


class _KnownOnly(RouteRequest, forbid_unknown_fields=True, gc=False):
    """A RouteRequest without unknown fields, decoded in one pass."""


_WAIT = b'"wait"'
_PROMPT_FIELDS = frozenset((
    "messages", "prompt", "prompt_embeds", "token_ids", "block_hashes", "prompt_tokens", "truncate_prompt_tokens",
    *TEMPLATE_FIELDS, *TEMPLATE_VARIABLES,
))  # fmt: skip
_NOT_FLAT = (
    "messages", "prompt", "prompt_embeds", "truncate_prompt_tokens", "media_io_kwargs", "mm_processor_kwargs",
    "prompt_cache_key", "user", "metadata",
)  # fmt: skip
"""Known fields whose values need further decoding."""
_LAX: Mapping[str, Callable[[object], int | None]] = {
    **dict.fromkeys(("max_tokens", "priority", "prompt_tokens", "truncate_prompt_tokens"), lax_int),
    **dict.fromkeys(("add_generation_prompt", "continue_final_message", "add_special_tokens"), lax_flag),
}
"""How engines read the fields that they share with this API."""
_decode_known: Callable[[bytes], RouteRequest] = msgspec.json.Decoder(_KnownOnly).decode


def read_flat(body: bytes) -> RouteRequest | None:
    """Return the request in `body` if it has only known fields with flat values, else None.

    Such a body needs no check after decoding. Use `read` for all others, including faulty ones: it checks each byte and
    names the fault.
    """
    try:
        asked = _decode_known(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    # Without a backslash no name can hold a NUL, which JSON allows as an escape only.
    flat = (asked.block_hashes is not None or asked.token_ids is not None) and b"\\" not in body
    return asked if flat and all(getattr(asked, name) is None for name in _NOT_FLAT) else None


def read_at_once(body: bytes, endpoint: Endpoint | None, *, waits: bool, texts: bool) -> RouteRequest | None:
    """Return the request in a small body, None if the request is to be queued.

    `waits` applies if the body has no such field. Without `texts`, return None unless all fields are known and flat:
    prompts need an engine's tokenizer, so the body would be decoded twice. Raise BadBodyError.
    """
    if waits and _WAIT not in body:
        return None
    asked = read_flat(body) if endpoint is None else None
    if asked is None and texts:
        read_body = decode_object(body)
        asked = _typed(read_body) if endpoint is None else _of_endpoint(read_body, endpoint)
    return None if asked is None or (waits and asked.wait) else asked


def endpoint_of(original_path: bytes) -> Endpoint | None:
    """Return the endpoint that the proxy's client called, None if the proxy names no known path.

    Raise BadBodyError for forms, which the proxy sends to the gateway unchanged.
    """
    endpoint = BY_PATH.get(original_path.partition(b"?")[0].decode("latin-1")) if original_path else None
    if endpoint is not None and endpoint.is_form:
        raise BadBodyError(
            "is_a_form", f"The decision API accepts no forms; send them to {endpoint.path} of this gateway."
        )
    return endpoint


async def read(body: bytes, endpoint: Endpoint | None = None) -> RouteRequest:
    """Return the request in `body`, read as `endpoint` reads it; raise BadBodyError."""
    if endpoint is not None:
        return _of_endpoint(await decode_object_in_turns(body), endpoint)
    if len(body) <= SMALL_BYTES and (flat := read_flat(body)) is not None:
        return flat
    return _typed(await decode_object_in_turns(body))


def _of_endpoint(body: dict[str, Any], endpoint: Endpoint) -> EndpointRequest:
    prompt = endpoint.prompt(body)
    asked = _typed({name: value for name, value in body.items() if name not in _PROMPT_FIELDS})
    limit = next((number for name in endpoint.limits if (number := lax_int(body.get(name))) is not None), None)
    comparable = asked.comparable and is_comparable(body)
    fields = msgspec.structs.asdict(asked) | {"max_tokens": limit, "comparable": comparable}
    return EndpointRequest(**fields, read_prompt=prompt, generates=endpoint.generates)


def _typed(value: object) -> RouteRequest:
    if not isinstance(value, dict):
        raise BadBodyError("not_an_object", "A request must be a JSON object.")
    reject_owned(value)
    arrays = {name: held for name, held in value.items() if isinstance(held, array)}
    asked = typed({**laxly_read(value), **{name: [] for name in arrays}}, RouteRequest)
    asked.comparable = asked.comparable and is_comparable(value)
    for name, held in arrays.items():
        if name in ("prompt", "token_ids"):
            # Checked already, and long.
            setattr(asked, name, held)
        elif name in asked.__struct_fields__:
            value[name] = held.tolist()
            return _typed(value)
    reject_nul_names(asked)
    return asked


def laxly_read(value: dict[str, Any]) -> dict[str, Any]:
    """Return a request's fields, with loose JSON values (`"16"`, 16.0, 1 for true) converted as engines do."""
    read = {name: number for name, kind in _LAX.items() if (number := kind(value.get(name))) is not None}
    return {**value, **read}


def reject_nul_names(asked: RouteRequest) -> None:
    """Raise BadBodyError if the model's or session's name contains a NUL."""
    reject_nul_name(asked.model, "model")
    for name in ("session_id", "agent", "workflow_id"):
        reject_nul_name(getattr(asked, name), name)


def prompt_of(asked: RouteRequest) -> Prompt:
    """Return the request's prompt; raise BadBodyError unless there is exactly one."""
    if isinstance(asked, EndpointRequest):
        return asked.read_prompt
    forms = (
        (asked.messages is not None)
        + (asked.prompt is not None or asked.prompt_embeds is not None)
        + (asked.token_ids is not None)
        + (asked.block_hashes is not None)
    )
    if forms != 1:
        raise BadBodyError("bad_field", "Send exactly one of messages, prompt, token_ids and block_hashes.")
    if asked.block_hashes is not None:
        return HashedPrompt(asked.block_hashes, asked.prompt_tokens)
    if asked.token_ids is not None:
        truncated = asked.truncate_prompt_tokens is not None
        return TokenPrompt(asked.token_ids, keeps=kept_tokens(msgspec.structs.asdict(asked)) if truncated else None)
    body = {name: value for name, value in msgspec.structs.asdict(asked).items() if value is not None}
    return completion_of(body) if asked.messages is None else chat_prompt(body)


async def read_batch(body: bytes) -> list[RouteRequest]:
    """Return the requests of a batch (a list, or an object with `requests`); raise BadBodyError."""
    value = await decode_value_in_turns(body)
    entries = value.get("requests") if isinstance(value, dict) else value
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_BATCH:
        raise BadBodyError("bad_field", f"Send a list of 1 to {MAX_BATCH} requests.", param="requests")
    return [_typed(entry) for entry in entries]


class EngineAddress(msgspec.Struct, frozen=True, gc=False):
    """The address of an engine. If `rank` is set, requests need the header X-data-parallel-rank."""

    id: str
    name: str
    url: str
    rank: int | msgspec.UnsetType = msgspec.UNSET


class RouteLeg(msgspec.Struct, frozen=True, gc=False):
    """One leg. Merge `body` into the request body; a null removes the field."""

    engine: EngineAddress
    incarnation: int
    body: dict[str, Any]


class RoutePair(msgspec.Struct, frozen=True, gc=False):
    """Both legs in the order in which they are sent, with times in seconds.

    The prefill leg's answer has the field named by `carry`; merge its members into that field of the decode leg's body,
    which keeps its own. `POST …/{id}/handed_over` then frees the prefill engine. first_token, complete and fail concern
    the decode leg, and fail ends both.
    """

    pairing_id: str
    prefill: RouteLeg
    decode: RouteLeg
    carry: str
    reason: str | msgspec.UnsetType
    tpot_s: float | msgspec.UnsetType
    candidates: tuple[DecodeCandidate, ...]


def route_pair(
    pair: EnginePair,
    prefill: LiveEngine,
    incarnation: int,
    decode: LiveEngine,
    body: dict[str, Any],
    order: LoadInstruction | None,
) -> RoutePair:
    """Return the pair with body fragments for both legs; `body` holds the fields that both legs get.

    `order` is for the prefill engine. The decode engine loads nothing, because the KV comes from its partner.
    """
    first, second = {**body, **PREFILL_FRAGMENT}, body
    if order is not None:
        first |= instructed(order, ASK)
        second = {**body, **instructed(msgspec.structs.replace(order, load_blocks=0, holders=[]))}
    return RoutePair(
        pair.pairing_id,
        RouteLeg(address_of(prefill), incarnation, first),
        RouteLeg(address_of(decode), pair.incarnation, second),
        TRANSFER,
        pair.reason,
        pair.tpot_s,
        pair.candidates,
    )


def address_of(engine: LiveEngine) -> EngineAddress:
    """Return the address of an engine."""
    entry = engine.entry
    rank = msgspec.UNSET if entry.rank is None else entry.rank
    return EngineAddress(entry.engine_id, entry.name, entry.url, rank)
