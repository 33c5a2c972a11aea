"""A session, and one of its requests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.sessions.links import SessionTransfer


@dataclass(slots=True, eq=False)
class Session:
    """A conversation. Mutable: `context_tokens` grows with each turn, `engine` is the engine of its last turn.

    `disk_tokens` of its KV cache are on the disk of `disk_node`, the node where the session began.
    """

    session_id: int
    context_tokens: int = 0
    planned_tokens: int = 0
    """Tokens of all turns that the client has requested so far, including the current one."""
    engine: int | None = None
    disk_node: int = 0
    disk_tokens: int = 0
    disk_booked: int = 0
    """Number of tokens on disk after the current writes end."""
    priority: bool = False
    """Whether its requests have priority over others (SYMPHONY §3.6)."""
    demoted: bool = False
    """Whether its cache is kept on disk between turns even if DRAM has space."""


class Turn:
    """One request of a session. Mutable.

    Times are in virtual seconds; `prefill_left` is in tokens, `finish_step` in decode steps of its engine.
    """

    __slots__ = (
        "admitted", "answer_tokens", "arrived_s", "context_tokens", "finish_step", "finished_s", "first_token_s",
        "load", "memory_tokens", "migrating", "prefill_left", "prompt_tokens", "recompute", "session", "step_extra_s",
    )  # fmt: skip

    def __init__(self, session: Session, prompt_tokens: int, answer_tokens: int, arrived_s: float) -> None:
        self.session = session
        self.prompt_tokens = prompt_tokens
        self.answer_tokens = answer_tokens
        self.arrived_s = arrived_s
        self.context_tokens = session.context_tokens
        self.prefill_left = prompt_tokens
        self.memory_tokens = self.context_tokens + prompt_tokens + answer_tokens
        self.recompute = self.context_tokens > 0
        self.load: SessionTransfer | None = None
        self.step_extra_s = 0.0
        self.finish_step = 0
        self.admitted = False
        self.migrating = False
        self.first_token_s: float | None = None
        self.finished_s: float | None = None

    @property
    def prompt_end(self) -> int:
        """Number of tokens of context and prompt together."""
        return self.context_tokens + self.prompt_tokens
