"""What the timeline of a decision draws as having happened."""

from __future__ import annotations

from typing import Any

from routing.values.decision import Fetch
from routing.values.engine_pair import EnginePair
from tests.controlplane.request_log.store.records import stored
from web.request_log.decision_pictures import block_cells, timeline


def actual(**fields: Any) -> dict[str, str]:
    """Return the width of each part that is drawn."""
    told = timeline(stored(queued_s=1.0, first_token_after_s=3.0, **fields))
    assert told is not None
    return {bar.term: bar.width for bar in told["actual"]}


def test_a_transfer_that_was_only_estimated_is_not_drawn() -> None:
    assert actual(fetch=Fetch("engine-04", 18, 0.5)) == actual()
    assert actual().keys() == {"queue", "prefill"}


def test_a_hand_over_that_was_timed_is_drawn() -> None:
    drawn = actual(pair=EnginePair("1", "engine-04", 1, "least_tbt", 0.03, 100), handed_over_after_s=2.0)
    assert drawn.keys() == {"queue", "prefill", "transfer"}
    assert drawn["queue"] == drawn["prefill"] == drawn["transfer"]


def test_blocks_count_as_found_only_where_the_engine_said_so() -> None:
    assert set(block_cells(stored(cached_tokens=9216))) == {"found", "none"}
    assert set(block_cells(stored(cached_tokens=0))) == {"missing", "none"}
    assert set(block_cells(stored(cached_tokens=None))) == {"believed", "none"}
