from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.engines.calibrate_torch import main, profile_document
from bench.engines.profile.profile_fit import fit_profile
from bench.engines.profile.torch_model import SHAPES, ModelShape
from simulator.engine_models.engine_profile import EngineProfile, read_profile
from tests.bench.engines.test_profile_fit import exact_samples


def test_without_pytorch_calibration_names_the_missing_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["--out", str(tmp_path / "profile.json")]) == 1
    assert "torch is missing; install PyTorch" in capsys.readouterr().err


def test_known_shapes_have_published_sizes() -> None:
    assert SHAPES["7b"].kv_bytes_per_token == EngineProfile().kv_bytes_per_token == 57_344
    assert SHAPES["7b"].layers == EngineProfile().layers
    assert SHAPES["8b"].weights == pytest.approx(8.03e9, rel=0.01)
    assert SHAPES["14b"].weights == pytest.approx(14.8e9, rel=0.01)


def test_kv_heads_that_do_not_divide_heads_are_rejected() -> None:
    with pytest.raises(ValueError, match="multiple"):
        ModelShape(layers=1, hidden=64, heads=5, kv_heads=2, ffn=64, vocabulary=10)


def test_calibration_writes_a_profile(tmp_path: Path) -> None:
    document = profile_document(fit_profile(*exact_samples(EngineProfile())), SHAPES["8b"], "a test device")
    path = tmp_path / "fitted.json"
    path.write_text(json.dumps(document))
    profile = read_profile(path)
    assert profile.prefill_s(5000, 0) == pytest.approx(EngineProfile().prefill_s(5000, 0))
    assert profile.kv_bytes_per_token == 131_072
    assert "8 billion, 32 layers of 4096" in profile.source
