"""The bodies of handoffs: the fields that are merged into a request for each of its legs.

vLLM's has two steps. The prefill leg makes one token that the client never sees, and its answer's `kv_transfer_params`
go unchanged into the decode leg, which makes the whole answer. As measured with vLLM's NIXL connector (pull mode).
SGLang's two legs are sent at the same time. This follows its documentation; it was not tried against a real engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.formats.engine_usage import Usage
from kvstore.connector.engine_params import FIELD, LoadInstruction

TRANSFER = "kv_transfer_params"

ASK: dict[str, Any] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
"""Asks a prefill engine to keep the prompt's KV for another one."""

ONE_TOKEN: dict[str, Any] = {
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "min_tokens": 0,
    "n": 1,
    "stream": False,
    "stream_options": None,
}
"""Makes a chat or completion one whole answer of one token."""
PREFILL_FRAGMENT: dict[str, Any] = {**ONE_TOKEN, TRANSFER: ASK}
"""Merged into the body of a chat's or completion's prefill leg, in place of the client's fields."""


BOOTSTRAP = ("bootstrap_host", "bootstrap_port", "bootstrap_room")
"""Fields by which SGLang's engines find each other: both get the same, and the request at the same time."""


def bootstrap_legs(body: Mapping[str, msgspec.Raw], host: str, port: int, room: int) -> tuple[bytes, bytes]:
    """Return the bodies of prefill and decode leg. The prefill engine's answer is read completely and not relayed."""
    met = {**body, **dict(zip(BOOTSTRAP, (host, port, room), strict=True))}
    prefill = {name: value for name, value in met.items() if name not in ("stream", "stream_options")}
    return msgspec.json.encode(prefill), msgspec.json.encode(met)


class PrefillAnswer(msgspec.Struct, gc=False):
    """The relevant part of a prefill leg's answer; `kv_transfer_params` as the engine wrote them."""

    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")
    usage: Usage | None = None


_decode = msgspec.json.Decoder(PrefillAnswer).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def prefill_body(
    body: Mapping[str, msgspec.Raw], one_token: Mapping[str, Any], order: LoadInstruction | None = None
) -> bytes:
    """Return the body of the prefill leg for a client's body without the fields that are ours to set.

    `one_token` limits the answer to one token in the fields of its API; `order` is for the engine's own KV connector.
    """
    ask = ASK if order is None else {**ASK, FIELD: order}
    return msgspec.json.encode({**body, **one_token, TRANSFER: ask})


def decode_body(body: Mapping[str, msgspec.Raw], transfer: msgspec.Raw, order: LoadInstruction | None = None) -> bytes:
    """Return the body of the decode leg."""
    both = transfer if order is None else {**_fields(transfer), FIELD: order}
    return msgspec.json.encode({**body, TRANSFER: both})


def read_prefill_answer(body: bytes) -> PrefillAnswer | None:
    """Return the answer of a prefill leg; None where it hands nothing over."""
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return answer if bytes(answer.kv_transfer_params).strip()[:1] == b"{" else None
