"""One attempt of a request at one engine, as a value, and its failures before the client gets a byte."""

from __future__ import annotations

import asyncio
from math import inf
from typing import TYPE_CHECKING

import msgspec

from gateway.pools.engines.breaker import CONNECT, HTTP_4XX, HTTP_5XX, NO_PROGRESS, THROTTLED, TIMEOUT
from gateway.pools.engines.engine_progress import hang_limit_s
from gateway.pools.engines.engine_rejection import EngineRejection
from gateway.proxy.forwarded_request import ForwardedRequest
from gateway.proxy.progress_guard import AnswerLimits
from gateway.requests.formats.engine_error import reason_in
from gateway.requests.formats.hit_figures import HitsUnreadableError, with_cached_tokens
from gateway.server.http.http_exchange import Header
from gateway.server.http.openai_error import ApiError

if TYPE_CHECKING:
    from gateway.pools.engines.live_engine import LiveEngine
    from gateway.pools.pool.live_pool import LivePool

HANDOFF = "handoff"
"""Cause of an engine's answer to a prefill leg without a hand-over, which is no failure of the engine."""
RETRIED_FREELY = frozenset({CONNECT, NO_PROGRESS})
"""Causes that remove the engine from rotation at once. A retry elsewhere adds no load to it and needs no budget."""


GENEROUS = 10.0
"""An answer can take this multiple of its expected time, if that exceeds the limit of all answers."""
ASSUMED_TPOT_S = 0.1
"""TPOT in seconds of an engine without a measured TPOT."""


class RelaySettings(msgspec.Struct, frozen=True):
    """Relay limits in seconds. `answer_s` and `hang_s` are the minimum of what EngineLimits allows."""

    answer_s: float
    hang_s: float
    connect_s: float = 2.0
    client_s: float = 120.0
    """Timeout for a client to read a chunk of its answer."""
    comment_s: float = 0.0
    """GatewaySettings.stream_comment_s."""

    def limits(
        self, pool: LivePool, engine_id: str, request: ForwardedRequest, prefill_s: float = 0.0, *, leg: bool = False
    ) -> AnswerLimits:
        """Return the time limits of an attempt. A working engine needs less.

        `leg`: its first byte follows bounded work, such as a prefill or the transfer of a prompt.
        """
        progress, entry = pool.progress.engine(engine_id), pool.entry
        hang_s = hang_limit_s(self.hang_s, progress.longest_start_s, prefill_s)
        tokens = (request.max_tokens or entry.max_prompt_tokens) if request.endpoint.generates else 0
        expected_s = max(prefill_s, progress.longest_start_s) + tokens * (progress.tpot_s or ASSUMED_TPOT_S)
        return AnswerLimits(
            whole_s=max(self.answer_s, GENEROUS * expected_s),
            start_s=hang_s if leg else inf,
            client_s=self.client_s,
        )


class PrefillEnd(msgspec.Struct, frozen=True):
    """Result of a prefill leg that runs concurrently with its decode leg."""

    failure: AttemptFailure | None = None
    rejection: tuple[int, bytes, list[Header]] | None = None
    """The engine's rejection of the client's own request: status, body and headers."""
    client_cached_tokens: int | None = None
    """Cached prompt tokens reported to the client, or HIDDEN; None: as the decode engine reports."""

    @property
    def went_well(self) -> bool:
        """Return whether the prompt's KV was handed over."""
        return self.failure is None and self.rejection is None


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of a request at one engine. Times in seconds. It is lost or stuck if either of its engines is."""

    engine: LiveEngine
    request: ForwardedRequest
    limits: AnswerLimits
    prefill_s: float = 0.0
    """Seconds of prefill expected on the engine."""
    partner: LiveEngine | None = None
    """The other engine of a pair, without which this attempt is useless."""
    after: asyncio.Task[PrefillEnd] | None = None
    """The prefill that runs concurrently. No part of the answer counts before it ends."""

    @property
    def lost(self) -> bool:
        """Return whether no result is expected from it."""
        return self.engine.lost or (self.partner is not None and self.partner.lost)

    @property
    def stuck(self) -> bool:
        """Return whether it should move to another engine unless the answer has begun."""
        return self.engine.stuck or (self.partner is not None and self.partner.stuck)

    def shown(self, body: bytes, status: int) -> bytes:
        """Return a complete answer as the client may see it; raise AttemptFailedError if hits cannot be removed."""
        cached = self.request.cached_tokens
        try:
            return body if cached is None else with_cached_tokens(body, cached)
        except HitsUnreadableError:
            raise self.failed(HTTP_5XX, status) from None

    def failed(self, kind: str, status: int = 0, *, proves: bool = False, final: bool = False) -> AttemptFailedError:
        """Return the error that ends the attempt and blames this engine."""
        return AttemptFailedError(AttemptFailure(kind, self.engine.entry.engine_id, status, proves, final=final))


class AttemptFailure(msgspec.Struct, frozen=True):
    """Why an attempt failed. `kind` is the breaker's cause, or HANDOFF."""

    kind: str
    engine_id: str
    """Which engine failed."""
    status: int = 0
    proves: bool = False
    """Whether it is evidence against the engine. A timeout is none if this process was suspended."""
    rejection: EngineRejection | None = None
    """The engine's answer, which the client gets if all engines give the same."""
    final: bool = False
    """Whether no other engine may try, because this one may have worked until the end."""

    def as_error(self) -> ApiError:
        """Return the error for the client if no other attempt is made."""
        if self.kind == TIMEOUT:
            remedy = "ask for fewer tokens" if self.final else "try again"
            return ApiError(504, f"The engine did not answer in time; {remedy}.", "engine_timeout", retry_after_s=1.0)
        if self.kind == HANDOFF:
            return ApiError(502, "The engine did not hand over the prompt; try again.", "handoff_failed")
        if self.kind == THROTTLED:
            pause_s = self.rejection.pause_s if self.rejection is not None else None
            message = "The engines are busy; try again later."
            return ApiError(503, message, "engine_busy", retry_after_s=pause_s or 1.0)
        if self.kind == HTTP_5XX and self.status == 200:
            return ApiError(502, "The engine's answer could not be read; try again.", "engine_error")
        if self.kind in (HTTP_4XX, HTTP_5XX):
            reason = reason_in(self.rejection.body) if self.rejection is not None else ""
            message = f"The engine failed with status {self.status}" + (f": {reason}" if reason else "; try again.")
            return ApiError(502, message, "engine_error")
        return ApiError(503, "No engine accepted the request; try again.", "engine_unreachable", retry_after_s=1.0)


class AttemptFailedError(Exception):
    """An attempt ended without a complete answer."""

    def __init__(self, failure: AttemptFailure) -> None:
        super().__init__(failure.kind)
        self.failure = failure
