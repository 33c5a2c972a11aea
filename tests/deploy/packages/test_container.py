"""The container image: its Dockerfile compared with its steps, its build by buildah, and its program as a container."""

from __future__ import annotations

import re
import shlex
import urllib.request
from pathlib import Path

import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.deploy.packages.containers import Image
from tests.deploy.packages.package_tools import DEPLOY
from tests.deploy.packages.test_compose import HOST, chat_answer
from tests.house.test_pins import pins
from tests.patience import PATIENCE_S, wait_until

ROOT = DEPLOY.parent
DOCKERFILE = (DEPLOY / "container" / "Dockerfile").read_text().replace("\\\n", " ")
SCRIPT = (DEPLOY / "container" / "build.sh").read_text()
STEPS = re.findall(r"^(\w+)\(\) \{$", SCRIPT, re.MULTILINE)
_RUN = re.compile(r"^RUN sh deploy/container/build.sh (\w+)$", re.MULTILINE)
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


@pytest.mark.processes
@pytest.mark.thorough
def test_a_container_of_the_image_routes_a_request(image: Image, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    engine = SimulatedEngine(model="chat-8b", block_tokens=32)
    engine.start()
    command = [LOOPBACK.get(word, word) for word in words(instruction("CMD"))]
    command[command.index("8000")] = str(port)
    check = [word.replace("8000", str(port)) for word in words(instruction("HEALTHCHECK"))]
    url = f"http://127.0.0.1:{port}"
    # The container has this host's network, so that the engine is on its loopback.
    variables = {"HEADWAY_ALLOWED_HOSTS": f"{HOST},127.0.0.1", "HEADWAY_ALLOW_LOOPBACK_ENGINES": "true"}
    try:
        with image.container("web", command, variables, tmp_path / "state") as web:
            wait_for(f"{url}/live")
            assert web.run(check).returncode == 1, "there is no engine yet"
            done = web.run(["python", "manage.py", "connect", engine.url, "--port", str(port)])
            assert done.returncode == 0, done.stdout + done.stderr
            wait_until(lambda: web.run(check).returncode == 0)
            assert web.run(["id", "-u"]).stdout.strip() == "10001"
            assert web.run(["touch", "/app/written"]).returncode != 0, "the program's files are read-only"
            key = re.search(r"\(shown once\): (\S+)", done.stdout)
            assert key is not None, done.stdout
            assert chat_answer(url, key[1]) == "chat.completion"
            with urllib.request.urlopen(f"{url}/login", timeout=PATIENCE_S) as page:
                scripts = re.findall(r'src="(/static/dist/[^"]+)"', page.read().decode())
            assert scripts
            for script in scripts:
                with urllib.request.urlopen(url + script, timeout=PATIENCE_S) as file:
                    assert file.status == 200
    finally:
        engine.stop()
