"""What one pool keeps for those who ask which prompts go where: the starts of prompts, and where TTFT went."""

from __future__ import annotations

from gateway.pool.recent_decisions import DecisionRecord
from gateway.pool.ttft_split import TtftSplit, split_of
from gateway.traffic.prefix_window import PrefixWindow


class AffinityBook:
    """Mutable state: the window and the sums."""

    def __init__(self) -> None:
        self.prompts = PrefixWindow()
        self.ttft = TtftSplit()

    def ended(self, record: DecisionRecord) -> None:
        """Count a request that ended; any thread may."""
        parts = split_of(record)
        if parts is not None and record.first_token_s is not None:
            self.ttft.note(record.decision.engine_id, parts, record.first_token_s)
