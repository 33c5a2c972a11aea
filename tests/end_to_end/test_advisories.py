"""The example chat of the demo: while somebody types, the conversation's KV moves before the request comes."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser import PATIENCE_MS, watched_page
from tests.program import Program, running_program

pytestmark = [pytest.mark.browser, pytest.mark.thorough]
TURNS = 8


@pytest.fixture(scope="module")
def quiet_program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The demo with little traffic beside the chat."""
    with running_program(tmp_path_factory.mktemp("chat"), "--speed", "0.02") as program:
        yield program


def called(program: Program, method: str, path: str, body: object = None) -> Any:
    """Call the management API as the node managers' operator; a busy program is asked again."""
    headers = {"Authorization": f"Bearer {program.secrets['kv_api_key']}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(program.url + path, data, headers, method=method)
    until_s = time.monotonic() + 120
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in (429, 503) or time.monotonic() > until_s:
                raise
            time.sleep(1)


def ask(page: Page, question: str) -> str:
    """Send a question and return the answer with its note."""
    turns = page.locator("#turns li")
    before = turns.count()
    page.fill("#text", question)
    page.get_by_role("button", name="Send").click()
    turns.nth(before + 1).wait_for(timeout=4 * PATIENCE_MS)
    return turns.nth(before + 1).inner_text()


def drain_all_beside(program: Program, name: str) -> None:
    """Have the conversation go to an engine of the other node."""
    engines = called(program, "GET", "/api/v1/engines?limit=100")["results"]
    node = next(each["kv_node"] for each in engines if each["name"] == name)
    for each in engines:
        state = "draining" if each["kv_node"] == node else "ready"
        called(program, "POST", f"/api/v1/engines/{each['engine_id']}/state", {"state": state})


def test_typing_moves_the_sessions_kv_before_the_request(
    quiet_program: Program, browser: Browser, trouble: list[str]
) -> None:
    ((origins,),) = quiet_program.ask("SELECT origins FROM controlplane_apikey WHERE name = 'first run'")
    (chat,) = json.loads(origins)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = watched_page(context, trouble)
    page.goto(chat, timeout=4 * PATIENCE_MS)
    answered = ask(page, "What does valve 7 do?")
    for turn in range(TURNS):
        # What the node keeps is written behind the answer, and a busy gateway sheds advisories: it may take some turns.
        drain_all_beside(quiet_program, answered.split("Answered by ")[1].split(".")[0])
        time.sleep(3.2)
        page.locator("#text").press_sequentially("And pump 9?", delay=30)
        state = page.locator("#state")
        if turn < TURNS - 1:
            page.wait_for_timeout(3000)
            moved = int(state.get_attribute("data-moved") or 0) > 0
        else:
            expect(state).to_contain_text("KV blocks lie beside the engine", timeout=4 * PATIENCE_MS)
            moved = True
        answered = ask(page, "And pump 9, in the second row?")
        if moved and "KV moved from" in answered and "tokens loaded from" in answered:
            break
    assert "KV moved from kv-" in answered
    assert "instead of computed" in answered
    assert 'switchyard_advisories_total{outcome="useful",pool="demo"}' in metrics(quiet_program)
    for width in (1440, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def metrics(program: Program) -> str:
    with urllib.request.urlopen(f"{program.url}/metrics", timeout=30) as answer:
        return str(answer.read(), "utf-8")


def test_the_script_is_small() -> None:
    path = Path(__file__).resolve().parents[2] / "web" / "static" / "dist" / "advise.js"
    assert path.stat().st_size <= 1024
