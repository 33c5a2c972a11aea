from random import Random

from simulator.regions.prompt import EMPTY, Prompt, PromptSegment
from simulator.regions.segment_cache import SegmentCache


def prompt(*keys: int, tokens: int = 10) -> Prompt:
    return EMPTY.then(*[PromptSegment(key, tokens) for key in keys])


def test_a_match_is_the_longest_cached_prefix() -> None:
    cache = SegmentCache(100)
    cache.add(prompt(1, 2))
    assert cache.match(prompt(1, 2, 3)) == 20
    assert cache.match(prompt(4, 5)) == 0


def test_the_least_recently_used_leaf_is_evicted_first_and_never_its_parent() -> None:
    cache = SegmentCache(40)
    for keys in ((1, 2), (1, 3), (1, 4)):
        cache.add(prompt(*keys))
    cache.match(prompt(1, 2))
    cache.add(prompt(1, 2))
    cache.add(prompt(1, 5))
    assert [cache.match(prompt(1, leaf)) for leaf in (2, 3, 4, 5)] == [20, 10, 20, 20]
    cache.check()


def test_segments_of_a_running_request_stay() -> None:
    cache = SegmentCache(30)
    cache.lock(prompt(1, 2))
    cache.add(prompt(3, 4))
    assert (cache.match(prompt(1, 2)), cache.match(prompt(3, 4)), cache.locked) == (20, 10, 20)
    cache.unlock(prompt(1, 2))
    cache.add(prompt(5, 6))
    assert cache.match(prompt(1, 2)) == 10
    cache.check()


def test_shared_segments_are_locked_once() -> None:
    cache = SegmentCache(100)
    cache.lock(prompt(1, 2))
    assert cache.to_lock(prompt(1, 3)) == 10
    cache.lock(prompt(1, 3))
    assert (cache.locked, cache.tokens) == (30, 30)
    cache.unlock(prompt(1, 2))
    assert (cache.locked, cache.tokens) == (20, 30)


def test_sums_hold_after_many_random_operations() -> None:
    rng, cache, running = Random(3), SegmentCache(300), []
    for _ in range(2000):
        path = prompt(*[1000 * depth + rng.randrange(4**depth) for depth in range(rng.randint(1, 4))])
        act = rng.randrange(3)
        if act == 0:
            cache.lock(path)
            running.append(path)
        elif act == 1 and running:
            cache.unlock(running.pop(rng.randrange(len(running))))
        else:
            cache.add(path)
        cache.shrink(300)
        cache.check()
        assert cache.tokens <= max(300, cache.locked)
