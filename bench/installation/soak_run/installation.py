"""A large installation as processes (web, workers, their beat, gateways, engines), each of which can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.live.live_fleet import engine_command, program_pids, resident_bytes, wait_for
from bench.live.loopback_ports import free_ports

ROOT = Path(__file__).resolve().parents[3]
WORKERS, GATEWAYS, ENGINES = 2, 2, 4
MODEL = "loopback-8b"
MARK = "HEADWAY_SOAK"
"""Environment variable inherited by all processes of one soak, so that orphans can be detected."""
_PAGE = "/login"
"""A balancer's check of a web process, as in the Helm chart. /ready answers before its pages can be
served.
"""
ENGINE_OPTIONS = ("--time-scale", "4", "--block-size", "64", "--num-blocks", "2000", "--stream-interval", "8")
_SECRET = "kJ3-d8fTq0_vW7xY2zAbCdEfGhIjKlMnOpQrStUv"  # noqa: S105 - of an installation that lives for minutes

_SEED = """
from controlplane.models import Engine, Policy, Pool, Region
from controlplane.platform.snapshot_change import record_change
from controlplane.platform.actor import program
from controlplane.policies.publish import create_policy, draft, publish_version
from controlplane.fleet.topology import create_pool
from django.db import transaction
with transaction.atomic():
    pool = Pool.objects.create(slug="pool", name="Pool", region=Region.objects.get(slug="local"),
        served_model="{model}", block_tokens=64, policy=Policy.objects.get(slug="default"))
    for number, (http, events, replay) in enumerate({ports}):
        url = f"http://127.0.0.1:{{http}}"
        Engine.objects.create(engine_id=f"e{{number}}", name=f"e{{number}}", pool=pool, url=url, connect_url=url,
            kv_events_endpoint=f"tcp://127.0.0.1:{{events}}", kv_replay_endpoint=f"tcp://127.0.0.1:{{replay}}")
    record_change()
me = program("soak")
policy = create_policy("hooked", "Hooked", actor=me)
scaling = {{"up_cool_down_s": 0, "down_cool_down_s": 0, "max_down": 4}}
document = {{"schema_version": 1, "automation": {{"scaling": scaling}}}}
publish_version(draft(policy, document, actor=me), instead_of=None, actor=me)
create_pool("hooked", "Hooked", Region.objects.get(slug="local"), "hooked-8b", policy, actor=me,
    actuator="webhook", actuator_settings={{"url": "{hook}"}})
"""


class Installation:
    """Starts processes by name, kills and restarts them. Mutable: `running`, and the peak memory of each kind."""

    def __init__(self, directory: Path, database_url: str, redis_url: str, webs: int = 1) -> None:
        ports = free_ports(webs + GATEWAYS + 3 * ENGINES)
        self.web_urls = [f"http://127.0.0.1:{port}" for port in ports[:webs]]
        self.gateway_urls = [f"http://127.0.0.1:{port}" for port in ports[webs : webs + GATEWAYS]]
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self.peak_mib: dict[str, float] = {}
        self.mark = uuid.uuid4().hex
        rest = ports[webs + GATEWAYS :]
        self._engine_ports = [rest[3 * number : 3 * number + 3] for number in range(ENGINES)]
        self._directory = directory
        self._environment = {
            **os.environ,
            MARK: self.mark,
            "DATABASE_URL": database_url,
            "REDIS_URL": redis_url,
            "SECRET_KEY": _SECRET,
            "HEADWAY_FLEET_SECRET": _SECRET[::-1],
            "HEADWAY_WEBHOOK_SECRET": _SECRET,
        }
        self._commands = self._all_commands(ports[:webs], ports[webs : webs + GATEWAYS])

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment for further processes."""
        return {**self._environment, "HEADWAY_STATE_DIR": str(self._directory / "web-0")}

    def start_all(self, hook: str) -> str:
        """Start all processes, register engines and the pool of `hook`, and return a client's API key."""
        self.start("web-0")
        wait_for(f"{self.web_urls[0]}/live")
        for name in self._commands:
            if name != "web-0":
                self.start(name)
        self.manage("shell", "--no-imports", "-c", _SEED.format(model=MODEL, ports=self._engine_ports, hook=hook))
        key = self.manage("create_api_key", "--name", "soak", "--scopes", "infer", "route").split()[0]
        for url in (*self.gateway_urls, *self.web_urls):
            self._wait_until_it_serves(url)
        return key

    def start(self, name: str) -> None:
        """Start a process that is not running."""
        state = {"HEADWAY_STATE_DIR": str(self._directory / name)}
        with (self._directory / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                self._commands[name], cwd=ROOT, env={**self._environment, **state}, stdout=log, stderr=log
            )

    def kill(self, name: str) -> None:
        """Kill a process, as a crash would."""
        self.running[name].kill()
        self.running[name].wait()

    def end(self, name: str) -> int:
        """Stop a process as its process manager would, and return its exit status."""
        self.running[name].terminate()
        return self.running[name].wait()

    def restart(self, name: str) -> None:
        """Start a process that ended.

        For a gateway or web, wait until it serves, so that another one can be stopped.
        """
        self.start(name)
        kind, _, number = name.partition("-")
        urls = {"gateway": self.gateway_urls, "web": self.web_urls}.get(kind)
        if urls is not None:
            self._wait_until_it_serves(urls[int(number)])

    def _wait_until_it_serves(self, url: str) -> None:
        wait_for(f"{url}/ready")
        if url in self.web_urls:
            wait_for(f"{url}{_PAGE}")

    def names(self, kind: str) -> list[str]:
        """Return the processes of a kind: web, worker, beat, gateway or engine."""
        return [name for name in self._commands if name.split("-")[0] == kind]

    def manage(self, *words: str) -> str:
        """Run one command of the installation and return its output. Raises RuntimeError with its error output."""
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(command, cwd=ROOT, env=self.environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"manage.py {words[0]} failed: {done.stderr[-2000:]}")
        return done.stdout

    def sample_memory(self) -> dict[str, float]:
        """Return the resident MiB of the largest process of each command, and update the peaks."""
        now = {}
        for name, process in self.running.items():
            try:
                now[name] = max(map(resident_bytes, program_pids(process.pid))) / (1 << 20)
            except (FileNotFoundError, ProcessLookupError):
                continue
            self.peak_mib[name] = max(self.peak_mib.get(name, 0.0), now[name])
        return now

    def stop_all(self) -> list[str]:
        """Stop all processes as an operator would. Return the ones that had to be killed."""
        stubborn = []
        # Engines end last, so that gateways can drain their requests.
        for name in sorted(self.running, key=lambda item: item.startswith("engine")):
            self.running[name].terminate()
        for name, process in self.running.items():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                stubborn.append(name)
                process.kill()
                process.wait()
        return stubborn

    def orphans(self) -> list[str]:
        """Return the command lines of processes of this soak that still run after a grace period."""
        left: list[str] = []
        # Children of a killed process may take a moment to notice its end.
        for _ in range(50):
            left = _marked(self.mark)
            if not left:
                break
            time.sleep(0.1)
        return left

    def _all_commands(self, web_ports: Sequence[int], gateway_ports: Sequence[int]) -> dict[str, list[str]]:
        commands = {
            f"web-{number}": [sys.executable, "manage.py", "up", "--no-demo", "--port", str(port)]
            for number, port in enumerate(web_ports)
        }
        for number in range(WORKERS):
            commands[f"worker-{number}"] = [sys.executable, "manage.py", "worker", "--only", "jobs"]
        # Only one, so that nothing wakes the jobs while it is away.
        commands["beat-0"] = [sys.executable, "manage.py", "worker", "--only", "beat"]
        for number, port in enumerate(gateway_ports):
            folder = str(self._directory / f"gateway-{number}")
            command = ["-m", "gateway", "--port", str(port), "--state-dir", folder]
            commands[f"gateway-{number}"] = [sys.executable, *command]
        for number in range(ENGINES):
            commands[f"engine-{number}"] = engine_command(self._engine_ports[number], list(ENGINE_OPTIONS))
        return commands


def _marked(mark: str) -> list[str]:
    commands = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if int(folder.name) != os.getpid() and f"{MARK}={mark}".encode() in (folder / "environ").read_bytes():
                commands.append((folder / "cmdline").read_text().replace("\0", " ")[:200])
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
    return commands
