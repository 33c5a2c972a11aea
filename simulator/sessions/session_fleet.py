"""Engines, tiers, and one system's rules: receives advisories and requests, returns completed turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from routing.advisories.advised_sessions import EXPECTED_SHARE, LIFETIME_S, AdvisedSession, AdvisedSessions
from routing.advisories.prefetch_gate import prefetch_starts
from routing.advisories.session_cost import EngineOffer, SessionCost, at_arrival, cheapest, cost_of
from simulator.sessions.engine_memory import EngineMemory, Prefetched
from simulator.sessions.hardware import DECOMPRESS_S_PER_TOKEN, ENGINES, ENGINES_PER_NODE, Hardware, ServedModel
from simulator.sessions.kv_tiers import NEVER, KvTiers
from simulator.sessions.links import SessionLink, SessionTransfer
from simulator.sessions.session_engine import SessionEngine
from simulator.sessions.systems import System
from simulator.sessions.turn import Session, Turn
from simulator.virtual_clock import VirtualClock

ANSWER_TOKENS = 264
_OVERRULE_S = 0.3
"""Cost difference in seconds above which a request uses another engine than the reserved one."""


class SessionFleet:
    """The fleet under the virtual clock. Mutable state: `engines`, `tiers`, `advised`, and their contents."""

    def __init__(
        self,
        clock: VirtualClock,
        system: System,
        model: ServedModel,
        hardware: Hardware,
        memory_tokens: int,
        on_answered: Callable[[Turn], None],
    ) -> None:
        self.clock = clock
        self.system = system
        self.tiers = KvTiers(clock, hardware, model, system)
        self.advised = AdvisedSessions()
        self.engines = [
            SessionEngine(
                number,
                number // ENGINES_PER_NODE,
                clock,
                model,
                EngineMemory(memory_tokens, system.memory_order, pinned=system.pinned),
                SessionLink(f"loads of engine {number}", hardware.pcie_bytes_per_s, clock),
                SessionLink(f"stores of engine {number}", hardware.pcie_bytes_per_s, clock),
                self._finished,
                layerwise=system.layerwise,
            )
            for number in range(ENGINES)
        ]
        self._speed = model.speed(ANSWER_TOKENS)
        self._on_answered = on_answered

    def advise(self, session: Session, lead_s: float) -> None:
        """Apply an advisory: choose an engine, make a soft reservation, and prefetch if the system does so."""
        if self.system.advisories == "ignored":
            return
        gated = self.system.advisories == "gated"
        if self.system.placement == "cost":
            cost = cheapest(self._costs(session, urgent=False))
            engine, worth = self.engines[cost.engine_id], not cost.recompute
        else:
            engine, worth = self._fewest_requests(), True
        now = self.clock.now
        before = self.advised.release(session.session_id)
        if before is not None and before.engine_id != engine.engine_id:
            self._forget_prefetch(before.engine_id, session.session_id)
        self.advised.reserve(
            AdvisedSession(
                session_id=session.session_id,
                engine_id=engine.engine_id,
                tokens=session.context_tokens,
                expected_s=now + lead_s,
                expires_s=now + LIFETIME_S,
            )
        )
        self.clock.at(now + LIFETIME_S, self._expire)
        if not session.context_tokens or not worth:
            return
        fill_s = self.tiers.fill_s(session, engine.node, urgent=False)
        eta_s = self.tiers.load_s(session, engine, fill_s, urgent=False)
        if eta_s < NEVER and (not gated or prefetch_starts(eta_s, lead_s)):
            prefetched = Prefetched(
                session.session_id, session.context_tokens, now, now + lead_s, priority=session.priority
            )
            self.tiers.prefetch(session, engine, prefetched)

    def invalidate(self, session: Session) -> None:
        """Cancel an advisory with its reservation and prefetch; data already in DRAM can stay."""
        advised = self.advised.release(session.session_id)
        if advised is None:
            return
        engine = self.engines[advised.engine_id]
        self._forget_prefetch(engine.engine_id, session.session_id)
        self.tiers.abandon(session, engine.node)
        self.start_waiting(engine)

    def arrive(self, turn: Turn) -> None:
        """Serve a request."""
        session = turn.session
        reserved = self.advised.release(session.session_id)
        engine, recompute = self._choose(session, reserved)
        if not session.context_tokens:
            if session.engine is None:
                session.disk_node = engine.node
            recompute = False
        for other in self.engines:
            if other is not engine or recompute:
                self._forget_prefetch(other.engine_id, session.session_id)
        for node in range(len(self.tiers.hosts)):
            if node != engine.node or recompute:
                self.tiers.abandon(session, node)
        self.tiers.use.arrived(session.session_id, -1 if recompute else engine.node)
        session.engine = engine.engine_id
        turn.recompute = recompute
        if recompute:
            turn.prefill_left += turn.context_tokens
        elif turn.context_tokens:
            self.tiers.fill(session, engine.node, urgent=True)
        engine.bind(turn)
        engine.wait(turn)
        self.start_waiting(engine)

    def active_tokens(self) -> list[int]:
        """Return the KV tokens in each engine's batch."""
        return [engine.resident_tokens for engine in self.engines]

    def bound_requests(self) -> list[int]:
        """Return how many requests are bound to each engine."""
        return [engine.bound_requests for engine in self.engines]

    def check(self) -> None:
        """Raise if an invariant of links, memories, or reservations is violated."""
        self.tiers.check()
        self.advised.check()
        for engine in self.engines:
            engine.memory.check()
            engine.load_link.check()
            engine.store_link.check()

    def _choose(self, session: Session, reserved: AdvisedSession | None) -> tuple[SessionEngine, bool]:
        """Return the engine for an arrived request, and whether it recomputes its context."""
        placement, home = self.system.placement, session.engine
        if placement == "cost":
            cost = at_arrival(
                self._costs(session, urgent=True), reserved.engine_id if reserved is not None else None, _OVERRULE_S
            )
            return self.engines[cost.engine_id], cost.recompute
        if reserved is not None:
            engine = self.engines[reserved.engine_id]
        elif home is not None and (placement == "home" or self.system.advisories == "always"):
            engine = self.engines[home]
        else:
            engine = self._fewest_requests()
        fill_s = self.tiers.fill_s(session, engine.node, urgent=True)
        if fill_s < NEVER and self.system.may_recompute:
            return engine, self._cost(session, engine, fill_s, urgent=True).recompute
        return engine, fill_s == NEVER

    def _fewest_requests(self) -> SessionEngine:
        sessions_at = self.advised.sessions_at
        return min(
            self.engines, key=lambda engine: (engine.bound_requests + sessions_at(engine.engine_id), engine.engine_id)
        )

    def _costs(self, session: Session, *, urgent: bool) -> list[SessionCost]:
        fills = [self.tiers.fill_s(session, node, urgent=urgent) for node in range(len(self.tiers.hosts))]
        return [self._cost(session, engine, fills[engine.node], urgent=urgent) for engine in self.engines]

    def _cost(self, session: Session, engine: SessionEngine, fill_s: float, *, urgent: bool) -> SessionCost:
        context = session.context_tokens
        offer = EngineOffer(
            engine_id=engine.engine_id,
            load_s=self.tiers.load_s(session, engine, fill_s, urgent=urgent),
            prefill_backlog_s=engine.prefill_backlog_s,
            resident_tokens=engine.bound_tokens + EXPECTED_SHARE * self.advised.tokens_at(engine.engine_id),
            requests=engine.bound_requests + EXPECTED_SHARE * self.advised.sessions_at(engine.engine_id),
        )
        return cost_of(offer, context, self._speed, may_recompute=self.system.may_recompute)

    def _expire(self) -> None:
        for advised in self.advised.expire(self.clock.now):
            self._forget_prefetch(advised.engine_id, advised.session_id)
            self.start_waiting(self.engines[advised.engine_id])

    def _forget_prefetch(self, engine_id: int, session_id: int) -> None:
        prefetched = self.engines[engine_id].memory.forget(session_id)
        if prefetched is not None and prefetched.transfer is not None:
            prefetched.transfer.cancel()

    def start_waiting(self, engine: SessionEngine) -> None:
        """Assign memory to the waiting requests in order."""
        while engine.waiting:
            turn = engine.waiting[0]
            prefetched = engine.memory.prefetched.get(turn.session.session_id)
            if not engine.memory.reserve(turn.memory_tokens, self.clock.now, turn.session.session_id):
                return
            engine.waiting.popleft()
            landed = 0
            if prefetched is not None and prefetched.transfer is not None:
                landed = prefetched.landed_tokens
                prefetched.transfer.cancel()
            self._load(turn, engine, landed)

    def _load(self, turn: Turn, engine: SessionEngine, landed: int) -> None:
        if not turn.context_tokens or turn.recompute or landed >= turn.context_tokens:
            engine.admit(turn)
            return
        turn.load = self.tiers.load(turn.session, engine, landed, partial(self._chunk_loaded, turn, engine))
        if turn.load is None:
            turn.recompute = True
            turn.prefill_left += turn.context_tokens
            engine.prefill_tokens += turn.context_tokens
            engine.admit(turn)
            return
        if self.system.compressed:
            turn.step_extra_s = turn.context_tokens * DECOMPRESS_S_PER_TOKEN
        if self.system.blocking or self._nearly_loaded(turn.load, engine):
            turn.admitted = True
            engine.admit(turn)

    def _nearly_loaded(self, load: SessionTransfer, engine: SessionEngine) -> bool:
        """Return whether the remaining chunks would load within one step, so that the batch hardly has to wait."""
        link = engine.load_link
        return load.all_released and link.booked[True] / link.bytes_per_s <= engine.step_s

    def _chunk_loaded(self, turn: Turn, engine: SessionEngine, load: SessionTransfer) -> None:
        if not turn.admitted and (load.done or self._nearly_loaded(load, engine)):
            turn.admitted = True
            engine.admit(turn)
        if load.done:
            engine.loaded(load)

    def _finished(self, engine: SessionEngine, turn: Turn) -> None:
        engine.unbind(turn)
        engine.memory.release(turn.memory_tokens)
        turn.session.context_tokens = turn.memory_tokens
        self.tiers.write_back(turn.session, engine)
        self._on_answered(turn)
        self.start_waiting(engine)
