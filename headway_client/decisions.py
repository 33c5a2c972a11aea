"""Interprets Headway's answers, and chooses the fallback without one. I/O-free, for both clients and the picker."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

AWAY_S, AVOIDED_S, KNOWN_S = 2.0, 10.0, 600.0
"""Seconds without calls after an unanswered call; seconds for which the fallback avoids a failed engine; seconds for
which it keeps a named engine.
"""
_SALT = "cache_salt"
OWNED_FIELDS = {
    _SALT, "priority", "request_id", "rid", "kv_transfer_params", "ec_transfer_params", "data_parallel_rank",
    "routed_dp_rank", "disagg_prefill_dp_rank", "bootstrap_host", "bootstrap_port", "bootstrap_room", "extra_key",
    "lora_path", "session_params", "input_ids", "custom_logit_processor", "logits_processors", "kv_cache_report_mode",
}  # fmt: skip
"""Body fields that only Headway sets. A client's values are removed."""
_APIS = ("chat/completions", "completions", "responses", "messages", "embeddings", "rerank", "score")
ENDPOINTS = (*(f"/v1/{item}" for item in _APIS), "/rerank", "/v2/rerank", "/score", "/pooling", "/classify")
"""Paths whose requests need a decision. Any engine can serve the others."""
CLIENT_HEADERS = (
    "x-session-id", "x-parent-session-id", "x-dynamo-session-id", "x-dynamo-parent-session-id",
    "x-claude-code-session-id", "x-claude-code-parent-agent-id", "x-claude-code-agent-id", "session-id",
    "x-codex-parent-thread-id", "thread-id", "x-session-affinity", "x-agent", "x-workflow-id", "x-headway-slo-class",
    "x-llm-d-inference-objective", "x-gateway-inference-objective", "x-headway-ttft-slo-ms", "x-llm-d-slo-ttft-ms",
    "x-sgl-ttft-slo-ms", "x-headway-tpot-slo-ms", "x-llm-d-slo-tpot-ms", "x-headway-cache-hint", "traceparent",
    "tracestate",
)  # fmt: skip
"""Headers of a client with facts for the decision."""
_DECISION, _REQUEST_ID = "x-headway-decision", "x-request-id"
_PASSED_ON = ("retry-after", "www-authenticate", _DECISION, "x-llm-d-request-dropped-reason")
_SALTED = "\0salted"
_COUNT = re.compile(r'"(cached|cache_read_input|completion|output|prompt|input)_tokens"\s*:\s*(\d{1,9})')
_CONTENT = re.compile(
    rb'"(?:content|reasoning_content|reasoning|refusal|text|arguments|name|finish_reason)"\s*:\s*"[^"]'
    rb"|^event: ?\S*delta",
    re.MULTILINE,
)
_ERROR = re.compile(
    rb'^data: ?\{\s*"(?:error"\s*:\s*[{"]|object"\s*:\s*"error)|^event: ?(?:error|\S+\.failed)', re.MULTILINE
)
_ERROR_BODY, _ERROR_BYTES = re.compile(rb'\{\s*"error"\s*:\s*[{"]'), 16
"""Patterns that detect the first content or an error without parsing the answer. _ERROR_BODY needs the first
_ERROR_BYTES bytes.
"""
_OURS = {"cache_read_input": "cached", "completion": "output", "input": "prompt"}
_NO_DECISION = b'{"error":{"message":"Headway does not answer; retry.","type":"server_error","code":"no_decision"}}'


class RejectedError(Exception):
    """Headway rejected the request. It has `status`, the error's `body`, `headers` for the client, `retry_after_s`."""

    def __init__(
        self, status: int, body: bytes, retry_after_s: float | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(f"Headway rejected the request with status {status}")
        self.status, self.body, self.retry_after_s = status, body, retry_after_s
        after = {} if retry_after_s is None else {"retry-after": f"{retry_after_s:.0f}"}
        self.headers = {**after, **(headers or {})}


@dataclass(frozen=True, slots=True)
class Route:
    """The engine for one request, with the fields and headers to add. `decision_id` is empty for a fallback."""

    engine_url: str
    decision_id: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    def merged(self, body: bytes) -> bytes:
        """Return a request body with the decision's fields added, the same bytes if there are none."""
        if not self.body:
            return body
        kept = {name: value for name, value in json.loads(body).items() if name not in OWNED_FIELDS}
        return json.dumps({**kept, **self.body}).encode()


class Decisions:
    """Parses answers and stores the engines that they name. Mutable: these engines, and `fail_opens` by reason."""

    def __init__(self, engines: Iterable[str] = ()) -> None:
        """`engines` are the fallback addresses until a decision has named an engine."""
        self.fail_opens: Counter[str] = Counter()
        self._given, self._salted, self._turn, self._away_until = tuple(engines), set[str](), 0, 0.0
        self._known: dict[str, dict[str, float]] = {}
        self._avoided: dict[str, float] = {}

    def away(self, now: float) -> bool:
        """Return whether a recent call was unanswered, so that requests do not wait for Headway now."""
        return now < self._away_until

    def answered(self, model: str, status: int, body: bytes, headers: Mapping[str, str], now: float) -> Route:
        """Return the decision in an answer of `/api/v1/route`, or a fallback; raise RejectedError for a rejection."""
        self._away_until = 0.0
        if status == 200:
            with suppress(ValueError, KeyError, TypeError):
                return self._decided(model, json.loads(body), now)
        # Rejections are final; 409 (the pool only observes) and server errors fail open, unless there is no engine.
        elif status != 409 and (status < 500 or b'"no_engine"' in body):
            passed, after = (
                {name: headers[name] for name in _PASSED_ON if name in headers},
                headers.get("retry-after", ""),
            )
            # Not a date, which HTTP allows as well (RFC 9110, §10.2.3).
            raise RejectedError(status, body, float(after) if after.isdigit() else None, passed)
        return self.fallback(model, "observes" if status == 409 else "error", now)

    def fallback(self, model: str, reason: str, now: float, among: Callable[[str], bool] = bool) -> Route:
        """Return the next known engine, in turn, that `among` accepts; raise RejectedError if there is none.

        There is none if decisions carry a cache salt: without the salt, tenants would share their caches. After `down`
        and `late`, Headway is not called for AWAY_S.
        """
        self._away_until = now + AWAY_S if reason in ("down", "late") else self._away_until
        # A salted model without a decision has no salt to send.
        urls = [] if model in self._salted or model.endswith(_SALTED) else self.known(model, now, among)
        self.fail_opens[reason if urls else "impossible"] += 1
        if not urls:
            raise RejectedError(503, _NO_DECISION, 1.0)
        self._turn += 1
        return Route(urls[self._turn % len(urls)])

    def without_prompt(self, now: float, among: Callable[[str], bool] = bool) -> Route:
        """Return the next known engine of any model, for a request without a prompt; raise RejectedError if none."""
        urls = sorted({url for model in self._known for url in self.known(model, now, among)}) or self.known(
            "", now, among
        )
        if not urls:
            raise RejectedError(503, _NO_DECISION, 1.0)
        self._turn += 1
        return Route(urls[self._turn % len(urls)])

    def known(self, model: str, now: float, among: Callable[[str], bool] = bool) -> list[str]:
        """Return the engines that can serve a model. Recently failed engines are included only if all have failed."""
        urls = [url for url in sorted(self._known.get(model, ())) or self._given if among(url)]
        # If all failed, one that may have recovered is better than none.
        return [url for url in urls if self._avoided.get(url, 0.0) <= now] or urls

    def can_fail_open(self) -> bool:
        """Return whether any model has an engine to fall back on."""
        return bool(self._given or self._known)

    def avoid(self, engine_url: str, now: float) -> None:
        """Exclude a failed engine from the fallback for AVOIDED_S."""
        kept = {url: until for url, until in self._avoided.items() if until > now}
        self._avoided = {**kept, engine_url: now + AVOIDED_S}

    def _decided(self, model: str, answer: Mapping[str, Any], now: float) -> Route:
        engine, body = answer["engine"], answer["body"]
        # Clients may choose equal ids, and an engine's name of the request must be the only one.
        headers = {_REQUEST_ID: str(answer["decision_id"])}
        if "rank" in engine:
            headers["x-data-parallel-rank"] = str(engine["rank"])
        route = Route(str(engine["url"]).rstrip("/"), str(answer["decision_id"]), body, headers)
        (self._salted.add if _SALT in body else self._salted.discard)(model)
        known = {url: at for url, at in self._known.get(model, {}).items() if now - at <= KNOWN_S}
        self._known[model] = {**known, route.engine_url: now}
        return route


def forwarded(headers: Mapping[str, str]) -> dict[str, str]:
    """Return what a decision needs of a client's headers: its facts, key, and request id."""
    # The HTTP client sends no other values.
    headers = {name.lower(): value for name, value in headers.items() if value.isascii()}
    facts = {name: headers[name] for name in CLIENT_HEADERS if name in headers}
    authorization = headers.get("authorization") or (f"Bearer {key}" if (key := headers.get("x-api-key")) else "")
    own = {"client-authorization": authorization, "client-request-id": headers.get(_REQUEST_ID, "")}
    return {**facts, **{f"x-headway-{name}": value for name, value in own.items() if value}}


def answer_headers(route: Route, headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to add to the answer for a client that sent `headers`: the ids of decision and request."""
    names = {_DECISION: route.decision_id, _REQUEST_ID: headers.get(_REQUEST_ID) or route.decision_id}
    return {name: value for name, value in names.items() if value}


def model_of(request: Mapping[str, Any]) -> str:
    """Return the key under which decisions are stored: the model, and whether the request has a cache salt."""
    return str(request.get("model", "")) + (_SALTED if _SALT in request else "")


class AnswerTail:
    """The last bytes of an answer in transit. Mutable."""

    begun, tail, failed = False, b"", False
    """`failed`: the engine sent an error instead of an answer, whatever the status code."""
    _is_whole: bool | None = None

    def first_token(self, chunk: bytes) -> bool:
        """Process the next chunk; return whether it contains the first token (in a stream, the first content)."""
        # A pattern may span two chunks, so the search includes the previous tail.
        seen = self.tail + chunk
        self.tail = seen[-4096:]
        if self.begun or self.failed or not (begin := seen.lstrip()):
            return False
        self._is_whole = begin.startswith(b"{") if self._is_whole is None else self._is_whole
        # Too short to distinguish an error from an answer: wait for the next chunk.
        if self._is_whole and len(begin) < _ERROR_BYTES:
            return False
        self.failed = bool(_ERROR_BODY.match(begin) if self._is_whole else _ERROR.search(seen))
        self.begun = not self.failed and bool(self._is_whole or _CONTENT.search(seen))
        return self.begun

    @property
    def whole(self) -> bool:
        """Return whether a stream has sent its end marker."""
        return b"data: [DONE]" in self.tail

    def usage(self) -> dict[str, int]:
        """Return the usage at the end of the answer, empty if it reports none."""
        counts = dict(_COUNT.findall(self.tail.decode("utf-8", "replace")))
        usage = {f"{_OURS.get(name, name)}_tokens": int(tokens) for name, tokens in counts.items()}
        if "input" in counts:  # Anthropic's input count leaves out tokens read from the cache
            usage["prompt_tokens"] += int(counts.get("cache_read_input", 0))
        return usage
