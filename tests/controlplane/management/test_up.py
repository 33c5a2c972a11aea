"""The whole program as a process: it starts, responds, rejects a second one, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from django.core.management import CommandError

from controlplane.fleet.loopback_ports import free_ports
from controlplane.management.commands._static_engines import listed_urls
from controlplane.management.commands.up import reject_stale_console

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parents[3]
START_S = 150.0


@dataclass
class Program:
    """A running `manage.py up` and its address."""

    process: subprocess.Popen[str]
    port: int
    state_dir: Path
    greeting: str = ""
    """Its output once it answered, if a test has read it."""

    def get(self, path: str, key: str = "") -> tuple[int, str]:
        """Return status and body without following redirects."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        if key:
            request.add_header("Authorization", f"Bearer {key}")
        opener = urllib.request.build_opener(_NoRedirect)
        try:
            with opener.open(request, timeout=START_S) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def banner(self) -> str:
        """Return the program's output; the first call waits until the program responds."""
        assert self.process.stdout is not None
        while "Ctrl-C" not in self.greeting and (line := self.process.stdout.readline()):
            self.greeting += line
        return self.greeting


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_args: object) -> None:
        return None


def environment(state_dir: Path) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HEADWAY_STATE_DIR": str(state_dir),
        "HEADWAY_DEMO_PORTS_FROM": "18450",
        "PYTHONPATH": os.environ.get("PYTHONPATH", ""),
    }


def start(state_dir: Path, *options: str) -> Program:
    (port,) = free_ports(1, start=18402)
    command = [sys.executable, "manage.py", "up", "--port", str(port), *options]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment(state_dir),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    return Program(process, port, state_dir)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Run the program without options."""
    running = start(tmp_path_factory.mktemp("program") / "var")
    with running.process:
        yield running
        running.process.kill()


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Run the program with its engines and the replay."""
    running = start(tmp_path_factory.mktemp("demo") / "var", "--demo")
    with running.process:
        yield running
        running.process.kill()


def manage(program: Program, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "manage.py", *arguments],
        cwd=ROOT,
        env=environment(program.state_dir),
        capture_output=True,
        text=True,
        check=False,
    )


DRAIN_S = 120.0
"""How long answers under way may take to end on a busy machine."""


def eventually(condition: object, limit_s: float = START_S) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.1)


def engine_lines(pid: int) -> set[tuple[str, ...]]:
    """Return the commands of a program's engines; a child that has not started its engine is omitted."""
    lines = [command_line(child) for child in children_of(pid)]
    return {tuple(line[:9]) for line in lines if "simulator.engine_server" in line}


def children_of(pid: int) -> list[int]:
    children = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            children.append(int(status.parent.name))
    return children


def command_line(pid: int) -> list[str]:
    """Return the arguments of a process, or none if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []


def count(state_dir: Path, *tables: str) -> dict[str, int]:
    """Return the number of rows of each table."""
    with sqlite3.connect(state_dir / "headway.sqlite3", timeout=10) as database:
        rows = {
            table: database.execute(f"SELECT count(*) FROM controlplane_{table}").fetchone()[0]  # noqa: S608 - ours
            for table in tables
        }
    database.close()
    return rows


def test_start_without_options_runs_no_demo(program: Program) -> None:
    """First of the tests that share the program."""
    program.banner()
    assert program.get("/live")[0] == 200
    empty = {"tenant": 0, "apikey": 0, "pool": 0, "engine": 0, "kvnode": 0}
    assert count(program.state_dir, *empty) == empty
    lines = [command_line(child) for child in children_of(program.process.pid)]
    assert lines
    assert not [line for line in lines if any("simulator" in word or "demo" in word for word in line)]


def test_state_directory_is_accessible_only_to_its_owner(program: Program) -> None:
    program.banner()
    assert stat.S_IMODE(program.state_dir.stat().st_mode) == 0o700
    for name in ("first_run.json", "headway.sqlite3"):
        assert stat.S_IMODE((program.state_dir / name).stat().st_mode) == 0o600


def test_second_program_on_the_same_state_is_rejected_with_the_pid_of_the_first(program: Program) -> None:
    program.banner()
    second = manage(program, "up", "--port", "18499", "--no-demo")
    assert second.returncode == 1
    assert f"pid {program.process.pid}" in second.stderr
    assert "Traceback" not in second.stderr
    assert program.get("/live")[0] == 200


def test_port_in_use_is_reported_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        rejected = subprocess.run(
            [sys.executable, "manage.py", "up", "--no-demo", "--port", str(port)],
            cwd=ROOT,
            env=environment(tmp_path),
            capture_output=True,
            text=True,
            check=False,
        )
    assert rejected.returncode == 1
    assert re.fullmatch(rf"CommandError: Port {port} on 127\.0\.0\.1 .*--port\.\n", rejected.stderr)


def test_a_console_built_from_other_sources_is_rejected_in_a_checkout_only(tmp_path: Path) -> None:
    built, sources = tmp_path / "web" / "static" / "dist" / ".ready", tmp_path / ".ci" / "console-sources"
    for path in (built, sources):
        path.parent.mkdir(parents=True)
    built.write_text("abc\n")
    reject_stale_console(tmp_path)
    sources.write_text("#!/bin/sh\necho abc\n")
    sources.chmod(0o755)
    reject_stale_console(tmp_path)
    sources.write_text("#!/bin/sh\necho abd\n")
    with pytest.raises(CommandError, match=r"built from other sources.*Run `\.ci/setup-frontend`"):
        reject_stale_console(tmp_path)
    built.unlink()
    reject_stale_console(tmp_path)


def test_missing_trace_is_reported_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, "--trace", "/nonexistent.jsonl").process
    output, _ = process.communicate(timeout=START_S)
    assert process.returncode == 1
    assert output.startswith("CommandError: No trace at /nonexistent.jsonl")


def test_created_key_works_in_seconds_and_an_unknown_tenant_error_lists_known_ones(
    program: Program,
) -> None:
    program.banner()
    made = manage(program, "create_api_key", "--name", "test", "--tenant", "acme")
    assert made.returncode == 0
    key = made.stdout.strip()
    assert key.startswith("hw_")
    eventually(lambda: program.get("/v1/models", key)[0] == 200)
    rejected = manage(program, "create_api_key", "--tenant", "nobody")
    assert rejected.returncode == 1
    assert "Known tenants: acme" in rejected.stderr


def test_new_installation_prints_a_banner_responds_and_stops_on_ctrl_c(program: Program) -> None:
    banner = program.banner()
    secrets = json.loads((program.state_dir / "first_run.json").read_text())
    assert f"http://127.0.0.1:{program.port}/" in banner
    assert secrets["admin_password"] in banner
    assert secrets["api_key"] == ""
    assert "create one on the Access page" in banner
    assert program.get("/live")[0] == 200
    assert program.get("/login")[0] == 200
    assert program.get("/")[0] == 302
    assert program.get("/v1/models", "hw_wrong")[0] == 401
    # The last of the tests that share the program.
    program.process.send_signal(signal.SIGINT)
    assert program.process.wait(START_S) == 0


def test_with_parent_option_it_stops_when_its_parent_is_killed(tmp_path: Path) -> None:
    (port,) = free_ports(1, start=18402)
    command = [sys.executable, "manage.py", "up", "--no-demo", "--with-parent", "--port", str(port)]
    starter = f"import subprocess, sys; p = subprocess.Popen({command!r}); print(p.pid, flush=True); p.wait()"
    parent = subprocess.Popen(
        [sys.executable, "-c", starter], cwd=ROOT, env=environment(tmp_path), stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    with parent:
        pid = int(parent.stdout.readline())
        while "Ctrl-C" not in parent.stdout.readline():
            pass
        parent.kill()
        eventually(lambda: not Path(f"/proc/{pid}").exists())


def ask_for(state_dir: Path, *, engines: int) -> None:
    """Override the demo pool's number of engines, as an operator does in the console."""
    with sqlite3.connect(state_dir / "headway.sqlite3", timeout=10) as database:
        database.execute(
            "INSERT INTO controlplane_poolautomation (pool_id, frozen, override_engines, override_until, changed_by,"
            " why,"
            " revision) SELECT id, 0, ?, '2100-01-01 00:00:00', '', '', 1 FROM controlplane_pool",
            (engines,),
        )
    database.close()


def states_of_orders(state_dir: Path) -> list[str]:
    with sqlite3.connect(state_dir / "headway.sqlite3", timeout=10) as database:
        rows = database.execute("SELECT state FROM controlplane_engineaction ORDER BY id").fetchall()
    database.close()
    return [state for (state,) in rows]


@pytest.mark.thorough
def test_killed_demo_leaves_no_process_and_continues_with_the_same_state(demo: Program) -> None:
    demo.banner()
    eventually(lambda: len(engine_lines(demo.process.pid)) == 8)
    children = children_of(demo.process.pid)
    secrets = (demo.state_dir / "first_run.json").read_text()
    engines = engine_lines(demo.process.pid)
    # An operator asks for two engines fewer; the program dies while they drain.
    ask_for(demo.state_dir, engines=6)
    eventually(lambda: states_of_orders(demo.state_dir).count("draining") == 2)
    demo.process.kill()
    demo.process.wait()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children))
    again = start(demo.state_dir, "--demo")
    with again.process:
        try:
            again.banner()
            assert (demo.state_dir / "first_run.json").read_text() == secrets
            eventually(lambda: states_of_orders(demo.state_dir) == ["done", "done"], DRAIN_S)
            eventually(lambda: len(engine_lines(again.process.pid)) == 6, DRAIN_S)
            assert engines > engine_lines(again.process.pid)
            children = children_of(again.process.pid)
            again.process.send_signal(signal.SIGTERM)
            assert again.process.wait(DRAIN_S) == 0
        finally:
            again.process.kill()
    assert not any(Path(f"/proc/{pid}").exists() for pid in children)


def test_demo_with_only_one_of_two_roles_is_rejected_in_one_line(tmp_path: Path) -> None:
    process = start(tmp_path, "--prefill", "2").process
    output, _ = process.communicate(timeout=START_S)
    assert process.returncode == 1
    assert output.startswith("CommandError: --prefill and --decode go together, each from 1 to 16.")


def test_listed_engines_are_normalized_and_named_once() -> None:
    words = ["http://10.0.0.1:8000/v1,http://10.0.0.2:8000", "http://10.0.0.1:8000/", "https://e.example"]
    assert listed_urls(words) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "https://e.example:443"]
    with pytest.raises(ValueError, match="http"):
        listed_urls(["10.0.0.1:8000"])
