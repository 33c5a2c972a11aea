"""Requests go to the engine whose cache groups can all serve the longest prefix, not to the one with most blocks."""

from __future__ import annotations

from kvstore.index.cache_tails import STATE, WINDOW, Tail
from routing.router import Router
from tests.routing.pools import BLOCK, engine_of, engines, pool, request

BLOCKS = range(20)
KEYS = request(1, BLOCKS).keys


def hybrid() -> Router:
    """Return a router of two engines: one holds all blocks but no states, the other a servable half of the prompt."""
    router = pool(size=2)
    for name, held, states in (("e-01", KEYS, KEYS[2:3]), ("e-02", KEYS[:10], KEYS[9:10])):
        router.fleet.declare_tail(name, Tail(window_blocks=2, states=True))
        router.blocks_stored(name, held)
        router.fleet.change_tail(name, WINDOW, True, held)
        router.fleet.change_tail(name, STATE, True, states)
    return router


def test_a_servable_half_beats_blocks_whose_state_is_gone() -> None:
    router = hybrid()
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) == "e-02"
    assert outcome.decision.hit_tokens == 10 * BLOCK  # type: ignore[union-attr]
    router.index.check()


def test_an_evicted_window_block_shortens_the_hit() -> None:
    router = hybrid()
    router.fleet.change_tail("e-02", WINDOW, False, KEYS[8:9])
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) == "e-01"
    assert outcome.decision.hit_tokens == 3 * BLOCK  # type: ignore[union-attr]


def test_a_prompt_in_flight_is_a_hit_for_the_next_one() -> None:
    router = hybrid()
    first = engine_of(router.place(request(1, BLOCKS), 0.0))
    again = router.place(request(2, BLOCKS), 0.0)
    assert again.decision.engine_id == first  # type: ignore[union-attr]
    assert again.decision.hit_tokens == len(BLOCKS) * BLOCK  # type: ignore[union-attr]
    router.check()


def test_a_removed_engine_leaves_no_tail_to_its_successor() -> None:
    router = hybrid()
    router.blocks_cleared("e-01")
    router.set_engines(engines(2)[1:], 0.0)
    router.set_engines(engines(3), 0.0)
    router.blocks_stored("e-01", KEYS)
    router.blocks_stored("e-03", KEYS)
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) in {"e-01", "e-03"}
    assert outcome.decision.hit_tokens == len(BLOCKS) * BLOCK  # type: ignore[union-attr]
    router.fleet.declare_tail("e-99", Tail(states=True))
    router.fleet.change_tail("e-99", STATE, True, KEYS)
    router.index.check()


def test_a_state_kept_at_the_end_of_a_prompt_serves_its_continuations() -> None:
    router = hybrid()
    router.blocks_stored("e-02", KEYS[:15])
    router.fleet.keep_tail("e-02", KEYS[:15])
    router.fleet.keep_tail("e-99", KEYS)
    outcome = router.place(request(1, BLOCKS), 0.0)
    assert engine_of(outcome) == "e-02"
    assert outcome.decision.hit_tokens == 15 * BLOCK  # type: ignore[union-attr]
    # Within that prompt nothing more is kept than before.
    assert router.index.match(KEYS[:14], 0b10).blocks(1) == 10
    router.index.check()
