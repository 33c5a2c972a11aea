from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from routing.ledger.reservations import Reservation
from routing.queue.deadline_queue import DeadlineLine, Entry
from routing.queue.ranked_queue import RankedRequests
from routing.queue.target_queue import Starvation
from tests.routing.queue.queued_requests import queued

TIMES = st.integers(0, 40).map(float)
SECONDS = st.integers(1, 16).map(lambda number: number / 4)


def entry(number: int, deadline_s: float, seconds: float) -> Entry:
    return deadline_s, number, seconds, queued(number)


def lateness(entries: list[Entry], start_s: float, rate: float) -> list[float]:
    """Return by how much each entry could start later, computed by the plain definition."""
    spare = []
    for deadline_s, _, seconds, _ in entries:
        spare.append(deadline_s - seconds - start_s)
        start_s += seconds / rate
    return spare


class LineUnderRandomUse(RuleBasedStateMachine):
    """Every result equals that of a scan of a sorted list; quarter seconds and powers of two keep sums exact."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = count(1)
        self.entries: list[Entry] = []

    @initialize(rate=st.sampled_from([1.0, 2.0, 8.0]))
    def begin(self, rate: float) -> None:
        self.line = DeadlineLine(rate)

    @rule(many=st.lists(st.tuples(TIMES, SECONDS), min_size=1, max_size=60))
    def add(self, many: list[tuple[float, float]]) -> None:
        for deadline_s, seconds in many:
            coming = entry(next(self.numbers), deadline_s, seconds)
            self.line.add(coming)
            self.entries.append(coming)
        self.entries.sort()

    @precondition(lambda self: self.entries)
    @rule(which=st.integers(0, 999))
    def remove(self, which: int) -> None:
        self.line.remove(self.entries.pop(which % len(self.entries)))

    @rule(rate=st.sampled_from([1.0, 4.0]))
    def change_rate(self, rate: float) -> None:
        self.line.set_rate(rate)

    @precondition(lambda self: self.entries)
    @rule(start_s=TIMES, which=st.integers(0, 999))
    def ask(self, start_s: float, which: int) -> None:
        spare = lateness(self.entries, start_s, self.line.rate)
        asked = which % len(self.entries)
        assert self.line.spare_before(self.entries[asked], start_s) == min(spare[:asked], default=float("inf"))
        late = next((index for index, left in enumerate(spare) if left < 0), None)
        first = self.line.first_late(start_s)
        assert (first is None) == (late is None)
        if first is not None and late is not None:
            largest = max(item[2] for item in self.entries[: late + 1])
            taken = self.line.take_largest(first)
            assert taken[2] == largest
            assert taken in self.entries[: late + 1]
            self.entries.remove(taken)

    @invariant()
    def it_holds_what_it_was_given(self) -> None:
        if hasattr(self, "line"):
            self.line.check()
            assert list(self.line) == self.entries
            assert len(self.line) == len(self.entries)
            assert self.line.seconds == sum(item[2] for item in self.entries)


TestLineUnderRandomUse = LineUnderRandomUse.TestCase
TestLineUnderRandomUse.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)


def test_a_missing_entry_raises_a_key_error() -> None:
    line = DeadlineLine()
    line.add(entry(1, 5.0, 1.0))
    with pytest.raises(KeyError):
        line.remove(entry(2, 5.0, 1.0))
    with pytest.raises(KeyError):
        line.remove(entry(3, 9.0, 1.0))


@given(st.lists(st.tuples(TIMES, SECONDS), max_size=40), TIMES, st.sampled_from([1.0, 4.0]))
def test_one_pass_keeps_as_many_entries_as_repeatedly_removing_the_largest(
    jobs: list[tuple[float, float]], start_s: float, rate: float
) -> None:
    line = DeadlineLine(rate)
    for number, (deadline_s, seconds) in enumerate(jobs):
        line.add(entry(number, deadline_s, seconds))
    kept, dropped = line.feasible_part(start_s)
    assert sorted(kept + dropped) == list(line)
    assert all(left >= 0 for left in lateness(kept, start_s, rate))
    while (late := line.first_late(start_s)) is not None:
        line.take_largest(late)
    if rate == 1.0:
        assert len(kept) == len(line)


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=200))
def test_the_lowest_rank_is_first_and_ties_are_in_order_of_arrival(steps: list[tuple[int, bool]]) -> None:
    ranked, waiting = RankedRequests(), list[tuple[int, int, Reservation]]()
    for number, (rank, leaves) in enumerate(steps):
        added = queued(number)
        ranked.add(added, (rank, 0))
        waiting.append((rank, number, added))
        if leaves:
            gone = waiting.pop(number % len(waiting))
            ranked.remove(gone[2])
        ranked.check()
        assert len(ranked) == len(waiting)
        if waiting:
            assert ranked.first() == min(waiting)[2]


def test_a_queued_request_that_returns_has_its_new_rank() -> None:
    ranked, one, two = RankedRequests(), queued(1), queued(2)
    ranked.add(one, (1, 0))
    ranked.add(two, (2, 0))
    ranked.remove(one)
    ranked.add(one, (3, 0))
    assert ranked.first() == two
    ranked.check()


def test_entries_of_removed_requests_do_not_accumulate() -> None:
    ranked = RankedRequests()
    ranked.add(queued(0), (0, 0))
    for number in range(1, 5000):
        ranked.add(queued(number), (number, 0))
        ranked.remove(queued(number))
    assert len(ranked._heap) < 200


@given(st.permutations(list(range(1, 100))))
def test_the_time_of_the_first_skip_of_each_queued_request_is_known(order: list[int]) -> None:
    passed, waiting = Starvation(), set(order)
    first: dict[int, float] = {}
    for moment, number in enumerate(order):
        passed.dispatched(number, float(moment), min(waiting))
        waiting.discard(number)
        for other in waiting:
            if other < number:
                first.setdefault(other, float(moment))
        for other in waiting:
            assert passed.since(other) == first.get(other, float("inf"))


def test_dispatches_with_no_request_behind_them_are_forgotten() -> None:
    passed = Starvation()
    for number in range(1, 10_000):
        passed.dispatched(number, 0.0, number)
    assert len(passed) <= 66
