"""The `kv_transfer_params` of vLLM's two-step hand-off, as its NIXL connector reads and writes them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from kvstore.connector.engine_params import LoadInstruction

_Name = Annotated[str, Meta(min_length=1, max_length=512)]


class KvTransferParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The requested or offered transfer of a request or response; fields of other connectors are ignored.

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
