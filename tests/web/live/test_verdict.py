"""The verdict at the top of the page."""

from __future__ import annotations

from typing import Any

import msgspec

from controlplane.history.annotation import Annotation
from controlplane.incidents.notices import IncidentNotice
from controlplane.platform.format import percent
from gateway.contracts.fleet_sample import EngineSample, FleetSample, Lateness, PoolRole
from tests.web.fake_fleet import FakeFleet
from web.live.recent_state import RecentState
from web.live.verdict import FleetVerdict, findings

START = 1_800_000_000.0
SINCE = "2027-01-15T08:00:03+00:00"


def judge(*args: Any, **named: Any) -> FleetVerdict:
    """Return the most urgent finding."""
    return findings(*args, **named)[0]


def quiet() -> FleetSample:
    return FakeFleet(4, 2, events=False).sample_at(0, START)


def with_engines(sample: FleetSample, *changes: tuple[int, dict[str, object]]) -> FleetSample:
    engines: list[EngineSample] = list(sample.engines)
    for row, values in changes:
        engines[row] = msgspec.structs.replace(engines[row], **values)
    return msgspec.structs.replace(sample, engines=tuple(engines))


def with_pool(sample: FleetSample, **values: object) -> FleetSample:
    return msgspec.structs.replace(
        sample, pools=(msgspec.structs.replace(sample.pools[0], **values), *sample.pools[1:])
    )


LOST = {"state": "lost", "reason": "3 connects rejected.", "since": START + 3}
HOT = {"state": "hot", "reason": "one prefix holds 71 % of its work", "since": START + 3, "in_flight_s": 10.6}


def test_verdict_without_a_sample_reports_that() -> None:
    assert judge(None).severity == "quiet"
    assert "has not published" in judge(None).text


def test_verdict_without_engines_states_the_next_step() -> None:
    assert "make run" in judge(msgspec.structs.replace(quiet(), engines=())).text


def test_observing_pools_are_mentioned_with_every_finding() -> None:
    one = with_pool(quiet(), observes=True)
    assert judge(one).lead == "No problems."
    assert judge(one).text.endswith(f". {one.pools[0].name} is observe-only.")
    assert judge(with_engines(one, (0, LOST))).text.endswith("is observe-only.")
    both = msgspec.structs.replace(one, pools=tuple(msgspec.structs.replace(pool, observes=True) for pool in one.pools))
    assert judge(both).text.endswith(". All 2 pools are observe-only.")
    assert "observe" not in judge(quiet()).text


def test_healthy_fleet_has_no_problems() -> None:
    verdict = judge(quiet())
    assert (verdict.severity, verdict.lead) == ("ok", "No problems.")
    assert "on time" in verdict.text


def test_lost_engine_is_reported_first_with_reason_and_time() -> None:
    sample = with_pool(with_engines(quiet(), (1, HOT), (2, LOST)), on_time_share=0.2)
    verdict = judge(sample)
    assert (verdict.severity, verdict.lead, verdict.engine_id) == ("bad", "e-03 is lost.", "engine-e-03")
    assert verdict.text == f"Since {SINCE}: 3 connects rejected. 3 of 4 engines serve."


def test_several_lost_engines_are_counted_and_the_first_is_explained() -> None:
    later = {**LOST, "since": START + 9}
    verdict = judge(with_engines(quiet(), (0, later), (2, LOST)))
    assert verdict.lead == "2 engines are lost."
    assert f"the first, e-03, since {SINCE}" in verdict.text


def test_late_requests_are_reported_before_a_hot_engine() -> None:
    verdict = judge(with_pool(with_engines(quiet(), (1, HOT)), on_time_share=0.859, late=1234, unbound=37, bound=3))
    assert (verdict.severity, verdict.lead) == ("bad", "Requests are late.")
    assert (
        "85.9\u202f% of chat-70b within 3.5\u202fs over the last 60 s; 1,234 requests late, 40 waiting." in verdict.text
    )
    worst = with_pool(quiet(), on_time_share=0.5, late=1, failed=31, rejected=12, rejections_per_s={"queue_full": 0.8})
    assert judge(worst).lead == "Requests fail."
    assert "; 1 request late, 31 failed, 12 rejected (queue full), " in judge(worst).text
    only = with_pool(quiet(), on_time_share=0.5, late=0, failed=0, rejected=12, rejections_per_s=None)
    assert (judge(only).lead, "; 12 requests rejected, " in judge(only).text) == ("Requests are rejected.", True)
    assert (verdict.late_pool_id, verdict.late_since) == (quiet().pools[0].pool_id, quiet().at - 60)
    assert judge(quiet()).late_pool_id == ""


def test_each_pool_is_late_below_its_own_target() -> None:
    sample = with_pool(quiet(), on_time_share=0.97)
    pool_id = sample.pools[0].pool_id
    assert judge(sample).lead == "No problems."
    strict = judge(sample, targets={"": 0.9, pool_id: 0.99})
    assert (strict.severity, strict.late_pool_id) == ("bad", pool_id)
    worse = with_pool(quiet(), on_time_share=0.7)
    assert judge(worse, targets={"": 0.9, pool_id: 0.6}).lead == "No problems."


def test_rejections_are_reported_with_their_main_reason() -> None:
    rejections = {"queue_full": 2.0, "infeasible": 9.0}
    late = judge(with_pool(quiet(), on_time_share=0.5, rejected=660, rejections_per_s=rejections))
    assert "660 rejected (mostly SLO-infeasible), " in late.text
    calm = judge(with_pool(quiet(), on_time_share=0.99, rejections_per_s={"queue_full": 0.2}))
    assert calm.lead == "No problems."
    assert calm.text.endswith(", 0.2\u202f/s rejected, queue full.")


def test_hot_engine_is_a_warning_with_its_work() -> None:
    verdict = judge(with_engines(quiet(), (1, HOT)))
    assert (verdict.severity, verdict.shape, verdict.engine_id) == ("warn", "hot", "engine-e-02")
    assert verdict.text.startswith(f"Since {SINCE}: one prefix holds 71 % of its work. ")
    assert verdict.text.endswith("% on time.")
    silent = judge(with_engines(quiet(), (1, {**HOT, "reason": ""})))
    assert f"Since {SINCE}: it holds 10.6\u202fs of work. " in silent.text


def test_several_hot_engines_are_counted_with_the_busiest_named() -> None:
    verdict = judge(with_engines(quiet(), (0, HOT), (1, {**HOT, "in_flight_s": 12.0})))
    assert verdict.lead == "2 engines are hot."
    assert verdict.text.startswith("e-01, e-02. The busiest, e-02, holds 12.0\u202fs of work; ")


def test_draining_engine_is_reported_without_a_warning() -> None:
    drain = {"state": "draining", "running": 3, "bound": 0}
    verdict = judge(with_engines(quiet(), (0, drain)))
    assert (verdict.severity, verdict.lead) == ("info", "e-01 is draining.")
    assert verdict.text.startswith("3 requests left; new requests go to other engines. 3 of 4 engines serve")


def test_draining_engine_without_requests_keeps_the_name_of_its_state() -> None:
    drained = {"state": "draining", "running": 0, "bound": 0}
    verdict = judge(with_engines(quiet(), (0, drained)))
    assert (verdict.lead, verdict.text[:17]) == ("e-01 is draining.", "No request left; ")


def test_recent_return_is_a_recovery_and_an_old_one_is_not() -> None:
    sample = quiet()
    text = "e-01 serves again; it was lost"
    for age, lead in ((10, "Recovered."), (100, "No problems.")):
        marker = Annotation(1, sample.at - age, "back", "e-01", text, "pool-0", "engine-e-01")
        assert judge(sample, [marker]).lead == lead


def test_fleet_without_requests_is_idle() -> None:
    sample = with_engines(quiet(), *((row, {"in_flight_tokens": 0, "in_flight_s": 0.0}) for row in range(4)))
    none = {
        "requests_per_s": 0.0,
        "dispatched_at_once_per_s": 0.0,
        "dispatched_waited_per_s": 0.0,
        "on_time_share": None,
    }
    pools = tuple(msgspec.structs.replace(pool, **none) for pool in sample.pools)
    verdict = judge(msgspec.structs.replace(sample, pools=pools))
    assert verdict.lead == "Idle."
    assert "no request in the last 60 s" in verdict.text


def test_uneven_but_harmless_load_names_the_busiest() -> None:
    assert "busiest is e-02 with 3.00\u202fs of work" in judge(with_engines(quiet(), (1, {"in_flight_s": 3.0}))).text


def alone(for_s: float, gateway: str = "gw-1") -> PoolRole:
    since, reason = START - for_s, "no gateway owns the pool yet"
    return PoolRole(gateway=gateway, role="alone", owner="", epoch=0, since=since, reason=reason)


def test_gateways_that_decide_alone_for_longer_than_an_election_are_reported() -> None:
    verdict = judge(with_pool(quiet(), roles=(alone(60),)))
    assert (verdict.severity, verdict.lead) == ("warn", "Gateways decide alone.")
    assert verdict.text.startswith("chat-70b: gw-1 (no gateway owns the pool yet). Each gateway counts only its own")
    assert "HEADWAY_PEER_LISTEN" in verdict.text
    many = judge(with_pool(quiet(), roles=tuple(alone(60, f"gw-{number}") for number in range(9))))
    assert many.text.startswith("chat-70b: gw-0, gw-1, gw-2, gw-3 and 5 more (no gateway owns the pool yet). ")
    assert judge(with_pool(quiet(), roles=(alone(2),))).lead == "No problems."
    only = msgspec.structs.replace(alone(60), role="only")
    assert judge(with_pool(quiet(), roles=(only,))).lead == "Gateways decide alone.", "others are there, but unreached"
    assert judge(with_pool(quiet(), roles=(msgspec.structs.replace(only, reason=""),))).lead == "No problems."
    hot = judge(with_engines(with_pool(quiet(), roles=(alone(60),)), (1, HOT)))
    assert hot.lead == "e-02 is hot.", "what lasts hides nothing that happens now"
    late = judge(with_pool(quiet(), roles=(alone(60),), on_time_share=0.5, late=132))
    assert late.lead == "Requests are late."
    assert late.text.endswith(" Gateways decide alone about chat-70b.")


LATENESS = Lateness(since=START + 3, lapses=4, away_s=8.0, rejects=True)


def test_late_requests_of_an_overloaded_gateway_are_reported_with_it() -> None:
    sample = msgspec.structs.replace(with_pool(quiet(), on_time_share=0.5, late=132), lateness=LATENESS)
    verdict = judge(sample)
    assert (verdict.severity, verdict.lead) == ("bad", "The gateway and requests are late.")
    assert verdict.text.startswith(
        f"Since {SINCE} the gateway stalled 4 times, 8.00\u202fs in total. 50.0\u202f% of chat-70b"
    )


NOTICE = IncidentNotice(
    7, "pool-0", START + 3, "1 in 3 requests is late", "It sends 40 requests/s.", on_time=0.309, lowest=0.309
)


def test_an_open_incident_is_the_sentence_with_its_onset_and_keeps_it_while_samples_improve() -> None:
    other = msgspec.structs.replace(NOTICE, number=6)
    bad = with_pool(quiet(), on_time_share=0.5, late=132)
    for sample in (bad, with_engines(bad, (0, LOST)), with_pool(quiet(), on_time_share=0.31)):
        verdict = judge(sample, incidents=[NOTICE, other])
        assert (verdict.lead, verdict.incident) == ("1 in 3 requests is late.", 7)
        assert verdict.text.startswith(f"Since {SINCE}: It sends 40 requests/s. ")
        assert verdict.text.endswith(" 1 other incident open.")
        # All figures of the page are of one time: that of the sample, not that of the incident's job.
        share = percent(sample.pools[0].on_time_share)
        assert verdict.mark == f"◆ {share}"
        assert f" {share} on time in the last minute" in verdict.text
        assert ("improving" in verdict.text) is (sample.pools[0].on_time_share != 0.31)
        assert (verdict.late_pool_id, verdict.late_since) == ("pool-0", START + 3)


def test_a_closed_incident_stays_for_ten_minutes_unless_something_is_wrong() -> None:
    now = quiet().at
    closed = msgspec.structs.replace(NOTICE, closed=now - 500)
    assert judge(quiet(), incidents=[closed]).lead == "Recovered."
    assert judge(quiet(), incidents=[closed]).mark == ""
    assert judge(with_engines(quiet(), (0, LOST)), incidents=[closed]).lead == "e-01 is lost."
    assert judge(quiet(), incidents=[msgspec.structs.replace(NOTICE, closed=now - 700)]).lead == "No problems."


def test_overloaded_gateway_is_reported_before_its_engines() -> None:
    late = msgspec.structs.replace(with_engines(quiet(), (1, HOT)), lateness=LATENESS)
    verdict = judge(late)
    assert (verdict.severity, verdict.lead) == ("warn", "The gateway is late.")
    assert "It rejects requests that it cannot serve." in verdict.text


def test_quarantined_engine_is_reported_with_the_author_of_the_quarantine() -> None:
    verdict = judge(with_engines(quiet(), (1, {"state": "quarantined", "reason": "by admin", "since": START + 3})))
    assert (verdict.severity, verdict.lead, verdict.shape) == ("warn", "e-02 is quarantined.", "quarantined")
    assert verdict.text.startswith(f"Since {SINCE}: by admin. ")
    assert "2 of 4 engines serve" in judge(with_engines(quiet(), (0, LOST), (1, {"state": "quarantined"}))).text


def test_starving_engine_is_named_with_its_missing_prefix() -> None:
    recent = RecentState(nothing_s={"engine-e-03": 48.0}, lacks={"engine-e-03": "624304"})
    verdict = judge(quiet(), recent=recent)
    assert verdict.lead == "e-03 has been idle for 48\u202fs."
    assert verdict.text.startswith(
        "It no longer holds prefix 624304, which most other engines hold. Other requests of its pool"
    )
    assert judge(with_engines(quiet(), (2, {"state": "draining"})), recent=recent).lead == "e-03 is draining."


def test_busiest_engine_is_judged_by_means_and_named_with_hysteresis() -> None:
    def work(seconds: float) -> RecentState:
        return RecentState(work_s={f"engine-e-0{number}": 0.5 for number in range(1, 5)} | {"engine-e-02": seconds})

    before = judge(quiet(), recent=work(0.9))
    named = judge(quiet(), recent=work(1.3))
    assert "no engine holds more than" in before.text
    assert ("busiest is e-02 with 1.30\u202fs" in named.text, named.engine_id) == (True, "engine-e-02")
    assert "busiest is e-02" in judge(quiet(), recent=work(0.9), said=named).text
    assert "no engine holds more than" in judge(quiet(), recent=work(0.6), said=named).text


def test_request_rate_counts_dispatched_and_rejected_requests() -> None:
    sample = msgspec.structs.replace(quiet(), pools=quiet().pools[:1])
    rates = {"requests_per_s": 15.0, "dispatched_at_once_per_s": 5.0, "dispatched_waited_per_s": 3.0}
    assert judge(with_pool(sample, **rates, rejections_per_s={"queue_full": 2.0})).text.startswith(
        "10 requests/s over the last"
    )
    assert judge(with_pool(sample, **rates | {"dispatched_at_once_per_s": None})).text.startswith("15 requests/s")
