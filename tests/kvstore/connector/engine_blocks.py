"""An engine's blocks, requests and settings for tests of the connector, without an engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kvstore.connector.connector_settings import ConnectorSettings
from kvstore.connector.engine_params import FIELD, LoadInstruction, packed_keys
from kvstore.connector.scheduler_side import SchedulerSide, StepProgress
from kvstore.keys.payload_key import PayloadFormat

PAYLOAD = 1000
TOKENS = 16
FORMAT = PayloadFormat(
    model="tiny", weight_revision="1", kv_dtype="bfloat16", kv_layout="layers 1", block_tokens=TOKENS
)


class Memory:
    """The KV caches of an engine: `blocks` of `PAYLOAD` bytes. With `fails`, it accepts nothing."""

    def __init__(self, blocks: int = 16) -> None:
        self.payload_bytes = PAYLOAD
        self.data = bytearray(blocks * PAYLOAD)
        self.fails = False

    def gather(self, block_ids: Sequence[int]) -> memoryview:
        return memoryview(b"".join(self.block(block_id_) for block_id_ in block_ids))

    def scatter(self, block_ids: Sequence[int], payloads: memoryview) -> None:
        if self.fails:
            raise RuntimeError("the device is gone")
        for index, block_id in enumerate(block_ids):
            self.data[block_id * PAYLOAD : (block_id + 1) * PAYLOAD] = payloads[index * PAYLOAD : (index + 1) * PAYLOAD]

    def block(self, block_id: int) -> bytes:
        return bytes(self.data[block_id * PAYLOAD : (block_id + 1) * PAYLOAD])

    def fill(self, block_id: int, name: object) -> None:
        data = hashlib.shake_256(str(name).encode()).digest(PAYLOAD)
        self.data[block_id * PAYLOAD : (block_id + 1) * PAYLOAD] = data


@dataclass
class Request:
    """The fields of vLLM's request that the scheduler side reads."""

    request_id: str
    num_prompt_tokens: int
    kv_transfer_params: dict[str, Any] | None = None
    cache_salt: str | None = None
    outputs: int = 0
    block_hashes: list[bytes] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.outputs


def chain(prompt: object, blocks: int) -> list[bytes]:
    """Return the engine's hashes of a prompt's blocks."""
    return [hashlib.sha256(f"{prompt} {number}".encode()).digest() for number in range(blocks)]


def request(name: str, blocks: int = 4, more_tokens: int = 5, prompt: object = "p", **order: Any) -> Request:
    """Return a request of `blocks` full blocks and a partial one, with an order if fields for it are given."""
    params = None
    if order:
        order = {"keys": packed_keys(range(1, blocks + 1)), "holders": ["127.0.0.1:1"], **order}
        params = {FIELD: msgspec.to_builtins(LoadInstruction(**order))}
    return Request(name, blocks * TOKENS + more_tokens, params, block_hashes=chain(prompt, blocks))


def settings(**changes: Any) -> ConnectorSettings:
    return ConnectorSettings(**{"node": "127.0.0.1:1", **changes})


def side(**changes: Any) -> SchedulerSide:
    made = SchedulerSide(settings(**changes), TOKENS)
    made.payload_bytes = PAYLOAD
    return made


def progress(name: str, tokens: int, blocks: Sequence[int], *, complete: bool = True) -> StepProgress:
    return StepProgress(name, tokens, blocks, complete)
