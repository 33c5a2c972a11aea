"""Two webs, two workers and two gateways on PostgreSQL and Redis behind nginx: every process gives the same responses.

All are restarted one after the other under load, and no request is lost.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from bench.installation.soak_run.installation import ENGINES, MODEL, Installation
from bench.live.client_history import ClientHistory, Shape
from bench.live.loopback_ports import free_port
from tests.deploy.real_proxy import binary, running
from tests.private_postgresql import own_database, postgresql
from tests.private_redis import private_redis
from tests.web.live.frame_reader import read_frame

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

LIMIT_S = 180.0
RATE = 4.0
_ADMIN = """
from controlplane.platform.models.api_key import ApiKey
ApiKey.objects.filter(name="manage").update(role="admin")
"""
SHAPE = Shape(prefixes=4, prefix_signs=2000, own_signs=(200, 800), output_tokens=(4, 16))


@dataclass
class Grown:
    """The installation, nginx's folder, and the credentials."""

    installation: Installation
    folder: Path
    inference_key: str
    manage_key: str

    @property
    def password(self) -> str:
        """Return the first administrator's password."""
        return str(json.loads((self.folder / "web-0" / "first_run.json").read_text())["admin_password"])


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grown]:
    binary("nginx")
    folder = tmp_path_factory.mktemp("grown")
    with postgresql() as server, own_database(server) as database, private_redis(folder) as redis:
        installation = Installation(folder, database, redis.url, webs=2)
        try:
            key = installation.start_all("http://127.0.0.1:1/")
            manage = installation.manage("create_api_key", "--name", "manage", "--scopes", "manage").split()[0]
            installation.manage("shell", "--no-imports", "-c", _ADMIN)
            yield Grown(installation, folder, key, manage)
        finally:
            installation.stop_all()


@asynccontextmanager
async def front(grown: Grown) -> AsyncIterator[str]:
    """Run nginx in front of the installation; yield its URL."""
    port, made = free_port(), grown.installation
    text = (Path(__file__).parent / "grown_nginx.conf").read_text()
    for name, urls in (("GATEWAYS", made.gateway_urls), ("WEBS", made.web_urls)):
        text = text.replace(name, " ".join(f"server {url.removeprefix('http://')} max_fails=0;" for url in urls))
    config = grown.folder / "nginx.conf"
    config.write_text(text.replace("FOLDER", str(grown.folder)).replace("PORT", str(port)))
    async with running([binary("nginx"), "-c", str(config), "-p", str(grown.folder)], port, grown.folder / "nginx.out"):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def traffic(grown: Grown, url: str) -> AsyncIterator[ClientHistory]:
    """Send requests through nginx during the block, and wait for their ends."""
    history, stop = ClientHistory([url], grown.inference_key, MODEL, 7, shape=SHAPE), asyncio.Event()
    sending = asyncio.create_task(history.run(lambda _: RATE, stop))
    try:
        yield history
    finally:
        stop.set()
        await sending


async def until(holds: Callable[[], Awaitable[Any]]) -> Any:
    """Return the first true result."""
    async with asyncio.timeout(LIMIT_S):
        while not (answer := await holds()):
            await asyncio.sleep(0.3)
    return answer


class Api:
    """The management API of one web process, or of any through nginx."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session = session
        self._url = f"{url}/api/v1"
        self._headers = {"authorization": f"Bearer {key}"}

    async def get(self, path: str) -> Any:
        """Return the response."""
        async with self._session.get(f"{self._url}/{path}", headers=self._headers) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json() if answer.content_type == "application/json" else await answer.read()

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        """Return the created object."""
        async with self._session.post(f"{self._url}/{path}", json=body, headers=self._headers) as answer:
            assert answer.status in (200, 201), await answer.text()
            return await answer.json()


async def signed_in(session: aiohttp.ClientSession, url: str, password: str) -> None:
    async with session.get(f"{url}/login") as page:
        token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', await page.text())
    assert token
    form = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": password}
    async with session.post(f"{url}/login", data=form, headers={"referer": url}) as answer:
        assert answer.status == 200
        assert "/login" not in str(answer.url)


async def test_every_process_gives_the_same_responses(grown: Grown) -> None:
    began = datetime.now(UTC)
    jar = aiohttp.CookieJar(unsafe=True)
    async with front(grown) as url, aiohttp.ClientSession(cookie_jar=jar) as session:
        webs = [Api(session, web_url, grown.manage_key) for web_url in grown.installation.web_urls]
        await signed_in(session, url, grown.password)
        async with traffic(grown, url) as history:
            await until(lambda: _ended(history, 40))
            await _live_pages_show_all_gateways(grown, session)
            await until(lambda: _ended(history, 80))
        sent = len(history.asked)
        assert {item.fate for item in history.asked} == {"whole"}

        async def both_list() -> list[dict[str, Any]] | None:
            lists = [(await web.get("decisions?limit=200"))["results"] for web in webs]
            assert len(lists[0]) <= sent
            return lists[0] if len(lists[0]) == sent and lists[0] == lists[1] else None

        rows = await until(both_list)
        for row in rows[:: max(1, sent // 10)]:
            one, other = [await web.get(f"decisions/{row['id']}") for web in webs]
            assert one == other
        await _a_recording_and_a_what_if_are_the_same_everywhere(webs, began, sent)
        await _the_past_is_the_same_everywhere(grown, session, began)


async def _ended(history: ClientHistory, count: int) -> bool:
    return sum(item.ended_s is not None for item in history.asked) >= count


async def _live_pages_show_all_gateways(grown: Grown, session: aiohttp.ClientSession) -> None:
    """Check that each web's live page shows the traffic of both gateways: the rate of all requests, not of half."""
    for web in grown.installation.web_urls:

        async def shows_all(web: str = web) -> bool:
            address = f"{web.replace('http', 'ws')}/ws/fleet"
            async with session.ws_connect(address, headers={"origin": web}) as socket:
                frame = read_frame((await socket.receive(LIMIT_S)).data)
            assert len([item for item in frame.head["engines"] if item["pool"] == "pool"]) == ENGINES
            index = [item["id"] for item in frame.head["pools"]].index("pool")
            return bool(max(frame.pools["requests_per_s"][index][-8:]) > 0.75 * RATE)

        await until(shows_all)


async def _a_recording_and_a_what_if_are_the_same_everywhere(webs: list[Api], began: datetime, sent: int) -> None:
    window = {"pool": "pool", "begins_at": began.isoformat(), "ends_at": datetime.now(UTC).isoformat()}
    recording = await webs[0].post("recordings", {**window, "name": "both gateways"})
    assert recording["requests"] == sent
    one, other = [await web.get(f"recordings/{recording['id']}/trace") for web in webs]
    assert one == other
    draft = await webs[1].post(
        "policies/default/versions", {"document": {"schema_version": 1, "placement": {"name": "round_robin"}}}
    )
    asked = await webs[0].post("whatif", {"recording": recording["id"], "draft": draft["number"]})

    async def done() -> bool:
        whatif = await webs[1].get(f"whatif/{asked['id']}")
        assert whatif["state"] in ("waiting", "running", "done"), whatif
        return bool(whatif["state"] == "done")

    await until(done)
    first, second = [await web.get(f"whatif/{asked['id']}") for web in webs]
    assert first == second
    assert first["result"]


async def _the_past_is_the_same_everywhere(grown: Grown, session: aiohttp.ClientSession, began: datetime) -> None:
    end = began.timestamp() + 20.0

    async def stored_and_equal() -> bool:
        frames = []
        for web in grown.installation.web_urls:
            async with session.get(f"{web}/fleet/history", params={"range": "1h", "end": f"{end:.0f}"}) as answer:
                assert answer.status == 200
                frames.append(read_frame(await answer.read()))
        one, other = [(frame.engines, frame.pools) for frame in frames]
        return repr(one) == repr(other) and any(value > 0 for row in one[1]["requests_per_s"] for value in row)

    await until(stored_and_equal)


async def test_a_rolling_restart_of_everything_loses_no_request(grown: Grown) -> None:
    made = grown.installation
    async with front(grown) as url, aiohttp.ClientSession() as session, traffic(grown, url) as history:
        await until(lambda: _ended(history, 10))
        for name in [*made.names("gateway"), *made.names("web"), *made.names("worker"), *made.names("beat")]:
            assert await asyncio.to_thread(made.end, name) == 0, name
            await asyncio.to_thread(made.restart, name)
            async with session.get(f"{url}/login") as page:
                assert page.status == 200, name
        before = len(history.asked)
        await until(lambda: _ended(history, before + 10))
    assert {(item.fate, item.attempts) for item in history.asked} == {("whole", 1)}
