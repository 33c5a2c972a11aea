"""The example chat's backend: stores conversations, sends requests to Headway, and gets tokens for its page.

The backend holds the API key, which the page never sees. The page gets a token that permits only advisories of one
session.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

MAX_SESSIONS = 1000
MAX_TURNS = 64
_HERE = Path(__file__).parent
_SECTION = (
    "Section {number}. Open valve {number} before pump {number} starts, wait until gauge {number} reads {bar} bar, and "
    "note the reading in the log. If the gauge falls by more than a tenth within one minute, close the valve, stop the "
    "pump, and call the engineer on duty before anything else is tried. "
)
MANUAL = "You answer questions about this manual. " + "".join(
    _SECTION.format(number=number, bar=2 + number % 7) for number in range(1, 61)
)
_FILES = {"/chat.css": "text/css", "/chat.js": "text/javascript"}

_CSP = "default-src 'self'; script-src 'self' {gateway}; connect-src 'self' {gateway}; frame-ancestors 'none'"


class ChatBackend:
    """The chat's web application. Mutable: `_sessions`, the messages of each conversation."""

    def __init__(self, gateway: str, model: str, api_key: str) -> None:
        self._gateway, self._model = gateway.rstrip("/"), model
        self._headers = {"authorization": f"Bearer {api_key}"}
        self._sessions: OrderedDict[str, list[dict[str, str]]] = OrderedDict()
        self._http: aiohttp.ClientSession | None = None

    def app(self) -> web.Application:
        """Return the chat's web application."""
        app = web.Application(client_max_size=64 * 1024)
        app.router.add_get("/", self._page)
        for name in _FILES:
            app.router.add_get(name, self._file)
        app.router.add_post("/token", self._token)
        app.router.add_post("/state", self._state)
        app.router.add_post("/ask", self._ask)
        app.cleanup_ctx.append(self._connected)
        return app

    async def _connected(self, _app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(headers=self._headers) as self._http:
            yield

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            raise RuntimeError("the app is not started")
        return self._http

    async def _page(self, _request: web.Request) -> web.Response:
        text = (_HERE / "page.html").read_text().replace("{{gateway}}", self._gateway)
        policy = {"content-security-policy": _CSP.format(gateway=self._gateway)}
        return web.Response(text=text, content_type="text/html", headers=policy)

    async def _file(self, request: web.Request) -> web.Response:
        return web.Response(body=(_HERE / request.path[1:]).read_bytes(), content_type=_FILES[request.path])

    async def _token(self, request: web.Request) -> web.Response:
        """Return an advisory token for the page's session."""
        session = _name(await request.json())
        made = await self._call("POST", "/api/v1/advisory_tokens", {"session_id": session})
        return web.json_response({"token": made["token"]})

    async def _state(self, request: web.Request) -> web.Response:
        session = _name(await request.json())
        return web.json_response(await self._call("GET", f"/api/v1/advisories/{session}"))

    async def _ask(self, request: web.Request) -> web.Response:
        asked = await request.json()
        session, question = _name(asked), str(asked.get("question", ""))[:2000]
        turns = self._sessions.setdefault(session, [{"role": "system", "content": MANUAL}])
        self._sessions.move_to_end(session)
        # Sessions are named by pages, which may name any number.
        while len(self._sessions) > MAX_SESSIONS:
            self._sessions.popitem(last=False)
        turns.append({"role": "user", "content": question})
        decision_id, text = await self._asked(
            {"model": self._model, "messages": turns, "max_tokens": 64, "session_id": session, "stream": True}
        )
        turns.append({"role": "assistant", "content": text})
        # The manual stays, since every session's prompt begins with it.
        del turns[1:-MAX_TURNS]
        explained = await self._call("GET", f"/api/v1/explain/{decision_id}")
        return web.json_response({"text": text, "note": note(explained), "decision_id": decision_id})

    async def _asked(self, body: dict[str, Any]) -> tuple[str, str]:
        """Return (decision id, answer text). The answer is streamed, so Headway sees its first token."""
        text = ""
        async with self._session().post(f"{self._gateway}/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                raise web.HTTPBadGateway(text="The gateway rejected the request.")
            async for line in answer.content:
                data = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and data != b"[DONE]":
                    for choice in json.loads(data).get("choices", ()):
                        text += choice.get("delta", {}).get("content") or ""
            return answer.headers["x-headway-decision"], text

    async def _call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        async with self._session().request(method, self._gateway + path, json=body) as answer:
            if answer.status >= 400:
                raise web.HTTPBadGateway(text="The gateway rejected the call.")
            answered: dict[str, Any] = await answer.json()
            return answered


def note(explained: dict[str, Any]) -> str:
    """Return a sentence about the advisory and the tokens that were loaded instead of computed."""
    advisory, load = explained.get("advisory"), explained.get("load")
    parts = [f"Answered by {explained['engine_name']}."]
    if advisory and advisory.get("moved_blocks"):
        parts.append(f"KV moved from {advisory['held_by']} to {advisory['moved_to']} before the request.")
    if load and load.get("saved_tokens"):
        parts.append(f"{load['saved_tokens']} tokens loaded from {load['node']} instead of computed.")
    return " ".join(parts)


def _name(asked: Any) -> str:
    session = asked.get("session", "") if isinstance(asked, dict) else ""
    if not isinstance(session, str) or not session.replace("-", "").isalnum() or len(session) > 64:
        raise web.HTTPBadRequest(text="Send session as letters and digits.")
    return session
