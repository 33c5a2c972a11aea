"""Blocks of an engine's KV caches round-trip through payloads, in every form of its caches."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.program import ROOT
from tests.vllm.conftest import PYTHON

pytestmark = pytest.mark.vllm


def test_blocks_are_copied_whole_in_every_form() -> None:
    command = [PYTHON, "-m", "tests.vllm.paged_memory_check"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
