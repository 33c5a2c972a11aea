"""The command, and the process that it starts."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_ports
from kvstore.node.command_line import keyring_of, main
from kvstore.transfer.connection import PeerError
from kvstore.transfer.frames import Lookup
from tests.kvstore.kv_blocks import KEYRING, SECRET, a_client, block, key, payload
from tests.kvstore.transfer.test_transfer import contents
from tests.patience import wait_until

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--host", "10.0.0.1"], "not loopback"),
        (["--host", "0.0.0.0"], "not loopback"),  # noqa: S104 - it is to be rejected
        (["--tls-key", "k.pem"], "TLS needs all"),
        (["--slot-kib", "1"], "--slot-kib"),
        (["--dram-mib", "0"], "at least one slot"),
        (["--disk-reserve-mib", "-1"], "--disk-reserve-mib"),
        (["--purge", "acme", "--port", "1"], "does not answer"),
        (["--register", "ftp://x", "--port", "0", "--dram-mib", "1"], "not a URL to register at"),
    ],
)
def test_an_invalid_option_is_reported_and_nothing_starts(
    arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_KV_SECRET", SECRET.decode())
    assert main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_a_node_without_a_secret_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HEADWAY_KV_SECRET", raising=False)
    assert main([]) == 2
    assert "HEADWAY_KV_SECRET" in capsys.readouterr().err
    (tmp_path / "secret").write_text(SECRET.decode() + "\n")
    assert keyring_of({"HEADWAY_KV_SECRET_FILE": str(tmp_path / "secret")}).used.fingerprint == KEYRING.used.fingerprint


@contextmanager
def running(directory: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "manage.py", "node", "--port", str(port), "--directory", str(directory)]
    command += ["--dram-mib", "1", "--ssd-mib", "8", "--slot-kib", "16"]
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "HEADWAY_KV_SECRET": SECRET.decode()})
    try:
        with a_client() as client:
            wait_until(lambda: answers(client, port))
        yield process
    finally:
        process.kill()
        process.wait()


def answers(client: object, port: int) -> bool:
    try:
        client.call(f"127.0.0.1:{port}", Lookup([]))  # type: ignore[attr-defined]
    except PeerError:
        return False
    return True


@pytest.mark.processes
def test_sigterm_drains_and_stored_blocks_survive_it(tmp_path: Path) -> None:
    [port] = free_ports(1)
    with a_client() as client:
        with running(tmp_path, port) as process:
            for name in range(60):
                client.put(f"127.0.0.1:{port}", [block(name)])
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        with running(tmp_path, port):
            assert contents(client, [f"127.0.0.1:{port}"], list(range(60))) == [
                bytes(payload(name)) for name in range(60)
            ]
            environment = {**os.environ, "HEADWAY_KV_SECRET": SECRET.decode()}
            command = [sys.executable, "manage.py", "node", "--port", str(port), "--purge", "acme"]
            done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
            assert done.stdout == "Purged blocks: 60\n"
            assert client.call(f"127.0.0.1:{port}", Lookup([key(3)])).blocks == [(-1, [])]  # type: ignore[union-attr]


@pytest.mark.processes
def test_a_killed_node_restarts_with_only_complete_blocks(tmp_path: Path) -> None:
    rng, [port], seen = random.Random(3), free_ports(1), 0
    with a_client() as client:
        for life in range(4):
            with running(tmp_path, port) as process:
                held = contents(client, [f"127.0.0.1:{port}"], list(range(400)))
                for name, stored in enumerate(held):
                    assert stored in (None, bytes(payload(name, 1 + name * 37 % 16_000)))
                seen += sum(item is not None for item in held)
                ends_at = time.monotonic() + rng.uniform(0.05, 0.3)
                while time.monotonic() < ends_at:
                    name = rng.randrange(400)
                    client.put(f"127.0.0.1:{port}", [block(name, length=1 + name * 37 % 16_000)])
                process.send_signal(signal.SIGKILL)
                process.wait()
            assert life >= 0
    assert seen > 20
