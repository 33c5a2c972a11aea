"""Cross-origin pages: an API key lists the origins that can use its tokens, and browsers learn no others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.requests.advisories.test_advisories_end_to_end import ADVISORIES, TOKENS
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, OTHER_KEY, ServedGateway, served, snapshot

LISTED, OTHERS, NOBODYS = "https://chat.example.com", "https://chat.other.example", "https://evil.example"
PLAIN = "text/plain;charset=UTF-8"
ALLOWED = "access-control-allow-origin"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    """Run a gateway whose two tenants list one origin each."""
    bus = InProcessBus()
    async with ScriptedEngine() as engine:
        plain = snapshot([engine.url])
        keys = [
            msgspec.structs.replace(item, origins=(origin,))
            for item, origin in zip(plain.api_keys, (LISTED, OTHERS), strict=True)
        ]
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(msgspec.structs.replace(plain, api_keys=tuple(keys))))
        async with served([], tmp_path, bus=bus) as serving:
            yield serving


async def token(gateway: ServedGateway, key: str = KEY) -> str:
    status, made, _ = await gateway.post(TOKENS, {"session_id": "s-1"}, key=key)
    assert status == 201
    return str(made["token"])


async def send(
    gateway: ServedGateway, origin: str | None, *, method: str = "POST", path: str = ADVISORIES, **fields: str
) -> tuple[int, dict[str, str]]:
    """Send the request of a page's script without a preflight; return status and headers of the response."""
    headers = {"content-type": PLAIN} | ({"origin": origin} if origin is not None else {})
    data = msgspec.json.encode(fields) if method == "POST" else None
    async with gateway.client.request(method, gateway.url + path, data=data, headers=headers) as answer:
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}


async def preflight(gateway: ServedGateway, origin: str | None, path: str = ADVISORIES) -> tuple[int, dict[str, str]]:
    headers = {"access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    headers |= {"origin": origin} if origin is not None else {}
    async with gateway.client.options(gateway.url + path, headers=headers) as answer:
        return answer.status, {name.lower(): value for name, value in answer.headers.items()}


def taken(gateway: ServedGateway) -> float:
    return gateway.gateway.metrics.advisories.value("", "forwarded")


async def test_a_page_of_a_listed_origin_is_allowed(gateway: ServedGateway) -> None:
    status, headers = await send(gateway, LISTED, token=await token(gateway))
    assert (status, headers[ALLOWED], headers["vary"].lower()) == (202, LISTED, "origin")
    assert taken(gateway) == 1


@pytest.mark.parametrize("origin", [NOBODYS, OTHERS, "null", LISTED + ".evil.example", "http://chat.example.com"])
async def test_a_page_of_an_unlisted_origin_is_rejected(gateway: ServedGateway, origin: str) -> None:
    status, headers = await send(gateway, origin, token=await token(gateway))
    assert (status, ALLOWED in headers) == (403, False)
    assert taken(gateway) == 0


async def test_each_key_has_a_separate_origin_list(gateway: ServedGateway) -> None:
    others = await token(gateway, OTHER_KEY)
    assert (await send(gateway, OTHERS, token=others))[0] == 202
    assert (await send(gateway, LISTED, token=others))[0] == 403


async def test_pages_of_the_gateways_host_and_programs_need_no_entry(gateway: ServedGateway) -> None:
    made = await token(gateway)
    status, headers = await send(gateway, gateway.url, token=made)
    assert (status, ALLOWED in headers) == (202, False)
    assert (await send(gateway, None, token=made))[0] == 202


@pytest.mark.parametrize("path", [ADVISORIES, f"{ADVISORIES}/s-1"])
async def test_a_preflight_does_not_reveal_which_origins_are_listed(gateway: ServedGateway, path: str) -> None:
    answers = [await preflight(gateway, origin, path) for origin in (LISTED, OTHERS, NOBODYS, None)]
    for _, headers in answers:
        for name in ("date", "x-request-id"):
            headers.pop(name)
    status, headers = answers[0]
    assert answers == [(status, headers)] * 4
    assert (status, headers[ALLOWED]) == (204, "*")
    assert "POST" in headers["access-control-allow-methods"]
    assert "content-type" in headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in headers


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_call_that_needs_a_preflight_is_rejected_by_its_origin(gateway: ServedGateway, method: str) -> None:
    made = {"authorization": f"Bearer {await token(gateway)}"}
    for origin, expected in ((LISTED, 200), (NOBODYS, 403)):
        sent = {**made, "origin": origin}
        async with gateway.client.request(method, f"{gateway.url}{ADVISORIES}/s-1", headers=sent) as answer:
            assert (answer.status, answer.headers.get(ALLOWED)) == (expected, origin if expected == 200 else None)


async def test_no_other_path_serves_cross_origin_pages(gateway: ServedGateway) -> None:
    for path in (TOKENS, "/v1/chat/completions", "/api/v1/route"):
        _, headers = await preflight(gateway, LISTED, path)
        assert ALLOWED not in headers


async def test_a_token_is_read_from_the_body_and_never_from_the_url(gateway: ServedGateway) -> None:
    made = await token(gateway)
    assert (await send(gateway, LISTED, path=f"{ADVISORIES}?token={made}"))[0] == 401
    assert (await send(gateway, LISTED, token=made))[0] == 202
