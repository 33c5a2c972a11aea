"""Merged reports of several gateways and the prober, and the windows computed from them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from controlplane.automation.observation import FleetObservation, together
from controlplane.automation.pool_windows import SPAN_S, PoolWindows
from controlplane.platform.live_fleet.samples import MAX_AGE_S, FleetSamples
from gateway.bus.bus import InProcessBus
from gateway.contracts.engine_report import EngineReport, encode_report, load_topic
from gateway.contracts.fleet_sample import EngineSample, FleetSample, Lateness, PoolSample, PoolTotals
from tests.controlplane.automation.world import QUIET


def engine(name: str, **fields: Any) -> EngineSample:
    known: dict[str, Any] = {
        "engine_id": name,
        "name": name,
        "pool_id": "p",
        "incarnation": 1,
        "state": "serving",
        "reason": "",
        "since": 0.0,
        "in_flight_tokens": 0,
        "in_flight_s": 1.0,
        "running": 2,
        "bound": 1,
        "kv_usage": None,
        "prompt_tokens_total": 0,
        "cached_tokens_total": 0,
        "index_trust": "exact",
        "report_age_s": 0.1,
        "counts": QUIET,
    }
    return EngineSample(**{**known, **fields})


def pool(requests: int, on_time: int, work_s: float = 0.0, **fields: Any) -> PoolSample:
    known: dict[str, Any] = dict.fromkeys(PoolSample.__struct_fields__)
    known |= {"pool_id": "p", "prefixes": (), "usual_d": 0, "load_cv": 0.5, "unbound": 1, "bound": 2, "queued_s": 3.0}
    totals = PoolTotals(
        requests=requests, on_time=on_time, rejected=0, work_s=work_s, prompt_tokens=0, recomputed_tokens=0
    )
    return msgspec.structs.replace(PoolSample(**known), totals=totals, **fields)


def sample(at: float, *engines: EngineSample) -> bytes:
    return msgspec.msgpack.encode(
        FleetSample(seq=1, at=at, window_s=15.0, snapshot_version=1, engines=engines, pools=())
    )


def report(name: str, at: float, **fields: Any) -> bytes:
    known = {"engine_id": name, "at": at, "reachable": True, "healthy": True, "reason": ""}
    return encode_report(EngineReport(**{**known, **fields}))


def test_reports_of_two_gateways_add_up_and_success_at_one_overrides_failures() -> None:
    failing = msgspec.structs.replace(QUIET, failures_in_row=9, slowness=4.0, slowness_samples=1, first_tokens_total=5)
    serving = msgspec.structs.replace(QUIET, slowness=1.0, slowness_samples=9, first_tokens_total=7)
    seen = together([engine("a", counts=failing, state="lost"), engine("a", counts=serving)], None)
    assert (seen.running, seen.bound, seen.in_flight, seen.in_flight_s, seen.lost) == (4, 2, 6, 2.0, False)
    assert seen.counts is not None
    assert (seen.counts.failures_in_row, seen.counts.first_tokens_total, seen.counts.slowness) == (0, 12, 1.0)


def test_unreported_engine_is_unknown_and_start_times_distinguish_processes() -> None:
    assert together([], None).in_flight is None
    started = EngineReport(
        engine_id="a", at=1.0, reachable=True, healthy=True, reason="", process_start=1_700_000_000.5
    )
    assert together([engine("a", incarnation=3)], started).incarnation == 1_700_000_000
    assert together([engine("a", incarnation=3)], None).incarnation == 3


@pytest.fixture
def bus() -> InProcessBus:
    return InProcessBus()


def test_samples_of_silent_gateways_are_ignored(bus: InProcessBus) -> None:
    observed = FleetObservation(bus, FleetSamples(bus))
    bus.publish("fleet", sample(100.0, engine("a")))
    bus.publish("gateways/g2/fleet", sample(103.0, engine("a")))
    bus.publish("gateways/g2/other", b"x")
    assert observed.engines("p", 103.0)["a"][0].running == 4
    assert observed.engines("p", 100.5 + MAX_AGE_S)["a"][0].running == 2
    assert observed.engines("p", 200.0) == {}
    assert (observed.gateways(103.0), observed.gateways(200.0)) == (2, 0)
    assert observed.gateways(90.0) == 0, "the clock went back since"
    observed.stop()


def test_invalid_bus_messages_are_dropped(bus: InProcessBus) -> None:
    observed = FleetObservation(bus, FleetSamples(bus))
    for topic in ("fleet", "gateways/g/fleet", "load/a", "gateways/fleet"):
        bus.publish(topic, b"\xc1 no message")
    assert observed.engines("p", 1.0) == {}
    assert observed.report("a") is None


def test_start_of_unreachability_is_kept_until_the_engine_responds(bus: InProcessBus) -> None:
    observed = FleetObservation(bus, FleetSamples(bus))
    bus.publish("fleet", sample(11.0, engine("a")))
    for at in (10.0, 11.0):
        bus.publish(load_topic("a"), report("a", at, reachable=False, healthy=False))
    assert observed.engines("p", 11.0)["a"][2] == 10.0
    bus.publish(load_topic("a"), report("a", 12.0))
    assert observed.engines("p", 12.0)["a"][2] is None


def test_reports_under_an_old_fencing_token_are_ignored(bus: InProcessBus) -> None:
    observed = FleetObservation(bus, FleetSamples(bus))
    bus.publish(load_topic("a"), report("a", 10.0, fence=2, running=5))
    bus.publish(load_topic("a"), report("a", 11.0, fence=1, running=9))
    newest = observed.report("a")
    assert newest is not None
    assert newest.running == 5


def test_windows_hold_the_differences_of_totals() -> None:
    windows = PoolWindows()
    for second in range(12):
        windows.add("g1", pool(10 * second, 5 * second, float(second)), 100.0 + second, 4)
        windows.add("g2", pool(second, second), 100.0 + second, 4)
    first, second_span = windows.windows(100.0 + 2 * SPAN_S)
    assert (first.from_s, first.span_s, first.requests, first.on_time) == (100.0, SPAN_S, 44, 24)
    assert (second_span.requests, second_span.work_s, second_span.queued, second_span.queued_s) == (55, 5.0, 6, 6.0)
    assert len(windows.windows(100.0 + 3 * SPAN_S)) == 3


def test_restarted_gateway_is_counted_from_its_first_report() -> None:
    windows = PoolWindows()
    for at, requests in ((100.0, 500), (101.0, 510), (102.0, 3), (103.0, 7)):
        windows.add("g", pool(requests, requests), at, 4)
    assert windows.windows(105.0)[0].requests == 14


def test_late_sample_changes_nothing() -> None:
    windows = PoolWindows()
    windows.add("g", pool(0, 0), 100.0, 4)
    windows.add("g", pool(5, 5), 106.0, 4)
    windows.add("g", pool(99, 99), 101.0, 4)
    assert [window.requests for window in windows.windows(110.0)] == [0, 5]


def test_counts_of_an_overloaded_gateway_are_ignored() -> None:
    bus = InProcessBus()
    observation = FleetObservation(bus, FleetSamples(bus), clock=lambda: 100.0)
    late = Lateness(since=90.0, lapses=2, away_s=4.0, rejects=False)
    for lateness, counts in ((None, QUIET), (late, None)):
        decoded = msgspec.msgpack.decode(sample(100.0, engine("a")), type=FleetSample)
        bus.publish("fleet", msgspec.msgpack.encode(msgspec.structs.replace(decoded, lateness=lateness)))
        sighting, _, _ = observation.engines("p", 100.0)["a"]
        assert (sighting.counts, sighting.running, sighting.known) == (counts, 2, True)
    observation.stop()
