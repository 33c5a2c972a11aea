"""Three regions under random faults, briefly; `make soak-regions` runs twenty seeds for a minute each."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.regions.soak import soak

pytestmark = pytest.mark.thorough


@pytest.mark.parametrize("seed", [7, 21])
async def test_no_request_is_lost_or_runs_on_two_engines(seed: int, tmp_path: Path) -> None:
    wrong, figures = await soak(tmp_path, 12.0, seed)
    assert wrong == []
    assert figures["completed"] > 0
