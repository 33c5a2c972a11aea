"""The container image: its Dockerfile compared with its steps, and the steps in a separate Debian root."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.deploy.packages.package_tools import DEPLOY, tool
from tests.house.test_pins import pins
from tests.patience import PATIENCE_S
from tests.program import end

ROOT = DEPLOY.parent
DOCKERFILE = (DEPLOY / "container" / "Dockerfile").read_text().replace("\\\n", " ")
SCRIPT = (DEPLOY / "container" / "build.sh").read_text()
STEPS = re.findall(r"^(\w+)\(\) \{$", SCRIPT, re.MULTILINE)
_RUN = re.compile(r"^RUN sh deploy/container/build.sh (\w+)$", re.MULTILINE)
MIRROR = "http://deb.debian.org/debian"
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
LIMIT_S = 300.0
LOOPBACK = {"0.0.0.0": "127.0.0.1"}  # noqa: S104 - what is replaced


def instruction(name: str) -> str:
    """Return the arguments of the last instruction of this name, which belongs to the final image."""
    return str(re.findall(rf"^{name}\s+(.*)$", DOCKERFILE, re.MULTILINE)[-1])


def words(listed: str) -> list[str]:
    """Return the words of an instruction in exec form."""
    return re.findall(r'"([^"]*)"', listed)


def environment() -> dict[str, str]:
    return dict(part.split("=", 1) for part in shlex.split(instruction("ENV")))


def test_the_dockerfile_runs_each_step_once_and_nothing_else() -> None:
    assert _RUN.findall(DOCKERFILE) == STEPS == ["base", "console", "packages", "program", "account"]
    assert len(re.findall(r"^RUN ", DOCKERFILE, re.MULTILINE)) == len(STEPS)


def test_the_image_runs_as_an_unprivileged_account_in_exec_form() -> None:
    assert instruction("USER") == "10001:10001"
    assert instruction("CMD").startswith('["python", ')
    assert "/ready" in instruction("HEALTHCHECK")
    assert instruction("VOLUME") == environment()["HEADWAY_STATE_DIR"]


def test_the_image_contains_every_package_of_the_program_and_no_test() -> None:
    (code,) = re.findall(r'^CODE="([^"]+)"', SCRIPT, re.MULTILINE)
    rooms = {path.name for path in ROOT.iterdir() if (path / "__init__.py").exists()} - {"bench", "tests"}
    assert set(code.split()) - {"templates", "manage.py", "pyproject.toml"} == rooms
    assert all((ROOT / part).exists() for part in code.split())


def test_image_packages_are_the_products_dependencies_in_locked_versions() -> None:
    for lock in ("requirements.lock", "deploy/requirements-envoy.lock"):
        assert f"-r {lock}\n" in SCRIPT
        assert f"COPY {lock} {lock}\n" in DOCKERFILE
    assert not {"pytest", "mypy", "ruff", "playwright", "matplotlib"} & pins("requirements.lock").keys()
    assert pins("deploy/container/console.lock").items() >= pins("deploy/container/console.txt").items()


class Image:
    """A Debian root in which commands run as in a container; mounts end with the command."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def command(self, words: list[str], account: str, env: dict[str, str], folder: str) -> list[str]:
        """Return the command line that runs `words` in the root."""
        inside = f"cd {folder} && exec {shlex.join(words)}"
        variables = [f"{name}={value}" for name, value in env.items()]
        chroot = shlex.join(
            ["chroot", f"--userspec={account}", str(self.root), "/usr/bin/env", "-i", *variables, "sh", "-c", inside]
        )
        mounts = f"mount -t proc proc {self.root}/proc && mount --bind /dev {self.root}/dev"
        return ["unshare", "--mount", "sh", "-c", f"{mounts} && exec {chroot}"]

    def build(self, step: str) -> None:
        """Run one step as the Dockerfile does."""
        trust = {"PIP_CERT": "/source/host.crt", "NODE_EXTRA_CA_CERTS": "/source/host.crt"}
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DEBIAN_FRONTEND": "noninteractive", **trust}
        command = self.command(["sh", "deploy/container/build.sh", step], "0:0", env, "/source")
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"{step}: {done.stdout[-2000:]}{done.stderr[-4000:]}"

    def program(self, listed: list[str]) -> list[str]:
        """Return the command line of a program of the image, in the image's environment."""
        return self.command(listed, instruction("USER"), environment(), instruction("WORKDIR"))


@pytest.fixture(scope="module")
def image() -> Iterator[Image]:
    """Build the image's root; about 600 MB, for this test alone."""
    debootstrap = tool("debootstrap")
    if os.geteuid() != 0:
        pytest.skip("only root may make a Debian root")
    # Not below pytest's own directory, which the image's account may not enter.
    root = Path(mkdtemp(prefix="headway-image-"))
    root.chmod(0o755)
    made = ["sh", debootstrap, "--variant=minbase", "--include=ca-certificates", "trixie", str(root), MIRROR]
    try:
        done = subprocess.run(made, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:]
        (root / "app").mkdir()
        shutil.copy("/etc/resolv.conf", root / "etc")
        source = root / "source"
        files = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        for name in files.stdout.splitlines():
            if not name.startswith(("tests/", "bench/", "docs/")) and (ROOT / name).is_file():
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, source / name)
        if CERTIFICATES.exists():
            shutil.copy(CERTIFICATES, source / "host.crt")
        built = Image(root)
        for step in STEPS:
            built.build(step)
        yield built
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextmanager
def started(image: Image, port: int) -> Iterator[None]:
    """Run the image's own command on a loopback port."""
    command = [LOOPBACK.get(word, word) for word in words(instruction("CMD"))]
    command[command.index("8000")] = str(port)
    process = subprocess.Popen(image.program(command))
    try:
        wait_for(f"http://127.0.0.1:{port}/live")
        yield
    finally:
        end(process)


def status(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@pytest.mark.processes
@pytest.mark.thorough
def test_the_program_in_the_image_becomes_ready(image: Image) -> None:
    (port,) = free_ports(1)
    engine = SimulatedEngine(model="chat-8b", block_tokens=32)
    engine.start()
    try:
        with started(image, port):
            url = f"http://127.0.0.1:{port}"
            check = [word.replace("8000", str(port)) for word in words(instruction("HEALTHCHECK"))]
            assert subprocess.run(image.program(check), check=False).returncode == 1, "there is no engine yet"
            connect = ["python", "manage.py", "connect", engine.url, "--port", str(port)]
            done = subprocess.run(image.program(connect), check=False, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
            until_s = time.monotonic() + LIMIT_S
            while subprocess.run(image.program(check), check=False).returncode:
                assert time.monotonic() < until_s
                time.sleep(0.5)
            assert status(f"{url}/ready") == 200
            wait_for(f"{url}/login")
            with urllib.request.urlopen(f"{url}/login", timeout=PATIENCE_S) as page:
                scripts = re.findall(r'src="(/static/dist/[^"]+)"', page.read().decode())
            assert scripts
            assert {status(url + script) for script in scripts} == {200}
    finally:
        engine.stop()
