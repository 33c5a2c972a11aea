"""R38: only engines of the topology get the engines' bearer token. No engine gets a client's key."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.pools.engines.prober import probe_engines
from tests.gateway.ports import listen
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, served, snapshot
from tests.patience import until

BEARER = "engine-bearer-4f1c"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello " * 40}], "max_tokens": 2}


class Listener:
    """A server that records every request and responds with a redirect or with 200."""

    def __init__(self, redirect_to: str = "") -> None:
        self._redirect_to = redirect_to
        self.seen: list[tuple[str, dict[str, str]]] = []

    async def answer(self, request: web.Request) -> web.Response:
        """Record the request and respond."""
        self.seen.append((request.path, {name.lower(): value for name, value in request.headers.items()}))
        if self._redirect_to and request.path != "/health":
            return web.Response(status=307, headers={"Location": self._redirect_to + request.path})
        return web.json_response({"tokens": [1, 2], "count": 2, "choices": []})


@asynccontextmanager
async def listening(listener: Listener) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", listener.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    socket = listen()
    await web.SockSite(runner, socket).start()
    try:
        yield f"http://127.0.0.1:{socket.getsockname()[1]}"
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("roles", [["mixed"], ["prefill", "decode"]])
async def test_redirect_of_an_engine_never_gets_the_bearer(tmp_path: Path, roles: list[str]) -> None:
    thief = Listener()
    async with listening(thief) as elsewhere:
        engine = Listener(redirect_to=elsewhere)
        async with (
            listening(engine) as url,
            served(
                [url] * len(roles), tmp_path, gateway_settings=GatewaySettings(engine_bearer=BEARER), roles=roles
            ) as gateway,
        ):
            await gateway.post("/v1/chat/completions", CHAT)
            await gateway.post("/api/v1/route", {"model": MODEL, "prompt": "x " * 100, "wait": False})
            await until(lambda: len(engine.seen) >= 3)
    assert {headers.get("authorization") for _, headers in engine.seen} >= {f"Bearer {BEARER}"}
    assert "/v1/chat/completions" in {path for path, _ in engine.seen}
    assert thief.seen == []


async def test_client_key_stays_at_the_gateway_and_no_credential_is_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    published = []
    async with (
        ScriptedEngine() as engine,
        served([engine.url], tmp_path, gateway_settings=GatewaySettings(engine_bearer=BEARER)) as gateway,
    ):
        _, body, headers = await gateway.post(
            "/v1/chat/completions", CHAT, headers={"cookie": "sessionid=secret-cookie"}
        )
        published += [json.dumps(body), json.dumps(headers)]
        engine.status = 500
        published.append(json.dumps((await gateway.post("/v1/chat/completions", CHAT))[1]))
        decision = headers["x-headway-decision"]
        published.append(json.dumps((await gateway.get(f"/api/v1/explain/{decision}"))[1]))
        published.append(await gateway.metrics())
        reached = [json.dumps(header) for header in engine.headers]
        shown = repr(gateway.gateway.settings)
    assert all(f"Bearer {BEARER}" in item for item in reached)
    assert not [item for item in reached if KEY in item or "secret-cookie" in item]
    own = "\n".join(record.getMessage() for record in caplog.records if record.name != "aiohttp.access")
    for text in (*published, own, shown):
        assert BEARER not in text
        assert KEY not in text
    snapshot = (tmp_path / "last-known-good.snapshot").read_bytes()
    assert BEARER.encode() not in snapshot
    assert KEY.encode() not in snapshot


async def test_engine_gets_its_own_key_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret_file = tmp_path / "key"
    secret_file.write_text("key of the file\n")
    monkeypatch.setenv("HEADWAY_ENGINE_KEY_CHAT", "key of chat")
    monkeypatch.setenv("HEADWAY_ENGINE_KEY_BATCH_FILE", str(secret_file))
    monkeypatch.setenv("HEADWAY_ENGINE_KEY_GONE_FILE", str(tmp_path / "gone"))
    monkeypatch.setenv("HEADWAY_FLEET_SECRET", "no key for engines")
    sent = {
        "HEADWAY_ENGINE_API_KEY": {f"Bearer {BEARER}"},
        "HEADWAY_ENGINE_KEY_CHAT": {"Bearer key of chat"},
        "HEADWAY_ENGINE_KEY_BATCH": {"Bearer key of the file"},
        "HEADWAY_ENGINE_KEY_UNSET": {None},
        "HEADWAY_ENGINE_KEY_GONE": {None},
        "HEADWAY_FLEET_SECRET": {None},
        "": {None},
    }
    for variable, expected in sent.items():
        bus = InProcessBus()
        engine = Listener()
        async with listening(engine) as url:
            whole = snapshot([url])
            (entry,) = (msgspec.structs.replace(item, key_variable=variable) for item in whole.engines)
            bus.publish(SNAPSHOT_TOPIC, encode_snapshot(msgspec.structs.replace(whole, engines=(entry,))))
            settings = GatewaySettings(engine_bearer=BEARER)
            stop = asyncio.Event()
            probing = asyncio.create_task(probe_engines(lambda entry=entry: [entry], bus, stop, bearer=BEARER))
            async with served([], tmp_path / f"state{len(variable)}", gateway_settings=settings, bus=bus) as gateway:
                await gateway.post("/v1/chat/completions", CHAT)
                await until(lambda engine=engine: {"/health", "/load"} <= {path for path, _ in engine.seen})
            stop.set()
            await probing
        assert {headers.get("authorization") for _, headers in engine.seen} == expected, variable
        assert "/v1/chat/completions" in {path for path, _ in engine.seen}
