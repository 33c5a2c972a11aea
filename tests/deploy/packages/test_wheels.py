"""The wheels are reproducible, complete, and route a request from an empty environment of each supported Python."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from packaging.utils import canonicalize_name

from controlplane.fleet.loopback_ports import free_ports
from deploy.packages.__main__ import CHART, ROOT, requirements_in
from tests.deploy.packages.package_tools import installed
from tests.deploy.packages.test_locks import VERSIONS
from tests.patience import PATIENCE_S, wait_until

MODEL = "packaged"


def _build(out: Path) -> dict[str, Path]:
    subprocess.run([sys.executable, "-m", "deploy.packages", "--out", out], cwd=ROOT, check=True)
    return {path.name.partition("-")[0]: path for path in out.glob("*.whl")}


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    installed()
    return _build(tmp_path_factory.mktemp("dist"))


def _python(version: str) -> str:
    """Return an interpreter of the version, from the PATH or pyenv; skip the test without one."""
    of_pyenv = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    interpreter = str(of_pyenv[-1]) if of_pyenv else shutil.which(f"python{version}")
    if not interpreter:
        pytest.skip(f"Python {version} is not installed")
    return interpreter


def _environment(version: str, folder: Path, *packages: str | Path) -> Path:
    """Return the bin folder of a new environment with these packages."""
    subprocess.run([_python(version), "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    # Packages that PYTHONPATH names would count as installed.
    subprocess.run([*pip, *packages], check=True, env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"})
    return folder / "bin"


def test_equal_sources_give_equal_wheels(wheels: dict[str, Path], tmp_path: Path) -> None:
    again = _build(tmp_path)
    assert {name: path.read_bytes() for name, path in again.items()} == {n: p.read_bytes() for n, p in wheels.items()}
    assert sorted(again) == ["headway", "headway_client", "headway_vllm_connector"]


def test_the_packed_chart_equals_the_charts_folder(wheels: dict[str, Path], tmp_path: Path) -> None:
    [packed] = wheels["headway"].parent.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    files = [path.relative_to(CHART) for path in CHART.rglob("*") if path.is_file()]
    assert {name: (tmp_path / "headway" / name).read_bytes() for name in files} == {
        name: (CHART / name).read_bytes() for name in files
    }
    _build(tmp_path / "again")
    assert (tmp_path / "again" / packed.name).read_bytes() == packed.read_bytes()


def test_the_application_has_every_file_that_it_runs_from_and_one_public_name(wheels: dict[str, Path]) -> None:
    names = zipfile.ZipFile(wheels["headway"]).namelist()
    assert {name.partition("/")[0] for name in names} == {"headway", names[-1].partition("/")[0]}
    for part in ("manage.py", "templates/fleet/fleet.html", "web/static/dist/console.css", "gateway/__main__.py"):
        assert f"headway/_rooms/{part}" in names
    assert not [name for name in names if "/frontend/" in name or "/tests/" in name or name.endswith(".pyc")]


def test_the_bill_of_materials_names_every_locked_and_bundled_package(wheels: dict[str, Path]) -> None:
    archive = zipfile.ZipFile(wheels["headway"])
    [name] = [name for name in archive.namelist() if name.endswith("sbom.cdx.json")]
    bill: dict[str, Any] = json.loads(archive.read(name))
    parts = {part["purl"] for part in bill["components"]}
    for pin in requirements_in(ROOT / "requirements.txt"):
        [version] = (item.version for item in pin.specifier)
        assert f"pkg:pypi/{canonicalize_name(pin.name)}@{version}" in parts
    direct = json.loads((ROOT / "package.json").read_text())["dependencies"]
    for name, version in direct.items():
        purl = f"pkg:npm/{name.replace('@', '%40', 1)}@{version}"
        assert (purl in parts) == (name not in {"esbuild", "axe-core"})


def test_the_connector_has_every_module_that_it_imports(wheels: dict[str, Path]) -> None:
    archive, rooms = zipfile.ZipFile(wheels["headway_vllm_connector"]), "headway_vllm_connector/_rooms/"
    names = set(archive.namelist())
    seen, waiting = set(), ["kvstore.connector.vllm_connector", "kvstore.connector.sglang_storage"]
    while waiting:
        seen.add(module := waiting.pop())
        path = rooms + module.replace(".", "/")
        source = archive.read(f"{path}.py" if f"{path}.py" in names else f"{path}/__init__.py")
        imports = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom))
        ours = {str(node.module) for node in imports if str(node.module).startswith("kvstore")}
        waiting += ours - seen - set(waiting)
    assert len(seen) > 20


@pytest.mark.parametrize("version", VERSIONS)
def test_the_client_needs_httpx_alone(version: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    bin_folder = _environment(version, tmp_path / "env", wheels["headway_client"])
    program = (
        "import headway_client as c; c.Headway('http://127.0.0.1:9', 'k', engines=['http://e']); print(c.__file__)"
    )
    done = subprocess.run(
        [bin_folder / "python", "-c", program], check=True, capture_output=True, text=True, cwd=tmp_path
    )
    assert str(tmp_path) in done.stdout
    assert (Path(done.stdout.strip()).parent / "py.typed").exists()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_installed_application_routes_a_request(version: str, wheels: dict[str, Path], tmp_path: Path) -> None:
    headway = _environment(version, tmp_path / "env", wheels["headway"]) / "headway"
    port, engine, *_ = free_ports(2, start=24000)
    with ExitStack() as running:
        variables = {"HEADWAY_STATE_DIR": str(tmp_path / "state"), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}

        def call(*arguments: str) -> str:
            return subprocess.run(
                [headway, *arguments], env=variables, check=True, capture_output=True, text=True, cwd=tmp_path
            ).stdout

        assert "headway up" in call("up", "--help")
        running.enter_context(_program(headway, variables, "up", "--port", str(port)))
        running.enter_context(
            _program(headway, variables, "simengine", "--port", str(engine), "--served-model-name", MODEL)
        )
        wait_until(lambda: _answers(f"http://127.0.0.1:{port}/live") and _answers(f"http://127.0.0.1:{engine}/health"))
        call("connect", f"http://127.0.0.1:{engine}", "--approximate", "--yes", "--port", str(port))
        [key] = re.findall(r"hw_\S+", call("create_api_key", "--name", "packaged"))
        # A key made by another process reaches the gateway with the next snapshot.
        wait_until(
            lambda: _answers(f"http://127.0.0.1:{port}/ready") and _answers(f"http://127.0.0.1:{port}/v1/models", key)
        )
        body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4})
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/chat/completions",
            body.encode(),
            {"content-type": "application/json", "authorization": f"Bearer {key}"},
        )
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.headers["x-headway-decision"]
            assert json.load(answer)["choices"][0]["message"]["content"]


@contextmanager
def _program(headway: Path, variables: dict[str, str], *arguments: str) -> Iterator[None]:
    process = subprocess.Popen([headway, *arguments], env=variables, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _answers(url: str, key: str = "") -> bool:
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {key}"} if key else {})
    try:
        with urllib.request.urlopen(request, timeout=5.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
