"""Error responses for requests that the router or this gateway rejects.

Retry-After is `Rejected.retry_after_s` (routing/values/decision.py). Each part that rejects computes its own value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.server.http.openai_error import ApiError
from gateway.server.process.drain import SENTENCE, SHUTDOWN
from routing.values.counted import count
from routing.values.decision import Rejected

if TYPE_CHECKING:
    from gateway.pools.pool.recent_decisions import DecisionRecord

_SENTENCES = {
    "no_engine": (503, "No engine of this model is available; try again."),
    "queue_full": (429, "The queue for this model is full; try again later."),
    "wait_expired": (429, "The request reached the maximum wait without an engine; try again later."),
    "infeasible": (429, "No engine can meet the request's TTFT objective; try again later."),
    "prefill_overload": (429, "The request would miss its TTFT objective; try again later."),
    "decode_overload": (429, "The engines' time per output token would be too high; try again later."),
    SHUTDOWN: (503, SENTENCE),
    "gateway_late": (429, "This gateway cannot keep up; try again later."),
    "deadline_passed": (429, "The deadline of the request's SLO class passed while it waited; try again later."),
    "engine_unreachable": (503, "No engine accepted the request; try again."),
    "engine_busy": (503, "The engines are busy; try again later."),
    "taken_back": (409, "The region that forwarded the request was silent for too long."),
}

_DROPPED = {
    "no_engine": "rejected-no-endpoints",
    "wait_expired": "rejected-ttl-expired",
    "deadline_passed": "rejected-ttl-expired",
    SHUTDOWN: "rejected-shutting-down",
    "taken_back": "",
}
_SATURATED = "rejected-saturated"
"""The reasons by which clients of llm-d decide whether to retry; any other code of ours means saturation."""


OVERFLOWS = frozenset((
    "no_engine", "queue_full", "wait_expired", "infeasible", "prefill_overload", "decode_overload", "deadline_passed",
))  # fmt: skip
"""Codes of a pool that takes no work or cannot be on time. Another pool or a provider of the service may."""


class PoolRejectedError(ApiError):
    """A pool did not take a request that other parts of its service may take. Nothing was recorded as its end."""

    def __init__(self, rejected: Rejected, pause_s: float | None, record: DecisionRecord | None) -> None:
        error = rejection(rejected, pause_s)
        super().__init__(error.status, error.message, error.code, retry_after_s=error.retry_after_s)
        self.rejected = rejected
        self.record = record
        """That of its attempts at engines; None: it got no engine."""


def rejection(rejected: Rejected, pause_s: float | None = None) -> ApiError:
    """Return the 409, 429 or 503 for a rejection with its retry time. `pause_s` replaces the retry time of a 429."""
    status, message = _SENTENCES.get(rejected.code, _SENTENCES["queue_full"])
    retry_after_s = rejected.retry_after_s if pause_s is None or status != 429 else pause_s
    dropped = _DROPPED.get(rejected.code, _SATURATED)
    return ApiError(status, message, rejected.code, retry_after_s=retry_after_s, dropped_reason=dropped)


def prompt_too_long(prompt_tokens: int, limit: int) -> ApiError:
    """Return the 400 for a prompt over the pool's limit."""
    message = (
        f"The prompt has {count(prompt_tokens, 'token')}; the limit of this model is {limit}. Send a shorter prompt."
    )
    return ApiError(400, message, "context_length_exceeded", param="messages")
