"""Measured parts in the timeline of a decision."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from gateway.contracts.stored_decision import StoredLoad
from routing.values.decision import Candidate, Loading
from routing.values.engine_pair import EnginePair
from routing.values.load_options import Fetch
from tests.controlplane.request_log.store.records import CHOSEN, OTHER, stored
from web.request_log.decision_pictures import block_cells, candidates, facts, timeline


def actual(**fields: Any) -> dict[str, str]:
    """Return the width of each drawn part."""
    picture = timeline(stored(queued_s=1.0, first_token_after_s=3.0, **fields))
    assert picture is not None
    return {bar.term: bar.width for bar in picture["actual"]}


def test_transfer_that_was_only_estimated_is_not_drawn() -> None:
    assert actual(fetch=Fetch("engine-04", 18, 0.5)) == actual()
    assert actual().keys() == {"queue", "engine", "prefill"}


def test_time_on_the_engine_above_its_prefill_is_its_queue() -> None:
    """Of 1.17 s on the engine for 4 uncached tokens, nearly all was spent behind other requests."""
    record = stored(
        queued_s=0.0, first_token_after_s=1.17, cached_tokens=11_900,
        candidates=(Candidate("engine-17", 11_900, 0.0, 0.02, 0.2, 23), OTHER),
    )  # fmt: skip
    picture = timeline(record)
    assert picture is not None
    words = {bar.term: bar.words.replace("\u202f", " ") for bar in picture["actual"]}
    assert (list(words), words["engine"], picture["engine_queue"]) == (["engine", "prefill"], "1.15 s", True)
    assert not (timeline(stored(queued_s=0.0, first_token_after_s=0.6)) or {})["engine_queue"]


def test_load_is_drawn_before_the_prefill_with_its_duration() -> None:
    picture = timeline(
        stored(
            queued_s=1.0,
            first_token_after_s=3.0,
            fetch=Fetch("", 18, 0.1, "a"),
            load=StoredLoad("a", 18, 18, 9_437_184, 0.5, "", 9216),
        )
    )
    assert picture is not None
    assert [bar.term for bar in picture["actual"]] == ["queue", "transfer", "engine", "prefill"]
    widths = {bar.term: float(bar.width.rstrip("%")) for bar in picture["actual"]}
    assert widths["engine"] + widths["prefill"] == pytest.approx(3 * widths["transfer"], abs=0.1)
    assert [bar.term for bar in picture["estimated"]] == ["queue", "transfer", "prefill"]


def test_load_without_blocks_is_drawn_with_its_duration() -> None:
    assert "transfer" not in actual(load=StoredLoad("a", 18, reason="failed"))
    assert "transfer" in actual(load=StoredLoad("a", 18, 0, 0, 0.4, "late"))


def test_facts_include_the_load() -> None:
    loaded = dict(facts(stored(load=StoredLoad("a", 12, 12, 6_291_456, 0.020, "", 6144))))["Loaded"]
    assert loaded == "6,144 tok, a, 20\u202fms"
    assert dict(facts(stored(load=StoredLoad("a", 12, reason="failed"))))["Loaded"] == "0 of 12 blocks, a"
    assert "Loaded" not in dict(facts(stored()))


def test_measured_handoff_is_drawn() -> None:
    drawn = actual(pair=EnginePair("1", "engine-04", 1, "least_tpot", 0.03, 100), handed_over_after_s=2.0)
    assert drawn.keys() == {"queue", "engine", "prefill", "transfer"}
    assert drawn["queue"] == drawn["transfer"]


def test_blocks_count_as_hits_only_if_the_engine_reported_them() -> None:
    assert set(block_cells(stored(cached_tokens=9216))) == {"found", "none"}
    assert set(block_cells(stored(cached_tokens=0))) == {"missing", "none"}
    assert set(block_cells(stored(cached_tokens=None))) == {"believed", "none"}


def test_load_by_the_engine_itself_is_part_of_cost_and_estimate() -> None:
    record = stored(candidates=(replace(CHOSEN, loading=Loading(0.1, {"cpu": 9216})), OTHER))
    chosen, other = candidates(record)
    widths = {bar.term: float(bar.width.rstrip("%")) for bar in chosen["bars"]}
    assert widths["prefill"] == pytest.approx(2 * widths["transfer"], abs=0.05)
    assert "transfer" not in {bar.term for bar in other["bars"]}
    assert "9\u202f216 tok in CPU memory (100" in chosen["note"] or "9,216 tok in CPU memory (100" in chosen["note"]
    picture = timeline(record)
    assert picture is not None
    assert "transfer" in {bar.term for bar in picture["estimated"]}
