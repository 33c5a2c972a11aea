from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.engines.calibrate import main
from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from simulator.engine_models.engine_profile import EngineProfile, read_profile, write_profile

_ROOT = Path(__file__).resolve().parents[3]
# Slow enough that the time of HTTP and of a busy machine is small by comparison.
_TRUTH = EngineProfile(
    prefill_base_s=0.03,
    prefill_per_token_s=100e-6,
    prefill_per_token_squared_s=20e-9,
    prefill_per_hit_token_s=20e-6,
    step_base_s=0.02,
    step_per_sequence_s=2e-3,
    step_per_context_token_s=4e-6,
    block_tokens=64,
    num_blocks=20_000,
)


@pytest.fixture
def engine_url(tmp_path: Path) -> Iterator[str]:
    """Run a simulated engine as a process, with the profile that the fit must recover."""
    profile = tmp_path / "truth.json"
    write_profile(profile, _TRUTH)
    port = free_ports(1)[0]
    command = [sys.executable, "manage.py", "simengine", "--port", str(port), "--profile", str(profile)]
    process = subprocess.Popen(command, cwd=_ROOT)
    try:
        wait_for(f"http://127.0.0.1:{port}/health")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.alone
@pytest.mark.processes
def test_fit_recovers_the_profile_of_a_running_engine(engine_url: str, tmp_path: Path) -> None:
    out = tmp_path / "fitted.json"
    sweep = ["--lengths", "256,1024,4096", "--batches", "1,6", "--contexts", "256,2048", "--repeats", "2"]
    sweep += ["--decoded", "24"]
    assert main([engine_url, "--out", str(out), "--block-tokens", "64", "--source", "a simulated engine", *sweep]) == 0
    fitted = read_profile(out)
    assert fitted.source.startswith("a simulated engine, measured over HTTP by bench/engines/calibrate.py: ")
    for length, hit in ((512, 0), (4096, 0), (4096, 2048), (2048, 1792)):
        assert fitted.prefill_s(length, hit) == pytest.approx(_TRUTH.prefill_s(length, hit), rel=0.15)
    for batch, context in ((1, 1000), (6, 6000), (3, 6144)):
        assert fitted.step_s(batch, context) == pytest.approx(_TRUTH.step_s(batch, context), rel=0.15)
    assert fitted.prefill_per_token_s == pytest.approx(_TRUTH.prefill_per_token_s, rel=0.35)
    assert fitted.prefill_per_token_squared_s == pytest.approx(_TRUTH.prefill_per_token_squared_s, rel=0.35)
    assert fitted.step_per_sequence_s == pytest.approx(_TRUTH.step_per_sequence_s, rel=0.35)


def test_missing_engine_raises_an_error_with_its_reason(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    assert main([url, "--out", str(tmp_path / "fitted.json")]) == 1
    assert url in capsys.readouterr().err
