"""An engine that stores its blocks on a node manager and loads the ordered ones, as a KV connector does."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress
from typing import Any

from aiohttp import web
from typing_extensions import override

from kvstore.connector.engine_params import FIELD, KvOutcome, LoadInstruction, order_in
from kvstore.tiers.block_facts import BlockFacts, checksum_of
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import Done
from kvstore.transfer.transfer_client import TransferClient, Wanted
from tests.gateway.scripted_engine import ScriptedEngine
from tests.kvstore.kv_blocks import KEYRING

BLOCK_BYTES = 1024
PARAMS = "kv_transfer_params"


def payload_key(routing_key: int) -> bytes:
    """Return the payload's name; these engines have one hash per routing key."""
    return hashlib.sha256(routing_key.to_bytes(8, "big")).digest()


def block_of(routing_key: int, tenant: str = "") -> tuple[BlockFacts, memoryview]:
    """Return facts and bytes of a block."""
    key = payload_key(routing_key)
    data = memoryview((key * (BLOCK_BYTES // len(key)))[:BLOCK_BYTES])
    return BlockFacts(key, BLOCK_BYTES, key, b"", 16, tenant, checksum_of(data), routing_key), data


class LoadingEngine(ScriptedEngine):
    """Keep no block between two requests, so that each request loads what it can."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node
        """Address of its own node manager."""
        self.orders: list[LoadInstruction] = []
        self.outcomes: list[KvOutcome] = []
        self.silent = False
        """Whether it keeps what came of an order to itself."""
        self.reports_cached = True
        self.free = asyncio.Event()
        """Whether it begins with what it is sent."""
        self.free.set()
        self._client = TransferClient(KEYRING, time.monotonic)

    def close(self) -> None:
        """Close the connections to nodes."""
        self._client.close()

    @override
    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        order = order_in(body.get(PARAMS))
        if order is None:
            return await super()._answer(request, body)
        self.orders.append(order)
        await self.free.wait()
        outcome = await asyncio.to_thread(self._loaded, order)
        self.outcomes.append(outcome)
        if order.prefetch_rank is None:
            await asyncio.to_thread(self._kept, order)
        said = {} if self.silent or order.quiet else {PARAMS: {FIELD: _fields(outcome)}}
        if body[PARAMS].get("do_remote_decode") and self.hands_over:
            said = {PARAMS: {**said.get(PARAMS, {}), "remote_url": self.url}}
        self.cached_tokens = 16 * outcome.loaded_blocks if self.reports_cached else None
        if not body.get("stream"):
            answer = {"id": "x", "choices": [{"index": 0, "message": {"content": "Hello"}}], "usage": self._usage()}
            return web.json_response({**answer, **said})
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await self._event(response, {"id": "x", "choices": [{"index": 0, "delta": {"content": "Hello"}}]})
        await self._event(response, {"id": "x", "choices": [], "usage": self._usage(), **said})
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    @override
    def _usage(self) -> dict[str, Any]:
        return {**super()._usage(), "prompt_tokens": 10_000}

    def _loaded(self, order: LoadInstruction) -> KvOutcome:
        if not order.load_blocks:
            return KvOutcome()
        keys = order.routing_keys()[: order.load_blocks]
        began = time.monotonic()
        holders = order.holders if order.prefetch_rank is None else [self.node]
        payloads = self._client.get(holders, [Wanted(payload_key(key)) for key in keys]).blocks
        blocks = next((number for number, block in enumerate(payloads) if block is None), len(payloads))
        for key, block in zip(keys, payloads[:blocks], strict=False):
            assert block is not None
            assert block.payload == block_of(key)[1], "a wrong block was loaded"
        seconds = time.monotonic() - began
        reason = "" if blocks == len(keys) else "missing" if blocks else "failed"
        return KvOutcome(
            loaded_blocks=blocks,
            loaded_bytes=blocks * BLOCK_BYTES,
            seconds=seconds,
            holder=holders[0] if blocks else "",
            reason=reason,
        )

    def _kept(self, order: LoadInstruction) -> None:
        blocks = [block_of(key, order.tenant) for key in order.routing_keys()]
        if blocks and self.node and order.hint != "ephemeral":
            with suppress(PeerError):
                assert isinstance(self._client.put(self.node, blocks, order.hint), Done)


def _fields(outcome: KvOutcome) -> dict[str, Any]:
    return {name: getattr(outcome, name) for name in outcome.__struct_fields__}
