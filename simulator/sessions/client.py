"""What a simulated client does next: the protocol that conversations and agents share."""

from __future__ import annotations

from typing import Protocol

import msgspec

from simulator.sessions.turn import Session


class NextTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A client's next request."""

    session: Session
    prompt_tokens: int
    answer_tokens: int
    after_s: float
    """From the end of the client's request before it."""
    lead_s: float | None
    """How long before the request its advisory comes; None: agents before it tell, by the call graph."""
    agent: str = ""
    """Who asks; empty: a person."""
    workflow: int = 0
    """The project that the agent works on."""


class SessionClient(Protocol):
    """One client in a closed loop."""

    def sessions(self) -> list[Session]:
        """Return the sessions that have caches from the start."""

    def next_turn(self) -> NextTurn:
        """Return the request after the one that was returned last, whose session has got its answer by then."""
