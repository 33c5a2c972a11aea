from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_port
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_server.command_line import main, parser, read_settings
from tests.patience import PATIENCE_S

_COMMAND = [sys.executable, "-m", "simulator.engine_server"]


def _wait_until_up(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        assert process.poll() is None, "the engine ended"
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE_S) as response:
                assert response.status == 200
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the engine did not come up")


@pytest.mark.processes
def test_an_engine_process_serves_and_ends_soon_after_sigterm_with_a_running_stream() -> None:
    port = free_port()
    arguments = ["--port", str(port), "--served-model-name", "demo", "--parent-pid", str(os.getpid())]
    with subprocess.Popen([*_COMMAND, *arguments]) as process:
        try:
            _wait_until_up(port, process)
            body = b'{"prompt": "x", "max_tokens": 5000, "stream": true}'
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/v1/completions", data=body, timeout=PATIENCE_S
            ) as stream:
                assert stream.readline().startswith(b"data: ")
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=PATIENCE_S) in (0, -signal.SIGTERM)
        finally:
            process.kill()


@pytest.mark.processes
def test_an_engine_whose_parent_is_gone_does_not_start() -> None:
    ended = subprocess.run(
        [*_COMMAND, "--port", str(free_port()), "--parent-pid", "1"],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ended.returncode == 1
    assert b"gone" in ended.stderr


@pytest.mark.processes
def test_a_taken_port_ends_the_engine_with_a_plain_message() -> None:
    port = free_port()
    with subprocess.Popen([*_COMMAND, "--port", str(port), "--parent-pid", str(os.getpid())]) as first:
        try:
            _wait_until_up(port, first)
            second = subprocess.run(
                [*_COMMAND, "--port", str(port)], capture_output=True, timeout=PATIENCE_S, check=False
            )
        finally:
            first.kill()
    assert second.returncode == 1
    assert b"choose another --port" in second.stderr


@pytest.mark.processes
def test_an_engine_imports_no_heavy_packages() -> None:
    program = (
        "import sys, simulator.engine_server.command_line; "
        "print([name for name in ('django', 'openai', 'numpy', 'aiohttp', 'pydantic') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, check=True)
    assert result.stdout.strip() == b"[]"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--port", "70000"],
        ["--num-blocks", "0"],
        ["--time-scale", "0"],
        ["--time-scale", "nan"],
        ["--seed", "x"],
        ["--eviction", "mru"],
    ],
)
def test_an_invalid_argument_is_rejected(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(wrong)
    assert wrong[0] in capsys.readouterr().err


def test_eviction_can_be_set_and_its_seed_follows_seed_and_port() -> None:
    def profile(*options: str) -> EngineProfile:
        return read_settings(parser().parse_args(options)).profile

    assert profile().eviction == "lru"
    by_chance = [profile("--eviction", "rlt", "--seed", "1", "--port", port) for port in ("1", "1", "2")]
    assert {item.eviction for item in by_chance} == {"rlt"}
    assert by_chance[0] == by_chance[1] != by_chance[2]


def test_an_invalid_profile_ends_the_engine_with_a_message(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text('{"num_blocks": "many"}')
    with pytest.raises(SystemExit, match="num_blocks"):
        main(["--profile", str(path)])


def test_cpu_memory_copies_and_adapters_are_set_on_the_command_line() -> None:
    settings = read_settings(parser().parse_args(["--cpu-blocks", "7", "--max-loras", "3", "--lora-load-s", "0.5"]))
    assert (settings.profile.cpu_blocks, settings.max_loras, settings.lora_load_s) == (7, 3, 0.5)
    assert read_settings(parser().parse_args([])).profile.cpu_blocks == 0
    with pytest.raises(SystemExit, match="--cpu-blocks"):
        main(["--cpu-blocks", "7", "--flavor", "sglang"])


def test_a_sliding_window_option_requires_a_vllm_engine_without_tiers() -> None:
    assert read_settings(parser().parse_args(["--sliding-window", "70"])).sliding_window == 70
    assert read_settings(parser().parse_args([])).sliding_window == 0
    for other in (["--flavor", "sglang"], ["--cpu-blocks", "7"], ["--kv-node", "127.0.0.1:9"]):
        with pytest.raises(SystemExit, match="--sliding-window"):
            main(["--sliding-window", "70", *other])
