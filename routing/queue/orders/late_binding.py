"""Pull scheduling: requests wait in one queue for the whole pool, and an engine about to be free pulls one (ours).

Research on scheduling §5, `late`: from the pooled feasible set, the engine takes the request with the lowest compute
time there + regret × (compute time there − the lowest compute time on any engine). It skips a request that would make
an earlier feasible one late, and one that a better-cached engine will finish soon enough.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import OrderedDict
from typing import Annotated

import msgspec

from routing.ledger.fleet_view import FleetView
from routing.ledger.reservations import Reservation
from routing.policy.setting import about, fixed, number
from routing.queue.deadline_queue import DeadlineLine, Entry
from routing.queue.orders.slack import SlackQueue
from routing.queue.pull_choice import Fit, fit, least_compute_s
from routing.queue.queue_order import Pick
from routing.queue.ranked_queue import RankedRequests
from routing.values import reasons

REFRESHED = 16
"""Queued requests whose estimates are refreshed at each pull, oldest estimates first."""
_DROPS = 24
"""If more queued requests than this are late, they are dropped in one pass."""


class LateBinding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Lets each engine that is about to be free pull its best-fitting request, among those that can be on time."""

    regret: Annotated[
        float,
        about("Regret weight", "Weight of each second that a prefill takes longer here than on the best engine."),
        number("s per s", ge=0, le=1000, usual=(1, 10)),
    ] = 6.0
    patience: Annotated[
        float,
        about(
            "Patience",
            "Leaves a request to an engine with a longer match if that engine would complete its prefill within this "
            "share of the TTFT objective.",
        ),
        number("share", ge=0, le=1, usual=(0.3, 0.9)),
    ] = 0.7
    candidates: Annotated[int, fixed(ge=1, le=10_000)] = 96
    """Requests that an engine considers per pull, shortest prefill first."""

    def queue(self) -> SlackQueue:
        """Return the queue for requests that an earlier policy bound to an engine: feasible deadlines first."""
        return SlackQueue()

    def pool_queue(self) -> LateQueue:
        """Return an empty queue for the whole pool."""
        return LateQueue(self)

    def leaves(self, queued: Reservation, seen: Fit) -> bool:
        """Return whether an engine that holds more of the prompt will finish the queued request soon enough."""
        request = queued.request
        return seen.home_end_s <= request.arrived_s + self.patience * request.ttft_slo_s


class LateQueue:
    """The pooled feasible set by deadline and by size. Dropped and SLO-infeasible requests are kept separately.

    Mutable state: `_line` (feasible, except requests added since the last pull), `_by_size` (the same by estimate),
    `_dropped` (by estimate), `_infeasible` (by arrival), `_entries` (request id → entry), and `_refreshing` (ids in
    `_line`, least recently refreshed first).
    """

    def __init__(self, order: LateBinding) -> None:
        self._order = order
        self._line = DeadlineLine()
        self._by_size: list[tuple[float, int, str]] = []
        self._dropped = RankedRequests()
        self._infeasible = RankedRequests()
        self._entries: dict[str, Entry] = {}
        self._refreshing: OrderedDict[str, None] = OrderedDict()
        self._coming = 0
        self._refreshed_s = float("-inf")

    def __len__(self) -> int:
        return len(self._entries)

    def given_up(self) -> list[str]:
        """Return an empty list: unbound requests add no blocks to an engine."""
        return []

    @property
    def late_last_s(self) -> float:
        """Return the estimated prefill seconds of the SLO-infeasible and the currently dropped requests."""
        return self._infeasible.compute_s + self._dropped.compute_s

    def add(self, queued: Reservation) -> None:
        """Add the queued request to the feasible set. The next pull determines whether it stays."""
        self._coming += 1
        entry = (queued.request.deadline_s, self._coming, queued.compute_s, queued)
        self._entries[queued.request.request_id] = entry
        self._enter(entry)
        # A newcomer is estimated by its placement; engines' caches may differ by now, so it is refreshed first.
        self._refreshing.move_to_end(queued.request.request_id, last=False)

    def remove(self, queued: Reservation) -> None:
        """Remove the queued request. Raises KeyError if it is absent."""
        entry = self._entries.pop(queued.request.request_id)
        if queued in self._dropped:
            self._dropped.remove(queued)
        elif queued in self._infeasible:
            self._infeasible.remove(queued)
        else:
            self._leave(entry)

    def next(self, target: int, view: FleetView, at_s: float) -> Pick | None:
        """Return the best queued request to run next on `target`, None to leave all to other engines."""
        # The line shares all engines, which start on average after their mean wait.
        waits = [max(view.load.ready_at[item] - at_s, 0.0) for item in view.roster.accepting]
        start_s = at_s + sum(waits) / len(waits)
        self._line.set_rate(len(waits))
        # Once per moment, however many engines pull at it.
        if at_s != self._refreshed_s:
            self._refreshed_s = at_s
            self._refresh(view)
        self._sort_out(start_s, at_s)
        self._readmit(start_s, at_s)
        return self._best(target, view, at_s, start_s) or self._leftover(target, view)

    def check(self) -> None:
        """Raise AssertionError unless each queued request is in exactly one part and the parts are in order."""
        self._line.check()
        self._dropped.check()
        self._infeasible.check()
        line = {entry[3].request.request_id: entry for entry in self._line}
        if self._by_size != sorted((entry[2], entry[1], name) for name, entry in line.items()):
            raise AssertionError("the feasible set by size is not the one by deadline")
        if any(self._entries[name] != entry for name, entry in line.items()) or set(self._refreshing) != set(line):
            raise AssertionError("a feasible queued request is not known, or never refreshed")
        if len(self._line) + len(self._dropped) + len(self._infeasible) != len(self._entries):
            raise AssertionError("the parts do not add up to the queued requests")

    # -- the feasible set

    def _enter(self, entry: Entry) -> None:
        name = entry[3].request.request_id
        self._line.add(entry)
        insort(self._by_size, (entry[2], entry[1], name))
        self._refreshing[name] = None

    def _leave(self, entry: Entry) -> None:
        name = entry[3].request.request_id
        self._line.remove(entry)
        self._unlist(entry, name)

    def _unlist(self, entry: Entry, name: str) -> None:
        del self._by_size[bisect_left(self._by_size, (entry[2], entry[1], name))]
        del self._refreshing[name]

    def _refresh(self, view: FleetView) -> None:
        """Refresh the estimates of some queued requests, because caches have changed."""
        refreshing = self._refreshing
        for _ in range(min(REFRESHED, len(refreshing))):
            name = next(iter(refreshing))
            entry = self._entries[name]
            best_s = least_compute_s(entry[3], view)
            if best_s == entry[2]:
                refreshing.move_to_end(name)
                continue
            self._leave(entry)
            entry = self._entries[name] = (entry[0], entry[1], best_s, entry[3])
            self._enter(entry)

    def _sort_out(self, start_s: float, at_s: float) -> None:
        """Drop the largest queued requests until no remaining one is late (Moore–Hodgson on the pooled engines)."""
        line = self._line
        for _ in range(_DROPS):
            late = line.first_late(start_s)
            if late is None:
                return
            entry = line.take_largest(late)
            self._unlist(entry, entry[3].request.request_id)
            self._set_apart(entry, at_s)
        self._sort_out_all(start_s, at_s)

    def _sort_out_all(self, start_s: float, at_s: float) -> None:
        """Do the same in one pass, if very many requests are late."""
        kept, dropped = self._line.feasible_part(start_s)
        self._line = DeadlineLine(self._line.rate)
        self._by_size = []
        order = list(self._refreshing)
        self._refreshing = OrderedDict()
        for entry in kept:
            self._enter(entry)
        for entry in dropped:
            self._set_apart(entry, at_s)
        self._refreshing = OrderedDict((name, None) for name in order if name in self._refreshing)

    def _set_apart(self, entry: Entry, at_s: float) -> None:
        deadline_s, number, best_s, queued = entry
        if at_s + best_s > deadline_s:
            self._infeasible.add(queued, (number, 0))
        else:
            self._dropped.add(queued, (best_s, 0))

    def _readmit(self, start_s: float, at_s: float) -> None:
        """Take back the cheapest dropped queued requests one by one while they make none late."""
        dropped = self._dropped
        while len(dropped):
            queued = dropped.first()
            entry = self._entries[queued.request.request_id]
            dropped.remove(queued)
            if at_s + entry[2] > entry[0]:
                self._infeasible.add(queued, (entry[1], 0))
                continue
            self._enter(entry)
            if self._line.first_late(start_s) is not None:
                self._leave(entry)
                dropped.add(queued, (entry[2], 0))
                return

    # -- the choice

    def _best(self, target: int, view: FleetView, at_s: float, start_s: float) -> Pick | None:
        """Return the allowed feasible queued request with the lowest cost on the target."""
        order, chosen, least = self._order, None, float("inf")
        for best_s, _, name in self._by_size[: order.candidates]:
            # By size: no later request can cost less here than it does on its best engine.
            if best_s >= least:
                break
            entry = self._entries[name]
            if not _is_for(entry[3], target, view):
                continue
            seen = fit(entry[3], target, view, at_s)
            cost = seen.compute_s + order.regret * (seen.compute_s - seen.best_s)
            if cost < least and self._may_take(entry, seen, at_s, start_s):
                chosen, least = entry[3], cost
        if chosen is None:
            return None
        return Pick(chosen, reasons.PULLED_BEST_FIT if len(self._line) > 1 else reasons.ONLY_FEASIBLE)

    def _may_take(self, entry: Entry, seen: Fit, at_s: float, start_s: float) -> bool:
        if at_s + seen.compute_s > entry[0] or self._order.leaves(entry[3], seen):
            return False
        return seen.compute_s / self._line.rate <= self._line.spare_before(entry, start_s)

    def _leftover(self, target: int, view: FleetView) -> Pick | None:
        """Return the oldest SLO-infeasible queued request if no feasible one waits."""
        # Infeasible requests go last.
        if len(self._line) or not len(self._infeasible):
            return None
        queued = self._infeasible.first()
        return Pick(queued, reasons.INFEASIBLE_LAST) if _is_for(queued, target, view) else None


def _is_for(queued: Reservation, target: int, view: FleetView) -> bool:
    """Return whether the target can take the queued request: it is not excluded, or all engines are."""
    excluded = queued.excluded
    if not excluded or view.roster.engine_ids[target] not in excluded:
        return True
    return all(view.roster.engine_ids[item] in excluded for item in view.roster.accepting)
