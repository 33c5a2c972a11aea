"""Bodies of prefill/decode hand-offs: the fields that are merged into a request for each leg.

vLLM's hand-off has two steps. The prefill leg makes one token that the client never sees; its answer's
`kv_transfer_params` are copied unchanged into the decode leg, which makes the complete answer. This was measured with
vLLM's NIXL connector (pull mode). SGLang's two legs are sent at the same time. This follows its documentation and was
not tested against a real engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.requests.formats.engine_usage import Usage
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
"""Asks a prefill engine to keep the prompt's KV for another engine."""

ONE_TOKEN: dict[str, Any] = {
    "max_tokens": 1,
    "max_completion_tokens": 1,
    "min_tokens": 0,
    "n": 1,
    "stream": False,
    "stream_options": None,
}
"""Limits a chat or completion to one token in one unstreamed answer."""
PREFILL_FRAGMENT: dict[str, Any] = {**ONE_TOKEN, TRANSFER: ASK}
"""Merged into the body of the prefill leg of a chat or completion, replacing the client's fields."""


BOOTSTRAP = ("bootstrap_host", "bootstrap_port", "bootstrap_room")
"""Fields that connect SGLang's two engines. Both engines get the same values, and the request at the same time."""


def bootstrap_legs(body: Mapping[str, msgspec.Raw], host: str, port: int, room: int) -> tuple[bytes, bytes]:
    """Return (prefill body, decode body). The prefill engine's answer is read completely and not relayed."""
    met = {**body, **dict(zip(BOOTSTRAP, (host, port, room), strict=True))}
    prefill = {name: value for name, value in met.items() if name not in ("stream", "stream_options")}
    return msgspec.json.encode(prefill), msgspec.json.encode(met)


class PrefillAnswer(msgspec.Struct, gc=False):
    """The relevant part of a prefill leg's answer, with `kv_transfer_params` as the engine wrote them."""

    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")
    usage: Usage | None = None


_decode = msgspec.json.Decoder(PrefillAnswer).decode
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def prefill_body(
    body: Mapping[str, msgspec.Raw], one_token: Mapping[str, Any], order: LoadInstruction | None = None
) -> bytes:
    """Return the prefill leg's body for a client's body from which the gateway's own fields were removed.

    `one_token` limits the answer to one token in the fields of its API; `order` is for the engine's KV connector.
    """
    ask = ASK if order is None else {**ASK, FIELD: order}
    return msgspec.json.encode({**body, **one_token, TRANSFER: ask})


def decode_body(body: Mapping[str, msgspec.Raw], transfer: msgspec.Raw, order: LoadInstruction | None = None) -> bytes:
    """Return the body of the decode leg."""
    both = transfer if order is None else {**_fields(transfer), FIELD: order}
    return msgspec.json.encode({**body, TRANSFER: both})


def read_prefill_answer(body: bytes) -> PrefillAnswer | None:
    """Return the answer of a prefill leg, None if it contains no hand-off."""
    try:
        answer = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return answer if bytes(answer.kv_transfer_params).strip()[:1] == b"{" else None
