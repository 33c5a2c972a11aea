"""An open advisory: its reservation, the KV moved for it, and what it contributes to the request that follows."""

from __future__ import annotations

import msgspec

from gateway.contracts.advisory import LATE, OVERRULED, PREFETCHING, RESERVED, USEFUL, Advisory, StoredAdvisory

ASKED, CAME, FAILED = "asked", "came", "failed"


class OpenAdvisory(msgspec.Struct):
    """Mutable: the progress of its move fills it in. Times in monotonic seconds."""

    advisory: Advisory
    pool_id: str
    engine_id: str
    at_s: float
    """When the first advisory of the burst came."""
    expected_s: float
    expires_s: float
    said_s: float = 0.0
    """When the newest one was sent."""
    move: str = ""
    """asked, came or failed; empty: nothing has to move."""
    held_by: str = ""
    moved_to: str = ""
    moved_blocks: int = 0
    moved_bytes: int = 0
    move_s: float = 0.0

    @property
    def state(self) -> str:
        """The state that the sender receives."""
        return PREFETCHING if self.move == ASKED else RESERVED

    def outcome_on(self, engine_id: str) -> str:
        """Return its outcome for a request that comes now and goes to this engine."""
        if engine_id != self.engine_id:
            return OVERRULED
        return LATE if self.move == ASKED else USEFUL

    def stored(self, engine_id: str, now: float) -> StoredAdvisory:
        """Return the part that the request's record keeps."""
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
        )
