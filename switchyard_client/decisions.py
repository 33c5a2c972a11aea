"""What Switchyard's answers mean, and where to go without one. No I/O: both clients and the endpoint picker use it."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

AWAY_S = 2.0
"""After a question without an answer the next ones are not asked for so long."""
KNOWN_S = 600.0
"""An engine counts as known until its model's decisions have not named it for so long."""
AVOIDED_S = 10.0
MAX_KNOWN = 4096
"""Models that are remembered, and engines of each."""
_STEERING = "cache_salt kv_transfer_params data_parallel_rank routed_dp_rank disagg_prefill_dp_rank"
OWNED_FIELDS = frozenset((*_STEERING.split(), "bootstrap_host", "bootstrap_port", "bootstrap_room"))
"""Body fields that steer an engine, so that a client's copies are removed."""
ENDPOINTS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/embeddings"),
    *("/v1/rerank", "/rerank", "/v1/score", "/score"),
)
"""Paths whose requests are decided; the others go to any engine."""
_COUNT = r'"(?:%s)"\s*:\s*(\d{1,9})'
_READ = "cache_read_input_tokens"
_COUNTS = {
    "cached_tokens": re.compile(_COUNT % f"cached_tokens|{_READ}"),
    "output_tokens": re.compile(_COUNT % "completion_tokens|output_tokens"),
    "prompt_tokens": re.compile(_COUNT % "prompt_tokens|input_tokens"),
    _READ: re.compile(_COUNT % _READ),
}
_TAIL_BYTES = 4096
_DELTA = re.compile(rb"^event: \S*delta", re.MULTILINE)

Usage = Mapping[str, int]
"""Tokens that the engine reported: cached_tokens, output_tokens, prompt_tokens; what it did not tell is absent."""


class RejectedError(Exception):
    """Switchyard answered, and the request goes nowhere: `status`, OpenAI's error `body`, `retry_after_s`."""

    def __init__(self, status: int, body: bytes, retry_after_s: float | None = None) -> None:
        super().__init__(f"Switchyard rejected the request with status {status}")
        self.status = status
        self.body = body
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True)
class Route:
    """Where one request goes. `decision_id` is empty where nobody decided; `body` belongs into the request's."""

    engine_url: str
    decision_id: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    def merged(self, body: bytes) -> bytes:
        """Return a request body with the decision's fields; the same bytes where there are none."""
        if not self.body:
            return body
        kept = {name: value for name, value in json.loads(body).items() if name not in OWNED_FIELDS}
        return json.dumps({**kept, **self.body}).encode()


class Decisions:
    """Reads answers and remembers the engines that they name. Mutable: that memory, and `fail_opens` by reason."""

    def __init__(self, engines: Iterable[str] = ()) -> None:
        """`engines` are addresses to fall back on before any decision has named one."""
        self.fail_opens: Counter[str] = Counter()
        self._given = tuple(engines)
        self._known: dict[str, dict[str, float]] = {}
        self._salted: set[str] = set()
        self._avoided: dict[str, float] = {}
        self._away_until = 0.0
        self._turn = 0

    def away(self, now: float) -> bool:
        """Return whether Switchyard did not answer a moment ago, so that nobody waits for it again."""
        return now < self._away_until

    def answered(self, model: str, status: int, body: bytes, retry_after: str | None, now: float) -> Route:
        """Return the decision in an answer of `/api/v1/route`, or a fallback; raises RejectedError."""
        self._away_until = 0.0
        if status == 200:
            try:
                return self._decided(model, json.loads(body), now)
            except (ValueError, KeyError, TypeError):
                return self.fallback(model, "error", now)
        if status == 409:
            return self.fallback(model, "observes", now)
        if status < 500 or b'"no_engine"' in body:
            raise RejectedError(status, body, _seconds(retry_after))
        return self.fallback(model, "error", now)

    def unanswered(self, model: str, reason: str, now: float) -> Route:
        """Return a fallback after a question without an answer: `down` or `late`; raises RejectedError."""
        self._away_until = now + AWAY_S
        return self.fallback(model, reason, now)

    def fallback(self, model: str, reason: str, now: float, among: Callable[[str], bool] = bool) -> Route:
        """Return the next of the known engines in turn, `among` those; raises RejectedError where none may be used.

        A model whose decisions carry a cache salt has none: without it tenants would share their caches.
        """
        urls = [] if model in self._salted or model.endswith(_SALTED) else self.known(model, now, among)
        if not urls:
            self.fail_opens["impossible"] += 1
            raise RejectedError(503, _AWAY, 1.0)
        self.fail_opens[reason] += 1
        self._turn += 1
        return Route(urls[self._turn % len(urls)])

    def known(self, model: str, now: float, among: Callable[[str], bool] = bool) -> list[str]:
        """Return the engines that may serve a model; those that failed a moment ago only where all did."""
        seen = self._known.get(model, {})
        newest = max(seen.values(), default=0.0)
        urls = sorted(url for url in seen if newest - seen[url] <= KNOWN_S) or list(self._given)
        urls = [url for url in urls if among(url)]
        return [url for url in urls if self._avoided.get(url, 0.0) <= now] or urls

    def can_fail_open(self, now: float) -> bool:
        """Return whether any model has an engine to fall back on."""
        return any(self.known(model, now) for model in ("", *self._known))

    def avoid(self, engine_url: str, now: float) -> None:
        """Leave an engine that failed out of the fallback for AVOIDED_S."""
        self._avoided = {url: until for url, until in self._avoided.items() if until > now}
        self._avoided[engine_url] = now + AVOIDED_S

    def _decided(self, model: str, answer: Mapping[str, Any], now: float) -> Route:
        url = str(answer["engine"]["url"]).rstrip("/")
        if model in self._known or len(self._known) < MAX_KNOWN:
            known = self._known.setdefault(model, {})
            if url in known or len(known) < MAX_KNOWN:
                known[url] = now
            (self._salted.add if "cache_salt" in answer["body"] else self._salted.discard)(model)
        return Route(url, str(answer["decision_id"]), answer["body"])


_SALTED = "\0salted"
_AWAY = json.dumps(
    {"error": {"message": "Switchyard does not answer; retry.", "type": "server_error", "code": "no_decision"}}
).encode()


def model_of(request: Mapping[str, Any]) -> str:
    """Return under what a request's decisions are remembered: its model, apart where it brings a cache salt."""
    return str(request.get("model", "")) + (_SALTED if "cache_salt" in request else "")


class AnswerTail:
    """An answer on its way, of which only the last bytes are kept. Mutable."""

    def __init__(self) -> None:
        self.begun = False
        self.tail = b""
        self._named = False

    def first_token(self, chunk: bytes) -> bool:
        """Take the next chunk; return whether it brought the first token.

        A stream of named events begins with some that tell of no token, such as `response.created`.
        """
        self._named = self._named or (not self.tail and chunk.startswith(b"event:"))
        self.tail = (self.tail + chunk)[-_TAIL_BYTES:]
        if self.begun or not chunk or (self._named and not _DELTA.search(chunk)):
            return False
        self.begun = True
        return True

    @property
    def whole(self) -> bool:
        """Whether it is a stream that told its end."""
        return b"data: [DONE]" in self.tail

    def usage(self) -> dict[str, int]:
        """Return the usage that the answer ends with; empty where it tells none."""
        text = self.tail.decode("utf-8", "replace")
        found = {name: pattern.findall(text) for name, pattern in _COUNTS.items()}
        usage = {name: int(counts[-1]) for name, counts in found.items() if counts}
        if (read := usage.pop(_READ, 0)) and "prompt_tokens" in usage:
            usage["prompt_tokens"] += read  # Anthropic's input_tokens leave them out
        return usage


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None
