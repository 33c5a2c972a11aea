"""Random kills in an installation of separate processes for a minute or two. `make soak` runs twenty seeds."""

from __future__ import annotations

import pytest

from bench.installation.soak import soak

pytestmark = [pytest.mark.processes, pytest.mark.thorough]


@pytest.mark.parametrize("seed", [1, 2])
def test_kills_lose_no_request_repeat_no_action_and_publish_versions_in_order(seed: int) -> None:
    figures, wrong, _ = soak(float(seed), seed=seed)
    assert wrong == []
    assert figures["whole"] > 100
    assert figures["decisions_rejected"] + figures["decisions_lost"] < 0.01 * figures["decisions"]
    assert sum(figures[f"killed_{kind}"] for kind in ("worker", "beat", "gateway", "engine", "web")) >= 5
    assert figures["effects"] >= 1
    assert figures["versions"] >= 2
    assert figures["explained"] > 50
