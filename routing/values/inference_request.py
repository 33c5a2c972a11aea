"""A user's request to an LLM, reduced to the facts needed for routing (never the prompt itself)."""

from __future__ import annotations

import math

import msgspec


class InferenceRequest(msgspec.Struct, frozen=True, gc=False):
    """One request for a completion, seen by the routing core.

    `keys` are the chained block keys of the prompt in order (kvstore.keys.block_keys), each representing `block_tokens`
    prompt tokens. Times are seconds of the caller's monotonic clock.
    """

    request_id: str
    """UUIDv7; also the id of the decision and of the reservation."""
    keys: tuple[int, ...]
    prompt_tokens: int
    block_tokens: int
    arrived_s: float
    ttft_slo_s: float
    max_output_tokens: int = 0
    tenant_id: str = ""
    session_id: str = ""
    priority: int = 0
    """Lower goes first, as in vLLM."""
    tpot_slo_s: float = 0.0
    """Mean time between tokens that meets the SLO, 0 to use the policy's."""
    give_up_s: float = math.inf
    """Time after which further waiting is useless to the caller."""
    slo_class: str = ""
    head: tuple[int, ...] = ()
    """Keys of the first blocks if prefixes need finer keys than `keys`: a recording of a pool with small blocks is
    replayed with a trace's larger ones. Empty to use `keys`.
    """
    sequences: int = 1
    """Answers decoded at once for the prompt, 0 for none, as for an embedding."""
    may_load: bool = True
    """Whether the sender of the request orders loads from node managers. Loads that are not ordered must not be counted
    on.
    """
    adapter: str = ""
    """LoRA adapter of the request, empty without one."""
    guessed: bool = False
    """Whether engines' events name only some of its blocks, so that the index receives all of them when they are
    computed.
    """

    proves_salts: bool = False
    """Whether a missing salt in the engine's events of its blocks would be the engine's fault."""
    stays: bool = False
    """Whether it must be served in this region: it comes from another one, or only engines here serve what it asks for.
    """

    @property
    def deadline_s(self) -> float:
        """Latest time of the first token that still meets the SLO."""
        return self.arrived_s + self.ttft_slo_s
