"""SGLang's hierarchical cache on a node manager, with SGLang's own classes where SGLANG_PATH names its modules."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.program import ROOT
from tests.vllm.conftest import PYTHON
from tests.vllm.stored_blocks import SECRET, StoreProcess

SGLANG = os.environ.get("SGLANG_PATH", "")
pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not SGLANG, reason="SGLANG_PATH is not set: pip install --target PATH --no-deps sglang"),
]


def test_pages_of_one_engine_are_loaded_by_another_in_every_layout(tmp_path: Path) -> None:
    store = StoreProcess(tmp_path)
    try:
        store.start()
        done = subprocess.run(
            [PYTHON, "-m", "tests.vllm.hicache_check", store.address],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": SGLANG, "HEADWAY_KV_SECRET": SECRET, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert store.count() == 36
    finally:
        store.close()
