"""The performance figures of one simulated engine: durations of prefill and decode, and capacities."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import PrefillCostDocument
from routing.values.prepared_struct import prepared
from simulator.engine_cache.evictions import eviction_rule
from simulator.engine_cache.leaf_eviction import EvictionRule

PROFILES = Path(__file__).resolve().parent / "profiles"
"""Directory of the profiles that ship with the program."""


class UnreadableProfileError(ValueError):
    """The file is not an engine profile; the message names the invalid field."""


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Costs of prefill and decode, cache size, and batch size. The defaults are the reference model.

    The reference model is that of the scheduling study's §1: a 1,000,000-token cache of 512-token blocks, and one
    prefill at a time. A full 9,585-token prompt takes 0.87 s.
    """

    prefill_base_s: Annotated[float, Meta(ge=0)] = 0.010
    prefill_per_token_s: Annotated[float, Meta(ge=0)] = 0.08e-3
    prefill_per_token_squared_s: Annotated[float, Meta(ge=0)] = 2e-9
    prefill_per_hit_token_s: Annotated[float, Meta(ge=0)] = 2e-6
    step_base_s: Annotated[float, Meta(gt=0)] = 0.015
    step_per_sequence_s: Annotated[float, Meta(ge=0)] = 0.1e-3
    step_per_context_token_s: Annotated[float, Meta(ge=0)] = 30e-9
    block_tokens: Annotated[int, Meta(ge=1, le=65_536)] = 512
    num_blocks: Annotated[int, Meta(ge=1, le=10_000_000)] = 1953
    max_running: Annotated[int, Meta(ge=1, le=65_536)] = 256
    recompute_last_block: bool = False
    """Whether the last block of a fully cached prompt is computed again, as in vLLM."""
    device_tokens: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """Tokens of running requests that fit on the device, if fewer than the cache holds; 0 means the cache's size."""
    max_batched_tokens: Annotated[int, Meta(ge=1, le=10_000_000)] = 8192
    """Tokens per step with chunked prefill, and per chunk in a pipeline."""
    prefill_first: bool = False
    """Whether a step with prefills decodes nothing, and no two prefills compute one prefix at once, as in SGLang by
    default (only with chunked prefill).
    """
    reserve_tokens: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    """Memory kept free for the answer of each running request when another one starts (only with chunked prefill)."""
    pipeline_stages: Annotated[int, Meta(ge=1, le=1024)] = 1
    """Number of nodes in a `pipelined` engine, each with an equal part of the layers."""
    layers: Annotated[int, Meta(ge=1, le=10_000)] = 28
    # 28 layers × 2 (K and V) × 4 KV heads × 128 × 2 bytes.
    kv_bytes_per_token: Annotated[int, Meta(ge=1, le=1 << 40)] = 57_344
    """Bytes of one token's KV in all layers; the default is for a 7B model with 4 KV heads in 16 bits."""
    link_bytes_per_s: Annotated[float, Meta(gt=0)] = 12.5e9
    """Rate at which one engine sends to another, in bytes per second; the default is 100 Gbps."""
    link_latency_s: Annotated[float, Meta(ge=0)] = 0.0
    cpu_blocks: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    """Number of block copies in CPU memory (only for a co-located engine with one prefill at a time); 0 for none."""
    cpu_load_per_token_s: Annotated[float, Meta(ge=0)] = 6e-6
    """Seconds per token to load these copies; the default is the default model's KV at 10 GB/s."""
    eviction: Literal["lru", "rlt"] = "lru"
    """Eviction rule of the prefix cache: evict the least recently used leaf, or a random unmarked one (RLT §4.1)."""
    eviction_seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    """Seed of random evictions; each engine of a fleet gets another seed."""
    source: str = ""
    """Source of the figures: a section of a paper, or the data to which they were fitted."""

    @property
    def prefill_cost(self) -> PrefillCostDocument:
        """The prefill cost that is exact for these engines."""
        return PrefillCostDocument(
            base_s=self.prefill_base_s,
            per_token_s=self.prefill_per_token_s,
            per_token_squared_s=self.prefill_per_token_squared_s,
            per_hit_token_s=self.prefill_per_hit_token_s,
        )

    @property
    def decode_cost(self) -> DecodeCostDocument:
        """The decode cost that is exact for these engines."""
        return DecodeCostDocument(
            base_s=self.step_base_s,
            per_sequence_s=self.step_per_sequence_s,
            per_context_token_s=self.step_per_context_token_s,
        )

    @property
    def eviction_rule(self) -> EvictionRule:
        """The eviction rule of a new cache; its random choices restart from the seed."""
        return eviction_rule(self.eviction, random.Random(self.eviction_seed))

    def prefill_s(self, prompt_tokens: int, hit_tokens: int) -> float:
        """Return the seconds of one prefill; at least one token is computed."""
        uncached = max(1, prompt_tokens - hit_tokens)
        return (
            self.prefill_base_s
            + self.prefill_per_token_s * uncached
            # Each uncached token attends to all before it: summed over the last n of P tokens, n·(P − n/2).
            + self.prefill_per_token_squared_s * uncached * (prompt_tokens - uncached / 2)
            + self.prefill_per_hit_token_s * hit_tokens
        )

    def step_s(self, batch: int, context_tokens: int) -> float:
        """Return the seconds of one decode step of `batch` sequences that attend to `context_tokens` in total."""
        return self.step_base_s + self.step_per_sequence_s * batch + self.step_per_context_token_s * context_tokens

    def mixed_step_s(self, batch: int, context_tokens: int, chunks: Sequence[tuple[int, int]]) -> float:
        """Return the seconds of one step that decodes `batch` sequences and prefills `chunks` of (tokens, end).

        A chunk's `end` is its end position in the prompt. Weights are read once per step, so only the larger of the two
        base costs is paid. Except for base costs, the chunks of a prompt together cost as much as its whole prefill.
        """
        seconds = self.step_s(batch, context_tokens) - self.step_base_s if batch else 0.0
        for tokens, end in chunks:
            seconds += self.prefill_per_token_s * tokens
            seconds += self.prefill_per_token_squared_s * tokens * (end - tokens / 2)
        bases = (self.step_base_s if batch else 0.0, self.prefill_base_s if chunks else 0.0)
        return max(bases) + seconds

    def hit_tokens(self, prompt_tokens: int, held_blocks: int) -> int:
        """Return how many prompt tokens `held_blocks` cached leading blocks save."""
        if self.recompute_last_block:
            held_blocks = min(held_blocks, max(0, prompt_tokens - 1) // self.block_tokens)
        return min(held_blocks * self.block_tokens, prompt_tokens)


def read_profile(path: Path) -> EngineProfile:
    """Read a JSON object of EngineProfile's fields; raise UnreadableProfileError with all problems and their paths."""
    try:
        document = msgspec.json.decode(path.read_bytes())
    except OSError as error:
        raise UnreadableProfileError(f"cannot read engine profile {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableProfileError(f"{path} is no engine profile: {error}") from error
    faults = profile_faults(document)
    if faults:
        raise UnreadableProfileError(f"{path} is no engine profile: {'; '.join(faults)}")
    return msgspec.convert(document, prepared(EngineProfile))


def profile_faults(document: object) -> list[str]:
    """Return the problems of a decoded profile, one sentence with its path per problem."""
    if not isinstance(document, dict):
        return ["expected an object - at `$`"]
    known = {field.name: field.type for field in msgspec.structs.fields(EngineProfile)}
    faults = []
    # Field by field: a conversion of the whole stops at the first fault.
    for name, value in document.items():
        if name not in known:
            faults.append(f"unknown field; known are {', '.join(known)} - at `$.{name}`")
            continue
        try:
            msgspec.convert(value, prepared(known[name]))
        except msgspec.ValidationError as error:
            faults.append(f"{error} - at `$.{name}`")
    return faults


def profile_names() -> list[str]:
    """Return the names of the profiles in profiles/ next to this file."""
    return sorted(path.stem for path in PROFILES.glob("*.json"))


def profile_named(name: str) -> EngineProfile:
    """Return the profile of that name in profiles/ next to this file; raise UnreadableProfileError with the known
    names.
    """
    known = profile_names()
    if name not in known:
        raise UnreadableProfileError(f"unknown profile {name!r}; known profiles: {', '.join(known)}")
    return read_profile(PROFILES / f"{name}.json")


def write_profile(path: Path, profile: EngineProfile) -> None:
    """Write all fields in order as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(profile)) + b"\n")
