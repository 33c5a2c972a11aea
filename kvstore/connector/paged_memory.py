"""Copy the engine's paged KV caches block by block into payloads and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from kvstore.connector.payload_layout import LayerLayout, layer_order, payload_layout


class PagedMemory:
    """KV caches as registered by the engine, one tensor per layer. Blocks are views into them."""

    def __init__(self, kv_caches: Mapping[str, torch.Tensor], blocks: int, kernel: str) -> None:
        """Create the views of `blocks`, the number of blocks in the engine's scheduler.

        A kernel's own blocks can be smaller.

        Raises ValueError if a cache has another shape.
        """
        # Sorted, because payloads of all engines have one order, whatever order an engine registers its layers in.
        names = sorted(kv_caches, key=layer_order)
        self._caches = {name: _by_block(name, kv_caches[name], blocks) for name in names}
        self.layout = payload_layout([_layer(name, cache) for name, cache in self._caches.items()], kernel)
        self.payload_bytes = self.layout.payload_bytes
        self.layer_ends: Sequence[int] = self.layout.ends
        # A layer can have several caches, which differ behind its number; all are of use to it.
        numbers = [layer_order(name)[:2] for name in names]
        self._layers = {
            name: range(numbers.index(number), len(names) - numbers[::-1].index(number))
            for name, number in zip(names, numbers, strict=True)
        }
        self._device = next(iter(self._caches.values())).device

    def layers_of(self, name: str) -> range:
        """Return the numbers of a layer's caches, or the end of all if it has none of its own."""
        return self._layers.get(name, range(len(self._caches), len(self._caches)))

    def buffer(self, blocks: int) -> memoryview:
        """Return host memory for the payloads of this many blocks."""
        return memoryview(torch.empty(blocks * self.payload_bytes, dtype=torch.uint8).numpy())

    def mark(self) -> Any:
        """Return the current point in the engine's work, None on a CPU, which computes within each call."""
        return None if self._device.type == "cpu" else torch.accelerator.current_stream(self._device).record_event()

    def gather(self, block_ids: Sequence[int], payloads: memoryview, layers: Sequence[int], mark: Any) -> None:
        """Copy layers of blocks into their payloads, as computed at the mark. Returns when the copies are complete."""
        # The engine's caches are inference-mode tensors, and that mode is set per thread.
        with torch.inference_mode():
            self._use_own_stream(mark)
            rows = torch.frombuffer(payloads, dtype=torch.uint8).reshape(len(block_ids), self.payload_bytes)
            ids = torch.tensor(block_ids, dtype=torch.long, device=self._device)
            for layer, offset in self._placed(layers):
                came = self._caches[layer.name].index_select(0, ids).reshape(len(block_ids), -1)
                rows[:, offset : offset + layer.block_bytes] = came.view(torch.uint8).cpu()

    def scatter(self, block_ids: Sequence[int], payloads: memoryview, layers: Sequence[int], mark: Any) -> None:
        """Write layers of payloads into blocks, after the mark. Returns when the copies are complete."""
        with torch.inference_mode():
            self._use_own_stream(mark)
            rows = torch.frombuffer(payloads, dtype=torch.uint8).reshape(len(block_ids), self.payload_bytes)
            ids = torch.tensor(block_ids, dtype=torch.long, device=self._device)
            for layer, offset in self._placed(layers):
                cache = self._caches[layer.name]
                # A wider dtype needs aligned offsets and strides, which a slice of the rows need not have.
                part = rows[:, offset : offset + layer.block_bytes].contiguous().view(cache.dtype)
                cache.index_copy_(0, ids, part.reshape(-1, *layer.shape).to(self._device))
            # Copies to a device run on after the call, and the engine may compute from these blocks at once.
            if self._device.type != "cpu":
                torch.accelerator.current_stream(self._device).synchronize()

    def _use_own_stream(self, mark: Any) -> None:
        """Run this thread's copies beside the engine's work, after its mark."""
        if mark is not None:
            # Torch has a pool of them, and a thread's stream is its own setting.
            stream = torch.Stream(self._device)
            torch.accelerator.set_stream(stream)
            stream.wait_event(mark)

    def _placed(self, layers: Sequence[int]) -> list[tuple[LayerLayout, int]]:
        return [(self.layout.layers[index], self.layout.offsets[index]) for index in layers]


def _by_block(name: str, cache: torch.Tensor, blocks: int) -> torch.Tensor:
    """Return a view whose first dimension is the scheduler's block number."""
    # Some backends have keys and values in dimension 0, and count blocks in dimension 1.
    for dimension in (0, 1):
        if cache.dim() > 2 and cache.shape[dimension] and cache.shape[dimension] % blocks == 0:
            view = cache.movedim(dimension, 0)
            return view if view.shape[0] == blocks else view.unflatten(0, (blocks, view.shape[0] // blocks))
    raise ValueError(f"the KV cache of {name} has the shape {tuple(cache.shape)}, not {blocks} blocks")


def _layer(name: str, cache: torch.Tensor) -> LayerLayout:
    block = cache[0]
    # Not the strides themselves: where keys and values are apart, they depend on how many blocks an engine has.
    order = sorted(range(block.dim()), key=lambda dimension: (-block.stride(dimension), dimension))
    return LayerLayout(name, str(cache.dtype), tuple(block.shape), tuple(order), block.numel() * block.element_size())
