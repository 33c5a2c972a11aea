"""The real program with a separate state directory, for benchmarks and tests of its failure modes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench.live.live_fleet import engine_command, program_pids, resident_bytes, wait_for
from bench.live.loopback_ports import free_ports
from controlplane.project.first_run.secrets import FirstRunSecrets, secrets_of

ROOT = Path(__file__).resolve().parents[2]
ENGINES = 2
QUICK = ("--time-scale", "50", "--block-size", "64", "--num-blocks", "2000")

_SEED = """
from controlplane.models import Engine, Policy, Pool, Region
from controlplane.platform.snapshot_change import record_change
from django.db import transaction
with transaction.atomic():
    pool = Pool.objects.create(slug="pool", name="Pool", region=Region.objects.get(slug="local"),
        served_model="loopback-8b", block_tokens={block_tokens}, policy=Policy.objects.get(slug="default"))
    for number, (http, events, replay) in enumerate({ports}):
        url = f"http://127.0.0.1:{{http}}"
        Engine.objects.create(engine_id=f"e{{number}}", name=f"e{{number}}", pool=pool, url=url, connect_url=url,
            kv_events_endpoint=f"tcp://127.0.0.1:{{events}}", kv_replay_endpoint=f"tcp://127.0.0.1:{{replay}}")
    record_change()
"""


class LiveProgram:
    """`manage.py up`, by default without the demo. With `engines`, it has simulated ones in one pool."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        arguments: Sequence[str] = ("--no-demo",),
    ) -> None:
        self.state_dir = directory / "state"
        self.temporary = directory / "tmp"
        self.temporary.mkdir()
        self.port = free_ports(1)[0]
        self.url = f"http://127.0.0.1:{self.port}"
        self.engines: list[subprocess.Popen[bytes]] = []
        self.engine_urls: list[str] = []
        self._engine_commands: list[list[str]] = []
        self._output = directory / "output.log"
        self._environment = {
            "PATH": os.environ["PATH"],
            "HEADWAY_STATE_DIR": str(self.state_dir),
            "TMPDIR": str(self.temporary),
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._arguments = arguments
        self._api_key = ""

    @property
    def pid(self) -> int:
        """Process id of the supervisor."""
        if self._process is None:
            raise RuntimeError("the program is not started")
        return self._process.pid

    @property
    def secrets(self) -> FirstRunSecrets:
        """Password of the first start, and the API key created afterwards."""
        return msgspec.structs.replace(secrets_of(self.state_dir), api_key=self._api_key)

    def start(self) -> None:
        """Start the program and wait until gateway and console answer."""
        command = [sys.executable, "manage.py", "up", *self._arguments, "--port", str(self.port)]
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdout=output, stderr=output, start_new_session=True
            )
        wait_for(f"{self.url}/login")
        if not self._api_key:
            self._api_key = self.manage("create_api_key", "--name", "bench", "--scopes", "infer", "route").strip()

    def start_engines(self, count: int = ENGINES, options: Sequence[str] = QUICK, *, block_tokens: int = 64) -> None:
        """Start engines, register them, and wait until the gateway sends them work."""
        ports = free_ports(3 * count)
        parts = [ports[3 * number : 3 * number + 3] for number in range(count)]
        self._engine_commands = [engine_command(part, list(options)) for part in parts]
        self.engines = [subprocess.Popen(command, cwd=ROOT) for command in self._engine_commands]
        self.engine_urls = [f"http://127.0.0.1:{part[0]}" for part in parts]
        self.shell(_SEED.format(ports=parts, block_tokens=block_tokens))
        wait_for(f"{self.url}/ready")

    def kill_engine(self, number: int) -> None:
        """Kill an engine, as a crash would."""
        self.engines[number].kill()
        self.engines[number].wait()

    def restart_engine(self, number: int) -> None:
        """Start a killed engine again at its old address."""
        self.engines[number] = subprocess.Popen(self._engine_commands[number], cwd=ROOT)

    def shell(self, program: str) -> str:
        """Run Python in the program's Django, in a separate process. Return its output."""
        return self.manage("shell", "--no-imports", "-c", program)

    def manage(self, *arguments: str) -> str:
        """Run one command of the program and return its output."""
        command = [sys.executable, "manage.py", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"manage.py {arguments[0]} failed: {done.stderr}")
        return done.stdout

    def restart(self) -> None:
        """Stop the server as an operator would, and start it again with the same state."""
        self._end_server()
        self.start()

    def _end_server(self) -> None:
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def stop(self) -> None:
        """Stop all processes, the server as an operator would."""
        self._end_server()
        for engine in self.engines:
            engine.kill()
            engine.wait()

    def log_lines(self) -> list[str]:
        """Return all log lines of supervisor, gateway, web and jobs."""
        # Valkey's log has its own format.
        logs = sorted(set((self.state_dir / "log").glob("*.log")) - {self.state_dir / "log" / "bus.log"})
        return [line for log in logs for line in log.read_text().splitlines()]

    def written(self) -> dict[str, bytes]:
        """Return all bytes that the program has written to disk or to its output, by file."""
        files = [path for path in self.state_dir.rglob("*") if path.is_file()]
        files += [path for path in self.temporary.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.state_dir.parent)): path.read_bytes() for path in [*files, self._output]}

    def resident_mib(self) -> float:
        """Return the resident memory of all its processes."""
        return sum(map(resident_bytes, program_pids(self.pid))) / (1 << 20)

    def largest_open_file(self) -> int:
        """Return the size of the largest file that its processes hold open below its temporary directory."""
        sizes = [0]
        for link in [link for pid in program_pids(self.pid) for link in Path(f"/proc/{pid}/fd").iterdir()]:
            try:
                if str(link.readlink()).startswith(str(self.temporary)):
                    sizes.append(link.stat().st_size)
            except FileNotFoundError:
                continue
        return max(sizes)


@contextmanager
def live_program(
    directory: Path, *, engines: bool = False, environment: Mapping[str, str] | None = None
) -> Iterator[LiveProgram]:
    """Run the program during the context. `environment` adds variables."""
    running = LiveProgram(directory, environment)
    try:
        running.start()
        if engines:
            running.start_engines()
        yield running
    finally:
        running.stop()
