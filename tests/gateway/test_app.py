"""Health, readiness, metrics, and unknown paths and methods."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.app import AppSettings, GatewayApp
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.gateway import Gateway
from tests.gateway.raw_http import RawConnection
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, KEYRING, MODEL, ServedGateway, served
from tests.patience import PATIENCE_S


def _app(tmp_path: Path, settings: AppSettings | None = None) -> GatewayApp:
    gateway = Gateway(InProcessBus(), keyring=KEYRING, state_dir=tmp_path, settings=GatewaySettings())
    return GatewayApp(gateway, settings)


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/route",
        "/api/v1/route/batch",
        "/api/v1/requests/x/complete",
        "/api/v1/explain/x",
        "/v1/chat/completions",
        "/v1/anything",
        "/v2/anything",
        "/inference/v1/generate",
        "/invocations",
        "/v1/audio/transcriptions",
        "/metrics",
        "/live",
        "/ready",
        "/health",
    ],
)
def test_gateway_paths_are_handled_by_the_gateway(tmp_path: Path, path: str) -> None:
    assert _app(tmp_path).handles(path)


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/pools", "/api/v1/routes", "/api/schema/", "/v1", "/metrics/x", "/static/a"]
)
def test_other_paths_are_not_handled_by_the_gateway(tmp_path: Path, path: str) -> None:
    assert not _app(tmp_path).handles(path)


async def _ask(gateway: ServedGateway, method: str, path: str, **headers: str) -> tuple[int, Any]:
    async with gateway.client.request(method, gateway.url + path, headers=headers) as response:
        return response.status, await response.read()


async def test_readiness_waits_for_a_topology_and_an_engine(tmp_path: Path) -> None:
    async with served([], tmp_path) as gateway:
        assert (await gateway.get("/live", key=None))[0] == 200
        status, answer = await gateway.get("/ready", key=None)
        assert status == 503
        assert "topology" in answer["error"]["message"]


async def test_readiness_follows_the_engines(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:
        assert (await gateway.get("/ready", key=None))[0] == 200
        await engine.stop()
        async with asyncio.timeout(PATIENCE_S):
            while (await gateway.get("/ready", key=None))[0] == 200:
                await asyncio.sleep(0.05)
        for path in ("/ready", "/health"):
            status, answer = await gateway.get(path, key=None)
            assert (status, answer["error"]["code"]) == (503, "not_ready")
        assert (await gateway.get("/live", key=None))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("POST", "/v1/images", 404),
        ("GET", "/api/v1/route", 405),
        ("POST", "/v1/models", 405),
        ("POST", "/live", 405),
        ("DELETE", "/api/v1/explain/x", 405),
        ("HEAD", "/live", 200),
    ],
)
async def test_wrong_paths_and_wrong_methods_get_different_errors(
    tmp_path: Path, method: str, path: str, status: int
) -> None:
    async with served(
        [],
        tmp_path,
    ) as gateway:
        gateway.gateway._api_keys = _keys()
        assert (await _ask(gateway, method, path, authorization=f"Bearer {KEY}"))[0] == status


def _keys() -> Any:
    from tests.gateway.served_gateway import snapshot

    return {key.sha256: key for key in snapshot([]).api_keys}


@pytest.mark.parametrize("path", ["/v1/audio/speech", "/v2/embed", "/inference/v1/generate", "/invocations"])
async def test_an_unsupported_engine_path_lists_the_supported_ones(tmp_path: Path, path: str) -> None:
    async with served([], tmp_path) as gateway:
        status, answer, _ = await gateway.post(path, {"model": MODEL})
    assert (status, answer["error"]["code"], answer["error"]["type"]) == (404, "not_found", "not_found_error")
    for named in ("/v1/chat/completions", "/v1/audio/transcriptions", "/v1/models"):
        assert named in answer["error"]["message"]


async def test_metrics_are_open_only_on_loopback(tmp_path: Path) -> None:
    settings = AppSettings(scrape_token="scrape-me")
    async with served([], tmp_path, settings=settings) as gateway:
        assert (await _ask(gateway, "GET", "/metrics"))[0] == 200
        # A request that a proxy on this machine passes on is not from this machine.
        assert (await _ask(gateway, "GET", "/metrics", **{"x-forwarded-for": "10.0.0.9"}))[0] == 401
        forwarded = {"x-forwarded-for": "10.0.0.9", "authorization": "Bearer scrape-me"}
        assert (await _ask(gateway, "GET", "/metrics", **forwarded))[0] == 200
        forwarded["authorization"] = "Bearer scrape-you"
        assert (await _ask(gateway, "GET", "/metrics", **forwarded))[0] == 401


ADDED_BY_PROXIES = (
    "X-Real-IP", "Via", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Original-Forwarded-For",
    "X-Client-IP", "X-Cluster-Client-IP", "True-Client-IP", "Fastly-Client-IP", "WL-Proxy-Client-IP",
    "X-Azure-ClientIP", "CF-Connecting-IP", "CF-Ray", "CDN-Loop", "X-Remote-Addr", "X-Envoy-External-Address",
    "X-Envoy-Expected-Rq-Timeout-Ms", "X-Amzn-Trace-Id", "X-Amz-Cf-Id", "X-Cloud-Trace-Context", "X-ARR-LOG-ID",
    "X-Varnish", "X-NF-Client-Connection-IP",
)  # fmt: skip


async def test_any_header_that_proxies_add_reveals_the_proxy(tmp_path: Path) -> None:
    async with served([], tmp_path) as gateway:
        asked = {name: (await _ask(gateway, "GET", "/metrics", **{name: "10.0.0.9"}))[0] for name in ADDED_BY_PROXIES}
        assert asked == dict.fromkeys(ADDED_BY_PROXIES, 401)
        of_prometheus = {"X-Prometheus-Scrape-Timeout-Seconds": "10", "Accept": "text/plain", "Accept-Encoding": "gzip"}
        assert (await _ask(gateway, "GET", "/metrics", **of_prometheus))[0] == 200


async def test_a_proxy_without_headers_is_detected_by_http_1_0(tmp_path: Path) -> None:
    async with served([], tmp_path) as gateway:
        for version, status in (("1.0", 401), ("1.1", 200)):
            connection = await RawConnection.open(gateway.url)
            await connection.send(f"GET /metrics HTTP/{version}\r\nHost: 127.0.0.1\r\n\r\n".encode())
            assert (await connection.answer())[0] == status
            await connection.close()


@pytest.mark.parametrize(
    ("client", "status"),
    [(("127.0.0.1", 1), 200), (("::1", 1), 200), (("10.0.0.9", 1), 401), (None, 401), (("x", 1), 401)],
)
async def test_a_remote_scrape_needs_the_token(tmp_path: Path, client: Any, status: int) -> None:
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "GET", "path": "/metrics", "headers": [], "client": client}
    await _app(tmp_path)(scope, receive, send)
    assert sent[0]["status"] == status


async def test_an_error_in_a_handler_is_a_500_that_reveals_nothing_of_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path) as gateway:

        def broken(*_: Any, **__: Any) -> None:
            raise ZeroDivisionError("CANARY")

        monkeypatch.setattr(gateway.pool, "decide", broken)
        status, answer, _ = await gateway.post("/api/v1/route", {"model": MODEL, "block_hashes": [1]})
    assert (status, answer["error"]["code"]) == (500, "internal_error")
    assert "ZeroDivisionError" in caplog.text
    assert "CANARY" not in caplog.text + str(answer)
