"""Start real proxies with our files, and report missing ones."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
"""Time for a proxy to start on a busy machine."""


def binary(name: str) -> str:
    """Return the path of a proxy, from PROXY_<NAME> or the PATH; without one skip, or fail if it is required."""
    path = os.environ.get(f"PROXY_{name.upper()}") or shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    if not path:
        reason = f"no {name}: make test-proxies installs it where it can"
        if name in os.environ.get("PROXIES_REQUIRED", "").split():
            pytest.fail(reason)
        pytest.skip(reason)
    return path


def require_grpc() -> None:
    """Skip the module if the endpoint picker's packages are missing, unless they are required."""
    if "grpc" not in os.environ.get("PROXIES_REQUIRED", "").split():
        pytest.importorskip("grpc", reason="no deploy/requirements-envoy.txt: make test-proxies installs it")


@asynccontextmanager
async def running(command: Sequence[str], port: int, log: Path, **env: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a proxy until the block ends; it has started once it listens on `port`."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **env})
    try:
        await listening(port, process, log)
        yield process
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)


async def listening(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the port has a listener; raise AssertionError if the process ends instead."""
    async with asyncio.timeout(START_S):
        while True:
            assert process.poll() is None, log.read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                await writer.wait_closed()
                return
