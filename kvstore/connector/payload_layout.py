"""Layout of a block in an engine's KV caches and as one payload: layer by layer, in the engine's format."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec


class LayerLayout(msgspec.Struct, frozen=True, gc=False):
    """One layer's part of a block."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    """Shape of one block, without the dimension that counts blocks."""
    order: tuple[int, ...]
    """Dimensions in memory order, largest stride first, which distinguishes NHD from HND."""
    block_bytes: int


class PayloadLayout(NamedTuple):
    """Position of each layer in a payload."""

    layers: tuple[LayerLayout, ...]
    offsets: tuple[int, ...]
    payload_bytes: int
    ends: tuple[int, ...]
    """End of each layer in a payload."""
    name: str
    """Distinguishes layouts whose bytes must not be exchanged."""


def layer_order(name: str) -> list[str | int]:
    """Return the sort key of layers by the numbers in their names, the order in which engines compute them."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def payload_layout(layers: Sequence[LayerLayout], kernel: str) -> PayloadLayout:
    """Return the layout of payloads of these layers.

    `kernel` names everything else that determines the bytes, such as attention backend, instruction set, and engine
    version.
    """
    if not layers or any(layer.block_bytes < 1 for layer in layers):
        raise ValueError("the engine has no KV caches in blocks")
    offsets, end = [], 0
    for layer in layers:
        offsets.append(end)
        end += layer.block_bytes
    described = msgspec.json.encode([kernel, [(layer.name, layer.dtype, layer.shape, layer.order) for layer in layers]])
    name = f"layers 1 {hashlib.sha256(described).hexdigest()}"
    return PayloadLayout(tuple(layers), tuple(offsets), end, (*offsets[1:], end), name)
