"""Whether a planner's orders are useful, by the outcomes of its last ones: a planner of useless orders backs off."""

from __future__ import annotations

SHARE = 0.1
"""Weight of the latest judgement: about the last ten count."""
LEAST = 0.25
"""Useful share below which a planner backs off: three transfers of four then moved bytes in vain."""
TRIAL_S = 30.0
"""Time between trial orders of a planner that backs off; each useful one raises its trust again."""


class PlannerTrust:
    """Mutable: the useful share, the counts, and when the last trial was."""

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
        """Learn from one order whose copy was loaded from, or left without that."""
        self.useful += useful
        self.useless += not useful
        self.useful_share += SHARE * (float(useful) - self.useful_share)

    def may_ask(self, now: float) -> bool:
        """Return whether an order may be issued now; counts as one."""
        if not self.backs_off:
            return True
        if self._trial_at is not None and now - self._trial_at < TRIAL_S:
            return False
        self._trial_at = now
        return True
