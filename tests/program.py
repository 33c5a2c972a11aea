"""The whole program with its demo fleet, as `manage.py up --demo` starts it, and queries from outside."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from tests.kept import Kept
from tests.patience import PATIENCE_S
from web.shell.frame import console_is_built

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Program:
    """A running `manage.py up` with its demo fleet."""

    url: str
    state_dir: Path
    process: subprocess.Popen[bytes]

    @property
    def secrets(self) -> dict[str, Any]:
        """Return login and API key of the first run."""
        secrets_: dict[str, Any] = json.loads((self.state_dir / "first_run.json").read_text())
        return secrets_

    def ask(self, question: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query of the program's database."""
        with sqlite3.connect(f"file:{self.state_dir}/headway.sqlite3?mode=ro", uri=True) as database:
            return database.execute(question, values).fetchall()

    def requests(self, outcome: str) -> float:
        """Return the number of requests with this outcome: completed, failed, rejected, or cancelled."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=PATIENCE_S) as answer:
            text = answer.read().decode()
        counts = re.findall(rf'^headway_requests_total\{{[^}}]*outcome="{outcome}"[^}}]*\}} (\S+)$', text, re.MULTILINE)
        return sum(map(float, counts))

    def answer(self, path: str, body: object) -> tuple[int, Message, bytes]:
        """Send JSON with the first run's API key; return status, headers, and body. Retry a 429."""
        headers = {"Authorization": f"Bearer {self.secrets['api_key']}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                    return answer.status, answer.headers, answer.read()
            except urllib.error.HTTPError as error:
                if error.code != 429 or time.monotonic() > until_s:
                    return error.code, error.headers, error.read()
                time.sleep(float(error.headers["Retry-After"]))

    def post(self, path: str, body: object) -> tuple[int, bytes]:
        """Send JSON like `answer`; return status and body."""
        status, _, text = self.answer(path, body)
        return status, text

    def decided_by(self) -> int:
        """Request a decision and return its policy version."""
        status, answer = self.post("/api/v1/route", {"model": "demo-8b", "prompt": "hello"})
        assert status == 200, answer
        return int(json.loads(answer)["policy_version"])

    def add_person(self, name: str, password: str, role: str) -> None:
        """Create a user with a role in all pools, without the console."""
        script = (
            "from django.contrib.auth.models import User; from controlplane.models import RoleGrant\n"
            f"user = User.objects.create_user({name!r}, password={password!r})\n"
            f"RoleGrant.objects.create(user=user, role={role!r})"
        )
        environment = {**os.environ, "HEADWAY_STATE_DIR": str(self.state_dir)}
        subprocess.run([sys.executable, "manage.py", "shell", "-c", script], cwd=ROOT, env=environment, check=True)

    def engine_pid(self, http_port: int) -> int:
        """Return the PID of the simulated engine on this port."""
        for pid, words in processes():
            if "simulator.engine_server" in words and words[words.index("--port") + 1] == str(http_port):
                return pid
        raise LookupError(f"no engine listens on {http_port}")

    def part_pid(self, part: str) -> int | None:
        """Return the PID of the bus server or the serving gateway, web, or jobs process; a standby gateway has no
        threads yet.
        """
        if part == "bus":
            children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
            return next((int(pid) for pid in children if _program_of(pid) in ("valkey-server", "redis-server")), None)
        module = f"controlplane.project.processes.{part}_process"
        pids = [pid for pid, words in processes() if words[2:4] == [module, str(self.process.pid)]]
        return next((pid for pid in pids if len(list(Path(f"/proc/{pid}/task").glob("*"))) > 1), None)


def _program_of(pid: str) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def processes() -> Iterator[tuple[int, list[str]]]:
    """Yield all processes with their command-line arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            yield int(folder.name), (folder / "cmdline").read_text().split("\0")


SHARING = (
    "tests/end_to_end/test_console.py",
    "tests/end_to_end/test_access.py",
    "tests/web/fleet/topology/test_topology_browser.py",
    "tests/web/policies/test_policy_browser.py",
    "tests/web/policies/test_policy_stages_browser.py",
    "tests/end_to_end/test_separate_processes.py",
    "tests/end_to_end/operations/test_usage_ledger.py",
)
"""Files whose tests run one after the other on one program: its start costs half a minute of CPU time."""


def file_of(node: pytest.Item | pytest.Collector) -> str:
    """Return the node's file, relative to the root."""
    return node.nodeid.partition("::")[0]


shared_program: Kept[Program] = Kept(lambda item: file_of(item) in SHARING)


@pytest.fixture(scope="module")
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program on a free port with its own state directory; ends with the module, or with the last of SHARING."""

    def start() -> AbstractContextManager[Program]:
        # Traffic enough for a live page: at full speed it takes half a core for as long as the tests run.
        return running_program(tmp_path_factory.mktemp("program") / "var", "--speed", "0.25")

    if file_of(request.node) in SHARING:
        yield shared_program.get(start)
        return
    with start() as running:
        yield running


def _ports_from() -> str:
    """Return the first port of this process's demos; simultaneous demos would find the same free ports."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    return str(23_000 + 500 * (int(worker) % 16))


def run_to_end(
    command: Sequence[str], environment: Mapping[str, str], limit_s: float = PATIENCE_S
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments from the root; return its exit status and output."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=limit_s,
    )


@contextmanager
def running_program(state_dir: Path, *options: str) -> Iterator[Program]:
    """Run `manage.py up --demo` with further options on a free port, and end it afterwards."""
    if not console_is_built():
        pytest.fail("the console is not built: run npm ci and npm run build")
    port = free_ports(1)[0]
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(state_dir), "HEADWAY_DEMO_PORTS_FROM": _ports_from()}
    command = [sys.executable, "manage.py", "up", "--demo", "--with-parent", "--port", str(port), *options]
    # A session of its own, as at a terminal of its own: in that of the tests its lower priorities would starve it.
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/ready", process)
        # The gateway may be ready before the console is.
        wait_for(f"http://127.0.0.1:{port}/login", process)
        yield Program(f"http://127.0.0.1:{port}", state_dir, process)
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt the program, twice if needed, and fail if it does not end."""
    for _ in range(2):
        if process.poll() is not None:
            return
        process.send_signal(signal.SIGINT)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            continue
        return
    process.kill()
    process.wait()
    pytest.fail("the program did not end after Ctrl-C twice")
