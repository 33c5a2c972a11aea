"""Random work for any engine model, and invariants of its events."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from simulator.engine_models.engine_events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Finished,
    FirstTokenEvent,
    PrefillStarted,
    Token,
)
from simulator.engine_models.simulated_engine import PromptSequence

BLOCK = 16
"""Block size that the random prompts are cut into."""
_PROMPTS = st.lists(st.integers(0, 2), max_size=4)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), _PROMPTS, st.integers(1, 20), st.integers(1, 40), st.integers(-1, 1)),
        st.tuples(st.just("wait"), st.floats(0, 0.4)),
        st.tuples(st.just("abort"), st.integers(0, 30)),
    ),
    max_size=40,
)


def chained(path: list[int]) -> tuple[int, ...]:
    """Return keys that identify prefixes: equal paths have equal keys."""
    keys, key = [], 1
    for step in path:
        key = key * 4 + step + 1
        keys.append(key)
    return tuple(keys)


class Driver:
    """Plays moves against an engine and checks it after each; stores all events and the announced blocks."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine
        self.now = 0.0
        self.events: list[EngineEvent] = []
        self.submitted: dict[str, PromptSequence] = {}
        self.aborted: set[str] = set()
        self.held: set[int] = set()

    def play(self, moves: list[tuple[Any, ...]]) -> None:
        """Play the moves, run until everything has finished, and check all events."""
        for move in moves:
            if move[0] == "submit":
                self.submit(*move[1:])
            elif move[0] == "wait":
                self.now += move[1]
                self.take(self.engine.advance(self.now))
            elif self.engine.abort(str(move[1]), self.now):
                self.aborted.add(str(move[1]))
            self.engine.check()
        self.finish()

    def submit(self, path: list[int], tail: int, output: int, priority: int) -> None:
        """Submit a prompt of whole blocks and a partial one, with some blocks loaded."""
        name = str(len(self.submitted))
        keys = chained(path)
        loaded = output % (len(keys) + 1)
        sequence = PromptSequence(name, keys, BLOCK * len(keys) + tail, output, priority, loaded)
        self.engine.submit(sequence, self.now)
        self.submitted[name] = sequence

    def take(self, events: list[EngineEvent]) -> None:
        """Store events, and update the set of announced blocks."""
        for event in events:
            if isinstance(event, BlocksStored):
                assert event.parent is None or event.parent in self.held, "a parent comes before its children"
                assert self.held.isdisjoint(event.keys), "a block is announced once"
                self.held.update(event.keys)
            elif isinstance(event, BlocksRemoved):
                assert self.held.issuperset(event.keys)
                self.held.difference_update(event.keys)
        self.events += events

    def finish(self) -> None:
        """Advance time until the engine is empty."""
        self.take(self.engine.advance(self.now + 1e6))
        self.engine.check()
        assert (self.engine.running, self.engine.waiting, self.engine.kv_usage) == (0, 0, 0.0)
        assert self.engine.next_event_time() is None
        assert len(self.held) == self.engine.cached_blocks
        times = [event.at_s for event in self.events]
        assert times == sorted(times)
        self._check_stories()

    def _check_stories(self) -> None:
        stories: dict[str, list[EngineEvent]] = {name: [] for name in self.submitted}
        for event in self.events:
            if isinstance(event, PrefillStarted | FirstTokenEvent | Token | Finished):
                stories[event.request_id].append(event)
        for name, story in stories.items():
            kinds = [type(event) for event in story if not isinstance(event, Token)]
            complete = [PrefillStarted, FirstTokenEvent, Finished]
            assert kinds == (complete[: len(kinds)] if name in self.aborted else complete), "no request is lost"
            indices = [event.index for event in story if isinstance(event, Token)]
            assert indices == list(range(1, len(indices) + 1)), "tokens come one by one after the first"
            if indices and name not in self.aborted:
                assert len(indices) == self.submitted[name].output_tokens - 1
