"""Streams and counts of bench.gateway.openai_proxy."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.gateway.openai_proxy import Way, litellm_settings, one_round
from bench.gateway.proxy_run.instant_engine import CHUNKS, Connection, answers
from bench.gateway.proxy_run.streams import bodies, stream_all
from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from bench.live.process_cpu import cpu_s
from tests.gateway.ports import listen


async def test_engine_streams_its_chunks_and_then_its_usage() -> None:
    listener = listen()
    server = await asyncio.get_running_loop().create_server(lambda: Connection(answers([])), sock=listener)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/v1/chat/completions"
    async with server:
        await stream_all(url, bodies(3), {})
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.getsockname()[1])
        body = bodies(1)[0]
        writer.write(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        answer = await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()
    assert answer.count(b"word ") == CHUNKS
    assert answer.index(b'"usage"') < answer.index(b"[DONE]")


async def test_response_that_is_not_a_stream_raises() -> None:
    listener = listen()
    server = await asyncio.get_running_loop().create_server(lambda: Connection({}), sock=listener)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    async with server:
        with pytest.raises(RuntimeError, match="answered 200"):
            await stream_all(url, [b"{}"], {})


def test_prompts_share_only_their_openings() -> None:
    made = bodies(32)
    assert all(1900 < len(item) < 3000 for item in made)
    assert len(set(made)) == 32
    assert len({item[:900] for item in made}) == 16


def test_cpu_time_includes_running_and_finished_children() -> None:
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = (
        "import subprocess, sys, time\n"
        f"for _ in range(2): child = subprocess.Popen([sys.executable, '-c', {burn!r}]); child.wait()\n"
        "print('done', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.readline()
        assert cpu_s(running.pid) >= 0.5
        running.kill()
    assert cpu_s(os.getpid()) > 0


def test_round_sends_requests_to_every_proxy(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    with subprocess.Popen([sys.executable, "-m", "bench.gateway.proxy_run.instant_engine", str(port)]) as engine:
        try:
            figures = _round(port, engine.pid)
        finally:
            engine.terminate()
    assert set(figures) == {"a_cpu_ms", "b_cpu_ms"}
    settings = litellm_settings(tmp_path, (1, 2)).read_text()
    assert settings.count("model_name") == 2


def _round(port: int, pid: int) -> dict[str, float]:
    wait_for(f"http://127.0.0.1:{port}/health")
    return one_round({"a": Way(port, pid), "b": Way(port, pid)}, bodies(4))
