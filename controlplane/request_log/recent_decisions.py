"""The recent decisions of the gateway that runs in this process, for the console to read."""

from __future__ import annotations

from gateway.pool.recent_decisions import RecentDecisions

_offered: list[RecentDecisions] = []


def offer(recent: RecentDecisions) -> None:
    """Let the console read these records; a later offer takes the place of the former."""
    _offered[:] = [recent]


def recent_decisions() -> RecentDecisions | None:
    """Return the records; None where no gateway runs in this process, which then keeps its own."""
    return _offered[0] if _offered else None
