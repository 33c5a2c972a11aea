"""What the routing core says about one request: where it goes, why, and what else could have been."""

from __future__ import annotations

import msgspec

CENTRAL = -1
"""Target of a Choice that leaves the request unbound in the pool's queue."""


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """One scored engine. Hits in prompt tokens, times in seconds, cost in the placement's own unit."""

    engine_id: str
    hit_tokens: int
    wait_s: float
    compute_s: float
    cost: float
    blocks: int = 0
    """Leading blocks of the prompt that the engine holds or is about to hold, whatever the trust in that."""


class Choice(msgspec.Struct, frozen=True, gc=False):
    """A placement's answer: an index into `view.targets` (or CENTRAL), with the scores that led there."""

    target: int
    reason: str
    """A code of routing.reasons; rendered to words only when somebody reads it."""
    candidates: tuple[Candidate, ...] = ()
    """The best few, the chosen one first."""


class Decision(msgspec.Struct, frozen=True, gc=False):
    """Where one request goes and why. Dashboard, logs, records and tests read this same object."""

    decision_id: str
    """The request's id."""
    pool_id: str
    engine_id: str
    """Empty while the request is unbound."""
    incarnation: int
    placement: str
    order: str
    policy_version: int
    reason: str
    prompt_tokens: int
    hit_tokens: int
    """Predicted cached prompt tokens on the chosen engine."""
    wait_s: float
    compute_s: float
    decided_s: float
    """Monotonic seconds of the deciding process."""
    queued_s: float = 0.0
    """Seconds the ticket waited before its grant (0 until granted)."""
    candidates: tuple[Candidate, ...] = ()


class Granted(msgspec.Struct, frozen=True, gc=False):
    """Send the request to `decision.engine_id` at once; a reservation stands there."""

    decision: Decision


class Queued(msgspec.Struct, frozen=True, gc=False):
    """The request waits at the gateway as a ticket; its Granted or Refused comes from a later call."""

    decision: Decision


class Refused(msgspec.Struct, frozen=True, gc=False):
    """The request gets no engine: `code` is one of no_engine, queue_full, wait_expired, hopeless."""

    request_id: str
    code: str
    retry_after_s: float


Outcome = Granted | Queued | Refused
