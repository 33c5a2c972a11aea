from random import Random

from hypothesis import given
from hypothesis import strategies as st

from routing.ledger.fleet_view import NEVER
from routing.queue.slo_expiry import LastChances


def test_expiries_fire_in_order_and_once() -> None:
    chances = LastChances()
    chances.set("late", 3.0)
    chances.set("early", 1.0)
    assert chances.next_moment() == 1.0
    assert list(chances.due(2.0)) == ["early"]
    assert list(chances.due(2.0)) == []
    assert chances.next_moment() == 3.0


def test_a_moved_expiry_replaces_the_first() -> None:
    chances = LastChances()
    chances.set("a", 1.0)
    chances.set("a", 5.0)
    assert list(chances.due(4.0)) == []
    chances.set("a", NEVER)
    assert chances.next_moment() == NEVER


@given(st.integers(0, 2**32))
def test_at_most_twice_the_valid_entries_are_kept(seed: int) -> None:
    rng, chances, watched, now = Random(seed), LastChances(), dict[str, float](), 0.0
    for _ in range(300):
        name = f"r{rng.randrange(40)}"
        kind = rng.random()
        if kind < 0.6:
            watched[name] = now + rng.random() * 10
            chances.set(name, watched[name])
        elif kind < 0.8:
            watched.pop(name, None)
            chances.forget(name)
        else:
            now += rng.random()
            due = list(chances.due(now))
            assert due == [
                request_id for request_id, _ in sorted(watched.items(), key=lambda e: (e[1], e[0])) if request_id in due
            ]
            assert set(due) == {request_id for request_id, moment in watched.items() if moment <= now}
            for item in due:
                del watched[item]
        chances.check()
        assert chances.next_moment() == min(watched.values(), default=NEVER)
