"""Texts of the Automation pages on plans, delays, actions, and drains, as pure functions of the time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from controlplane.fleet.drain_progress import DrainProgress
from controlplane.platform.format import sentence, span
from planning.documents.automation_document import AutomationPolicy
from web.automation.actions import drain_words
from web.automation.next_action import next_change
from web.automation.overview import overview_finding
from web.automation.past import without_repeats
from web.automation.words import action_words, change_words

NAMES = {"a": "e-01", "b": "e-02"}
NOW_S = 1_800_000_000.0


def next_words(job: str, plan: dict[str, Any] | None = None, **memory: Any) -> str:
    return next_change(job, AutomationPolicy(), plan or {}, memory, NOW_S).replace("\u202f", " ")


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({}, "Adding: at any time. Draining: after 2 min of low load."),
        ({"added_s": NOW_S - 20}, "Adding: in 40 s. Draining: after 2 min of low load."),
        ({"calm_since_s": NOW_S - 50}, "Adding: at any time. Draining: in 1 min 10 s if the load stays low."),
        (
            {"calm_since_s": NOW_S - 500, "drained_s": NOW_S - 30},
            "Adding: at any time. Draining: in 1 min 30 s if the load stays low.",
        ),
        ({"calm_since_s": NOW_S - 500}, "Adding: at any time. Draining: at any time."),
    ],
)
def test_scaling_shows_the_remaining_cool_down(memory: dict[str, float], words: str) -> None:
    assert next_words("scaling", **memory) == words


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({}, "Role change: once f_im is out of tolerance for 30 s."),
        ({"out_since_s": NOW_S - 10}, "Role change: in 20 s if the imbalance lasts."),
        ({"out_since_s": NOW_S - 40}, "At any time."),
        (
            {"out_since_s": NOW_S - 10, "changed_s": NOW_S - 20},
            "Role change: in 1 min 40 s, after the cooldown.",
        ),
    ],
)
def test_ratio_shows_its_pending_condition(memory: dict[str, float], words: str) -> None:
    assert next_words("prefill_decode", **memory) == words


def test_rebalancing_and_health_show_when_they_may_release_engines() -> None:
    widened = {"k": {"d": 3, "since_s": NOW_S - 10, "needed_s": NOW_S}}
    assert next_words("rebalance") == "At any time."
    assert next_words("rebalance", widened=widened) == "Widening: at any time. Narrowing: in 50 s at the earliest."
    verdicts = [{"state": "quarantined", "until_s": NOW_S + 12}, {"state": "suspect", "until_s": None}]
    words = "At any time. The next quarantine may end in 12 s."
    assert next_words("engine_health", {"verdicts": verdicts}) == words


@pytest.mark.parametrize(
    ("job", "plan", "words"),
    [
        ("scaling", {"add": ["mixed"], "drain": []}, "add 1 engine"),
        ("scaling", {"add": ["prefill", "decode", "decode"]}, "add 3 engines (2 decode, 1 prefill)"),
        ("scaling", {"drain": ["a", "gone"]}, "drain e-01, gone"),
        ("scaling", {"add": [], "drain": []}, ""),
        ("prefill_decode", {"role_changes": [{"engine_id": "b", "after": "decode"}]}, "change e-02 to decode"),
        ("rebalance", {"wider": ["k"], "moves": [{"at_most": 3}]}, "widen 1 prefix, move up to 3 queued requests"),
        (
            "engine_health",
            {"changed": ["a", "b"], "verdicts": [{"engine_id": "a", "state": "quarantined"}]},
            "quarantine e-01 and clear e-02",
        ),
        ("engine_health", {}, ""),
    ],
)
def test_plan_text_states_its_changes(job: str, plan: dict[str, Any], words: str) -> None:
    assert change_words(job, plan, NAMES) == words


def test_action_text_states_its_change() -> None:
    assert action_words("start", "", "") == "Start an engine"
    assert action_words("start", "decode", "") == "Start a decode engine"
    assert action_words("stop", "", "e-01") == "Drain and stop e-01"
    assert action_words("change_role", "prefill", "e-01") == "Change e-01 to a prefill engine"


def test_drain_shows_a_countdown() -> None:
    assert drain_words(DrainProgress(3, 4.0, 12.0), None) == "3 requests left, about 12\u202fs to go."
    assert drain_words(DrainProgress(1, 4.0, None), None) == "1 request left, no estimate yet."
    assert drain_words(None, None) == ""


def test_sentences_keep_the_case_of_names() -> None:
    assert sentence("no engine stays hot") == "No engine stays hot."
    assert sentence("e-08 is suspect") == "e-08 is suspect."
    assert sentence("  ") == ""
    assert [span(number).replace("\u202f", " ") for number in (0.2, 59, 60, 125, 4800)] == [
        "0 s",
        "59 s",
        "1 min",
        "2 min 5 s",
        "1 h 20 min",
    ]


@pytest.mark.parametrize(
    ("quarantined", "title"), [(0, "1 pool steady, no action due"), (1, "Demo: 1 engine quarantined")]
)
def test_a_pool_with_a_quarantined_engine_is_not_steady(quarantined: int, title: str) -> None:
    row = {"pool": SimpleNamespace(name="Demo"), "late": "", "failed": 0, "frozen": False, "automations": []}
    assert overview_finding([{**row, "quarantined": quarantined}]) == title


def test_repeated_advice_is_one_mark_until_it_pauses() -> None:
    advice = [{"kind": "advice", "label": label, "at": at} for label, at in (("−1", 0.0), ("−1", 50.0), ("+1", 55.0))]
    later = {"kind": "advice", "label": "−1", "at": 111.0}
    done = [{"kind": "scaling", "label": "−1", "at": at} for at in (112.0, 113.0)]
    assert without_repeats([*advice, later, *done]) == [advice[0], advice[2], later, *done]
