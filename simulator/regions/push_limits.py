"""When a balancer sends an engine another request: always, without pending requests, or below a number (§3.3)."""

from __future__ import annotations

from typing import Literal

import msgspec


class PushLimit(msgspec.Struct, frozen=True):
    """Blind pushing (BP), selective pushing by pending (SP-P) or by in-flight requests (SP-O).

    Pending requests are those of the last probe: requests that the balancer sent since do not count.
    """

    kind: Literal["blind", "pending", "in_flight"]
    limit: int = 0

    def has_room(self, pending: int, in_flight: int) -> bool:
        """Whether an engine may get another request."""
        if self.kind == "pending":
            return pending <= self.limit
        return self.kind == "blind" or in_flight < self.limit


BLIND = PushLimit("blind")
PENDING = PushLimit("pending")
