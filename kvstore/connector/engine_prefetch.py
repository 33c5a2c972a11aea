"""Prefetches into the engine's own memory, in its scheduler: blocks that no request uses yet, and that it may drop.

A request of one token carries each prefetch (SYMPHONY §3.4), because an engine without requests runs no steps. The
request waits unscheduled until the load has ended. The blocks then are free and in the prefix cache, so that the
engine's own allocation evicts them in their turn. Prefetches with a lower rank take the place of others (§3.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kvstore.connector.connector_settings import ConnectorSettings
from kvstore.connector.domain_keys import Domain
from kvstore.connector.engine_params import KvOutcome
from kvstore.connector.step_messages import LoadEnd, LoadJob

NOTHING = KvOutcome()
FULL = "full"
"""Reason of an outcome: the engine has no memory to spare."""


class NamedBlock(NamedTuple):
    """A block's hash in the engine, its key at the gateway, and its position in the prompt."""

    chain_hash: bytes
    routing_key: int
    position: int


class FreeMemory(Protocol):
    """The engine's blocks that no request uses, including cached ones."""

    blocks: int
    """Number of all blocks of the engine."""

    def free(self) -> int:
        """Return the number of free blocks."""

    def holds(self, chain_hash: bytes) -> bool:
        """Return whether the block with this hash is in the prefix cache."""

    def take(self, blocks: int) -> list[int]:
        """Return this many free blocks, the next to be evicted. No request gets them until they are given back."""

    def give_back(self, block_ids: Sequence[int], named: Sequence[NamedBlock]) -> None:
        """Free the blocks. The leading ones are cached under their names, the first one to be evicted last."""

    def drop(self, chain_hashes: Iterable[bytes]) -> None:
        """Remove blocks from the prefix cache."""


@dataclass(slots=True)
class _Prefetch:
    """A prefetch in the engine. Mutable: its blocks, the workers that still load, and the outcome so far."""

    rank: int
    named: Sequence[NamedBlock] = ()
    block_ids: Sequence[int] = ()
    working: int = 0
    outcome: KvOutcome = NOTHING
    """Of the worker with the fewest blocks."""
    gone: bool = False
    """Whether its request has left the engine before the load ended."""


class EnginePrefetch:
    """Prefetches of one engine.

    Mutable state: `_open` by request, the loads of the next step, and `_kept`, chain hash → rank of each prefetched
    block that no request has used yet.
    """

    def __init__(self, settings: ConnectorSettings, workers: int) -> None:
        self._settings, self._workers = settings, workers
        self.memory: FreeMemory | None = None
        """None: nothing is prefetched."""
        self._open: dict[str, _Prefetch] = {}
        self._jobs: list[LoadJob] = []
        self._kept: dict[bytes, int] = {}

    def __len__(self) -> int:
        return len(self._open)

    def waits(
        self,
        request_id: str,
        rank: int,
        keys: Sequence[int],
        domain: Domain,
        chain: Callable[[Sequence[int]], Sequence[bytes] | None],
    ) -> bool:
        """Begin a prefetch of these leading blocks, or continue it. Return whether its request has to wait on.

        `chain` returns the engine's hashes of the leading blocks that its node holds, None while this is pending.
        """
        known = self._open.get(request_id)
        if known is not None:
            return known.working > 0
        memory = self.memory
        hashes = () if memory is None else chain(keys)
        if hashes is None:
            return True
        made = self._open[request_id] = _Prefetch(rank, outcome=KvOutcome(reason="" if hashes else "missing"))
        lacking = [at for at, chain_hash in enumerate(hashes) if memory is not None and not memory.holds(chain_hash)]
        if memory is None or not lacking:
            return False
        blocks = self._room(memory, rank, len(lacking))
        if not blocks:
            made.outcome = KvOutcome(reason=FULL)
            return False
        made.named = [NamedBlock(hashes[at], keys[at], at) for at in lacking[:blocks]]
        made.block_ids, made.working = memory.take(blocks), self._workers
        self._jobs.append(
            LoadJob(
                request_id=request_id,
                block_ids=tuple(made.block_ids),
                chain_hashes=tuple(block.chain_hash for block in made.named),
                holders=(self._settings.node,),
                domain=domain,
                timeout_s=self._settings.load_timeout_s,
                prefetch=True,
            )
        )
        return True

    def take_jobs(self) -> list[LoadJob]:
        """Return the loads for the workers since the last call."""
        jobs, self._jobs = self._jobs, []
        return jobs

    def ended(self, end: LoadEnd) -> Sequence[bytes]:
        """Record the end of a load in some workers. Return the hashes of the blocks, once all workers have them."""
        made, memory = self._open.get(end.request_id), self.memory
        if made is None or memory is None:
            return ()
        if made.working == self._workers or end.outcome.loaded_blocks < made.outcome.loaded_blocks:
            made.outcome = end.outcome
        made.working -= end.workers
        if made.working > 0:
            return ()
        named = made.named[: made.outcome.loaded_blocks]
        memory.give_back(made.block_ids, named)
        loaded = [block.chain_hash for block in named]
        self._kept.update(dict.fromkeys(loaded, made.rank))
        if made.gone:
            del self._open[end.request_id]
        return loaded

    def used(self, chain_hashes: Iterable[bytes]) -> None:
        """Record that a request has these blocks: from now on they count as the engine's own."""
        if self._kept:
            for chain_hash in chain_hashes:
                self._kept.pop(chain_hash, None)

    def finished(self, request_id: str) -> KvOutcome | None:
        """Return the outcome of a request's prefetch, and forget it once its load has ended. None without one."""
        made = self._open.get(request_id)
        if made is None:
            return None
        # Workers still write into its blocks, which no request may get before the end.
        made.gone = made.working > 0
        if not made.gone:
            del self._open[request_id]
        return made.outcome

    def _room(self, memory: FreeMemory, rank: int, wanted: int) -> int:
        """Return how many blocks a prefetch may take, after dropping those of higher ranks that are in its way."""
        most = int(self._settings.prefetch_share * memory.blocks)
        # The engine has evicted some of them meanwhile.
        self._kept = {chain_hash: kept for chain_hash, kept in self._kept.items() if memory.holds(chain_hash)}
        taken = len(self._kept) + sum(len(item.block_ids) for item in self._open.values() if item.working > 0)
        short = min(wanted, most) - (most - taken)
        if short > 0:
            lower = sorted((kept, at) for at, kept in enumerate(self._kept.values()) if kept > rank)
            hashes = [*self._kept]
            dropped = [hashes[at] for _, at in lower[::-1][:short]]
            memory.drop(dropped)
            for chain_hash in dropped:
                del self._kept[chain_hash]
            taken -= len(dropped)
        # As many blocks stay free, so that no request waits for the memory of a prefetch.
        return max(0, min(wanted, most - taken, memory.free() - most))
