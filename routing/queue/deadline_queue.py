"""Work in deadline order, with a search for the entries that would be late.

The work of a whole pool shares `rate` engines: an entry starts when the entries before it are done at that rate, and
takes its own time. Entries are kept in short runs with their sums, so that the time to add, remove, or find the first
late entry hardly grows with their number.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from heapq import heappop, heappush

from routing.ledger.reservations import Reservation

Entry = tuple[float, int, float, Reservation]
"""Deadline, arrival number (makes entries unequal), estimated prefill seconds, queued request."""

_RUN = 48
"""A run is split at twice this many entries."""


class _Run:
    """Consecutive entries.

    Mutable: the entries, their total seconds, their minimum spare time, and the largest of them.
    """

    __slots__ = ("entries", "largest_s", "seconds", "spare_s")

    def __init__(self, entries: list[Entry], rate: float) -> None:
        self.entries = entries
        self.sum_up(rate)

    def sum_up(self, rate: float) -> None:
        """Recompute the sums."""
        # From the entries each time: differences would add up rounding errors.
        before = 0.0
        spare = float("inf")
        largest = 0.0
        for deadline_s, _, seconds, _ in self.entries:
            left = deadline_s - seconds - before / rate
            spare = min(spare, left)
            largest = max(largest, seconds)
            before += seconds
        self.seconds = before
        self.spare_s = spare
        """Latest start of the run that makes none of its entries late."""
        self.largest_s = largest


class DeadlineLine:
    """Entries by deadline. Mutable state: `rate`, `_runs` and `_lasts` (the last entry of each run)."""

    def __init__(self, rate: float = 1.0) -> None:
        self.rate = rate
        """Number of engines that share the work."""
        self._runs: list[_Run] = []
        self._lasts: list[Entry] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Entry]:
        for run in self._runs:
            yield from run.entries

    @property
    def seconds(self) -> float:
        """Total seconds of all entries on one engine."""
        return sum(run.seconds for run in self._runs)

    def set_rate(self, rate: float) -> None:
        """Set the number of engines that share the work."""
        if rate != self.rate:
            self.rate = rate
            for run in self._runs:
                run.sum_up(rate)

    def add(self, entry: Entry) -> None:
        """Insert an entry that is not present yet."""
        self._count += 1
        if not self._runs:
            self._runs.append(_Run([entry], self.rate))
            self._lasts.append(entry)
            return
        at = min(bisect_left(self._lasts, entry), len(self._runs) - 1)
        run = self._runs[at]
        insort(run.entries, entry)
        if len(run.entries) > 2 * _RUN:
            upper = _Run(run.entries[_RUN:], self.rate)
            del run.entries[_RUN:]
            self._runs.insert(at + 1, upper)
            self._lasts.insert(at + 1, upper.entries[-1])
        run.sum_up(self.rate)
        self._lasts[at] = run.entries[-1]

    def remove(self, entry: Entry) -> None:
        """Remove an entry. Raises KeyError if it is absent."""
        at = bisect_left(self._lasts, entry)
        entries = self._runs[at].entries if at < len(self._runs) else []
        index = bisect_left(entries, entry)
        if index == len(entries) or entries[index][1] != entry[1]:
            raise KeyError(entry[3].request.request_id)
        self._take(at, index)

    def first_late(self, start_s: float) -> tuple[int, int] | None:
        """Return run and index of the first entry that is late if work starts at `start_s`, or None."""
        rate = self.rate
        for at, run in enumerate(self._runs):
            if run.spare_s < start_s:
                return at, _first_late_in(run, start_s, rate)
            start_s += run.seconds / rate
        return None

    def take_largest(self, until: tuple[int, int]) -> Entry:
        """Remove and return the largest entry up to this run and index, the earliest among equals."""
        last_run, last_index = until
        best_s, best_at = -1.0, -1
        for at in range(last_run):
            if self._runs[at].largest_s > best_s:
                best_s, best_at = self._runs[at].largest_s, at
        part = [entry[2] for entry in self._runs[last_run].entries[: last_index + 1]]
        largest = max(part)
        if largest > best_s:
            return self._take(last_run, part.index(largest))
        sizes = [entry[2] for entry in self._runs[best_at].entries]
        return self._take(best_at, sizes.index(best_s))

    def spare_before(self, entry: Entry, start_s: float) -> float:
        """Return how much everything before this entry can be delayed without making any of it late."""
        rate = self.rate
        spare = float("inf")
        for at, run in enumerate(self._runs):
            if entry <= self._lasts[at]:
                for deadline_s, number, seconds, _ in run.entries:
                    if number == entry[1]:
                        return spare
                    spare = min(spare, deadline_s - seconds - start_s)
                    start_s += seconds / rate
                return spare
            spare = min(spare, run.spare_s - start_s)
            start_s += run.seconds / rate
        return spare

    def feasible_part(self, start_s: float) -> tuple[list[Entry], list[Entry]]:
        """Return the entries that can all be on time together, and the others.

        In one pass, each late entry removes the largest one so far (Moore 1968).
        """
        kept: list[tuple[float, int, Entry]] = []
        dropped: list[Entry] = []
        for entry in self:
            heappush(kept, (-entry[2], entry[1], entry))
            while start_s > entry[0] - entry[2]:
                seconds, _, largest = heappop(kept)
                dropped.append(largest)
                # Its time has not been added yet.
                if largest is entry:
                    break
                start_s += seconds / self.rate
            else:
                start_s += entry[2] / self.rate
        return sorted(entry for _, _, entry in kept), dropped

    def check(self) -> None:
        """Raise AssertionError unless the entries are in order and every sum is right."""
        entries = list(self)
        if entries != sorted(entries) or len(entries) != self._count:
            raise AssertionError("the line is not in order of deadlines, or not counted right")
        if [run.entries[-1] for run in self._runs] != self._lasts or len(self._lasts) != len(self._runs):
            raise AssertionError("the runs and their last entries differ")
        for run in self._runs:
            fresh = _Run(run.entries, self.rate)
            if (fresh.seconds, fresh.spare_s, fresh.largest_s) != (run.seconds, run.spare_s, run.largest_s):
                raise AssertionError("a run's sums are stale")

    def _take(self, at: int, index: int) -> Entry:
        run = self._runs[at]
        entry = run.entries.pop(index)
        self._count -= 1
        if run.entries:
            run.sum_up(self.rate)
            self._lasts[at] = run.entries[-1]
        else:
            del self._runs[at], self._lasts[at]
        return entry


def _first_late_in(run: _Run, start_s: float, rate: float) -> int:
    """Return the index of the first late entry of a run that has one, or of its last entry if rounding hides it."""
    for index, (deadline_s, _, seconds, _) in enumerate(run.entries):
        if deadline_s - seconds < start_s:
            return index
        start_s += seconds / rate
    return len(run.entries) - 1
