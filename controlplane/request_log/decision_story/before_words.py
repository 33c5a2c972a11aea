"""What happened between a request's arrival and the choice of its engine, and whose time it was."""

from __future__ import annotations

from dataclasses import dataclass, replace

from controlplane.platform.format import duration
from gateway.contracts.regret import ATTEMPT, GATEWAY, SLOW_GATEWAY_S, TOKENIZER
from gateway.contracts.stored_decision import StoredDecision

WAIT = "wait"
"""Kind of the time between the question to the router and its choice; the other kinds are causes of regret."""
_FAILURES = {
    "connect": ("could not be reached", "engine unreachable"),
    "engine_unreachable": ("could not be reached", "engine unreachable"),
    "timeout": ("did not answer in time", "timed out"),
    "engine_timeout": ("did not answer in time", "timed out"),
    "http_5xx": ("answered with a server error", "engine's server error"),
    "http_4xx": ("rejected it", "rejected by engine"),
    "throttled": ("answered that it is busy", "engine busy"),
    "engine_busy": ("answered that it is busy", "engine busy"),
    "broken_stream": ("broke off its answer", "connection lost while streaming"),
    "no_progress": ("made no progress", "engine made no progress"),
    "handoff": ("handed over nothing", "no KV handed over"),
    "engine_removed": ("was removed from the fleet", "engine removed"),
    "engine_rejects_key": ("rejected Headway's key", "engine rejected Headway's key"),
    "reported_by_caller": ("failed, as its caller reported", "failure reported by caller"),
}
"""Code of a failure → what the engine did, as the end of a sentence; and the same in a table cell."""


@dataclass(frozen=True, slots=True)
class BeforePart:
    """One part of the time before the decision."""

    kind: str
    seconds: float
    engine: str = ""
    """Name of the engine whose tokenizer or attempt took it."""
    cause: str = ""

    @property
    def words(self) -> str:
        """Return whose time it was, as a label."""
        if self.kind == TOKENIZER:
            return f"Tokenizer of {self.engine}"
        if self.kind == ATTEMPT:
            return f"Attempt on {self.engine}"
        return "Gateway" if self.kind == GATEWAY else "Until an engine was chosen"


def before_parts(stored: StoredDecision) -> list[BeforePart]:
    """Return the parts of `decided_after_s`, in order; they add up to it."""
    left_s = stored.decided_after_s
    asked_s = min(left_s, stored.asked_after_s)
    waits = [BeforePart(TOKENIZER, item.seconds, item.name or item.engine_id) for item in stored.tokenizers]
    failed = [
        BeforePart(ATTEMPT, item.ended_after_s - item.begun_after_s, item.name or item.engine_id, item.cause)
        for item in stored.failures
    ]
    waited_s = min(asked_s, sum(part.seconds for part in waits))
    tried_s = min(left_s - asked_s, sum(part.seconds for part in failed))
    parts = [
        BeforePart(GATEWAY, asked_s - waited_s),
        *_shrunk(waits, waited_s),
        BeforePart(WAIT, left_s - asked_s - tried_s),
        *_shrunk(failed, tried_s),
    ]
    return [part for part in parts if part.seconds > 0.0]


def seconds_of(stored: StoredDecision, kind: str) -> float:
    """Return the seconds of one kind."""
    return sum(part.seconds for part in before_parts(stored) if part.kind == kind)


def slowest(stored: StoredDecision, kind: str) -> BeforePart:
    """Return the longest part of a kind; one of an unnamed engine if there is none."""
    parts = [part for part in before_parts(stored) if part.kind == kind]
    return max(parts, key=lambda part: part.seconds, default=BeforePart(kind, 0.0, "an engine"))


def failure_words(code: str) -> str:
    """Return what failed, as the end of a sentence."""
    return f"the engine {_FAILURES[code][0]}" if code in _FAILURES else f"it failed ({code or 'no reason recorded'})"


def failure_title(code: str) -> str:
    """Return what failed, for a table cell."""
    if code in _FAILURES:
        return f"Failed, {_FAILURES[code][1]}"
    return f"Failed, {code.replace('_', ' ')}" if code else "Failed"


def before_words(stored: StoredDecision) -> str:
    """Return a sentence about each part that took long, empty if none did."""
    said = ""
    for part in before_parts(stored):
        if part.kind == ATTEMPT:
            said += f"An attempt on {part.engine} took {duration(part.seconds)}: {failure_words(part.cause)}. "
        elif part.kind != WAIT and part.seconds >= SLOW_GATEWAY_S:
            said += f"The {part.words[:1].lower()}{part.words[1:]} took {duration(part.seconds)}. "
    return said


def _shrunk(parts: list[BeforePart], to_s: float) -> list[BeforePart]:
    """Return the parts with `to_s` seconds in total: clocks of two records may differ by a little."""
    share = to_s / (sum(part.seconds for part in parts) or 1.0)
    return [replace(part, seconds=part.seconds * share) for part in parts]
