"""The next request of a simulated client: the protocol that conversations and agents implement."""

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
    """Seconds between the end of the client's previous request and this request."""
    lead_s: float | None
    """Seconds by which its advisory precedes the request; None if preceding agents send it, based on the call graph."""
    agent: str = ""
    """The agent that sends the request; empty for a person."""
    workflow: int = 0
    """The project that the agent works on."""


class SessionClient(Protocol):
    """One client in a closed loop."""

    def sessions(self) -> list[Session]:
        """Return the sessions that have a cache from the start."""

    def next_turn(self) -> NextTurn:
        """Return the request after the last returned one, which has been answered by then."""
