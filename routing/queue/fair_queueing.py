"""Weighted fair queueing between tenants, by virtual time.

Each waiting tenant has a tag: its received service divided by its share. The lowest tag goes next, so while tenants
keep waiting, their service matches the ratio of their shares up to one largest request each (start-time fair queueing,
Goyal, Vin and Cheng 1996). A returning tenant starts at the virtual time, or at its own tag if that is later: idling
earns no credit.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush

from routing.policy.fairness_document import FairnessDocument

MAX_REMEMBERED = 4096
"""Maximum tags kept of tenants that do not wait and are ahead of virtual time, so that leaving does not clear their
debt.
"""


class FairShares:
    """The waiting tenants of one queue and their shares.

    Mutable state: `_tags` (tenant → tag, including some tenants that do not wait), `_heap` of (tag, tenant) with some
    outdated entries, `_waiting` (weight and tenant, sorted), the virtual time, and the division of shares, which is
    recomputed when the tenants change.
    """

    def __init__(self, settings: FairnessDocument) -> None:
        self._settings = settings
        self._tags: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._waiting: list[tuple[float, str]] = []
        self._virtual = 0.0
        self._division: tuple[float, float] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, tenant: str) -> None:
        """Add a tenant that did not wait before."""
        insort(self._waiting, (self._weight(tenant), tenant))
        self._division = None
        tag = self._tags[tenant] = max(self._tags.get(tenant, 0.0), self._virtual)
        self._push(tag, tenant)

    def leave(self, tenant: str) -> None:
        """Remove a waiting tenant. Service beyond its share is remembered for a while."""
        del self._waiting[bisect_left(self._waiting, (self._weight(tenant), tenant))]
        self._division = None
        if len(self._tags) > len(self._waiting) + MAX_REMEMBERED:
            self._forget_some()

    def charge(self, tenant: str, seconds: float) -> None:
        """Count service that a waiting tenant received."""
        tag = self._tags[tenant]
        # Virtual time is the tag at which service starts, so that it never falls behind a served tenant.
        self._virtual = max(self._virtual, tag)
        tag = self._tags[tenant] = tag + seconds / self.share(tenant)
        self._push(tag, tenant)

    def first(self, count: int) -> list[str]:
        """Return up to `count` waiting tenants, lowest tag first."""
        current: list[tuple[float, str]] = []
        while self._heap and len(current) < count:
            entry = heappop(self._heap)
            # A tenant that left and came back may have the same entry twice.
            if self._is_current(entry) and (not current or current[-1] != entry):
                current.append(entry)
        for entry in current:
            heappush(self._heap, entry)
        return [tenant for _, tenant in current]

    def share(self, tenant: str) -> float:
        """Return a waiting tenant's share of the service, 0..1, among the current ones."""
        count, cap = len(self._waiting), self._settings.max_share
        # All are at the cap, and would leave a part to none: they divide it evenly.
        if count * cap <= 1.0:
            return 1.0 / count
        if self._division is None:
            self._division = self._divide(cap)
        from_weight, per_weight = self._division
        weight = self._weight(tenant)
        return cap if weight >= from_weight else weight * per_weight

    def check(self) -> None:
        """Raise AssertionError unless each waiting tenant has its entry in the heap and the shares add up to 1."""
        entries = set(self._heap)
        if self._waiting != sorted(set(self._waiting)):
            raise AssertionError("the waiting tenants are not in order")
        for _, tenant in self._waiting:
            if (self._tags[tenant], tenant) not in entries:
                raise AssertionError(f"tenant {tenant!r} will never be next")
        total = sum(self.share(tenant) for _, tenant in self._waiting)
        if self._waiting and abs(total - 1.0) > 1e-6:
            raise AssertionError(f"the shares add up to {total}")

    def _push(self, tag: float, tenant: str) -> None:
        heappush(self._heap, (tag, tenant))
        # Outdated entries are dropped in bulk, so that the heap stays proportional to the tenants.
        if len(self._heap) > 2 * len(self._waiting) + 64:
            self._heap = [(self._tags[name], name) for _, name in self._waiting]
            heapify(self._heap)

    def _forget_some(self) -> None:
        """Forget tags of tenants that do not wait: those below virtual time, else all."""
        waiting = {name for _, name in self._waiting}
        ahead = {name: tag for name, tag in self._tags.items() if name in waiting or tag > self._virtual}
        if len(ahead) > len(waiting) + MAX_REMEMBERED // 2:
            ahead = {name: self._tags[name] for name in waiting}
        self._tags = ahead

    def _divide(self, cap: float) -> tuple[float, float]:
        """Return the weight above which a tenant gets the cap, and the share per weight of the others."""
        left, weights = 1.0, sum(weight for weight, _ in self._waiting)
        # The heaviest first: once one is below the cap, all lighter ones are.
        for weight, _ in reversed(self._waiting):
            if weight / weights * left <= cap:
                return self._next_above(weight), left / weights
            left -= cap
            weights -= weight
        return 0.0, 0.0

    def _next_above(self, weight: float) -> float:
        """Return the next higher weight among the waiting tenants."""
        above = bisect_left(self._waiting, (weight, "\U0010ffff"))
        return self._waiting[above][0] if above < len(self._waiting) else float("inf")

    def _weight(self, tenant: str) -> float:
        return self._settings.weights.get(tenant, self._settings.default_weight)

    def _is_current(self, entry: tuple[float, str]) -> bool:
        tag, tenant = entry
        if self._tags.get(tenant) != tag:
            return False
        key = (self._weight(tenant), tenant)
        at = bisect_left(self._waiting, key)
        return at < len(self._waiting) and self._waiting[at] == key
