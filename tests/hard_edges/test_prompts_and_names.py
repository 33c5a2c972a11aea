"""R39, R40 in the whole program: no prompt is stored, logged, or published, and no name breaks a log line.

Prompts succeed and fail in every way; then the files, answers, metrics, and logs of the program are searched.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sqlite3
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from bench.live.live_fleet import MODEL
from bench.live.live_program import LiveProgram, live_program
from controlplane.project.celery import app as celery

pytestmark = pytest.mark.processes

CANARY = "CANARY7f3a91"
PROMPTS = 120
AT_ONCE = 8
FIRST_ENGINE_DIES, DATABASE_BREAKS, LAST_ENGINE_DIES = 48, 80, 112
EVIL_NAMES = ["a\r\nb", "\x1b[31mred\x1b[0m", "c\u2028d\u2029e\u0085f", '{"level": "error"}', "%s%d", "\x00\x07"]


Answer = tuple[int, str, str]
"""Status, decision, and the text of an error."""
Story = tuple[dict[str, bytes], list[Answer], str, list[str]]


def bodies(number: int) -> tuple[str, Any]:
    """Return path and body of one request. The body has the canary text and the request's number."""
    text = f"{CANARY}-{number} " * 20
    chat = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 3}
    ways: list[tuple[str, Any]] = [
        ("/v1/chat/completions", chat),
        ("/v1/chat/completions", {**chat, "stream": True}),
        ("/v1/completions", {"model": MODEL, "prompt": text, "max_tokens": 2}),
        ("/api/v1/route", {"model": MODEL, "prompt": text}),
        ("/v1/chat/completions", {**chat, "model": text[:60]}),
        ("/v1/chat/completions", {**chat, "max_tokens": text}),
        ("/v1/chat/completions", {**chat, "messages": text}),
        ("/v1/chat/completions", json.dumps(chat).encode()[:-1]),
        ("/v1/chat/completions", b"\xff" + text.encode()),
        ("/v1/chat/completions", text.encode() + b"[" * 5000),
        ("/api/v1/route", {"model": MODEL, "messages": [text], "session_id": text}),
        ("/api/v1/route/batch", [{"model": MODEL, "prompt": text}, {"model": text, "prompt": text}]),
        ("/api/v1/requests/01a/complete", {"cached_tokens": text}),
        ("/login", {"username": text[:60], "password": text[:60]}),
        ("/api/v1/pools", {"slug": text, "name": text}),
        ("/v1/embeddings", {"model": MODEL, "input": text}),
    ]
    return ways[number % len(ways)]


async def send(running: LiveProgram, session: aiohttp.ClientSession, number: int) -> Answer:
    """Send one prompt; return status, decision, and the text of an error."""
    way, body = bodies(number)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    key = running.secrets.api_key if number % 40 else "hw_wrong"
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    if way == "/login":
        # This header passes the origin check, so that the form reaches the database, which breaks later on.
        token = "a" * 32
        headers |= {"Cookie": f"csrftoken={token}", "X-CSRFToken": token}
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        data = urlencode(body).encode()
    try:
        async with session.post(running.url + way, data=data, headers=headers) as answer:
            text = await answer.text()
            error = text if answer.status >= 400 and not way.startswith("/login") else ""
            return answer.status, answer.headers.get("x-headway-decision", ""), error
    except aiohttp.ClientError:
        return 0, "", ""


async def send_all(running: LiveProgram, session: aiohttp.ClientSession) -> AsyncIterator[Answer]:
    """Send all prompts. Meanwhile, stop one engine, break the database, and stop the other engine."""
    for start in range(0, PROMPTS, AT_ONCE):
        if start == FIRST_ENGINE_DIES:
            running.engines[0].kill()
        if start == DATABASE_BREAKS:
            break_database(running)
        if start == LAST_ENGINE_DIES:
            running.engines[1].kill()
        for result in await asyncio.gather(*(send(running, session, start + number) for number in range(AT_ONCE))):
            yield result


def break_database(running: LiveProgram) -> None:
    """Rename tables of the running server, so that its pages respond with 500."""
    with sqlite3.connect(running.state_dir / "headway.sqlite3", timeout=10) as connection:
        connection.execute("ALTER TABLE django_session RENAME TO gone_session")
        connection.execute("ALTER TABLE controlplane_apikey RENAME TO gone_apikey")
        connection.execute("ALTER TABLE auth_user RENAME TO gone_user")


def give_evil_names(running: LiveProgram) -> None:
    """Put control characters into every name that is sent to the gateway."""
    running.shell(
        "from controlplane.models import Engine, Pool, Region\n"
        "from controlplane.platform.snapshot_change import record_change\n"
        "from django.db import transaction\n"
        f"names = {[name.replace(chr(0), '') for name in EVIL_NAMES]!r}\n"
        "with transaction.atomic():\n"
        "    region = Region.objects.get(slug='local')\n"
        "    for number, name in enumerate(names):\n"
        "        pool = Pool.objects.create(slug=f'evil-{number}', name=name, region=region,\n"
        "            served_model='m' + name, policy=Pool.objects.first().policy)\n"
        "        Engine.objects.create(engine_id=f'evil-{number}', name=name, pool=pool,\n"
        "            url=f'http://127.0.0.1:1/{number}', connect_url='http://127.0.0.1:1',\n"
        "            kv_events_endpoint='udp://' + name)\n"
        "    record_change()\n"
    )
    # The gateway must receive the names, which takes one poll, before the database breaks.
    last = f"evil-{len(EVIL_NAMES) - 1}"
    for _ in range(200):
        if any(last in line for line in running.log_lines()):
            return
        time.sleep(0.1)
    raise TimeoutError(f"the gateway has not heard of {last}")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Return the written files, the responses, the metrics with the explanations, and the log lines."""
    with live_program(tmp_path_factory.mktemp("program"), engines=True) as running:
        give_evil_names(running)

        async def run_prompts() -> tuple[list[Answer], str]:
            timeout = aiohttp.ClientTimeout(total=60)
            async with aiohttp.ClientSession(timeout=timeout) as session:
                answers = [answer async for answer in send_all(running, session)]
                key = {"Authorization": f"Bearer {running.secrets.api_key}"}
                published = []
                decisions = [decision for _, decision, _ in answers if decision][-300:]
                for way in ["/metrics", *(f"/api/v1/explain/{item}" for item in decisions)]:
                    async with session.get(running.url + way, headers=key) as answer:
                        published.append(await answer.text())
            return answers, "\n".join(published)

        answers, published = asyncio.run(run_prompts())
        lines = running.log_lines()
        running.stop()
        return running.written(), answers, published, lines


def test_prompts_get_every_status(story: Story) -> None:
    _, answers, _, _ = story
    assert len(answers) == PROMPTS
    assert {status for status, _, _ in answers} >= {200, 400, 401, 403, 404, 500, 503}


def test_no_file_contains_a_prompt(story: Story) -> None:
    written, _, _, _ = story
    assert any(name.endswith("headway.sqlite3") for name in written)
    assert {Path(name).name for name in written} >= {"headway.log", "gateway.log", "web.log", "jobs.log"}
    assert [name for name, data in written.items() if CANARY.lower().encode() in data.lower()] == []


def test_no_error_repeats_a_prompt(story: Story) -> None:
    """Only errors count: a login page that is shown again repeats the typed name in its field."""
    _, answers, _, _ = story
    errors = [text for _, _, text in answers if text]
    assert len(errors) > PROMPTS / 3
    assert [text[:300] for text in errors if CANARY.lower() in text.lower()] == []


def test_metrics_and_explanations_contain_no_prompt(story: Story) -> None:
    _, _, published, _ = story
    assert "headway_decisions_total" in published
    assert published.count("least_cost") > 5
    assert CANARY.lower() not in published.lower()


def test_every_log_line_is_one_flat_json_object(story: Story) -> None:
    _, _, _, lines = story
    events = [json.loads(line) for line in lines]
    assert len(events) > 10
    assert all(line.isascii() and line.isprintable() for line in lines)
    assert all(
        {"at", "level", "logger"} <= set(event) and ("event" in event) != ("message" in event) for event in events
    )
    assert not [event for event in events if str(event.get("message", "")).startswith('{"event"')]


def test_name_with_control_characters_stays_in_its_log_line(story: Story) -> None:
    _, _, _, lines = story
    text = [json.dumps(json.loads(line), ensure_ascii=False) for line in lines]
    assert any("udp://" in line for line in text)


def test_jobs_are_woken_without_arguments() -> None:
    """A broker stores the arguments of jobs, so jobs have none."""
    celery.loader.import_default_modules()
    jobs = [task for name, task in celery.tasks.items() if name.startswith("controlplane.")]
    assert len(jobs) >= 3
    assert [task.name for task in jobs if inspect.signature(task.run).parameters] == []
