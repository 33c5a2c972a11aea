"""One pool's data about cache locality: the starts of prompts, and the parts of TTFT."""

from __future__ import annotations

from gateway.pool.ttft_split import TtftSplit
from gateway.traffic.prefix_window import PrefixWindow


class AffinityBook:
    """Mutable state: the window and the sums."""

    def __init__(self) -> None:
        self.prompts = PrefixWindow()
        self.ttft = TtftSplit()
