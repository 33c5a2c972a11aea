"""Node managers under kills, full disks, flipped bits and cut connections; `make soak-kv` runs twenty seeds."""

from __future__ import annotations

import pytest

from bench.kv.soak import soak

pytestmark = [pytest.mark.processes, pytest.mark.thorough]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_get_returns_the_stored_bytes_or_a_miss_and_nothing_leaks(seed: int) -> None:
    figures, wrong, _ = soak(8.0 * seed, seed=seed)
    assert wrong == []
    assert figures["get"] > 50
    assert figures["hit_ratio"] > 0.05
    assert figures["faults_kill"] >= 2
    assert figures["connections_cut"] > 0
