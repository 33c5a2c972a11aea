from hypothesis import given
from hypothesis import strategies as st

from routing.queue.starvation import Starvation


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
