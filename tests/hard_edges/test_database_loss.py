"""R7: without PostgreSQL, decisions continue, pages and API respond with 503, and both recover without a restart."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest

from bench.live.live_fleet import MODEL
from bench.live.live_program import live_program
from tests.controlplane.project.test_settings import read_settings
from tests.patience import PATIENCE_S
from tests.private_postgresql import private_postgresql

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

DECISIONS = 200
ASKED = {"model": MODEL, "token_ids": list(range(256)), "wait": False}
SESSION_COOKIE = {"Cookie": f"sessionid={'a' * 32}"}
"""A session that the server must read from the database."""


class Decisions:
    """Requests decisions one by one until it is stopped, and keeps the statuses."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._headers = {"Authorization": f"Bearer {key}"}
        self._stopped = False
        self.statuses: list[int] = []

    async def run(self) -> None:
        async with aiohttp.ClientSession(headers=self._headers) as session:
            while not self._stopped:
                async with session.post(f"{self._url}/api/v1/route", json=ASKED) as answer:
                    decided = await answer.json()
                    self.statuses.append(answer.status)
                complete_url = f"{self._url}/api/v1/requests/{decided.get('decision_id')}/complete"
                async with session.post(complete_url, json={}) as answer:
                    self.statuses.append(answer.status)
                await asyncio.sleep(0.01)

    def stop(self) -> None:
        self._stopped = True


async def until(holds: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not await holds():
            await asyncio.sleep(0.1)


async def test_decisions_continue_without_postgresql_and_pages_recover_with_it(tmp_path: Path) -> None:
    with (
        private_postgresql() as server,
        live_program(tmp_path, engines=True, environment={"DATABASE_URL": server.url}) as program,
    ):
        decisions = Decisions(program.url, program.secrets.api_key)
        sending = asyncio.create_task(decisions.run())
        async with aiohttp.ClientSession() as session:

            async def page(path: str = "/") -> tuple[int, str, dict[str, str]]:
                async with session.get(program.url + path, headers=SESSION_COOKIE, allow_redirects=False) as answer:
                    return (
                        answer.status,
                        await answer.text(),
                        {name.lower(): value for name, value in answer.headers.items()},
                    )

            async def page_is(status: int) -> bool:
                return (await page())[0] == status

            async def probes_go_on() -> bool:
                with psycopg.connect(server.url) as connection:
                    alive = "SELECT 1 FROM controlplane_jobrun WHERE job = 'probe' AND lease_until > now()"
                    return connection.execute(alive).fetchone() is not None

            await until(lambda: page_is(302))
            await until(probes_go_on)
            server.crash()
            await until(lambda: page_is(503))
            before = len(decisions.statuses)
            _, text, headers = await page()
            assert "The database does not answer" in text
            assert "manage.py doctor" in text
            assert headers["retry-after"] == headers["refresh"] == "2"
            rejected = {"Authorization": f"Bearer {program.secrets.api_key}"}
            async with session.post(
                f"{program.url}/api/v1/regions", json={"slug": "r", "name": "R"}, headers=rejected
            ) as answer:
                assert answer.status == 503
                assert json.loads(await answer.text())["type"] == "urn:headway:problem:unavailable"

            async def enough() -> bool:
                return len(decisions.statuses) >= before + DECISIONS

            await until(enough)
            server.start()
            await until(lambda: page_is(302))
            await until(probes_go_on)
            decisions.stop()
            await sending
        assert set(decisions.statuses) == {200}


def options_of(tmp_path: Path, url: str) -> dict[str, Any]:
    return json.loads(read_settings(tmp_path, DATABASE_URL=url).stdout)["db"]["OPTIONS"]  # type: ignore[no-any-return]


def test_connection_attempt_to_a_silent_database_server_times_out(tmp_path: Path) -> None:
    options = options_of(tmp_path, "postgres://u@127.0.0.1/d")
    assert 0 < options.get("tcp_user_timeout", 0) <= 30_000
    failed: list[Exception] = []

    def connect(port: int) -> None:
        try:
            psycopg.connect(host="127.0.0.1", port=port, user="u", dbname="d", **options)
        except psycopg.OperationalError as error:
            failed.append(error)

    with socket.create_server(("127.0.0.1", 0)) as silent:
        asking = threading.Thread(target=connect, args=(silent.getsockname()[1],), daemon=True)
        asking.start()
        asking.join(30)
        assert len(failed) == 1, "it still waits for the server"


def test_options_of_the_database_url_override_the_default_limits(tmp_path: Path) -> None:
    options = options_of(tmp_path, "postgres://u@127.0.0.1/d?connect_timeout=9&sslmode=require")
    assert (str(options["connect_timeout"]), options["sslmode"]) == ("9", "require")
    assert "statement_timeout" in options.get("options", "")


def test_database_server_ends_slow_statements_and_lock_waits(tmp_path: Path) -> None:
    with private_postgresql() as server:
        options = options_of(tmp_path, server.url)
        with (
            psycopg.connect(server.url, **options, autocommit=True) as one,
            psycopg.connect(server.url, **options) as other,
        ):
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            limits = [one.execute(f"SHOW {name}").fetchone()[0] for name in names]  # type: ignore[index,call-overload]
            assert limits == ["30s", "10s", "1min"]
            one.execute("SET statement_timeout = '50ms'")
            with pytest.raises(psycopg.errors.QueryCanceled):
                one.execute("SELECT pg_sleep(60)")
            other.execute("CREATE TABLE t (a int)")
            other.commit()
            other.execute("LOCK TABLE t")
            one.execute("SET statement_timeout = 0")
            one.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                one.execute("SELECT * FROM t")
