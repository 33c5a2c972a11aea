"""Deliberate faults of an engine: it hangs, crawls, or reports wrong values; also states that only resemble faults.

An engine started with `--faults` accepts a fault by `POST /fault`. `GET /health` returns 200 under all of them. The
engine model's time is scaled real time, which faults stop or slow.
"""

from __future__ import annotations

import random
import re
import time
from array import array
from typing import Literal

from simulator.engine_models.tokenizer import tokenize


class ModelClock:
    """Model seconds since the engine started. Mutable: the clock's rate, its start, and the latest returned time."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self._rate = 1.0
        self._since = time.monotonic()
        self._base = 0.0
        self._latest = 0.0

    def now(self) -> float:
        """Return the current time, which never goes back."""
        self._latest = max(self._latest, self._base + (time.monotonic() - self._since) * self._speed)
        return self._latest

    def run_at(self, rate: float) -> None:
        """Set the rate as a share of the usual speed; 0 stops the clock."""
        self._base, self._since = self.now(), time.monotonic()
        self._rate = rate

    def due_in(self, moment: float) -> float | None:
        """Return the real seconds until a model time; None while the clock is stopped."""
        return max(0.0, (moment - self.now()) / self._speed) if self._rate else None

    def has_come_to(self, moment: float) -> None:
        """Record that the timer for this time fired. Event loops round to milliseconds, sometimes down."""
        self._latest = max(self._latest, moment)

    @property
    def _speed(self) -> float:
        return self._scale * self._rate


Fault = Literal[
    "", "hang", "crawl", "lie", "idle", "frozen", "garbage", "sleep", "compile", "busy", "template", "evict",
]  # fmt: skip
"""hang: accepts requests but generates nothing. crawl: everything takes `CRAWL_FACTOR` times as long. lie: hangs while
its counters grow. idle: hangs and reports that it is idle. frozen, garbage: serves, but its metrics are constant or
invalid. sleep: generates nothing and reports that it sleeps, as vLLM does. compile: generates nothing for
`COMPILE_S`, then continues by itself. busy: serves, but its API server responds to probes only after `BUSY_S`.
template: chats begin with a text that changes. evict: once, blocks of no request take all free KV memory.
"""

CRAWL_FACTOR = 20.0
COMPILE_S = 20.0
NEW_TEMPLATE = "It is {:019d}. "
"""Text with which chats begin under the fault `template`, with nanoseconds: no two prompts begin alike."""
BUSY_S = 3.0
_LIED_TOKENS_PER_S = 400.0
_STALLED = ("hang", "lie", "idle", "sleep", "compile")
_COUNTS = re.compile(rb"^(vllm:num_requests_(?:running|waiting)\{[^}]*\}) \S+$", re.MULTILINE)
_TOKENS = re.compile(rb"^(vllm:(?:prompt|generation)_tokens_total\{[^}]*\}) (\S+)$", re.MULTILINE)
_ASLEEP = b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0\n'


def rate_under(fault: Fault) -> float:
    """Return the engine's speed under the fault, as a share of its usual speed."""
    return 0.0 if fault in _STALLED else 1.0 / CRAWL_FACTOR if fault == "crawl" else 1.0


def crowd(blocks: int) -> list[int]:
    """Return as many keys, which no prompt has."""
    return [random.getrandbits(63) for _ in range(blocks)]


class ReportedMetrics:
    """What the engine reports and renders under a fault. Mutable: the fault, its start, and the frozen text."""

    def __init__(self) -> None:
        self.fault: Fault = ""
        self._since = 0.0
        self._frozen: bytes | None = None

    def begin(self, fault: Fault) -> None:
        """Start to report under this fault; empty for true values."""
        self.fault, self._since, self._frozen = fault, time.monotonic(), None

    def templated(self, tokens: array[int]) -> array[int]:
        """Return the tokens of a rendered prompt by the current chat template."""
        return tokenize(NEW_TEMPLATE.format(time.time_ns())) + tokens if self.fault == "template" else tokens

    def load(self, true: int) -> int:
        """Return the reported number of requests."""
        return 0 if self.fault == "idle" else true

    def text(self, true: bytes) -> bytes:
        """Return the exposition to report instead of the true one."""
        if self.fault == "frozen":
            self._frozen = self._frozen or true
            return self._frozen
        if self.fault == "garbage":
            return _COUNTS.sub(rb"\1 NaN", true)
        if self.fault == "idle":
            return _COUNTS.sub(rb"\1 0.0", true)
        if self.fault == "sleep":
            return true + _ASLEEP
        if self.fault == "lie":
            more = _LIED_TOKENS_PER_S * (time.monotonic() - self._since)
            return _TOKENS.sub(lambda match: b"%s %.1f" % (match[1], float(match[2]) + more), true)
        return true
