"""What an engine does wrong on purpose: it hangs, crawls, or says what is not so; and what only seems wrong.

An engine started with `--faults` takes one by `POST /fault`; `GET /health` stays 200 under all of them.
"""

from __future__ import annotations

import re
import time
from typing import Literal

Fault = Literal["", "hang", "crawl", "lie", "idle", "frozen", "garbage", "sleep", "compile", "busy"]
"""hang: takes requests, brings nothing. crawl: everything takes `CRAWL_FACTOR` times as long. lie: hangs while its
counters grow. idle: hangs and says that it has nothing to do. frozen, garbage: serves, and its metrics stand or are
nonsense. sleep: brings nothing and says that it sleeps, as vLLM does. compile: brings nothing for `COMPILE_S`, and goes
on by itself. busy: serves, and its API server answers probes after `BUSY_S`."""

CRAWL_FACTOR = 20.0
COMPILE_S = 20.0
BUSY_S = 3.0
_LIED_TOKENS_PER_S = 400.0
_STANDING = ("hang", "lie", "idle", "sleep", "compile")
_COUNTS = re.compile(rb"^(vllm:num_requests_(?:running|waiting)\{[^}]*\}) \S+$", re.MULTILINE)
_TOKENS = re.compile(rb"^(vllm:(?:prompt|generation)_tokens_total\{[^}]*\}) (\S+)$", re.MULTILINE)
_ASLEEP = b'vllm:engine_sleep_state{engine="0",sleep_state="awake"} 0.0\n'


def rate_under(fault: Fault) -> float:
    """Return at which share of its speed the engine works."""
    return 0.0 if fault in _STANDING else 1.0 / CRAWL_FACTOR if fault == "crawl" else 1.0


class ToldMetrics:
    """What the engine says of itself. Mutable: the fault, since when, and the text that froze."""

    def __init__(self) -> None:
        self.fault: Fault = ""
        self._since = 0.0
        self._frozen: bytes | None = None

    def begin(self, fault: Fault) -> None:
        """Speak under this fault from now on; empty: truly."""
        self.fault, self._since, self._frozen = fault, time.monotonic(), None

    def load(self, true: int) -> int:
        """Return how many requests it says that it holds."""
        return 0 if self.fault == "idle" else true

    def text(self, true: bytes) -> bytes:
        """Return the exposition that it gives out in place of the true one."""
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
            return _TOKENS.sub(lambda found: b"%s %.1f" % (found[1], float(found[2]) + more), true)
        return true
