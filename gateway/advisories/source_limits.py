"""How much one source of advisories may ask for, and how far it is believed, by what became of its last ones."""

from __future__ import annotations

from collections import OrderedDict

from planning.kv_orders.planner_trust import PlannerTrust

PER_S, BURST = 50.0, 100.0
"""Advisories of one API key, per second and at once."""
MAX_SOURCES = 10_000
_RANKS = 10


class _Source:
    __slots__ = ("at_s", "left", "trust")

    def __init__(self, now: float) -> None:
        self.left, self.at_s, self.trust = BURST, now, PlannerTrust()


class SourceLimits:
    """Mutable: `_sources`, by tenant and API key, the ones used last at the end."""

    def __init__(self) -> None:
        self._sources: OrderedDict[tuple[str, str], _Source] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sources)

    def take(self, tenant_id: str, source: str, now: float) -> float:
        """Take one advisory from the source's bucket; returns after how many seconds to come again, 0: it was taken."""
        of = self._of(tenant_id, source, now)
        of.left = min(BURST, of.left + max(0.0, now - of.at_s) * PER_S)
        of.at_s = max(of.at_s, now)
        if of.left < 1.0:
            return (1.0 - of.left) / PER_S
        of.left -= 1.0
        return 0.0

    def may_move(self, tenant_id: str, source: str, now: float) -> bool:
        """Return whether a move may be asked for the source; one whose advisories are mostly spurious rarely may."""
        return self._of(tenant_id, source, now).trust.may_ask(now)

    def judged(self, tenant_id: str, source: str, useful: bool, now: float) -> None:
        """Learn what became of an advisory."""
        self._of(tenant_id, source, now).trust.judged(useful)

    def rank(self, tenant_id: str, source: str, priority: int, now: float) -> int:
        """Return the place of the source's moves among those of others: the more spurious, the later."""
        share = self._of(tenant_id, source, now).trust.useful_share
        return _RANKS * round(_RANKS * (1.0 - share)) + priority

    def trust(self, tenant_id: str, source: str, now: float) -> PlannerTrust:
        """Return how far the source is believed."""
        return self._of(tenant_id, source, now).trust

    def _of(self, tenant_id: str, source: str, now: float) -> _Source:
        name = tenant_id, source
        known = self._sources.get(name)
        if known is None:
            known = self._sources[name] = _Source(now)
            if len(self._sources) > MAX_SOURCES:
                self._sources.popitem(last=False)
        else:
            self._sources.move_to_end(name)
        return known
