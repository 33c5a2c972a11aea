"""Interprets an engine's answers to a probe, and sets its timeouts.

A busy API server answers late and out of order, so only an engine that answers neither /health nor /metrics is silent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from math import ldexp
from typing import Any

import aiohttp

from gateway.pools.engines.engine_tls import UNTRUSTED

SLOWER = 2.0
"""Timeout of a read as a multiple of the slowest recent answer."""
LONGEST = 6.0
"""Longest timeout of a read as a multiple of its configured timeout."""
_ANSWERS_KEPT = 16
_HEALTH_FIRST = 0.2
"""Share of its timeout after which a probe also requests the metrics."""


class EngineUnreachableError(Exception):
    """No HTTP answer arrived. `refused`: no process listens, so a second probe is unnecessary."""

    def __init__(self, message: str, *, refused: bool = False, timed_out: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.timed_out = timed_out


def unreachable(error: aiohttp.ClientError | OSError) -> EngineUnreachableError:
    """Return why no answer arrived."""
    cause: BaseException | None = getattr(error, "os_error", None) or error
    if isinstance(cause, ConnectionRefusedError):
        return EngineUnreachableError("connection refused", refused=True)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return EngineUnreachableError(UNTRUSTED)
    if isinstance(error, aiohttp.ServerDisconnectedError) or isinstance(cause, ConnectionError):
        return EngineUnreachableError("connection lost")
    return EngineUnreachableError(f"connection failed: {type(cause).__name__}")


class EngineAnswerError(Exception):
    """The answer was unusable. `status` is set for an HTTP status other than 200."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class EnginePausedError(EngineAnswerError):
    """The engine answers and reports itself as idle."""


class Patience:
    """The timeout for reads of one engine: longer if it answers late, and after each silent probe but the first.

    Mutable: the duration of its last answers to /health, and the number of consecutive silent probes.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._took_s: deque[float] = deque(maxlen=_ANSWERS_KEPT)
        self._silent = 0

    @property
    def seconds(self) -> float:
        """Return the current timeout of a read in seconds."""
        slowest_s = max(self._took_s, default=0.0)
        # The exponent is bounded, because ldexp raises OverflowError.
        again_s = ldexp(self._timeout_s, max(0, min(self._silent, int(LONGEST)) - 1))
        return min(LONGEST * self._timeout_s, max(self._timeout_s, SLOWER * slowest_s, again_s))

    def note(self, took_s: float) -> None:
        """Record the duration of an answer to /health."""
        self._took_s.append(took_s)

    def probed(self, *, silent: bool) -> None:
        """Record the end of a probe."""
        self._silent = self._silent + 1 if silent else 0


async def probe(
    health: Callable[[], Coroutine[Any, Any, None]],
    silence: Callable[[float], Coroutine[Any, Any, EngineUnreachableError | None]],
    patience: Patience,
) -> str:
    """Return why `health` is late if `silence` shows that the engine is alive, else empty; raise the errors of
    `health`.
    """
    wait_s, asked = patience.seconds, [asyncio.ensure_future(health())]
    metrics: Awaitable[EngineUnreachableError | None] | None = None
    try:
        await asyncio.wait(asked, timeout=_HEALTH_FIRST * wait_s)
        if not asked[0].done():
            metrics = asyncio.ensure_future(silence((1.0 - _HEALTH_FIRST) * wait_s))
        late = await _lateness(asked[0], metrics)
    except EngineUnreachableError as error:
        patience.probed(silent=error.timed_out)
        raise
    except EngineAnswerError:
        patience.probed(silent=False)
        raise
    finally:
        for item in (asked[0], metrics):
            if isinstance(item, asyncio.Future):
                item.cancel()
    patience.probed(silent=False)
    return late


async def _lateness(health: Awaitable[None], metrics: Awaitable[EngineUnreachableError | None] | None) -> str:
    try:
        await health
    except EngineUnreachableError as error:
        if not error.timed_out or metrics is None:
            raise
        silence = await metrics
        if silence is not None:
            # A refused connection is more certain than a time-out.
            raise (error if silence.timed_out else silence) from None
        return f"{error}, but metrics are answered"
    return ""
