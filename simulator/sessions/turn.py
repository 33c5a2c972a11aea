"""A session, one of its requests, and the protocol of the simulated clients that send them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from kvstore.keys.block_keys import key_seed, rekey_hashes

if TYPE_CHECKING:
    from simulator.link import Transfer


BLOCK_TOKENS = 64
"""Tokens of a block key. A context of tens of thousands of tokens has hundreds of keys, which costs under 1 ms."""
_MOST_BLOCKS = 1 << 16
_SALT = key_seed(b"headway session simulation", "simulated")


@dataclass(slots=True, eq=False)
class Session:
    """A conversation. Mutable: `context_tokens` grows with each turn, `engine` is the engine of its last turn."""

    session_id: int
    context_tokens: int = 0
    planned_tokens: int = 0
    """Tokens of all turns that the client has requested so far, including the current one."""
    prompted_tokens: int = 0
    """Tokens of its last prompt. A router knows only their block keys until the next request."""
    engine: int | None = None
    priority: bool = False
    """Whether its requests have priority over others (SYMPHONY §3.6)."""
    demoted: bool = False
    """Whether its cache is kept on disk between turns even if DRAM has space."""
    _keys: tuple[int, ...] = ()

    def keys(self, tokens: int) -> tuple[int, ...]:
        """Return the keys of the full blocks in its first `tokens` tokens."""
        blocks = tokens // BLOCK_TOKENS
        if blocks > len(self._keys):
            # Twice as many, to compute them seldom.
            first = self.session_id * _MOST_BLOCKS
            self._keys = rekey_hashes(_SALT, range(first, first + 2 * blocks))
        return self._keys[:blocks]


class Turn:
    """One request of a session. Mutable.

    Times are in virtual seconds.
    """

    __slots__ = (
        "admitted", "answer_tokens", "arrived_s", "context_tokens", "finished_s", "first_token_s", "generated",
        "load", "loaded_tokens", "memory_tokens", "migrating", "prompt_tokens", "request_id",
        "session", "source", "step_extra_s",
    )  # fmt: skip

    def __init__(self, session: Session, prompt_tokens: int, answer_tokens: int, arrived_s: float) -> None:
        self.session = session
        self.request_id = ""
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.arrived_s = arrived_s
        self.context_tokens = session.context_tokens
        self.memory_tokens = self.prompt_end + answer_tokens
        self.loaded_tokens = 0
        """Tokens of the context that are loaded; the others are computed."""
        self.source = ""
        """Node from which they are loaded."""
        self.load: Transfer | None = None
        self.step_extra_s = 0.0
        self.generated = 0
        """Tokens of its answer that it had when it left an engine for another one."""
        self.admitted = False
        self.migrating = False
        self.first_token_s: float | None = None
        self.finished_s: float | None = None

    @property
    def prompt_end(self) -> int:
        """Number of tokens of context and prompt together."""
        return self.context_tokens + self.prompt_tokens

    @property
    def keys(self) -> tuple[int, ...]:
        """Block keys of context and prompt."""
        return self.session.keys(self.prompt_end)

    def expect_load(self, tokens: int, source: str) -> None:
        """Plan to load the first `tokens` tokens, and to compute the others."""
        self.loaded_tokens, self.source = tokens, source


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
