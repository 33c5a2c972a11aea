"""The explanation of KV that was loaded instead of computed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from controlplane.request_log.decision_story.emphasis import text_of
from controlplane.request_log.decision_story.load_words import computed_instead_s, load_fact, own_load
from controlplane.request_log.decision_story.story import story_of
from gateway.contracts.stored_decision import StoredDecision, StoredLoad
from routing.values.decision import Loading
from routing.values.load_options import Fetch
from tests.controlplane.request_log.store.records import CHOSEN, OTHER, on_time, stored

WHOLE = StoredLoad("a", 12, 12, 6_291_456, 0.020, "", 6144)


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def loaded(**fields: Any) -> StoredDecision:
    return stored(fetch=Fetch("", 12, 0.025, "a"), believed_tokens=0, **fields)


def test_load_is_shown_with_source_size_and_benefit() -> None:
    record = loaded(load=WHOLE)
    story = story_of(record)
    assert plain(story.title).startswith("Sent to e-17 to load from node a")
    assert plain(text_of(story.why)).startswith(
        "The index had e-17 holding none of the 11,904 prompt tokens. "
        "Node a had 6,144 of 11,904, to be loaded in 25 ms. "
    )
    assert record.cost is not None
    worth_s = record.cost.seconds(11_904, 0) - record.cost.seconds(11_904, 6144)
    assert computed_instead_s(record) == pytest.approx(worth_s)
    assert (
        "It loaded 6,144 tokens (12 blocks, 6.00 MiB) from node a in 20 ms; computing them was expected to take "
        f"{round(worth_s * 1000)} ms." in plain(text_of(story.happened))
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("missing", "the node no longer had all of it"),
        ("late", "it would have taken longer than computing"),
        ("failed", "the node could not be read"),
        ("", "the engine held it already"),
    ],
)
def test_load_without_blocks_states_the_reason(reason: str, words: str) -> None:
    record = loaded(load=StoredLoad("a", 12, reason=reason))
    assert f"Nothing was loaded from node a: {words}." in text_of(story_of(record).happened)
    assert computed_instead_s(record) is None


def test_unreported_load_result_is_not_claimed() -> None:
    """Streams of vLLM do not report what its connector did."""
    record = loaded(load=StoredLoad("a", 12, reason="untold"))
    happened = text_of(story_of(record).happened)
    assert "It was to load 12 blocks from node a; the engine does not report the result." in happened
    assert "Nothing was loaded" not in happened
    assert load_fact(record) == "12 blocks, a, not reported"


def test_partial_load_states_both_parts() -> None:
    happened = plain(text_of(story_of(loaded(load=StoredLoad("a", 12, 5, 2_621_440, 0.01, "missing", 2560))).happened))
    assert "It loaded 2,560 tokens (5 blocks, 2.50 MiB) from node a in 10 ms" in happened
    assert "12 blocks were ordered, but the node no longer had all of it." in happened


def test_load_slower_than_computing_is_called_not_worth_it() -> None:
    slow = StoredLoad("a", 12, 12, 6_291_456, 9.0, "", 6144)
    assert "so loading was slower." in text_of(story_of(loaded(load=slow)).happened)
    assert "loading was slower" not in text_of(story_of(loaded(load=WHOLE)).happened)


def test_decision_without_a_load_mentions_none() -> None:
    record = on_time("0199f3c2-7d41-7c0e-8000-000000000002")
    assert "node" not in text_of(story_of(record).why) + text_of(story_of(record).happened)
    assert load_fact(record) == ""


def test_load_by_the_engine_itself_is_shown_with_its_source_and_time() -> None:
    loading = Loading(0.045, {"cpu": 4096, "disk": 512}, "sql")
    chosen = replace(CHOSEN, loading=loading)
    why = plain(text_of(story_of(stored(candidates=(chosen, OTHER), believed_tokens=0)).why))
    assert (
        "The index had e-17 holding none of the 11,904 prompt tokens. It had 4,096 more in CPU memory. It had 512 more "
        "on disk. It had to load the LoRA adapter sql. Loading was expected to take 45 ms. " in why
    )
    assert plain(own_load(chosen)) == "4,096 tok in CPU memory, 512 tok on disk, adapter not loaded (45 ms)"
    assert own_load(OTHER) == ""
    assert "Loading" not in text_of(story_of(stored()).why)
