"""The bus's server: its program, its password, its socket, and its end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import redis

from controlplane.project.processes import bus_server
from controlplane.project.processes.bus_server import NoServerError, new_url, server_child, server_program
from tests.patience import wait_until
from tests.private_redis import PrivateRedis

pytestmark = pytest.mark.processes

_PARENT = """
import os, subprocess, sys, time
from pathlib import Path
from controlplane.project.processes.bus_server import new_url, server_child
from simulator import parent_death
child = server_child("bus", new_url(Path(sys.argv[1])))
print(subprocess.Popen(child.argv, env={**os.environ, **child.env}, process_group=0).pid, flush=True)
time.sleep(600)
"""
_WITHOUT_KERNEL = "import sys; from simulator import parent_death; parent_death._ask_kernel = lambda: False; "


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrivateRedis]:
    (folder := tmp_path / 'a "quoted" \\ folder').mkdir()
    url = new_url(folder / "bus.sock")
    child = server_child("bus", url)
    with (tmp_path / "log").open("wb") as log:
        server = PrivateRedis(url, child.argv, child.env, log)
        server.start()
        yield server
        server.kill()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_password_is_on_no_command_line_in_no_log_and_in_no_environment_of_the_server(
    server: PrivateRedis, tmp_path: Path
) -> None:
    password = urlsplit(server.url).password
    assert password
    seen = [Path(f"/proc/{server.pid}/{name}").read_text() for name in ("cmdline", "environ")]
    assert not [text for text in (*seen, (tmp_path / "log").read_text()) if password in text]
    assert password not in new_url(tmp_path), "each start has its own"


def test_only_its_owner_reaches_the_server_and_only_with_the_password(server: PrivateRedis) -> None:
    path = Path(unquote(urlsplit(server.url).path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with redis.Redis(unix_socket_path=str(path)) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_server_has_no_port_no_persistence_and_a_limit_without_eviction(server: PrivateRedis) -> None:
    names = ("port", "save", "appendonly", "maxmemory-policy")
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        assert [client.config_get(name)[name] for name in names] == ["0", "", "no", "noeviction"]  # type: ignore[index]
        assert int(client.config_get("maxmemory")["maxmemory"]) > 0  # type: ignore[index]


def test_restarted_server_replaces_the_socket_of_a_killed_one(server: PrivateRedis) -> None:
    server.kill()
    assert Path(unquote(urlsplit(server.url).path)).exists()
    server.start()


@pytest.mark.parametrize("has_kernel_support", [True, False])
def test_server_ends_with_its_parent(tmp_path: Path, has_kernel_support: bool) -> None:
    script = _PARENT
    if not has_kernel_support:
        script = script.replace("child.argv", f"(sys.executable, '-c', {_WITHOUT_KERNEL!r} + RUN, *child.argv[3:])")
        script = f"RUN = 'from controlplane.project.processes.bus_server import main; main(*sys.argv[1:])'\n{script}"
    command = [sys.executable, "-c", script, str(tmp_path / "bus.sock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        group = int(parent.stdout.readline())
        wait_until((tmp_path / "bus.sock").exists)
        parent.kill()
    wait_until(lambda: not _exists(group), "the server or its watch outlives the parent")


def test_installed_package_is_preferred_to_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = _program(tmp_path / "bin" / "redis-server")
    monkeypatch.setenv("PATH", str(on_path.parent))
    monkeypatch.setattr(bus_server, "_PACKAGE", "package_of_this_test")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert server_program() == str(on_path)
    bundled = _program(tmp_path / "package_of_this_test" / "_binaries" / "some-machine" / "valkey-server")
    (tmp_path / "package_of_this_test" / "__init__.py").write_text("raise ImportError('only its file is used')")
    assert server_program() == str(bundled)


def test_machine_without_a_server_gets_an_error_that_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bus_server, "_PACKAGE", "package_of_no_test")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(NoServerError, match="apt-get install valkey-server"):
        server_program()


def _program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.touch(0o755)
    return path


def _exists(group: int) -> bool:
    try:
        os.killpg(group, signal.SIG_DFL)
    except ProcessLookupError:
        return False
    return True
