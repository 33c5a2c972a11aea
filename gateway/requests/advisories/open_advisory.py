"""An open advisory: its reservation, the KV moved for it, and its effect on the next request."""

from __future__ import annotations

import msgspec

from gateway.contracts.advisory import LATE, OVERRULED, PREFETCHING, RESERVED, USEFUL, Advisory
from routing.advisories.advised_sessions import StoredAdvisory

ASKED, CAME, FAILED = "asked", "came", "failed"


class OpenAdvisory(msgspec.Struct):
    """An open advisory, with times in monotonic seconds. Mutable: the progress of its move."""

    advisory: Advisory
    pool_id: str
    engine_id: str
    at_s: float
    """Time of the burst's first advisory."""
    expected_s: float
    expires_s: float
    said_s: float = 0.0
    """Time when the newest advisory was sent."""
    move: str = ""
    """asked, came (completed) or failed; empty if nothing has to move."""
    held_by: str = ""
    moved_to: str = ""
    moved_blocks: int = 0
    moved_bytes: int = 0
    move_s: float = 0.0
    engine_blocks: int = 0
    """Blocks that its engine has prefetched into its own memory."""

    @property
    def state(self) -> str:
        """Return the state that is sent to the advisory's sender."""
        return PREFETCHING if self.move == ASKED else RESERVED

    def outcome_on(self, engine_id: str) -> str:
        """Return the outcome if a request arrives now and goes to this engine."""
        if engine_id != self.engine_id:
            return OVERRULED
        return LATE if self.move == ASKED else USEFUL

    def stored(self, engine_id: str, now: float) -> StoredAdvisory:
        """Return the advisory's part of the request record."""
        return StoredAdvisory(
            now - self.at_s,
            self.engine_id,
            self.outcome_on(engine_id),
            self.advisory.expected_arrival_s,
            self.held_by,
            self.moved_to,
            self.moved_blocks,
            self.moved_bytes,
            self.move_s,
            self.engine_blocks,
        )
