"""The clients of the decision API. What they do is written once, as coroutines; the blocking one's never suspend."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from typing_extensions import override

from switchyard_client.decisions import Decisions, RejectedError, Route, model_of

try:
    import httpx2 as httpx
except ImportError:  # older openai packages bring httpx, which has the same interface
    import httpx  # type: ignore[import-not-found,no-redef]

__all__ = ["AsyncSwitchyard", "Switchyard", "httpx", "run_blocking"]

T = TypeVar("T")


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise RuntimeError("a blocking client waited for an event loop")


class AsyncSwitchyard:
    """Asks and reports on one event loop."""

    def __init__(
        self, url: str, api_key: str, *, engines: Iterable[str] = (), late_s: float = 1.0, wait: bool = False
    ) -> None:
        """`engines`: addresses to fall back on at first; `late_s`: how long an answer may take. With `wait` Switchyard
        may queue a request for the policy's Max wait, and `late_s` has to be longer than that."""
        self.decisions = Decisions(engines)
        self.lost_reports = 0
        self._url = url.rstrip("/")
        self._wait = wait
        headers = {"Authorization": f"Bearer {api_key}", "Content-Type": "application/json"}
        self._http: Any = self._open(headers=headers, timeout=late_s)

    async def decide(self, request: Mapping[str, Any], *, patience_s: float = 0.0) -> Route:
        """Return where a chat or completion body should go; raises RejectedError.

        A rejected request is asked again after its Retry-After, as long as that ends within `patience_s`.
        """
        until = time.monotonic() + patience_s
        while True:
            try:
                return await self._ask(request)
            except RejectedError as error:
                if error.retry_after_s is None or time.monotonic() + error.retry_after_s > until:
                    raise
                await self._sleep(error.retry_after_s)

    async def report(self, route: Route, verb: str, usage: Mapping[str, int] | None = None) -> None:
        """Tell what came of a request: first_token, complete (with usage), fail or cancel. Never raises."""
        now = time.monotonic()
        if verb == "fail":
            self.decisions.avoid(route.engine_url, now)
        if not route.decision_id:
            return
        try:
            if self.decisions.away(now):
                raise httpx.TransportError("Switchyard did not answer a moment ago")
            where = f"{self._url}/api/v1/requests/{route.decision_id}/{verb}"
            await self._post(where, json.dumps(dict(usage or {})).encode())
        except httpx.TransportError:
            self.lost_reports += 1

    async def aclose(self) -> None:
        """Close the connections to Switchyard."""
        await self._http.aclose()

    async def _ask(self, request: Mapping[str, Any]) -> Route:
        model = model_of(request)
        if self.decisions.away(now := time.monotonic()):
            return self.decisions.fallback(model, "away", now)
        try:
            answer = await self._post(f"{self._url}/api/v1/route", json.dumps({**request, "wait": self._wait}).encode())
        except httpx.TransportError as error:
            reason = "late" if isinstance(error, httpx.TimeoutException) else "down"
            return self.decisions.unanswered(model, reason, time.monotonic())
        after = answer.headers.get("retry-after")
        return self.decisions.answered(model, answer.status_code, answer.content, after, time.monotonic())

    def _open(self, **options: Any) -> Any:
        return httpx.AsyncClient(**options)

    async def _post(self, url: str, content: bytes) -> httpx.Response:
        return await self._http.post(url, content=content)  # type: ignore[no-any-return]

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Switchyard:
    """As AsyncSwitchyard, with blocking calls; may be shared between threads."""

    def __init__(self, url: str, api_key: str, **options: Any) -> None:
        self.calls = _BlockingCalls(url, api_key, **options)
        self.decisions = self.calls.decisions

    def decide(self, request: Mapping[str, Any], *, patience_s: float = 0.0) -> Route:
        """Return where a chat or completion body should go, as AsyncSwitchyard.decide; raises RejectedError."""
        return run_blocking(self.calls.decide(request, patience_s=patience_s))

    def report(self, route: Route, verb: str, usage: Mapping[str, int] | None = None) -> None:
        """Tell what came of a request, as AsyncSwitchyard.report. Never raises."""
        run_blocking(self.calls.report(route, verb, usage))

    def close(self) -> None:
        """Close the connections to Switchyard."""
        self.calls._http.close()


class _BlockingCalls(AsyncSwitchyard):
    @override
    def _open(self, **options: Any) -> Any:
        return httpx.Client(**options)

    @override
    async def _post(self, url: str, content: bytes) -> httpx.Response:
        return self._http.post(url, content=content)  # type: ignore[no-any-return]

    @override
    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - its callers block
