"""A fleet of one system, and sessions with caches on it, for the tests of fleet and nodes."""

from functools import partial
from unittest.mock import patch

from kvstore.transactions.expected_blocks import Expected
from simulator.sessions.hardware import ENGINES, SERVED_MODELS, Hardware
from simulator.sessions.session_fleet import SessionFleet
from simulator.sessions.session_nodes import NODE_NAMES
from simulator.sessions.systems import system_named
from simulator.sessions.turn import BLOCK_TOKENS, Session, Turn
from simulator.virtual_clock import VirtualClock

MODEL = SERVED_MODELS["8b"]
CONTEXT = 312 * BLOCK_TOKENS
NAMES = [f"engine-{number + 1}" for number in range(ENGINES)]
KV_BYTES = 131_072
SOON = Expected(11.0, 60.0)


class Bench:
    """A fleet of one system, sessions with caches on node 0, and the answered requests."""

    def __init__(self, system: str, *, dram_gb: float = 200.0, memory_tokens: int = MODEL.num_blocks) -> None:
        self.clock = VirtualClock()
        self.answered: list[Turn] = []
        hardware = Hardware(dram_bytes=dram_gb * 1e9)
        self.fleet = SessionFleet(
            self.clock, system_named(system), MODEL, hardware, memory_tokens, self.answered.append
        )
        self._sessions = 0

    def session(self, context: int = CONTEXT, engine: int = 0, *, on_disk: bool = False) -> Session:
        self._sessions += 1
        session = Session(self._sessions, context, demoted=on_disk)
        self.fleet.join(session, engine)
        session.demoted = False
        return session

    def ask(self, session: Session, answer: int = 2) -> Turn:
        turn = Turn(session, 10, answer, self.clock.now)
        self.fleet.arrive(turn)
        return turn

    def send(self, session: Session) -> None:
        self.ask(session, answer=20)

    def keep_busy(self, engine: int, requests: int = 8, context: int = CONTEXT) -> None:
        """Send long requests to an engine, whatever the system would choose."""
        router, others = self.fleet.router, frozenset(NAMES) - {NAMES[engine]}
        with patch.object(router, "place", partial(router.place, hold=False, excluded=others)):
            for _ in range(requests):
                self.ask(self.session(context, engine), answer=2_000)

    def reserved(self) -> list[int]:
        """Return how many announced sessions the router expects at each engine."""
        router = self.fleet.router
        return [router.advised.sessions.sessions_at(router.fleet.known_target(name)) for name in NAMES]

    def dram_tokens(self, session: Session) -> list[int]:
        return [self.fleet.nodes.dram_blocks(session, node) * BLOCK_TOKENS for node in NODE_NAMES]

    def disk_bytes(self) -> float:
        return sum(link.carried_bytes for link in self.fleet.nodes.disks.values())

    def run(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)
        self.fleet.check()


def served_by(turn: Turn) -> int:
    assert turn.session.engine is not None
    return turn.session.engine
