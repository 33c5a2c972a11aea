"""Number of simultaneous simulations of a what-if."""

from __future__ import annotations

import pytest

from controlplane.trials.whatif.runs import MAX_AT_ONCE, runs_at_once


@pytest.mark.parametrize(("cores", "runs"), [(1, 1), (2, 1), (4, 3), (MAX_AT_ONCE + 1, MAX_AT_ONCE), (96, MAX_AT_ONCE)])
def test_one_core_stays_free_for_the_gateway(cores: int, runs: int) -> None:
    assert runs_at_once(cores) == runs
