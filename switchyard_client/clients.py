"""The clients of the decision API. What they do is written once, as coroutines; the blocking one's never suspend."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import quote

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

    async def decide(self, request: Mapping[str, Any], *, path: str = "", patience_s: float = 0.0) -> Route:
        """Return where a request's body should go; raises RejectedError.

        `path`: one of ENDPOINTS, which says how the body is read; empty for chats and completions. A rejected request
        is asked again after its Retry-After, as long as that ends within `patience_s`.
        """
        until = time.monotonic() + patience_s
        while True:
            try:
                return await self._ask(request, path)
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

    async def advise(
        self,
        session_id: str,
        *,
        model: str = "",
        expected_arrival_s: float | None = None,
        ordered: bool = False,
        priority: int = 1,
    ) -> str:
        """Say that a session will ask soon: before an agent's next hop, a retrieval or a tool call. Never raises.

        Returns prefetching, reserved or why nothing was done; empty: nobody answered, or a limit was reached.
        """
        body = {"session_id": session_id, "model": model, "ordered": ordered, "priority": priority}
        if expected_arrival_s is not None:
            body["expected_arrival_s"] = expected_arrival_s
        try:
            answer = await self._post(f"{self._url}/api/v1/advisories", json.dumps(body).encode())
        except httpx.TransportError:
            return ""
        return str(answer.json()["state"]) if answer.status_code == 202 else ""

    async def withdraw(self, session_id: str) -> None:
        """Take an advisory back, where the session will not ask after all. Never raises."""
        with suppress(httpx.TransportError):
            await self._delete(f"{self._url}/api/v1/advisories/{quote(session_id, safe='')}")

    async def advisory_token(self, session_id: str, expires_in_s: float = 900.0) -> str:
        """Return a token by which a browser may send this session's advisories, and nothing else.

        Raises RejectedError and httpx.TransportError.
        """
        body = json.dumps({"session_id": session_id, "expires_in_s": expires_in_s}).encode()
        answer = await self._post(f"{self._url}/api/v1/advisory_tokens", body)
        if answer.status_code != 201:
            raise RejectedError(answer.status_code, answer.content, None)
        return str(answer.json()["token"])

    async def aclose(self) -> None:
        """Close the connections to Switchyard."""
        await self._http.aclose()

    async def _ask(self, request: Mapping[str, Any], path: str) -> Route:
        model = model_of(request)
        if self.decisions.away(now := time.monotonic()):
            return self.decisions.fallback(model, "away", now)
        try:
            content = json.dumps({**request, "wait": self._wait}).encode()
            answer = await self._post(
                f"{self._url}/api/v1/route", content, **({"x-original-uri": path} if path else {})
            )
        except httpx.TransportError as error:
            reason = "late" if isinstance(error, httpx.TimeoutException) else "down"
            return self.decisions.unanswered(model, reason, time.monotonic())
        after = answer.headers.get("retry-after")
        return self.decisions.answered(model, answer.status_code, answer.content, after, time.monotonic())

    def _open(self, **options: Any) -> Any:
        return httpx.AsyncClient(**options)

    async def _post(self, url: str, content: bytes, **headers: str) -> httpx.Response:
        return await self._http.post(url, content=content, headers=headers)  # type: ignore[no-any-return]

    async def _delete(self, url: str) -> None:
        await self._http.delete(url)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class Switchyard:
    """As AsyncSwitchyard, with blocking calls; may be shared between threads."""

    def __init__(self, url: str, api_key: str, **options: Any) -> None:
        self.calls = _BlockingCalls(url, api_key, **options)
        self.decisions = self.calls.decisions

    def decide(self, request: Mapping[str, Any], *, path: str = "", patience_s: float = 0.0) -> Route:
        """Return where a request's body should go, as AsyncSwitchyard.decide; raises RejectedError."""
        return run_blocking(self.calls.decide(request, path=path, patience_s=patience_s))

    def report(self, route: Route, verb: str, usage: Mapping[str, int] | None = None) -> None:
        """Tell what came of a request, as AsyncSwitchyard.report. Never raises."""
        run_blocking(self.calls.report(route, verb, usage))

    def advise(self, session_id: str, **fields: Any) -> str:
        """Say that a session will ask soon, as AsyncSwitchyard.advise. Never raises."""
        return run_blocking(self.calls.advise(session_id, **fields))

    def withdraw(self, session_id: str) -> None:
        """Take an advisory back, as AsyncSwitchyard.withdraw. Never raises."""
        run_blocking(self.calls.withdraw(session_id))

    def advisory_token(self, session_id: str, expires_in_s: float = 900.0) -> str:
        """Return a token for a browser, as AsyncSwitchyard.advisory_token."""
        return run_blocking(self.calls.advisory_token(session_id, expires_in_s))

    def close(self) -> None:
        """Close the connections to Switchyard."""
        self.calls._http.close()


class _BlockingCalls(AsyncSwitchyard):
    @override
    def _open(self, **options: Any) -> Any:
        return httpx.Client(**options)

    @override
    async def _post(self, url: str, content: bytes, **headers: str) -> httpx.Response:
        return self._http.post(url, content=content, headers=headers)  # type: ignore[no-any-return]

    @override
    async def _delete(self, url: str) -> None:
        self._http.delete(url)

    @override
    async def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - its callers block
