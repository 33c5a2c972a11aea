"""When a balancer can send an engine another request: always, while none is pending, or below a limit (§3.3)."""

from __future__ import annotations

from typing import Literal

import msgspec


class PushLimit(msgspec.Struct, frozen=True):
    """Blind pushing (BP), or selective pushing by pending (SP-P) or in-flight requests (SP-O).

    Pending requests are those at the last probe. Requests that the balancer sent after it do not count.
    """

    kind: Literal["blind", "pending", "in_flight"]
    limit: int = 0

    def has_room(self, pending: int, in_flight: int) -> bool:
        """Whether an engine can get another request."""
        if self.kind == "pending":
            return pending <= self.limit
        return self.kind == "blind" or in_flight < self.limit


BLIND = PushLimit("blind")
PENDING = PushLimit("pending")
