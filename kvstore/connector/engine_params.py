"""Messages between the gateway and an engine's KV connector about one request.

Both are sent as `kv_transfer_params["headway"]`, in the request's body and in the engine's response. vLLM passes the
former to its connectors and returns their reply when a request has ended, so no other channel is needed.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from kvstore.transfer.frames import CacheHint

FIELD = "headway"
"""Key in `kv_transfer_params`."""
MAX_BLOCKS = 1 << 17
MAX_HOLDERS = 8
MAX_RANK = 1000
_KEY_BYTES = 8

_Count = Annotated[int, Meta(ge=0, le=MAX_BLOCKS)]
# Base64 takes 4 characters for 3 bytes, and up to 4 more for the rest and its padding.
_Keys = Annotated[str, Meta(max_length=MAX_BLOCKS * _KEY_BYTES * 4 // 3 + 4)]


class LoadInstruction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks that one request can load, and their storage keys."""

    keys: _Keys = ""
    """Routing keys of the prompt's full blocks, in order (`packed_keys`). Empty: nodes store the blocks without
    them.
    """
    load_blocks: _Count = 0
    """Number of leading blocks of the prompt that the holders have. 0: load no block."""
    holders: Annotated[list[str], Meta(max_length=MAX_HOLDERS)] = []
    """Addresses (host:port) of node managers, nearest first."""
    tenant: Annotated[str, Meta(max_length=64)] = ""
    """Tenant whose quota includes the stored blocks."""
    hint: CacheHint = "default"
    """Of the prompt's blocks from `hint_from` to `hint_to`. All other blocks have the hint default."""
    hint_from: _Count = 0
    hint_to: _Count = 0
    """0: the end of the prompt."""
    pin_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """How long a context cache is pinned, in seconds."""
    quiet: bool = False
    """Whether the response reports no outcome, because a client reads it."""
    prefetch_rank: Annotated[int, Meta(ge=0, le=MAX_RANK)] | None = None
    """Set: the request carries a prefetch. The engine loads the first `load_blocks` blocks of `keys` from its own node
    into free memory, which it can drop. A lower rank goes first. The request's own prompt has no part in it.
    """

    def hint_at(self, block: int, prompt_blocks: int) -> CacheHint:
        """Return a block's hint. No block after an ephemeral one is stored, because it could not be loaded."""
        ends = self.hint != "ephemeral" and block >= (self.hint_to or prompt_blocks)
        return "default" if block < self.hint_from or ends else self.hint

    def routing_keys(self) -> tuple[int, ...]:
        """Return the keys. Raises ValueError if `keys` is malformed."""
        # Without `validate`, other characters would be skipped, and all keys behind them shifted.
        data = base64.b64decode(self.keys, validate=True)
        if len(data) % _KEY_BYTES:
            raise ValueError(f"{len(data)} bytes are not keys of {_KEY_BYTES} bytes each")
        return struct.unpack(f">{len(data) // _KEY_BYTES}Q", data)


class KvOutcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Outcome of an order. The engine computed all blocks that were not loaded."""

    loaded_blocks: _Count = 0
    """Number of leading blocks loaded, without blocks that the engine already held."""
    loaded_bytes: Annotated[int, Meta(ge=0)] = 0
    seconds: Annotated[float, Meta(ge=0)] = 0.0
    """Time from the first call to the last byte."""
    holder: str = ""
    """Node that sent the bytes."""
    reason: str = ""
    """Why fewer blocks than ordered were loaded: missing, failed, or late. Empty if all were loaded."""


Said = TypeVar("Said", LoadInstruction, KvOutcome)
_order, _outcome = msgspec.json.Decoder(LoadInstruction), msgspec.json.Decoder(KvOutcome)


def packed_keys(keys: Sequence[int]) -> str:
    """Return 64-bit keys in the form of `LoadInstruction.keys`."""
    return base64.b64encode(struct.pack(f">{len(keys)}Q", *keys)).decode()


def order_in(params: Any) -> LoadInstruction | None:
    """Return the order in a request's `kv_transfer_params`, or None. Raises ValueError if it is invalid."""
    return _decoded(params, _order)


def outcome_in(params: Any) -> KvOutcome | None:
    """Return the outcome in a response's `kv_transfer_params`, or None. Raises ValueError if it is invalid."""
    return _decoded(params, _outcome)


def _decoded(params: Any, decoder: msgspec.json.Decoder[Said]) -> Said | None:
    said = params.get(FIELD) if isinstance(params, dict) else None
    if said is None:
        return None
    try:
        # By way of JSON: a converter would inspect the struct at its first use, in an arbitrary thread.
        return decoder.decode(msgspec.json.encode(said))
    except msgspec.ValidationError as error:
        raise ValueError(f"kv_transfer_params.{FIELD}: {error}") from error
