import random

import pytest

from simulator.sessions.engine_memory import EngineMemory, Prefetched


def hold(memory: EngineMemory, session_id: int, tokens: int, advised_s: float = 0.0) -> None:
    assert memory.prefetch(Prefetched(session_id, tokens, advised_s))


def test_active_requests_evict_prefetches() -> None:
    memory = EngineMemory(100, "oldest")
    hold(memory, 1, 60)
    assert memory.reserve(90)
    assert memory.purged_tokens == 50
    memory.check()


def test_pinned_prefetches_block_requests() -> None:
    memory = EngineMemory(100, pinned=True)
    hold(memory, 1, 60)
    assert memory.reserve(10)
    assert not memory.reserve(80)
    assert memory.reserve(80, session_id=1)


def test_pinned_prefetches_are_evicted_if_nothing_could_run_otherwise() -> None:
    memory = EngineMemory(100, pinned=True)
    hold(memory, 1, 60)
    assert memory.reserve(80)


def test_a_request_uses_the_memory_of_its_own_prefetch() -> None:
    memory = EngineMemory(100)
    hold(memory, 1, 60)
    hold(memory, 2, 40)
    assert memory.reserve(60, session_id=1)
    assert 2 in memory.prefetched
    assert memory.purged_tokens == 0


def test_later_layers_of_all_are_evicted_before_the_first_layers_of_any() -> None:
    memory = EngineMemory(100, "layers")
    hold(memory, 1, 40, advised_s=0.0)
    hold(memory, 2, 40, advised_s=1.0)
    assert memory.reserve(60)
    assert [memory.prefetched[number].held for number in (1, 2)] == [20, 20]


def test_the_oldest_advisory_is_evicted_first() -> None:
    memory = EngineMemory(100, "oldest")
    hold(memory, 1, 40, advised_s=1.0)
    hold(memory, 2, 40, advised_s=0.0)
    assert memory.reserve(60)
    assert list(memory.prefetched) == [1]


def test_a_prefetch_needs_free_memory() -> None:
    memory = EngineMemory(100)
    assert memory.reserve(80)
    assert not memory.prefetch(Prefetched(1, 30, 0.0))


@pytest.mark.parametrize("order", ["layers", "oldest"])
def test_sums_hold_under_any_operations(order: str) -> None:
    rng = random.Random(3)
    memory = EngineMemory(1_000, order)
    active: list[int] = []
    for now in range(2_000):
        tokens = rng.randrange(1, 400)
        session_id = rng.randrange(20)
        match rng.randrange(4):
            case 0:
                memory.prefetch(Prefetched(session_id, tokens, float(now)))
            case 1:
                memory.forget(session_id)
            case 2:
                if memory.reserve(tokens, session_id):
                    active.append(tokens)
            case _ if active:
                memory.release(active.pop())
        memory.check()


def test_a_priority_prefetch_uses_memory_of_others_and_is_evicted_last() -> None:
    memory = EngineMemory(100)
    assert memory.prefetch(Prefetched(1, 60, 0.0))
    assert not memory.prefetch(Prefetched(2, 60, 1.0))
    assert memory.prefetch(Prefetched(3, 60, 2.0, priority=True))
    assert not memory.prefetch(Prefetched(4, 101, 2.0, priority=True))
    memory.check()
    assert memory.prefetched[1].held == 40
    assert memory.reserve(50)
    memory.check()
    assert 1 not in memory.prefetched
    assert memory.prefetched[3].held == 50
