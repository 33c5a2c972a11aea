"""Whether a planner's orders are of use, by what became of its last ones: one whose orders are useless backs off."""

from __future__ import annotations

SHARE = 0.1
"""Weight of the latest judgement: about the last ten count."""
LEAST = 0.25
"""Useful share below which a planner backs off: three transfers of four then moved bytes in vain."""
TRIAL_S = 30.0
"""A planner that backs off may try one order in so long; each useful one brings it back towards trust."""


class PlannerTrust:
    """Mutable: the useful share, the counts, and when the last trial was."""

    def __init__(self) -> None:
        self.useful_share = 1.0
        self.useful = self.useless = 0
        self._trial_at: float | None = None

    @property
    def backs_off(self) -> bool:
        """Whether too few of its orders were of use."""
        return self.useful_share < LEAST

    def judged(self, useful: bool) -> None:
        """Learn from one order whose copy was loaded from, or left without that."""
        self.useful += useful
        self.useless += not useful
        self.useful_share += SHARE * (float(useful) - self.useful_share)

    def may_ask(self, now: float) -> bool:
        """Return whether an order may be asked now; counts as one."""
        if not self.backs_off:
            return True
        if self._trial_at is not None and now - self._trial_at < TRIAL_S:
            return False
        self._trial_at = now
        return True
