"""What the copies that simulated orders made were worth: tokens that engines loaded from them."""

from __future__ import annotations

from collections.abc import Sequence


class MoveWorth:
    """Mutable: orders and their blocks, tokens saved by planner, and whose copies lie where."""

    def __init__(self) -> None:
        self.moved_blocks = 0
        self.prefetches = self.replicas = 0
        self.freed_blocks = 0
        """Of replicas that went because nobody loaded them any more."""
        self.prefetch_saved_tokens = self.replica_saved_tokens = 0
        self._copies: dict[tuple[str, int], bool] = {}

    def moved(self, node: str, keys: Sequence[int], *, replica: bool) -> None:
        """Note an order that has brought blocks to a node."""
        self.moved_blocks += len(keys)
        self.prefetches += not replica
        self.replicas += replica
        self._copies.update(((node, key), replica) for key in keys)

    def loaded(self, node: str, keys: Sequence[int], block_tokens: int) -> None:
        """Note that an engine loaded blocks from a node."""
        planners = [self._copies.get((node, key)) for key in keys]
        self.prefetch_saved_tokens += planners.count(False) * block_tokens
        self.replica_saved_tokens += planners.count(True) * block_tokens
