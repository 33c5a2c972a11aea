"""A decoder-only transformer with random weights for timing. Creating one imports PyTorch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The sizes of a dense Llama-like model."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    head_size: int = 128

    def __post_init__(self) -> None:
        """Reject inconsistent sizes."""
        if self.heads % self.kv_heads or min(self.layers, self.hidden, self.kv_heads, self.ffn, self.vocabulary) < 1:
            raise ValueError("heads must be a multiple of kv_heads and every size at least 1")

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of one token's keys and values in all layers, at 16 bits per value."""
        return 2 * self.layers * self.kv_heads * self.head_size * 2

    @property
    def weights(self) -> int:
        """Number of weights."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.ffn) + 2 * self.vocabulary * self.hidden

    @property
    def summary(self) -> str:
        """The shape in words."""
        return (
            f"{self.weights / 1e9:.2g} billion, {self.layers} layers of {self.hidden}, "
            f"{self.heads} heads over {self.kv_heads} of {self.head_size}, {self.ffn} wide inside"
        )


SHAPES = {
    "tiny": ModelShape(layers=2, hidden=256, heads=4, kv_heads=2, ffn=512, vocabulary=1000, head_size=64),
    "1b": ModelShape(layers=16, hidden=2048, heads=32, kv_heads=8, ffn=8192, vocabulary=128_256, head_size=64),
    "7b": ModelShape(layers=28, hidden=3584, heads=28, kv_heads=4, ffn=18_944, vocabulary=152_064),
    "8b": ModelShape(layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14_336, vocabulary=128_256),
    "14b": ModelShape(layers=48, hidden=5120, heads=40, kv_heads=8, ffn=13_824, vocabulary=152_064),
}
"""Shapes that are often served: Llama 3's 1B and 8B, Qwen 2.5's 7B and 14B."""


class TimedModel:
    """The model on one device.

    `torch` and `functional` are the modules, so that importing this file requires neither.
    """

    def __init__(self, shape: ModelShape, device: str, dtype: str) -> None:
        import torch

        self.torch: Any = torch
        self.functional: Any = torch.nn.functional
        self.shape = shape
        self.device = torch.device(device)
        if self.device.type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no CUDA device; use --device cpu to try the program")
        self.dtype = getattr(torch, dtype)
        torch.manual_seed(0)
        self._layers = [self._layer() for _ in range(shape.layers)]
        self._embedding = self._weight(shape.vocabulary, shape.hidden)
        self._head = self._weight(shape.vocabulary, shape.hidden)
        self._norm = torch.ones(shape.hidden, device=self.device, dtype=self.dtype)
        self._graphs = True

    @property
    def description(self) -> str:
        """Device, number format and version, for a profile's source."""
        torch = self.torch
        cuda = self.device.type == "cuda"
        name = torch.cuda.get_device_name(self.device) if cuda else f"CPU with {torch.get_num_threads()} threads"
        graphs = ", decode from CUDA graphs" if cuda and self._graphs else ""
        return f"{name}, {str(self.dtype).rpartition('.')[2]}, PyTorch {torch.__version__}{graphs}"

    def fits(self, batch: int, tokens: int) -> bool:
        """Return whether the KV of this many sequences leaves a quarter of the free memory unused."""
        if self.device.type != "cuda":
            return True
        self.torch.cuda.empty_cache()
        free, _total = self.torch.cuda.mem_get_info(self.device)
        # A prefill repeats the keys and values of one layer per head; activations are small by comparison.
        return bool(batch * tokens * self.shape.kv_bytes_per_token < 0.75 * free)

    def prefill_times(self, cached: int, computed: int, repeats: int) -> list[float]:
        """Return the seconds of prefills of `computed` tokens after `cached` ones."""
        torch = self.torch
        cache = self._cache(1, cached + computed)
        tokens = torch.randint(self.shape.vocabulary, (1, computed), device=self.device)
        rotation = self._rotation(cached, computed)
        mask = self._causal(computed, cached + computed)
        return self._times(lambda: self._forward(tokens, cache, cached, rotation, mask), repeats)

    def step_times(self, batch: int, context: int, repeats: int) -> list[float]:
        """Return the seconds of decode steps of `batch` sequences that attend to `context` tokens each."""
        torch = self.torch
        cache = self._cache(batch, context + 1)
        tokens = torch.randint(self.shape.vocabulary, (batch, 1), device=self.device)
        rotation = self._rotation(context, 1)

        def step() -> Any:
            return self._forward(tokens, cache, context, rotation, None)

        return self._times(self._captured(step), repeats)

    def _weight(self, rows: int, columns: int) -> Any:
        torch = self.torch
        return torch.randn(rows, columns, device=self.device, dtype=self.dtype) * columns**-0.5

    def _layer(self) -> dict[str, Any]:
        shape, torch = self.shape, self.torch
        ones = torch.ones(shape.hidden, device=self.device, dtype=self.dtype)
        return {
            "norm": ones,
            "qkv": self._weight((shape.heads + 2 * shape.kv_heads) * shape.head_size, shape.hidden),
            "out": self._weight(shape.hidden, shape.heads * shape.head_size),
            "inner_norm": ones.clone(),
            "gate_up": self._weight(2 * shape.ffn, shape.hidden),
            "down": self._weight(shape.hidden, shape.ffn),
        }

    def _cache(self, batch: int, tokens: int) -> Any:
        shape = self.shape
        size = (shape.layers, 2, batch, shape.kv_heads, tokens, shape.head_size)
        return self.torch.randn(size, device=self.device, dtype=self.dtype)

    def _rotation(self, first: int, count: int) -> tuple[Any, Any]:
        torch = self.torch
        half = self.shape.head_size // 2
        speeds = 10_000.0 ** (-torch.arange(half, device=self.device, dtype=torch.float32) / half)
        positions = torch.arange(first, first + count, device=self.device, dtype=torch.float32)
        angles = torch.outer(positions, speeds)
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)

    def _causal(self, computed: int, total: int) -> Any:
        """Return the causal mask: each computed token attends to all positions up to itself."""
        # PyTorch has a faster kernel for a square causal mask than for any given one.
        if computed == total:
            return "causal"
        if self.device.type == "cuda":
            from torch.nn.attention.bias import causal_lower_right

            return causal_lower_right(computed, total)
        seen = self.torch.ones(computed, total, device=self.device, dtype=self.torch.bool)
        return seen.tril(total - computed)

    def _forward(self, tokens: Any, cache: Any, cached: int, rotation: tuple[Any, Any], mask: Any) -> Any:
        functional = self.functional
        states = functional.embedding(tokens, self._embedding)
        for number, layer in enumerate(self._layers):
            attended = self._attend(self._normed(states, layer["norm"]), layer, cache[number], cached, rotation, mask)
            states = states + functional.linear(attended, layer["out"])
            inner = functional.linear(self._normed(states, layer["inner_norm"]), layer["gate_up"])
            gate, up = inner.chunk(2, dim=-1)
            states = states + functional.linear(functional.silu(gate) * up, layer["down"])
        last = self._normed(states[:, -1], self._norm)
        return functional.linear(last, self._head).argmax(dim=-1)

    def _attend(
        self, states: Any, layer: dict[str, Any], cache: Any, cached: int, rotation: tuple[Any, Any], mask: Any
    ) -> Any:
        shape, functional = self.shape, self.functional
        batch, count, _ = states.shape
        merged = functional.linear(states, layer["qkv"])
        sizes = [shape.heads * shape.head_size, shape.kv_heads * shape.head_size, shape.kv_heads * shape.head_size]
        query, key, value = (
            part.view(batch, count, -1, shape.head_size).transpose(1, 2) for part in merged.split(sizes, dim=-1)
        )
        cache[0][:, :, cached : cached + count] = self._rotated(key, rotation)
        cache[1][:, :, cached : cached + count] = value
        query = self._rotated(query, rotation)
        keys, values = cache[0][:, :, : cached + count], cache[1][:, :, : cached + count]
        groups = shape.heads // shape.kv_heads
        if count == 1:
            # The heads of a group share their keys: as rows of one query, they read them once.
            grouped = query.reshape(batch, shape.kv_heads, groups, shape.head_size)
            mixed = functional.scaled_dot_product_attention(grouped, keys, values)
        else:
            keys, values = (part.repeat_interleave(groups, dim=1) for part in (keys, values))
            if isinstance(mask, str):
                mixed = functional.scaled_dot_product_attention(query, keys, values, is_causal=True)
            else:
                mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return mixed.reshape(batch, shape.heads, count, shape.head_size).transpose(1, 2).reshape(batch, count, -1)

    def _normed(self, states: Any, weight: Any) -> Any:
        return self.functional.rms_norm(states, (states.shape[-1],), weight, 1e-5)

    def _rotated(self, states: Any, rotation: tuple[Any, Any]) -> Any:
        cos, sin = rotation
        first, second = states.chunk(2, dim=-1)
        return self.torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def _captured(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """Return the step as a replay of a CUDA graph, or the step itself if the device has no graphs."""
        if self.device.type != "cuda" or not self._graphs:
            return step
        torch = self.torch
        # Warm-up on a side stream, as PyTorch requires before a capture.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.inference_mode(), torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.inference_mode(), torch.cuda.graph(graph):
            step()
        replay: Callable[[], Any] = graph.replay
        return replay

    def _times(self, work: Callable[[], Any], repeats: int) -> list[float]:
        torch = self.torch
        with torch.inference_mode():
            for _ in range(2):
                work()
            if self.device.type != "cuda":
                return [_clocked(work) for _ in range(repeats)]
            torch.cuda.synchronize()
            times = []
            for _ in range(repeats):
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                work()
                end.record()
                torch.cuda.synchronize()
                times.append(start.elapsed_time(end) / 1e3)
            return times


def _clocked(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
