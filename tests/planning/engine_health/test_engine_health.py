import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from planning.engine_health.engine_health import plan_health
from planning.engine_health.health_memory import HealthMemory
from planning.facts.fleet_facts import EngineObservation
from tests.planning.pools import engine, pool
from tests.planning.stories import BEGIN, DOCUMENT, Story, after, first, others, rounds, stuck, well

FAULTS = {
    "hangs": (stuck(BEGIN, "sick"), "no_progress", 15.0),
    "hangs_with_unreadable_metrics": (stuck(BEGIN, "sick", readable=False), "no_progress", 15.0),
    "paused": (after(BEGIN, "sick", paused="sleeping"), "paused", 1.0),
    "never_starts": (stuck(BEGIN, "sick", running=0, waiting=4), "not_starting", 15.0),
    "silent": (
        stuck(BEGIN, "sick", reachable=False, unreachable_since_s=BEGIN, report_s=BEGIN),
        "unreachable",
        3.0,
    ),
    "lies": (
        stuck(BEGIN, "sick", prompt_tokens_total=lambda now: 1000 * now, generated_tokens_total=lambda now: 50 * now),
        "lying",
        15.0,
    ),
    "fails": (after(BEGIN, "sick", failures_in_row=5), "failures", 1.0),
    "rejects": (after(BEGIN, "sick", rejected_share=1.0, rejected_samples=9), "rejecting", 1.0),
    "crawls": (after(BEGIN, "sick", slowness=5.0), "crawling", 16.0),
    "stands_nearly": (after(BEGIN, "sick", slowness=20.0), "crawling", 6.0),
    "crawls_in_decode": (after(BEGIN, "sick", tpot_s=0.3, role="decode"), "crawling", 16.0),
    "flaps": (after(BEGIN, "sick", incarnation=lambda now: 2 + int(now - BEGIN) // 10), "flapping", 21.0),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_is_quarantined_in_time(kind: str) -> None:
    story, code, within_s = FAULTS[kind]
    at_s, verdict = first([*others(3), story], "quarantined")
    assert BEGIN <= at_s <= BEGIN + within_s
    assert (verdict.code, verdict.load_share) == (code, 0.0)
    assert verdict.since_s == at_s
    assert verdict.text


DOUBTS = {
    "decodes_only": (after(BEGIN, "sick", first_tokens_total=20, kv_usage=0.95), "decode_bottleneck"),
    "unreadable": (after(BEGIN, "sick", readable=False), "garbage_metrics"),
    "nan": (after(BEGIN, "sick", kv_usage=math.nan), "garbage_metrics"),
    "negative": (after(BEGIN, "sick", running=-3), "garbage_metrics"),
    "backwards": (after(BEGIN, "sick", prompt_tokens_total=lambda now: 1e6 - now), "garbage_metrics"),
    "frozen": (after(BEGIN, "sick", prompt_tokens_total=1.0, generated_tokens_total=1.0), None),
    "prefills_much": (after(BEGIN, "sick", tpot_s=0.3), "crawling"),
    "gaps": (after(BEGIN, "sick", event_gaps_total=1), "event_gaps"),
}


@pytest.mark.parametrize("kind", DOUBTS)
def test_a_serving_engine_is_at_most_suspect(kind: str) -> None:
    story, code = DOUBTS[kind]
    plans = list(rounds([*others(3), story], 60.0))
    states = {verdict.state for plan in plans for verdict in plan.verdicts if verdict.engine_id == "sick"}
    assert states == {"healthy", "suspect"}
    codes = {
        verdict.code for plan in plans for verdict in plan.verdicts if verdict.engine_id == "sick" and verdict.code
    }
    assert codes == ({code} if code else {"garbage_metrics"})


@pytest.mark.parametrize("usage", [0.0, 0.5])
def test_an_engine_with_free_memory_is_not_a_bottleneck(usage: float) -> None:
    story = after(BEGIN, "sick", first_tokens_total=20, kv_usage=usage)
    plans = list(rounds([*others(3), story], 60.0))
    assert {verdict.state for plan in plans for verdict in plan.verdicts} <= {"healthy"}


def test_a_slower_crawl_is_detected_sooner_but_not_before_a_third_of_the_time() -> None:
    delays = [
        first([*others(3), after(BEGIN, "sick", slowness=slow)], "quarantined")[0] for slow in (4.0, 5.0, 9.0, 90.0)
    ]
    assert delays == sorted(delays, reverse=True)
    assert delays[0] > BEGIN + DOCUMENT.slow_s / 2
    assert delays[-1] >= BEGIN + DOCUMENT.slow_s / 3


def test_a_long_prefill_is_not_a_stall() -> None:
    story = stuck(BEGIN, "sick", longest_prefill_s=10.0)
    assert first([*others(3), story], "quarantined")[0] >= BEGIN + 30.0


def test_an_unanswered_probe_does_not_outweigh_answered_requests() -> None:
    story = after(BEGIN, "sick", reachable=False, unreachable_since_s=BEGIN)
    states = [plan.verdicts[-1].state for plan in rounds([*others(3), story], 60.0)]
    assert "quarantined" not in states
    assert "suspect" in states


def test_stale_reports_are_not_judged() -> None:
    story = stuck(BEGIN, "sick", report_s=BEGIN, dispatched=0, streaming=0, prefilling=0)
    assert {plan.verdicts[-1].state for plan in rounds([*others(3), story], 100.0)} == {"healthy"}


def test_a_returning_engine_starts_slowly_and_its_next_quarantine_is_longer() -> None:
    def story(now_s: float) -> EngineObservation:
        return replace(well("sick")(now_s), failures_in_row=5 if now_s < 30 else 10 if now_s > 100 else 5)

    plans = list(rounds([*others(3), story], 200.0))
    verdicts = {plan.at_s: plan.verdicts[-1] for plan in plans}
    assert verdicts[10.0].until_s == DOCUMENT.ejection_s
    shares = [verdicts[at].load_share for at in (30.0, 45.0, 59.0)]
    assert shares == sorted(shares)
    assert shares[0] == pytest.approx(DOCUMENT.slow_start_from)
    assert verdicts[45.0].state == "probation"
    assert verdicts[61.0].state == "healthy"
    again = verdicts[102.0]
    assert again.state == "quarantined"
    assert again.until_s == 101.0 + 2 * DOCUMENT.ejection_s


def test_a_new_process_is_tried_again_after_its_quarantine() -> None:
    def restarted(now_s: float) -> EngineObservation:
        failures = 9 if 5 <= now_s < 30 else 0
        return replace(well("sick")(now_s), incarnation=2 if now_s >= 30 else 1, failures_in_row=failures)

    states = [plan.verdicts[-1].state for plan in rounds([*others(3), restarted], 100.0)]
    assert states[34] == "quarantined"
    assert states[55] == "probation"
    assert states[-1] == "healthy"


def test_a_stalled_engine_regains_its_whole_load_as_soon_as_it_progresses() -> None:
    seen = [plan.verdicts[-1] for plan in rounds([*others(3), _hung_for("sick", 60.0)], 200.0)]
    out = [at for at, verdict in enumerate(seen) if verdict.load_share < 1.0]
    assert (out[0], out[-1]) == (BEGIN + DOCUMENT.stall_s + 2.0, BEGIN + 59.0)
    assert {item.state for item in seen[out[-1] + 1 :]} == {"healthy"}
    # Nor does it make a later quarantine longer: it may only have been slow.
    assert all(item.until_s is None for item in seen)


@pytest.mark.parametrize("kind", ["hangs", "never_starts", "lies"])
def test_an_engine_is_suspected_only_while_another_of_its_role_progresses(kind: str) -> None:
    idle = [after(0.0, f"e-{number}", dispatched=0, prefilling=0, streaming=0, running=0) for number in range(3)]

    def still(story: Story) -> Story:
        counters = ("first_tokens_total", "chunks_total", "prompt_tokens_total", "generated_tokens_total")
        return lambda now_s: replace(story(now_s), **{counter: getattr(story(0.0), counter) for counter in counters})

    story, _, _ = FAULTS[kind]
    states = {plan.verdicts[-1].state for plan in rounds([*map(still, idle), story], 100.0)}
    assert states == {"healthy", "suspect"}
    decoders = [after(0.0, f"d-{number}", role="decode") for number in range(3)]
    prefill = [lambda now_s: replace(story(now_s), role="prefill")]
    assert {plan.verdicts[-1].state for plan in rounds([*decoders, *prefill], 100.0)} == {"healthy", "suspect"}


def test_at_most_half_of_the_pool_is_suspected() -> None:
    still = [stuck(BEGIN, f"still-{number}") for number in range(4)]
    plans = list(rounds([well("e-1"), *still], 100.0))
    assert max(sum(verdict.load_share == 0 for verdict in plan.verdicts) for plan in plans) == 2


def test_a_paused_engine_returns_when_it_reports_the_resume() -> None:
    def story(now_s: float) -> EngineObservation:
        return replace(well("sick")(now_s), paused="paused" if 10 <= now_s < 15 else "")

    states = [plan.verdicts[-1].state for plan in rounds([*others(3), story], 20.0)]
    assert states[9:16] == ["healthy", *["quarantined"] * 5, "probation"]


@pytest.mark.parametrize(("size", "limit"), [(4, 1), (10, 1), (20, 2)])
def test_at_most_a_tenth_is_ejected_for_being_worse_than_others(size: int, limit: int) -> None:
    bad = [after(5.0, f"bad-{number}", failures_in_row=9) for number in range(limit + 1)]
    plans = list(rounds([*others(size - len(bad)), *bad], 20.0))
    assert max(sum(verdict.load_share == 0 for verdict in plan.verdicts) for plan in plans) == limit
    assert "outlier_limit" in {reason.code for reason in plans[-1].reasons}


def test_rejections_by_all_engines_are_no_engines_fault() -> None:
    rejecting = [after(5.0, f"e-{number}", rejected_share=1.0, rejected_samples=40) for number in range(4)]
    assert {verdict.state for plan in rounds(rejecting, 20.0) for verdict in plan.verdicts} == {"healthy"}


def test_a_partial_rejection_share_is_not_a_fault() -> None:
    some = after(5.0, "some", rejected_share=0.6, rejected_samples=40)
    assert {plan.verdicts[-1].state for plan in rounds([*others(3), some], 20.0)} == {"healthy"}


def test_in_panic_outliers_keep_their_work_and_dead_engines_do_not() -> None:
    silent = {"reachable": False, "unreachable_since_s": 5.0, "dispatched": 0}
    dead = [after(5.0, f"dead-{number}", **silent) for number in range(3)]
    plans = list(rounds([well("e-1"), after(0.0, "bad", failures_in_row=9), *dead], 25.0))
    verdicts = {verdict.engine_id: verdict for verdict in plans[-1].verdicts}
    assert plans[-1].panic
    assert verdicts["bad"].load_share == 1.0
    assert "not quarantined" in verdicts["bad"].text
    assert all(verdicts[f"dead-{number}"].load_share == 0 for number in range(3))


def test_a_single_engine_is_never_slow_compared_to_others() -> None:
    story = after(5.0, "sick", slowness=9.0)
    assert {plan.verdicts[-1].state for plan in rounds([story], 60.0)} == {"healthy", "suspect"}


def _hung_for(name: str, seconds: float, **changes: object) -> Story:
    """Return an engine that produces nothing for `seconds` from BEGIN on, and then continues."""
    hung, again = stuck(BEGIN, name, **changes), after(0.0, name, **changes)
    return lambda now_s: hung(now_s) if now_s < BEGIN + seconds else again(now_s)


def test_the_only_engine_of_its_role_is_never_ejected_for_a_stall() -> None:
    decoders = [after(0.0, f"d-{number}", role="decode") for number in range(3)]
    alone = rounds([*decoders, _hung_for("sick", 60.0, role="prefill")], BEGIN + 120.0)
    assert {plan.verdicts[-1].load_share for plan in alone} == {1.0}


@pytest.mark.parametrize(
    ("role", "others_role", "ejected"),
    [("prefill", "decode", False), ("prefill", "mixed", True), ("mixed", "decode", False)],
)
def test_the_only_capable_engine_is_not_ejected_for_being_worse(role: str, others_role: str, ejected: bool) -> None:
    rest = [after(0.0, f"e-{number}", role=others_role) for number in range(3)]
    plans = list(rounds([*rest, after(BEGIN, "sick", failures_in_row=9, role=role)], 60.0))
    assert any(plan.verdicts[-1].state == "quarantined" for plan in plans) == ejected
    assert any(reason.code == "last_of_role" for plan in plans for reason in plan.reasons) != ejected


def test_engines_out_of_service_are_not_judged() -> None:
    plans = list(rounds([*others(3), stuck(5.0, "sick", lifecycle="draining")], 60.0))
    assert plans[-1].verdicts[-1].text == "not judged while it is draining"
    assert plans[-1].verdicts[-1].load_share == 1.0


def test_a_new_engine_gets_a_growing_share_if_configured() -> None:
    shares = []
    for now_s in (100.0, 110.0, 119.0, 121.0):
        facts = pool(now_s, (replace(well("new")(now_s), since_s=100.0), well("old")(now_s)))
        plan, _ = plan_health(facts, HealthMemory(), DOCUMENT, newcomer_slow_start_s=20.0)
        assert plan.verdicts[1].load_share == 1.0
        shares.append(plan.verdicts[0].load_share)
    assert shares == [pytest.approx(0.1), pytest.approx(0.55), pytest.approx(0.955), 1.0]


def test_a_plan_without_changes_states_why() -> None:
    last = list(rounds(others(3), 10.0))[-1]
    assert last.changed == ()
    assert [reason.code for reason in last.reasons] == ["no_change"]
    assert last.reasons[0].text == "no change: 3 healthy"


numbers = st.one_of(st.none(), st.floats(), st.integers(-5, 10**6))
anything = st.fixed_dictionaries(
    {
        "running": numbers,
        "waiting": numbers,
        "kv_usage": numbers,
        "prompt_tokens_total": numbers,
        "generated_tokens_total": numbers,
        "rejected_share": numbers,
        "rejected_samples": st.integers(0, 50),
        "slowness": numbers,
        "tpot_s": numbers,
        "slowness_samples": st.integers(0, 50),
        "tpot_samples": st.integers(0, 50),
        "dispatched": st.integers(0, 9),
        "streaming": st.integers(0, 9),
        "prefilling": st.integers(0, 9),
        "failures_in_row": st.integers(0, 9),
        "incarnation": st.integers(1, 5),
        "reachable": st.booleans(),
        "readable": st.booleans(),
        "longest_prefill_s": st.floats(),
        "first_tokens_total": st.integers(0, 1000),
        "chunks_total": st.integers(0, 1000),
        "event_gaps_total": st.integers(0, 3),
    }
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(anything, min_size=5, max_size=5), min_size=1, max_size=12))
def test_for_any_reports_the_limits_hold_and_the_plan_is_repeatable(ticks: list[list[dict]]) -> None:
    memory = HealthMemory()
    for tick, members in enumerate(ticks):
        made = tuple(engine(f"e-{at}", 7.0 * tick, **facts) for at, facts in enumerate(members))
        facts = pool(7.0 * tick, made)
        plan, after_round = plan_health(facts, memory, DOCUMENT)
        assert (plan, after_round) == plan_health(facts, memory, DOCUMENT)
        outliers = [
            verdict
            for verdict in plan.verdicts
            if verdict.load_share == 0 and verdict.code in ("failures", "crawling", "flapping")
        ]
        assert len(outliers) <= 1
        assert all(0.0 <= verdict.load_share <= 1.0 and verdict.since_s <= facts.now_s for verdict in plan.verdicts)
        assert plan.reasons
        memory = after_round
