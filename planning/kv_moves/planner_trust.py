"""Judge a planner by the outcomes of its latest orders. A planner of useless orders backs off."""

from __future__ import annotations

SHARE = 0.1
"""Weight of the latest outcome: about the last ten count."""
LEAST = 0.25
"""Useful share below which a planner backs off: three of four transfers were then wasted."""
TRIAL_S = 30.0
"""Time between trial orders of a planner that has backed off. Each useful one raises its trust again."""


class PlannerTrust:
    """Trust in one planner. Mutable: the useful share, the counts, and the time of the last trial."""

    def __init__(self) -> None:
        # A planner begins trusted: only its orders show whether they are useful.
        self.useful_share = 1.0
        self.useful = self.useless = 0
        self._trial_at: float | None = None

    @property
    def backs_off(self) -> bool:
        """Whether too few of its orders were useful."""
        return self.useful_share < LEAST

    def judged(self, useful: bool) -> None:
        """Learn from one order: whether its copy was loaded before it was removed."""
        self.useful += useful
        self.useless += not useful
        self.useful_share += SHARE * (float(useful) - self.useful_share)

    def may_ask(self, now: float) -> bool:
        """Return whether an order can be issued now. A True result counts as an issued order."""
        if not self.backs_off:
            return True
        if self._trial_at is not None and now - self._trial_at < TRIAL_S:
            return False
        self._trial_at = now
        return True
