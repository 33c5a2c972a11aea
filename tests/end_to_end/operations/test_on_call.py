"""An on-call engineer's walk: each planted fault sends a message, names its cause, leads to its requests, and ends."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.browser import sign_in
from tests.end_to_end.operations.planted_faults import FAULTS, Fault
from tests.patience import wait_until
from tests.program import Program, run_to_end, running_program

pytestmark = [pytest.mark.processes, pytest.mark.browser, pytest.mark.thorough]
NOTIFIED_WITHIN_S, HELD_S, CLOSED_WITHIN_S = 60.0, 30.0, 360.0
MAX_CLICKS = 3
SETTLES_S = float(os.environ.get("WALK_SETTLES_S", "240"))
"""Seconds of usual traffic before the first fault; what is usual must be known, and caches must be warm."""
TABLE = os.environ.get("WALK_TABLE", "")
"""File to which each walk's figures are appended as JSON; empty: none."""


@dataclass
class Walked:
    """What one walk showed."""

    fault: str
    notified_s: float | None = None
    cause: str = ""
    certain: bool = False
    cause_at_end: str = ""
    certain_at_end: bool = False
    others: tuple[str, ...] = ()
    incidents: int = 0
    clicks: int = 0
    hit: tuple[int, int, int] = (0, 0, 0)
    """Late, failed, rejected of the incident."""
    logged: tuple[int, int, int] = (0, 0, 0)
    """The same requests in the request log."""
    closed_s: float | None = None


@dataclass(frozen=True)
class Receiver:
    """A webhook receiver and what it has received."""

    address: str
    messages: list[dict[str, Any]]


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Receive webhooks on a loopback port during the block."""
    messages: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            messages.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))) | {"at": time.time()})
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Write nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Receiver(f"json://127.0.0.1:{server.server_address[1]}/", messages)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def add_channel(program: Program) -> None:
    """Send every event of incidents to the receiver."""
    script = (
        "from controlplane.notifications.models.notification import NotificationChannel, NotificationRoute\n"
        "channel = NotificationChannel.objects.create(slug='walk', name='Walk', address_env='HEADWAY_NOTIFY_WALK')\n"
        "NotificationRoute.objects.create(slug='walk', channel=channel)"
    )
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(program.state_dir)}
    done = run_to_end(["manage.py", "shell", "-c", script], environment)
    assert done.returncode == 0, done.stderr


def incidents_since(program: Program, at: float) -> list[dict[str, Any]]:
    """Return the incidents that opened after `at`, first the one that opened first."""
    rows = program.ask(
        "select id, pool, state, cause, certain, detail, unixepoch(opened_at), unixepoch(onset), unixepoch(last_bad_at)"
        " from controlplane_incident where unixepoch(opened_at) >= ? order by id",
        at,
    )
    names = ("number", "pool", "state", "cause", "certain", "detail", "opened_at", "onset", "last_bad_at")
    return [dict(zip(names, row, strict=True)) for row in rows]


def hit_of(incident: dict[str, Any]) -> tuple[int, int, int]:
    """Return late, failed, and rejected requests of the incident."""
    counts = json.loads(incident["detail"])["hit"].get("all", {}).get("", (0, 0, 0, 0))
    return counts[1], counts[2], counts[3]


def logged(program: Program, incident: dict[str, Any]) -> tuple[int, int, int]:
    """Return late, failed, and rejected requests in the request log that ended while the incident counted."""
    detail = json.loads(incident["detail"])
    ((late, failed, rejected),) = program.ask(
        "select sum(outcome = 'completed' and late), sum(outcome = 'failed'), sum(outcome = 'rejected')"
        " from controlplane_decisionindex where ended_ms >= ? and ended_ms < ?",
        detail["counted_from"] * 1000,
        detail["counted_to"] * 1000,
    )
    return late or 0, failed or 0, rejected or 0


COUNT_CLICKS = "addEventListener('click', () => sessionStorage.clicks = Number(sessionStorage.clicks ?? 0) + 1, true)"


def clicks_to_requests(page: Page, program: Program, number: int) -> int:
    """Go from Fleet to the requests that the incident hit; return the clicks that the browser counted."""
    page.add_init_script(COUNT_CLICKS)
    page.goto(program.url)
    page.evaluate("delete sessionStorage.clicks")
    page.click("a[href='/incidents'] >> nth=0")
    page.click(f"a[href='/incidents/{number}'] >> nth=0")
    page.click("a:has-text('Requests hit')")
    page.wait_for_url("**/requests?ended_since=*")
    return int(page.evaluate("Number(sessionStorage.clicks)"))


def walk(program: Program, page: Page, receiver: Receiver, fault: Fault) -> Walked:
    """Plant the fault, do what an on-call engineer does, and remove it; return what it showed."""
    planted, walked = time.time(), Walked(fault.name)

    def opened() -> list[dict[str, Any]]:
        # SQLite's seconds are whole.
        return incidents_since(program, int(planted))

    with fault.plant(program):
        ends_at = time.time() + 2 * NOTIFIED_WITHIN_S
        while time.time() < ends_at and not [
            item for item in receiver.messages if item["at"] > planted and " opened" in item["title"]
        ]:
            time.sleep(0.2)
        message = next(
            (item for item in receiver.messages if item["at"] > planted and " opened" in item["title"]), None
        )
        walked.notified_s = round(message["at"] - planted, 1) if message else None
        time.sleep(HELD_S)
        if matches := opened():
            first = matches[0]
            walked.cause, walked.certain = first["cause"], bool(first["certain"])
            walked.clicks = clicks_to_requests(page, program, first["number"])
    ended = time.time()
    while time.time() < ended + CLOSED_WITHIN_S and any(item["state"] == "open" for item in opened()):
        time.sleep(1)
    if matches := opened():
        first = matches[0]
        walked.cause_at_end, walked.certain_at_end = first["cause"], bool(first["certain"])
        walked.incidents, walked.others = len(matches), tuple(item["cause"] for item in matches[1:])
        walked.closed_s = round(time.time() - ended, 1) if first["state"] == "closed" else None
        walked.hit, walked.logged = hit_of(first), logged(program, first)
    if TABLE:
        with Path(TABLE).open("a") as table:
            table.write(json.dumps(asdict(walked)) + "\n")
    return walked


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture(scope="module")
def program(
    request: pytest.FixtureRequest, receiver: Receiver, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Program]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_NOTIFY_WALK", receiver.address)
        # Its rate does not follow the host: with a few requests per minute, a fault hits no request.
        with running_program(tmp_path_factory.mktemp("walk") / "var", "--speed", "1", *request.param) as running:
            add_channel(running)
            time.sleep(SETTLES_S)
            wait_until(lambda: not running.ask("select 1 from controlplane_incident where state = 'open'"), "not quiet")
            yield running


@pytest.mark.parametrize(
    ("program", "fault"), [pytest.param(fault.options, fault, id=fault.name) for fault in FAULTS], indirect=["program"]
)
def test_fault_sends_a_message_names_its_cause_and_closes(
    browser: Browser, program: Program, receiver: Receiver, fault: Fault
) -> None:
    context = browser.new_context()
    page = context.new_page()
    sign_in(page, program.url, "admin", program.secrets["admin_password"])
    walked = walk(program, page, receiver, fault)
    context.close()
    assert walked.notified_s is not None, walked
    assert walked.notified_s <= NOTIFIED_WITHIN_S, walked
    assert walked.incidents == 1, walked
    assert walked.cause in fault.causes or not walked.certain, walked
    assert walked.cause_at_end in fault.causes or not walked.certain_at_end, walked
    assert walked.clicks <= MAX_CLICKS, walked
    assert walked.closed_s is not None, walked
    assert walked.hit == walked.logged, walked
