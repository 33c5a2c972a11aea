"""Moves running requests from the engine with the most requests to the one with the fewest (Llumnix)."""

from __future__ import annotations

from functools import partial

from simulator.link import Transfer
from simulator.sessions.session_engine import SessionEngine
from simulator.sessions.session_fleet import SessionFleet
from simulator.sessions.turn import Turn

_TICK_S = 0.5
_DIFFERENCE = 3


class SessionMigration:
    """Moves one request at a time per engine. Its cache is copied while it runs; then it changes engines.

    Mutable state: `_moving`, the engines involved in a migration.
    """

    def __init__(self, fleet: SessionFleet) -> None:
        self._fleet = fleet
        self._moving: set[int] = set()

    def start(self) -> None:
        """Start comparing the engines' request counts twice a second."""
        engines = sorted(self._fleet.engines, key=lambda engine: (engine.bound_requests, engine.engine_id))
        idle = [engine for engine in engines if engine.engine_id not in self._moving]
        while len(idle) > 1 and idle[-1].bound_requests - idle[0].bound_requests >= _DIFFERENCE:
            self._move(idle.pop(), idle.pop(0))
        self._fleet.clock.at(self._fleet.clock.now + _TICK_S, self.start)

    def _move(self, source: SessionEngine, target: SessionEngine) -> None:
        running = [turn for turn in source.decoding if not turn.migrating]
        if not running:
            return
        turn = min(running, key=lambda item: (item.memory_tokens, item.session.session_id))
        if not target.memory.reserve(turn.memory_tokens):
            return
        turn.migrating = True
        self._moving |= {source.engine_id, target.engine_id}
        links = [source.store_link, target.load_link]
        if source.node != target.node:
            links.insert(1, self._fleet.nodes.nics[target.node])
        copied = (turn.memory_tokens - source.tokens_left(turn)) * self._fleet.nodes.bytes_per_token
        Transfer(links, copied, partial(self._copied, turn, source, target), urgent=True).start()

    def _copied(self, turn: Turn, source: SessionEngine, target: SessionEngine, copy: Transfer) -> None:
        if not copy.done:
            return
        self._moving -= {source.engine_id, target.engine_id}
        if turn.finished_s is not None:
            target.memory.release(turn.memory_tokens)
            self._fleet.start_waiting(target)
        else:
            source.leave(turn, partial(self._left, source, target))

    def _left(self, source: SessionEngine, target: SessionEngine, turn: Turn, left: bool) -> None:
        if not left:
            target.memory.release(turn.memory_tokens)
            self._fleet.start_waiting(target)
            return
        turn.migrating = False
        source.memory.release(turn.memory_tokens)
        source.unbind()
        self._fleet.start_waiting(source)
        self._fleet.moved(turn, target)
        target.bind()
        target.admit(turn)
