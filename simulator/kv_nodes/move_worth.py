"""What simulated orders gained: tokens that engines loaded from the copies they made."""

from __future__ import annotations

from collections.abc import Sequence


class MoveWorth:
    """Counts orders, their blocks, and the tokens saved per planner. Mutable state: also which planner made each
    copy.
    """

    def __init__(self) -> None:
        self.moved_blocks = 0
        self.prefetches = self.replicas = 0
        self.freed_blocks = 0
        """Blocks of replicas that were dropped for lack of loads."""
        self.prefetch_saved_tokens = self.replica_saved_tokens = 0
        self._copies: dict[tuple[str, int], bool] = {}

    def moved(self, node: str, keys: Sequence[int], *, replica: bool) -> None:
        """Record an order that moved blocks to a node."""
        self.moved_blocks += len(keys)
        self.prefetches += not replica
        self.replicas += replica
        self._copies.update(((node, key), replica) for key in keys)

    def loaded(self, node: str, keys: Sequence[int], block_tokens: int) -> None:
        """Record that an engine loaded blocks from a node."""
        planners = [self._copies.get((node, key)) for key in keys]
        self.prefetch_saved_tokens += planners.count(False) * block_tokens
        self.replica_saved_tokens += planners.count(True) * block_tokens
