"""The outcome of each simulated request, and an optional log of all events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from routing.values.inference_request import InferenceRequest

UNFINISHED, FINISHED, REJECTED, FAILED = "unfinished", "finished", "rejected", "failed"


@dataclass(slots=True, eq=False)
class RequestRecord:
    """The course of one request. Times are in virtual seconds, None for events that never happened. Mutable."""

    request: InferenceRequest
    output_tokens: int
    status: str = UNFINISHED
    engine_id: str = ""
    """The engine that the request is queued for or dispatched to."""
    dispatched_s: float | None = None
    compute_s: float = 0.0
    """Estimated seconds of its prefill at dispatch."""
    first_token_s: float | None = None
    finished_s: float | None = None
    hit_tokens: int | None = None
    """Prompt tokens in the engine's cache at the start of the prefill."""
    transferred_tokens: int = 0
    """Prompt tokens loaded from another engine's cache or from a node manager."""
    load_s: float = 0.0
    """Seconds that the request waited for blocks from a node manager."""
    migrations: int = 0
    """Number of times the request changed engines while it waited."""

    @property
    def ttft_s(self) -> float | None:
        """Seconds from arrival to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.request.arrived_s

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds between output tokens; None for outputs of one token."""
        if self.finished_s is None or self.first_token_s is None or self.output_tokens < 2:
            return None
        return (self.finished_s - self.first_token_s) / (self.output_tokens - 1)

    @property
    def e2e_s(self) -> float | None:
        """Seconds from arrival to the last token."""
        return None if self.finished_s is None else self.finished_s - self.request.arrived_s


class EventLog(Protocol):
    """Receives all events in order."""

    def note(self, at_s: float, kind: str, request_id: str, engine_id: str) -> None:
        """Record an event at this virtual time; ids that do not apply are empty."""
