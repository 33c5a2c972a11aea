"""Viewers that read nothing use little memory, do not affect others, and are disconnected after a while."""

from __future__ import annotations

import asyncio
import base64
import os
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import aiohttp
import pytest

from bench.live.loopback_ports import free_port
from tests.web.fake_console import NAME, PASSWORD
from tests.web.fleet.test_fleet_browser import Console
from tests.web.live.frame_reader import read_frame
from web.live.consumers import STALL_S

pytestmark = [pytest.mark.processes, pytest.mark.thorough]
VIEWERS, STALLED = 200, 50
ENGINES = 64
RSS_LIMIT = 10 << 20
WATCHED_S = STALL_S + 14.0


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    options = ("--engines", str(ENGINES), "--hours", "0", "--quiet")
    console = Console(tmp_path_factory.mktemp("stalled"), free_port(), options)
    console.start()
    yield console
    console.stop()


def sign_in(console: Console) -> str:
    """Sign in and return the session cookie."""
    jar = CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    form = browser.open(f"{console.url}/login").read().decode()
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    assert token
    fields = {"username": NAME, "password": PASSWORD, "csrfmiddlewaretoken": token[1], "next": "/"}
    body = urllib.parse.urlencode(fields).encode()
    browser.open(urllib.request.Request(f"{console.url}/login", body, {"Referer": f"{console.url}/login"}))
    return next(f"{cookie.name}={cookie.value}" for cookie in jar if cookie.name == "sessionid")


def rss(console: Console) -> int:
    """Return the resident memory of the server in bytes."""
    assert console.process is not None
    status = Path(f"/proc/{console.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) << 10


def stalled_viewer(console: Console, cookie: str) -> socket.socket:
    """Return a connection that requests the feed and never reads it."""
    viewer = socket.socket()
    viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    viewer.connect(("127.0.0.1", console.port))
    key = base64.b64encode(os.urandom(16)).decode()
    viewer.sendall(
        f"GET /ws/fleet HTTP/1.1\r\nHost: 127.0.0.1:{console.port}\r\nOrigin: {console.url}\r\n"
        f"Upgrade: websocket\r\nConnection: Upgrade\r\nCookie: {cookie}\r\n"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
    )
    return viewer


class Healthy:
    """A viewer that reads. Counts its frames and keyframes."""

    def __init__(self) -> None:
        self.frames = 0
        self.keyframes = 0

    async def watch(self, session: aiohttp.ClientSession, console: Console, until: float) -> None:
        url = f"ws://127.0.0.1:{console.port}/ws/fleet"
        async with session.ws_connect(url, origin=console.url, max_msg_size=0) as viewer:
            while (left := until - asyncio.get_running_loop().time()) > 0:
                try:
                    message = await asyncio.wait_for(viewer.receive_bytes(), left)
                except TimeoutError:
                    return
                self.frames += 1
                self.keyframes += read_frame(message, ENGINES, 2).head["kind"] == "keyframe"


def closed_by_server(viewer: socket.socket) -> bool:
    """Return whether the server closed the connection; read the bytes buffered in the kernel."""
    viewer.settimeout(2.0)
    try:
        while viewer.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        return True
    return True


async def test_fifty_stalled_viewers_of_two_hundred_use_little_memory_and_are_disconnected(console: Console) -> None:
    cookie = await asyncio.to_thread(sign_in, console)
    healthy = [Healthy() for _ in range(VIEWERS - STALLED)]
    until = asyncio.get_running_loop().time() + WATCHED_S
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Cookie": cookie}) as session:
        watching = [asyncio.create_task(viewer.watch(session, console, until)) for viewer in healthy]
        await asyncio.sleep(3.0)
        before = await asyncio.to_thread(rss, console)
        stalled = [await asyncio.to_thread(stalled_viewer, console, cookie) for _ in range(STALLED)]
        peak = before
        while asyncio.get_running_loop().time() < until:
            peak = max(peak, await asyncio.to_thread(rss, console))
            await asyncio.sleep(0.5)
        await asyncio.gather(*watching)
    assert peak - before <= RSS_LIMIT
    # Each healthy viewer kept receiving frames; how fast depends on the machine.
    assert min(viewer.frames for viewer in healthy) > WATCHED_S / 4
    gone = await asyncio.to_thread(lambda: [closed_by_server(viewer) for viewer in stalled])
    for viewer in stalled:
        viewer.close()
    assert all(gone)
