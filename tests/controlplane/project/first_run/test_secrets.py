"""Secrets of a new installation are generated once and readable only by their owner.

The banner of `manage.py up`.
"""

from __future__ import annotations

import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from controlplane.project.first_run.secrets import FILE_NAME, UnsafeSecretsError, secrets_of
from controlplane.project.first_run.welcome import welcome
from kvstore.transfer.tls import is_loopback

ROOT = Path(__file__).resolve().parents[4]


def test_first_call_creates_secrets_and_later_ones_return_the_same(tmp_path: Path) -> None:
    state = tmp_path / "var"
    first = secrets_of(state)
    assert secrets_of(state) == first
    assert first.api_key.startswith("hw_")
    assert len(bytes.fromhex(first.fleet_secret)) == 32
    assert [path.name for path in state.iterdir()] == [FILE_NAME]


def test_two_installations_share_no_secret(tmp_path: Path) -> None:
    one, other = secrets_of(tmp_path / "1"), secrets_of(tmp_path / "2")
    assert not {one.secret_key, one.fleet_secret, one.admin_password, one.api_key} & {
        other.secret_key,
        other.fleet_secret,
        other.admin_password,
        other.api_key,
    }


def test_file_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    secrets_of(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666, 0o700])
def test_file_readable_by_others_is_rejected_with_a_remedy(tmp_path: Path, mode: int) -> None:
    secrets_of(tmp_path)
    (tmp_path / FILE_NAME).chmod(mode)
    with pytest.raises(UnsafeSecretsError, match="chmod 600"):
        secrets_of(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff", b'{"secret_key": 1}'])
def test_damaged_file_is_rejected(tmp_path: Path, content: bytes) -> None:
    secrets_of(tmp_path)
    (tmp_path / FILE_NAME).write_bytes(content)
    with pytest.raises(UnsafeSecretsError, match="damaged"):
        secrets_of(tmp_path)


def test_processes_that_start_together_get_the_same_secrets(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from controlplane.project.first_run.secrets import secrets_of;"
        "print(secrets_of(Path(sys.argv[1])).secret_key)"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "var")]
    started = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate()[0] for process in started}) == 1


printed = partial(
    welcome,
    url="http://127.0.0.1:8000/",
    user="admin",
    password="pa55",
    api_key="hw_key",
    served_model="demo-8b",
    log_dir="/var/log",
)


def test_banner_on_loopback_has_everything_needed() -> None:
    text = printed(show_secrets=True)
    for part in ("http://127.0.0.1:8000/", "admin / pa55", "hw_key", "demo-8b", "/var/log", "Ctrl-C"):
        assert part in text


def test_obsolete_secrets_are_marked() -> None:
    text = printed(password="", api_key="", show_secrets=True)
    assert "admin, with the password you chose" in text
    assert "create one on the Access page" in text


def test_banner_on_other_addresses_has_no_secret() -> None:
    text = printed(show_secrets=False)
    assert "pa55" not in text
    assert "hw_key" not in text
    assert "first_run.json" in text


@pytest.mark.parametrize(
    ("host", "expected"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("10.0.0.1", False), ("", False)],  # noqa: S104 - only compared
)
def test_loopback_hosts_are_recognized(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected
