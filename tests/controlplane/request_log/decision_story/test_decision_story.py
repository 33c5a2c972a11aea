"""The explanation of a decision: the documented example of UX.md, and every outcome."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.request_log.decision_story.certainty import conditions, firmness
from controlplane.request_log.decision_story.emphasis import text_of
from controlplane.request_log.decision_story.instead import (
    cause_of,
    instead_words,
    lost_words,
    regret_of,
    unknown_regret,
)
from controlplane.request_log.decision_story.service_words import service_facts
from controlplane.request_log.decision_story.story import Story, story_of
from controlplane.request_log.hindsight import Hindsight
from gateway.contracts.regret import CAUSES, Regret
from gateway.contracts.stored_decision import FailedAttempt, ServiceStory, StoredDecision, TokenizerWait
from routing.values import reasons
from routing.values.decision import Decision
from tests.controlplane.request_log.store.records import CHOSEN, OTHER, on_time, stored
from web.request_log import decision_pictures as pictures


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_documented_example_has_the_documented_text() -> None:
    story = story_of(stored())
    assert plain(story.title) == "Sent to e-17 for its cache; e-04 would have been 2.73 s faster"
    assert plain(story.verdict) == "Late by 470 ms"
    assert plain(text_of(story.why)) == (
        "The index had e-17 holding 9,216 of 11,904 prompt tokens. At β = 8 that outweighed 2.45 s more waiting than "
        "e-04. It won by 0.91, or 15 %."
    )
    assert plain(text_of(story.happened)) == (
        "It waited 3.36 s, 500 ms longer than estimated, and the engine reported only 6,144 tokens cached. First "
        "token after 3.97 s; the SLO is 3.50 s."
    )
    assert plain(story.to_do) == (
        "Most of the loss was a trade-off, not an error: β weighs waiting too little at this load. Below β = 5.83 "
        "e-04 wins."
    )


def test_stated_alternative_does_change_the_choice() -> None:
    record = stored()
    firm = firmness(record)
    assert firm is not None
    assert firm.beta_at is not None
    assert CHOSEN.wait_s + firm.beta_at * CHOSEN.compute_s == pytest.approx(
        OTHER.wait_s + firm.beta_at * OTHER.compute_s
    )
    assert firm.wait_at_s + firm.beta * CHOSEN.compute_s == pytest.approx(OTHER.cost)
    assert record.cost is not None
    assert firm.hit_at is not None
    for hit, wins in ((firm.hit_at, True), (firm.hit_at - 1, False)):
        cost = CHOSEN.wait_s + firm.beta * record.cost.seconds(record.decision.prompt_tokens, hit)
        assert (cost <= OTHER.cost) is wins
    assert [what for what, _, _ in conditions(record, firm)] == [
        "β were under",
        "e-17's wait exceeded",
        "it held less than",
    ]


def test_placements_without_beta_do_not_mention_it() -> None:
    assert firmness(stored(placement="mooncake")) is None
    assert firmness(stored(candidates=(CHOSEN,))) is None


@pytest.mark.parametrize("cause", CAUSES)
def test_every_cause_has_its_remedy(cause: str) -> None:
    parts: dict[str, Any] = {f"{cause}_s": 1.0}
    remedies = {
        other: story_of(stored(regret=Regret("engine-04", 1.0, 1.0, 0, **{f"{other}_s": 1.0}))).to_do
        for other in CAUSES
    }
    remedy = story_of(stored(regret=Regret("engine-04", 1.0, 1.0, 0, **parts))).to_do
    assert remedy == remedies[cause]
    assert len(set(remedies.values())) == len(CAUSES)


def story_with(**fields: Any) -> Story:
    return story_of(stored(**fields))


def test_request_on_time_has_no_remedy() -> None:
    story = story_of(on_time("d-1"))
    assert story.verdict == "On time"
    assert story.to_do.startswith("Nothing")
    assert text_of(story.happened).startswith("The request was dispatched at once")


def test_slow_gateway_is_named_before_any_engine() -> None:
    slow = Regret("engine-04", 4.76, 2.89, 0, load_s=0.39, gateway_s=2.5)
    story = story_with(
        queued_s=0.0,
        dispatched_after_s=0.0,
        decided_after_s=2.5,
        first_token_after_s=5.15,
        regret=slow,
        cached_tokens=9216,
    )
    assert plain(story.title) == "Sent to e-17 for its cache; the gateway took 2.50 s to decide"
    assert plain(text_of(story.happened)).startswith(
        "The decision came after 2.50 s. The request was then dispatched at once, and the engine reported"
    )
    assert plain(story.to_do).startswith("The gateway was slow, not an engine")


def test_a_broken_answer_is_not_blamed_on_what_the_engine_reports() -> None:
    story = story_with(outcome="failed", error="connection lost while streaming", cached_tokens=None)
    assert "cached tokens are reported at the end of an answer." in plain(text_of(story.happened))
    story = story_with(cached_tokens=None)
    assert "the engine does not report cached tokens." in plain(text_of(story.happened))


def judged(**fields: Any) -> StoredDecision:
    return Hindsight().judged(stored(regret=None, **fields))


def test_a_frozen_engines_tokenizer_is_not_blamed_on_the_gateway() -> None:
    record = judged(
        queued_s=0.0, dispatched_after_s=0.0, decided_after_s=5.92, asked_after_s=5.92, first_token_after_s=9.4,
        tokenizers=(TokenizerWait("engine-03", "e-03", 5.0), TokenizerWait("engine-08", "e-08", 0.85)),
    )  # fmt: skip
    story = story_of(record)
    assert record.regret is not None
    assert (record.regret.cause, record.regret.gateway_s) == ("tokenizer", 0.0)
    assert plain(story.title) == "Sent to e-17 for its cache; the tokenizer of e-03 took 5.00 s"
    assert "The tokenizer of e-03 took 5.00 s." in plain(text_of(story.happened))
    assert "gateway was slow" not in story.to_do
    assert story.to_do.startswith("The prompt waited for the tokenizer of e-03, not for the gateway.")


def test_a_failed_attempt_is_named_with_its_engine_and_its_regret_is_known() -> None:
    again: dict[str, Any] = {
        "queued_s": 0.0, "dispatched_after_s": 19.8, "decided_after_s": 19.8, "first_token_after_s": 20.1,
        "attempts": ("engine-03", "engine-17"),
    }  # fmt: skip
    record = judged(**again, failures=(FailedAttempt("engine-03", "e-03", "no_progress", 0.1, 19.75),))
    story = story_of(record)
    assert record.regret is not None
    assert record.regret.attempt_s == pytest.approx(19.65)
    assert plain(story.title).endswith("after an attempt on e-03 took 19.6 s")
    assert "An attempt on e-03 took 19.6 s: the engine made no progress." in plain(text_of(story.happened))
    assert story.to_do.startswith("An earlier attempt failed on e-03, not the choice.")
    older = judged(**again)
    assert older.regret is None
    assert "No other choice" not in story_of(older).to_do
    assert "does not contain its times" in story_of(older).to_do


def test_a_failed_request_has_no_regret_not_even_in_older_records() -> None:
    failed = {"outcome": "failed", "error": "broken_stream", "first_token_after_s": 1.83}
    assert judged(**failed).regret is None
    older = stored(**failed, regret=Regret("engine-04", 1.0, 0.83, 0, load_s=0.83))
    assert regret_of(older) is None
    assert cause_of(older) == instead_words(older) == ""
    assert plain(story_of(older).title) == "Sent to e-17 for its cache; the engine broke off its answer"
    assert unknown_regret(older) == "the request failed, which does not judge the choice."


@pytest.mark.parametrize("saved_s", [0.0, 0.0099, 0.0101, 2.73])
@pytest.mark.parametrize("lost", [{}, {"gateway_s": 0.4}, {"attempt_s": 3.0}])
@pytest.mark.parametrize("engine_id", ["engine-17", ""])
def test_all_parts_agree_on_what_another_engine_would_have_saved(
    saved_s: float, lost: dict[str, float], engine_id: str
) -> None:
    lost = lost if engine_id else {}
    regret = Regret("engine-04", 3.97 - saved_s, saved_s + sum(lost.values()), 0, load_s=saved_s, **lost)
    record = stored(regret=regret, engine_id=engine_id, **({} if engine_id else {"outcome": "rejected"}))
    story, worth = story_of(record), saved_s >= 0.01
    named = "e-04 would have been" in story.title or "e-04 was expected to be on time" in story.title
    # The larger part of the loss is in the title: a lost second of the gateway hides what an engine would have saved.
    assert named is (worth and not (lost and max(lost.values()) > saved_s))
    assert ("e-04" in instead_words(record)) is worth
    notes = [row["note"] for row in pictures.candidates(record)]
    assert any("est in hindsight" in note for note in notes) is worth
    timeline = pictures.timeline(record)
    assert timeline is not None
    assert bool(timeline["instead"]) is worth
    assert bool(cause_of(record)) is (worth or bool(lost))
    assert bool(lost_words(record)) is bool(lost)


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (reasons.QUEUE_FULL, "limit the key that sends most"),
        (reasons.WAIT_EXPIRED, "raise the maximum wait"),
        (reasons.DEADLINE_PASSED, "until its class's deadline"),
        (reasons.PREFILL_OVERLOAD, "Raise its threshold"),
    ],
)
def test_the_remedy_of_a_rejection_is_that_of_its_limit(reason: str, words: str) -> None:
    spare = Regret("engine-04", 1.13, 2.37, 4608, admission_s=2.37)
    story = story_of(msgspec.structs.replace(rejected(), decision=rejected_by(reason), regret=spare))
    assert words in story.to_do
    assert "e-04 would have had" in story.to_do


def test_a_cheaper_rival_has_no_conditions() -> None:
    record = stored(candidates=(CHOSEN, msgspec.structs.replace(OTHER, cost=CHOSEN.cost - 1.0, wait_s=0.0)))
    firm = firmness(record)
    assert firm is None or conditions(record, firm) == []


def test_unknown_regret_is_never_called_the_best_choice() -> None:
    for fields in ({"first_token_after_s": None}, {"candidates": (CHOSEN,)}):
        record = judged(**fields)
        assert record.regret is None
        assert "is unknown: " in story_of(record).to_do


def test_wait_is_counted_from_the_decision() -> None:
    happened = plain(text_of(story_with(queued_s=5.86, decided_after_s=2.5, first_token_after_s=6.47).happened))
    assert happened.startswith("The decision came after 2.50 s. It waited 3.36 s, 500 ms longer than estimated")


def rejected(**fields: Any) -> StoredDecision:
    return stored(
        engine_id="", reason=reasons.PREFILL_OVERLOAD, outcome="rejected", error=reasons.PREFILL_OVERLOAD,
        first_token_after_s=None, cached_tokens=None, dispatched_after_s=None, **fields,
    )  # fmt: skip


def rejected_by(reason: str) -> Decision:
    return msgspec.structs.replace(rejected().decision, reason=reason)


def test_rejection_is_shown_with_its_prediction() -> None:
    story = story_of(rejected(regret=Regret("engine-04", 1.13, 2.37, 4608, admission_s=2.37)))
    assert plain(story.title).startswith("Rejected: its expected TTFT was over the limit; e-04 was expected")
    assert "e-04, was expected to take 1.13 s" in plain(text_of(story.why))
    assert "2.37 s to spare" in plain(story.to_do)
    assert "rejecting it saved the client the wait" in story_of(rejected(regret=None)).to_do
    assert "are available" in story_of(rejected(regret=None, candidates=())).to_do


@pytest.mark.parametrize(
    ("fields", "verdict", "ending"),
    [
        ({"outcome": "failed", "error": "broken_stream"}, "Failed", "Then the engine broke off its answer."),
        ({"outcome": "cancelled"}, "Client disconnected", "The client disconnected."),
        (
            {"outcome": "unanswered"},
            "No completion report",
            "No completion report came before its reservation expired.",
        ),
        ({"outcome": "running"}, "Running", "It is still running."),
    ],
)
def test_every_outcome_has_a_text(fields: dict[str, Any], verdict: str, ending: str) -> None:
    story = story_with(**fields)
    assert story.verdict == verdict
    assert text_of(story.happened).endswith(ending)


def test_a_providers_answer_names_the_pools_the_provider_and_its_cost() -> None:
    tried = (("large", "late"), ("small", "no_engine"))
    service = ServiceStory("chat", "gpt-x", tried, "api.example.com", "big-1", 200, "", 0.00021)
    fields = {"engine_id": "", "candidates": (), "reason": "no_engine", "regret": None, "queued_s": 0.0}
    answered = stored(service=service, first_token_after_s=0.4, finished_after_s=1.5, late=False, **fields)
    story = story_of(answered)
    assert plain(story.title) == "Sent to the provider api.example.com: no pool of chat could serve it"
    assert plain(text_of(story.why)) == (
        "The pools of chat did not serve it. large: its wait exceeded the TTFT objective; small: it had no "
        "engine that accepts work."
    )
    assert plain(text_of(story.happened)) == "api.example.com answered after 1.50 s for $0.00021. "
    assert service_facts(service) == [
        ("Service", "chat, asked for as gpt-x"),
        ("Not served by", "large: its wait exceeded the TTFT objective; small: it had no engine that accepts work"),
        ("Provider", "api.example.com, big-1, status 200, $0.00021"),
    ]  # fmt: skip
    withheld = msgspec.structs.replace(service, provider="", withheld="sovereignty: clinic stays")
    assert service_facts(withheld)[-1] == ("Provider", "not asked: sovereignty: clinic stays")
    rejected = stored(service=withheld, outcome="rejected", error="no_engine", **fields)
    assert story_of(rejected).title.startswith("Rejected:")
    broken = stored(service=service, outcome="failed", error="broken_stream", finished_after_s=1.5, **fields)
    assert plain(text_of(story_of(broken).happened)) == "api.example.com ended it after 1.50 s (broken_stream). "
