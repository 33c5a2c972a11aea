"""Searches in a large log use an index for rare values."""

from __future__ import annotations

import pytest
from django.db import connection

from controlplane.platform.actor import program
from controlplane.request_log.decision_search import DecisionFilter, search


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (DecisionFilter(session="0123456789ab"), "decision_by_session"),
        (DecisionFilter(arm="canary"), "decision_by_arm"),
        (DecisionFilter(late="1"), "decision_late"),
    ],
)
def test_search_for_a_rare_value_uses_its_index(wanted: DecisionFilter, index: str) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("elsewhere the plan depends on how many rows there are")
    assert f"USING INDEX {index}" in search(program("tests"), wanted).explain()
