"""Copy the engine's paged KV caches block by block into payloads and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from kvstore.connector.payload_layout import LayerLayout, payload_layout


class PagedMemory:
    """KV caches as registered by the engine, one tensor per layer. Blocks are views into them."""

    def __init__(self, kv_caches: Mapping[str, torch.Tensor], blocks: int, kernel: str) -> None:
        """Create the views of `blocks`, the number of blocks in the engine's scheduler.

        A kernel's own blocks can be smaller.

        Raises ValueError if a cache has another shape.
        """
        # Sorted, because payloads of all engines have one order, whatever order an engine registers its layers in.
        self._caches = {name: _by_block(name, kv_caches[name], blocks) for name in sorted(kv_caches)}
        self.layout = payload_layout([_layer(name, cache) for name, cache in self._caches.items()], kernel)
        self.payload_bytes = self.layout.payload_bytes

    def gather(self, block_ids: Sequence[int]) -> memoryview:
        """Return copies of the blocks' payloads in host memory, concatenated."""
        with torch.inference_mode():
            return self._gathered(block_ids)

    def scatter(self, block_ids: Sequence[int], payloads: memoryview) -> None:
        """Write payloads into blocks. Returns when the copies are complete."""
        # The engine's caches are inference-mode tensors, and that mode is set per thread.
        with torch.inference_mode():
            self._scattered(block_ids, payloads)

    def _gathered(self, block_ids: Sequence[int]) -> memoryview:
        payloads = torch.empty((len(block_ids), self.payload_bytes), dtype=torch.uint8)
        ids = torch.tensor(block_ids, dtype=torch.long)
        for layer, offset in zip(self.layout.layers, self.layout.offsets, strict=True):
            cache = self._caches[layer.name]
            came = cache.index_select(0, ids.to(cache.device)).reshape(len(block_ids), -1)
            payloads[:, offset : offset + layer.block_bytes] = came.view(torch.uint8).cpu()
        return memoryview(payloads.reshape(-1).numpy())

    def _scattered(self, block_ids: Sequence[int], payloads: memoryview) -> None:
        rows = torch.frombuffer(payloads, dtype=torch.uint8).reshape(len(block_ids), self.payload_bytes)
        ids = torch.tensor(block_ids, dtype=torch.long)
        for layer, offset in zip(self.layout.layers, self.layout.offsets, strict=True):
            cache = self._caches[layer.name]
            # A wider dtype needs aligned offsets and strides, which a slice of the rows need not have.
            part = rows[:, offset : offset + layer.block_bytes].contiguous().view(cache.dtype)
            cache.index_copy_(0, ids.to(cache.device), part.reshape(-1, *layer.shape).to(cache.device))
        for device in {cache.device for cache in self._caches.values()}:
            # Copies to a device run on after the call, and the engine may compute from these blocks at once.
            if device.type != "cpu":
                torch.accelerator.synchronize(device)


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
