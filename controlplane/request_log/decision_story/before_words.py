"""What happened between a request's arrival and the choice of its engine, and whose time it was."""

from __future__ import annotations

from dataclasses import dataclass

from controlplane.platform.format import duration
from gateway.contracts.regret import SLOW_GATEWAY_S
from gateway.contracts.stored_decision import FailedAttempt, StoredDecision

GATEWAY_TIME, TOKENIZER_TIME, ATTEMPT_TIME, WAIT_TIME = "gateway", "tokenizer", "attempt", "wait"
_FAILURES = {
    "connect": "could not be reached",
    "timeout": "did not answer in time",
    "http_5xx": "answered with a server error",
    "http_4xx": "rejected it",
    "throttled": "answered that it is busy",
    "broken_stream": "broke off its answer",
    "no_progress": "made no progress",
    "handoff": "handed over nothing",
}


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
        if self.kind == TOKENIZER_TIME:
            return f"Tokenizer of {self.engine}"
        if self.kind == ATTEMPT_TIME:
            return f"Attempt on {self.engine}"
        return "Gateway" if self.kind == GATEWAY_TIME else "Until an engine was chosen"


def before_parts(stored: StoredDecision) -> list[BeforePart]:
    """Return the parts of `decided_after_s`, in order; they add up to it."""
    left_s = stored.decided_after_s
    asked_s = min(left_s, stored.asked_after_s)
    waits = [BeforePart(TOKENIZER_TIME, item.seconds, item.name or item.engine_id) for item in stored.tokenizers]
    failed = [
        BeforePart(ATTEMPT_TIME, item.ended_after_s - item.begun_after_s, item.name or item.engine_id, item.cause)
        for item in stored.failures
    ]
    waited_s = min(asked_s, sum(part.seconds for part in waits))
    tried_s = min(left_s - asked_s, sum(part.seconds for part in failed))
    parts = [
        BeforePart(GATEWAY_TIME, asked_s - waited_s),
        *_shrunk(waits, waited_s),
        BeforePart(WAIT_TIME, left_s - asked_s - tried_s),
        *_shrunk(failed, tried_s),
    ]
    return [part for part in parts if part.seconds > 0.0]


def seconds_of(stored: StoredDecision, kind: str) -> float:
    """Return the seconds of one kind."""
    return sum(part.seconds for part in before_parts(stored) if part.kind == kind)


def longest(stored: StoredDecision, kind: str) -> BeforePart | None:
    """Return the longest part of a kind, None if there is none."""
    return max(
        (part for part in before_parts(stored) if part.kind == kind), key=lambda part: part.seconds, default=None
    )


def failure_words(attempt: FailedAttempt) -> str:
    """Return what an engine did wrong: "e-03 could not be reached"."""
    return f"{attempt.name or attempt.engine_id} {_FAILURES.get(attempt.cause, f'failed ({attempt.cause})')}"


def failure_code_words(code: str) -> str:
    """Return an error code in words, as far as it has some."""
    return f"the engine {_FAILURES[code]}" if code in _FAILURES else code


def before_words(stored: StoredDecision) -> str:
    """Return sentences about each part that took long, empty if none did."""
    said = []
    for part in before_parts(stored):
        if part.kind == ATTEMPT_TIME:
            did = _FAILURES.get(part.cause, f"failed ({part.cause})")
            said.append(f"An attempt on {part.engine} took {duration(part.seconds)}: it {did}. ")
        elif part.seconds >= SLOW_GATEWAY_S and part.kind == TOKENIZER_TIME:
            said.append(f"The tokenizer of {part.engine} took {duration(part.seconds)}. ")
        elif part.seconds >= SLOW_GATEWAY_S and part.kind == GATEWAY_TIME:
            said.append(f"The gateway itself took {duration(part.seconds)}. ")
    return "".join(said)


def _shrunk(parts: list[BeforePart], to_s: float) -> list[BeforePart]:
    """Return the parts with `to_s` seconds in total: clocks of two records may differ by a little."""
    total_s = sum(part.seconds for part in parts)
    share = to_s / total_s if total_s else 0.0
    return [BeforePart(part.kind, part.seconds * share, part.engine, part.cause) for part in parts]
