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
LAYER_ENDS = (250, 500, 750, 1000)
TOKENS = 16
FORMAT = PayloadFormat(
    model="tiny", weight_revision="1", kv_dtype="bfloat16", kv_layout="layers 1", block_tokens=TOKENS
)


class Memory:
    """The KV caches of an engine: `blocks` of `PAYLOAD` bytes in four layers. With `fails`, it accepts nothing.

    `events` has each copy of layers, and what tests add to it.
    """

    def __init__(self, blocks: int = 16) -> None:
        self.payload_bytes, self.layer_ends = PAYLOAD, LAYER_ENDS
        self.events: list[str] = []
        self.data = bytearray(blocks * PAYLOAD)
        self.fails = False

    def layers_of(self, name: str) -> range:
        return range(int(name), int(name) + 1) if name.isdigit() else range(4, 4)

    def buffer(self, blocks: int) -> memoryview:
        return memoryview(bytearray(blocks * PAYLOAD))

    def mark(self) -> None:
        return None

    def gather(self, block_ids: Sequence[int], payloads: memoryview, layers: Sequence[int], mark: None) -> None:
        for index, block_id in enumerate(block_ids):
            part = _part(index, layers)
            payloads[part] = self.data[_part(block_id, layers)]
        self.events.append(f"saved {layers[0]}:{layers[-1] + 1}")

    def scatter(self, block_ids: Sequence[int], payloads: memoryview, layers: Sequence[int], mark: None) -> None:
        if self.fails:
            raise RuntimeError("the device is gone")
        for index, block_id in enumerate(block_ids):
            self.data[_part(block_id, layers)] = payloads[_part(index, layers)]
        self.events.append(f"loaded {layers[0]}:{layers[-1] + 1}")

    def block(self, block_id: int) -> bytes:
        return bytes(self.data[block_id * PAYLOAD : (block_id + 1) * PAYLOAD])

    def fill(self, block_id: int, name: object) -> None:
        data = hashlib.shake_256(str(name).encode()).digest(PAYLOAD)
        self.data[block_id * PAYLOAD : (block_id + 1) * PAYLOAD] = data


def _part(block: int, layers: Sequence[int]) -> slice:
    """Return where these contiguous layers of a block are in memory or payloads."""
    begin = LAYER_ENDS[layers[0] - 1] if layers[0] else 0
    return slice(block * PAYLOAD + begin, block * PAYLOAD + LAYER_ENDS[layers[-1]])


@dataclass
class Request:
    """The fields of vLLM's request that the scheduler side reads."""

    request_id: str
    num_prompt_tokens: int
    kv_transfer_params: dict[str, Any] | None = None
    cache_salt: str | None = None
    outputs: int = 0
    num_computed_tokens: int = 0
    block_hashes: list[bytes] = field(default_factory=list)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.outputs

    @property
    def all_token_ids(self) -> list[int]:
        return list(range(self.num_tokens))


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
