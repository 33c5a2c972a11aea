"""The whole program with its demo fleet, and a browser to look at it with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from bench.live_fleet import free_ports, wait_for
from tests.web.conftest import chromium_path  # noqa: F401 - pytest finds the fixture by its name
from web.shell import console_is_built

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_MS = 20_000


@dataclass(frozen=True)
class Program:
    """A running `manage.py up` with its demo fleet."""

    url: str
    state_dir: Path
    process: subprocess.Popen[bytes]

    @property
    def secrets(self) -> dict[str, Any]:
        """Login and API key of the first run."""
        return json.loads((self.state_dir / "first_run.json").read_text())

    def engine_pid(self, http_port: int) -> int:
        """Return the process of the simulated engine on this port."""
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_text().split("\0")
            except OSError:
                continue
            if "simulator.engine_server" in words and words[words.index("--port") + 1] == str(http_port):
                return int(folder.name)
        raise LookupError(f"no engine listens on {http_port}")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    if not console_is_built():
        pytest.fail("the console is not built: run npm ci and npm run build")
    state_dir = tmp_path_factory.mktemp("program") / "var"
    port = free_ports(1)[0]
    environment = {**os.environ, "SWITCHYARD_STATE_DIR": str(state_dir), "SWITCHYARD_DEMO_PORTS_FROM": "23000"}
    command = [sys.executable, "manage.py", "up", "--demo", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/ready", 60.0)
        yield Program(f"http://127.0.0.1:{port}", state_dir, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


@pytest.fixture(scope="module")
def browser(chromium_path: str) -> Iterator[Browser]:  # noqa: F811 - the fixture above
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium_path, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def trouble() -> list[str]:
    """Everything the browser complained about."""
    return []


@pytest.fixture
def page(browser: Browser, program: Program, trouble: list[str]) -> Iterator[Page]:
    """A browser on the Fleet page, signed in as the admin of the first run."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, color_scheme="dark")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: trouble.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.goto(program.url)
    page.fill("#username", "admin")
    page.fill("#password", program.secrets["admin_password"])
    page.click("button[type=submit]")
    page.wait_for_selector("sy-heat[data-painted]")
    yield page
    context.close()
