"""Messages between the scheduler and the workers of one engine, exchanged in each step."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kvstore.connector.domain_keys import Domain
from kvstore.connector.engine_params import KvOutcome
from kvstore.transfer.frames import CacheHint


class LoadJob(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks that one request loads. `chain_hashes[i]` is loaded into the engine's block `block_ids[i]`."""

    request_id: str
    block_ids: Sequence[int]
    chain_hashes: Sequence[bytes]
    holders: Sequence[str]
    domain: Domain
    timeout_s: float = 2.0
    """Blocks that arrive later are computed."""
    layered: bool = False
    """Whether this step computes the rest of the prompt, and waits for each layer."""
    prefetch: bool = False
    """Whether the blocks are free memory, for which no request waits."""


class SaveJob(msgspec.Struct, frozen=True, kw_only=True):
    """Blocks of one request computed in this step, with the data to store with them.

    All lists are in the same order.
    """

    block_ids: Sequence[int]
    chain_hashes: Sequence[bytes]
    parents: Sequence[bytes]
    """Chain hash of the preceding block, empty at the start of the prompt."""
    routing_keys: Sequence[int]
    domain: Domain
    tenant: str = ""
    hint: CacheHint = "default"
    pin_s: float = 0.0


class StepJobs(msgspec.Struct, frozen=True):
    """Jobs of the workers during one step."""

    loads: Sequence[LoadJob] = ()
    saves: Sequence[SaveJob] = ()
    computed_tokens: int = 0
    """Number of tokens that the step computes."""


class LoadEnd(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of one request's load. Blocks after the loaded ones are computed."""

    request_id: str
    outcome: KvOutcome
    prefetch: bool = False
    workers: int = 1
    """Number of workers whose load has ended."""


class StepReport(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's report after a step."""

    ends: Sequence[LoadEnd] = ()
    unsaved: Sequence[bytes] = ()
    """Chain hashes of blocks that the node rejected."""
    token_s: float = 0.0
    """Seconds per token of the step's prefill, 0 if not measured."""

    def joined(self, other: StepReport) -> StepReport:
        """Combine the reports of two workers of one engine.

        A load has as many blocks as the worker with the fewest.
        """
        ends = {end.request_id: end for end in self.ends}
        for end in other.ends:
            known = ends.get(end.request_id)
            fewer = end if known is None or end.outcome.loaded_blocks < known.outcome.loaded_blocks else known
            workers = end.workers + (known.workers if known is not None else 0)
            ends[end.request_id] = msgspec.structs.replace(fewer, workers=workers)
        return StepReport(
            ends=tuple(ends.values()),
            unsaved=tuple(dict.fromkeys((*self.unsaved, *other.unsaved))),
            # A step ends with its slowest worker.
            token_s=max(self.token_s, other.token_s),
        )
