"""Read a console's pages until killed: `python -m bench.installation.page_reader URL PASSWORD PER_S`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import sys

import aiohttp

PAGES = ("/", "/requests", "/policies", "/jobs", "/automation", "/engines")
MAX_UNDER_WAY = 8
"""Limit of concurrent pages: users do not reload faster than pages arrive."""


async def sign_in(client: aiohttp.ClientSession, url: str, password: str) -> None:
    """Sign in as the first administrator."""
    async with client.get(f"{url}/login") as page:
        token = re.search(r'csrfmiddlewaretoken" value="([^"]+)"', await page.text())
    if token is None:
        raise RuntimeError("the login page has no form")
    form = {"csrfmiddlewaretoken": token[1], "username": "admin", "password": password}
    async with client.post(f"{url}/login", data=form, headers={"referer": url}) as answer:
        if answer.url.path != "/":
            raise RuntimeError(f"the sign-in failed: {answer.status}")


async def read(url: str, password: str, per_s: float) -> None:
    """Request a page each 1 / per_s seconds, forever."""
    room = asyncio.Semaphore(MAX_UNDER_WAY)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as client, asyncio.TaskGroup() as all_:
        await sign_in(client, url, password)
        print("reading", flush=True)
        for path in itertools.cycle(PAGES):
            await asyncio.sleep(1 / per_s)
            await room.acquire()
            all_.create_task(_page(client, url + path, room))


async def _page(client: aiohttp.ClientSession, address: str, room: asyncio.Semaphore) -> None:
    with contextlib.suppress(aiohttp.ClientError, TimeoutError):
        async with client.get(address) as answer:
            await answer.read()
    room.release()


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1], sys.argv[2], float(sys.argv[3])))
