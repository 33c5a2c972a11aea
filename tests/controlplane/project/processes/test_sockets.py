"""Locations of an installation's sockets."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

import pytest

from controlplane.project.processes.sockets import BUS_SOCKET, WEB_SOCKET, make_private, socket_path


def test_sockets_are_in_the_state_directory() -> None:
    assert socket_path(Path("/var/lib/headway"), BUS_SOCKET) == Path("/var/lib/headway/bus.sock")


def test_state_directory_with_a_long_path_has_its_sockets_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    deep, other = Path("/", "x" * 120), Path("/", "y" * 120)
    path = socket_path(deep, WEB_SOCKET)
    assert path == socket_path(deep, WEB_SOCKET)
    assert path.parent != socket_path(other, WEB_SOCKET).parent
    make_private(path)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_directory_of_another_user_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match="another user"):
        make_private(tmp_path / BUS_SOCKET)
