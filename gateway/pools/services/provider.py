"""An external OpenAI-compatible provider: its key, its connections, and when it gets no requests.

The client's key never reaches it, and its own key is sent to its address only: redirects are not followed.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from math import inf
from time import monotonic
from urllib.parse import urlsplit

import aiohttp

from gateway.base.engine_api_keys import provider_key
from gateway.base.event_log import log_event
from gateway.contracts.snapshot import ProviderEntry

FAILURES = 3
"""Consecutive failures that pause a provider."""
PAUSE_S, MAX_PAUSE_S = 10.0, 300.0
"""The first pause, which doubles with each further failure, and its limit."""
CONNECT_S = 5.0
KEY_S = 5.0
"""A key is read again after this time, so that a rotated file needs no restart."""
PAUSED, NO_KEY = "paused", "no_key"
_VERSION = "/v1"
_BROKEN = (aiohttp.ClientError, OSError, asyncio.IncompleteReadError)
"""TimeoutError is an OSError."""


class ProviderFailedError(Exception):
    """The provider gave no answer, or broke it off. `status` is its error's; 0: none was received.

    `pause_s`: how long it asks to be left alone.
    """

    def __init__(self, cause: str, status: int = 0, pause_s: float | None = None) -> None:
        super().__init__(cause)
        self.status = status
        self.pause_s = pause_s


class Provider:
    """One provider of one gateway, used on its event loop.

    Mutable: the key as last read, the consecutive failures, and the end of the pause after them.
    """

    def __init__(self, entry: ProviderEntry, session: Callable[[], aiohttp.ClientSession]) -> None:
        self.entry = entry
        self.host = urlsplit(entry.url).hostname or ""
        self._session = session
        self._read = -inf, ""
        self._failures = 0
        self._paused_until_s = 0.0

    def unready(self, now: float) -> str:
        """Return why it gets no requests now: PAUSED or NO_KEY; empty if it does."""
        if now < self._paused_until_s:
            return PAUSED
        return NO_KEY if self.entry.key_variable and not self._key(now) else ""

    def succeeded(self) -> None:
        """Record an answer."""
        self._failures = 0

    def failed(self, failure: ProviderFailedError, now: float) -> None:
        """Record a failure. Pause after several in a row, after a rejected key, or as the provider asks."""
        self._failures += 1
        rejects_key, beyond = failure.status in (401, 403), self._failures - FAILURES
        if rejects_key or beyond >= 0:
            pause_s = MAX_PAUSE_S if rejects_key else min(MAX_PAUSE_S, PAUSE_S * 2.0 ** min(beyond, 10))
            self._pause(now, pause_s, failure.status)
        elif failure.pause_s:
            self._pause(now, min(failure.pause_s, MAX_PAUSE_S), failure.status)

    def _pause(self, now: float, pause_s: float, status: int) -> None:
        self._paused_until_s = now + pause_s
        remedy = (
            f"check {self.entry.key_variable or 'whether the provider needs a key'}" if status in (401, 403) else ""
        )
        log_event(
            "provider_paused", level=logging.WARNING, provider=self.host, status=status, pause_s=pause_s, remedy=remedy
        )

    @asynccontextmanager
    async def answer(
        self, path: str, body: bytes, *, silence_s: float, whole_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer to a request with this path below /v1; raise ProviderFailedError, within the block, too.

        `silence_s` limits the time without a byte, `whole_s` that of the whole answer.
        """
        limits = aiohttp.ClientTimeout(total=whole_s, sock_connect=CONNECT_S, sock_read=silence_s)
        url = self.entry.url.rstrip("/") + path.removeprefix(_VERSION)
        try:
            async with self._session().post(
                url, data=body, headers=self._headers(monotonic()), timeout=limits, allow_redirects=False
            ) as response:
                yield response
        except _BROKEN as error:
            raise ProviderFailedError(type(error).__name__) from None

    def _headers(self, now: float) -> Mapping[str, str]:
        key = self._key(now)
        credentials = {"authorization": f"Bearer {key}"} if key else {}
        return {
            "content-type": "application/json",
            "accept-encoding": "identity",
            "user-agent": "headway",
            **credentials,
        }

    def _key(self, now: float) -> str:
        read_s, key = self._read
        if now - read_s >= KEY_S:
            key = provider_key(self.entry.key_variable)
            self._read = now, key
        return key


def provider_session() -> aiohttp.ClientSession:
    """Return a session for all providers, without cookies and environment proxies.

    It is not that of the engines, whose client certificate and authorities do not concern providers.
    """
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context()),
        auto_decompress=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
    )
