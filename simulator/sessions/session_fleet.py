"""Engines, nodes, and the router of one system: receives advisories and requests, returns completed turns.

The router decides; the fleet carries out its decisions as the gateway, the node managers, and the engines do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from kvstore.transactions.expected_blocks import Expected
from routing.advisories.advised_routing import Advised
from routing.values.decision import Decision, Dispatched, Outcome, Rejected
from routing.values.inference_request import InferenceRequest
from routing.values.load_options import Fetch
from routing.values.observation import Completed, FirstToken
from simulator.engine_models.engine_profile import EngineProfile
from simulator.link import QueuedLink, Transfer
from simulator.sessions.engine_memory import EngineMemory, Prefetched
from simulator.sessions.hardware import DECOMPRESS_S_PER_TOKEN, ENGINES, ENGINES_PER_NODE, Hardware
from simulator.sessions.session_engine import SessionEngine
from simulator.sessions.session_nodes import NODE_NAMES, SessionNodes
from simulator.sessions.systems import System, router_of
from simulator.sessions.turn import BLOCK_TOKENS, Session, Turn
from simulator.virtual_clock import Timer, VirtualClock

_WAKE_S = 0.001
"""Resolution of the router's timer, as in the gateway."""


class SessionFleet:
    """The fleet under the virtual clock.

    Mutable state: `router`, `engines`, `nodes`, and their contents; `_turns` (requests in the system by id), `_open`
    (session → its advisory), and the router's timer.
    """

    def __init__(
        self,
        clock: VirtualClock,
        system: System,
        profile: EngineProfile,
        hardware: Hardware,
        memory_tokens: int,
        on_answered: Callable[[Turn], None],
    ) -> None:
        self.clock = clock
        self.system = system
        self.nodes = SessionNodes(clock, hardware, profile, system)
        self.engines = [
            SessionEngine(
                number,
                NODE_NAMES[number // ENGINES_PER_NODE],
                clock,
                profile,
                EngineMemory(memory_tokens, system.memory_order, pinned=system.pinned),
                QueuedLink(hardware.pcie_bytes_per_s, clock),
                QueuedLink(hardware.pcie_bytes_per_s, clock),
                self._first_token,
                self._finished,
                layerwise=system.layerwise,
            )
            for number in range(ENGINES)
        ]
        self._by_name = {engine.name: engine for engine in self.engines}
        self.nodes.set_engines(self.engines)
        self.router = router_of(system, profile, list(self._by_name), self.nodes.ledger)
        self._on_answered = on_answered
        self._numbers = count()
        self._turns: dict[str, Turn] = {}
        self._open: dict[int, Advised] = {}
        self._timer = Timer(clock, lambda: self._carry_out(self.router.tick(clock.now)))

    def join(self, session: Session, number: int) -> None:
        """Add a session whose last request ran on an engine, with its cache there."""
        session.engine, session.prompted_tokens = number, session.context_tokens
        self.nodes.put(session, self.engines[number].node)
        self.served_on(session, self.engines[number])

    def served_on(self, session: Session, engine: SessionEngine) -> None:
        """Let the router learn which engine served a session's last request."""
        request = self._request(f"last-{next(self._numbers)}", session, session.context_tokens)
        others = frozenset(self._by_name) - {engine.name}
        self.router.place(request, self.clock.now, hold=False, excluded=others)
        self._carry_out(self.router.observe(Completed(request.request_id), self.clock.now))

    def moved(self, turn: Turn, engine: SessionEngine) -> None:
        """Record that a running request continues on another engine: it counts there from now on."""
        self._carry_out(self.router.observe(Completed(turn.request_id), self.clock.now))
        del self._turns[turn.request_id]
        turn.session.engine, turn.request_id = engine.engine_id, f"request-{next(self._numbers):08}"
        self._turns[turn.request_id] = turn
        request = self._request(turn.request_id, turn.session, turn.prompt_end)
        self.router.place(request, self.clock.now, hold=False, excluded=frozenset(self._by_name) - {engine.name})
        self._carry_out(self.router.observe(FirstToken(turn.request_id), self.clock.now))

    # -- advisories

    def advise(self, session: Session, lead_s: float) -> None:
        """Apply an advisory: let the router reserve an engine, and move the blocks that it names."""
        if session.engine is None:
            # As in the gateway: without an earlier request, nothing is known of a session.
            return
        now, last = self.clock.now, self.engines[session.engine]
        # A gateway knows the keys of the last prompt, but not yet those of its answer.
        tokens = session.prompted_tokens if self.system.ordered else session.context_tokens
        request = self._request("", session, tokens, at_least=session.context_tokens)
        advised = self.router.advise(request, last.name, lead_s, now, self.nodes.backlog())
        if advised is None:
            return
        engine, before = self._by_name[advised.engine_id], self._open.get(session.session_id)
        if before is not None and before.engine_id != engine.name:
            self._forget_prefetch(self._by_name[before.engine_id], session)
        self._open[session.session_id] = advised
        self.clock.at(advised.expires_s, self._expire, session, advised)
        move = None
        if advised.staging is not None:
            move = self.nodes.stage(session, advised.staging, Expected(now + lead_s, advised.expires_s))
        if self.system.prefetches:
            self._prefetch(session, engine, advised, move)

    def invalidate(self, session: Session) -> None:
        """Cancel an advisory with its reservation and prefetch; data already in DRAM can stay."""
        advised = self._open.pop(session.session_id, None)
        if advised is None:
            return
        engine = self._by_name[advised.engine_id]
        self.router.withdraw("", str(session.session_id))
        self._forget_prefetch(engine, session)
        self.nodes.end_move(session)
        self.start_waiting(engine)

    def _expire(self, session: Session, advised: Advised) -> None:
        if self._open.get(session.session_id) is advised:
            self.invalidate(session)

    def _prefetch(self, session: Session, engine: SessionEngine, advised: Advised, move: Transfer | None) -> None:
        """Load a session's cache into the memory of its reserved engine, as far as its node has it or receives it."""
        in_dram = self.nodes.dram_blocks(session, engine.node)
        blocks = in_dram
        if move is not None and advised.staging is not None:
            blocks = session.keys(session.context_tokens).index(advised.staging.keys[-1]) + 1
        tokens = blocks * BLOCK_TOKENS
        prefetched = Prefetched(session.session_id, tokens, self.clock.now, priority=session.priority)
        if blocks and engine.memory.prefetch(prefetched):
            prefetched.transfer = Transfer(
                [engine.load_link],
                blocks * self.nodes.block_bytes,
                lambda item: self.nodes.use.landed(session.session_id, engine.node, item.chunk_bytes),
                urgent=False,
                after=move,
                ready_share=in_dram / blocks,
            ).start()

    def _forget_prefetch(self, engine: SessionEngine, session: Session) -> None:
        prefetched = engine.memory.forget(session.session_id)
        if prefetched is not None and prefetched.transfer is not None:
            prefetched.transfer.cancel()

    # -- requests

    def arrive(self, turn: Turn) -> None:
        """Serve a request."""
        session = turn.session
        self._open.pop(session.session_id, None)
        turn.request_id = f"request-{next(self._numbers):08}"
        self._turns[turn.request_id] = turn
        session.prompted_tokens = turn.prompt_end
        if self.system.ordered:
            # The router knows the blocks that have arrived: a node reports each part of a move.
            self.nodes.end_move(session)
        request = self._request(turn.request_id, session, turn.prompt_end)
        self._carry_out([self.router.place(request, self.clock.now)])

    def _request(self, name: str, session: Session, tokens: int, *, at_least: int = 0) -> InferenceRequest:
        return InferenceRequest(
            name,
            session.keys(tokens),
            max(tokens, at_least),
            BLOCK_TOKENS,
            self.clock.now,
            self.router.policy.ttft_slo_s,
            session_id=str(session.session_id),
            priority=0 if session.priority else 1,
        )

    def _carry_out(self, outcomes: Iterable[Outcome]) -> None:
        """Apply the router's outcomes, and set its timer."""
        for outcome in outcomes:
            if isinstance(outcome, Dispatched):
                self._serve(self._turns[outcome.decision.decision_id], outcome.decision)
            elif isinstance(outcome, Rejected):
                raise AssertionError(f"{outcome.request_id} was rejected ({outcome.code}), but clients wait for ever")
        due_s = self.router.next_wake(self.clock.now) if self.router.waiting else None
        if due_s is not None and (self._timer.due_s is None or due_s < self._timer.due_s):
            self._timer.set(max(due_s, self.clock.now + _WAKE_S))

    def _serve(self, turn: Turn, decision: Decision) -> None:
        session, engine = turn.session, self._by_name[decision.engine_id]
        session.engine = engine.engine_id
        self.nodes.follow_move(session, engine.node)
        for other in self.engines:
            if other is not engine:
                self._forget_prefetch(other, session)
        blocks, source = self._way(turn, engine, decision.fetch)
        prefetched = engine.memory.prefetched.get(session.session_id)
        held_tokens = 0 if prefetched is None else prefetched.held
        turn.expect_load(max(blocks * BLOCK_TOKENS, held_tokens), source)
        self.nodes.use.arrived(session.session_id, engine.node if turn.loaded_tokens else "")
        engine.bind()
        engine.wait(turn)
        self.start_waiting(engine)

    def _way(self, turn: Turn, engine: SessionEngine, fetch: Fetch | None) -> tuple[int, str]:
        """Return how many blocks to load for a request, and from where."""
        if not self.system.ordered:
            return self.nodes.reach(turn, engine.node)
        return (fetch.blocks, fetch.node) if fetch is not None else (0, "")

    def active_tokens(self) -> list[int]:
        """Return the KV tokens in each engine's batch."""
        return [engine.resident_tokens for engine in self.engines]

    def bound_requests(self) -> list[int]:
        """Return how many requests are bound to each engine."""
        return [engine.bound_requests for engine in self.engines]

    def check(self) -> None:
        """Raise if an invariant of router, nodes, links, or memories is violated."""
        self.router.check()
        self.router.advised.sessions.check()
        self.nodes.check()
        for engine in self.engines:
            engine.memory.check()
            engine.load_link.check()
            engine.store_link.check()

    def start_waiting(self, engine: SessionEngine) -> None:
        """Assign memory to the waiting requests in order."""
        while engine.unplaced:
            turn = engine.unplaced[0]
            prefetched = engine.memory.prefetched.get(turn.session.session_id)
            if not engine.memory.reserve(turn.memory_tokens, turn.session.session_id):
                return
            engine.unplaced.popleft()
            landed = 0
            if prefetched is not None and prefetched.transfer is not None:
                landed = prefetched.landed_tokens // BLOCK_TOKENS
                prefetched.transfer.cancel()
            self._load(turn, engine, landed)

    def _load(self, turn: Turn, engine: SessionEngine, landed: int) -> None:
        if landed * BLOCK_TOKENS >= turn.loaded_tokens:
            engine.admit(turn)
            return
        tokens = turn.loaded_tokens
        load = turn.load = self.nodes.load(turn, engine, landed, partial(self._chunk_loaded, turn, engine))
        if load is None:
            turn.expect_load(landed * BLOCK_TOKENS, turn.source)
            engine.admit(turn)
            return
        if self.system.compressed:
            turn.step_extra_s = tokens * DECOMPRESS_S_PER_TOKEN
        if self.system.blocking or self._nearly_loaded(load, engine):
            turn.admitted = True
            engine.admit(turn)
        elif self.system.ordered:
            self.clock.after(self.nodes.patience_s(turn, engine), self._stop_late, turn, engine, load, landed)

    def _stop_late(self, turn: Turn, engine: SessionEngine, load: Transfer, landed: int) -> None:
        if turn.load is load and not turn.admitted:
            turn.load = None
            self.nodes.stop(load)
            turn.expect_load(landed * BLOCK_TOKENS, turn.source)
            engine.admit(turn)

    def _nearly_loaded(self, load: Transfer, engine: SessionEngine) -> bool:
        """Return whether the remaining chunks would load within one step, so that the batch hardly has to wait."""
        link = engine.load_link
        return load.all_released and link.booked[True] / link.bytes_per_s <= engine.step_s

    def _chunk_loaded(self, turn: Turn, engine: SessionEngine, load: Transfer) -> None:
        if not turn.admitted and (load.done or self._nearly_loaded(load, engine)):
            turn.admitted = True
            engine.admit(turn)
        if load.done:
            engine.loaded(load)

    # -- what the router observes

    def _first_token(self, engine: SessionEngine, turn: Turn) -> None:
        self._carry_out(self.router.observe(FirstToken(turn.request_id), self.clock.now))
        self._report(engine)

    def _finished(self, engine: SessionEngine, turn: Turn) -> None:
        engine.unbind()
        engine.memory.release(turn.memory_tokens)
        turn.session.context_tokens = turn.memory_tokens
        self.nodes.store_turn(turn, engine)
        del self._turns[turn.request_id]
        self._carry_out(self.router.observe(Completed(turn.request_id, turn.loaded_tokens), self.clock.now))
        self._report(engine)
        self._on_answered(turn)
        self.start_waiting(engine)

    def _report(self, engine: SessionEngine) -> None:
        room = engine.memory.capacity - engine.memory.active_tokens
        self._carry_out(self.router.report(engine.name, engine.pending_requests, self.clock.now, room))
