"""The doctor reports gateways that disagree on a pool's owner for longer than an election takes.

The doctor names engines that get no new work or are degraded, with the gateways' reasons.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.doctor import fleet
from controlplane.doctor.finding import State
from controlplane.doctor.fleet import judged, out_of_rotation, rotation
from controlplane.doctor.installation import Installation
from controlplane.platform.live_fleet.samples import FleetSamples
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import TOPIC, EngineSample, FleetSample, PoolRole, PoolSample, encode_sample
from tests.controlplane.platform.live_fleet.some_samples import engine

NOW = 1000.0


def samples_of(*roles: PoolRole) -> list[FleetSample]:
    """Return one sample per gateway role."""
    return [
        FleetSample(seq=1, at=NOW, window_s=15.0, snapshot_version=1, engines=(), pools=(_pool(role),))
        for role in roles
    ]


def role(gateway: str, role: str, owner: str, epoch: int, *, for_s: float = 60.0, reason: str = "") -> PoolRole:
    return PoolRole(gateway=gateway, role=role, owner=owner, epoch=epoch, since=NOW - for_s, reason=reason)


def _pool(role: PoolRole) -> PoolSample:
    return PoolSample(
        pool_id="chat", name="chat", region="eu", served_model="m", placement="least_cost", order="late_last",
        policy_version=1, ttft_slo_s=5.0, tokens_per_s=1.0, unbound=0, unbound_tokens=0, oldest_wait_s=0.0, load_cv=0.0,
        requests_per_s=0.0, prompt_tokens_per_s=0.0, ttft_p50_s=None, ttft_p90_s=None, ttft_p99_s=None,
        on_time_share=None, hit_share=None, late=0, roles=(role,),
    )  # fmt: skip


def test_gateways_with_the_same_owner_pass() -> None:
    (finding,) = judged(samples_of(role("a", "owner", "a", 3), role("b", "asks", "a", 3)), NOW)
    assert (finding.state, finding.says) == (State.OK, "The gateways agree on who owns 1 pool.")


def test_gateway_that_decides_alone_for_long_is_named_with_its_reason() -> None:
    samples = samples_of(role("a", "owner", "a", 3), role("b", "alone", "", 3, reason="the owner is silent"))
    (finding,) = judged(samples, NOW)
    assert finding.state == State.WARNING
    assert "b (the owner is silent)" in finding.says
    assert "HEADWAY_PEER_LISTEN" in finding.do


def test_election_is_accepted_and_two_owners_are_reported() -> None:
    young = samples_of(role("a", "owner", "a", 3), role("b", "alone", "", 3, for_s=2.0))
    assert judged(young, NOW)[0].state == State.OK
    (finding,) = judged(samples_of(role("a", "owner", "a", 3), role("b", "owner", "b", 4)), NOW)
    assert finding.state == State.WARNING
    assert "a (epoch 3), b (epoch 4)" in finding.says


def test_single_gateway_gives_no_finding() -> None:
    assert judged([], NOW) == []


SUSPECTED = "suspected: 2 streams have produced nothing for 4.1 s, while other engines progressed"


def sample(*engines: EngineSample) -> FleetSample:
    return FleetSample(seq=1, at=time.time(), window_s=15.0, snapshot_version=1, engines=engines, pools=())


def test_suspected_and_degraded_engines_are_named_with_their_reasons() -> None:
    late = "health timed out after 5 s, but metrics are answered"
    out, degraded = out_of_rotation(
        sample(
            engine("a", state="quarantined", reason=SUSPECTED), engine("b", state="degraded", reason=late), engine("c")
        )
    )
    assert (out.state, out.says) == (State.WARNING, f"1 engine gets no new work: a ({SUSPECTED}).")
    assert (degraded.state, degraded.says) == (State.WARNING, f"1 engine is degraded: b ({late}).")


def test_serving_engines_pass() -> None:
    (finding,) = out_of_rotation(sample(engine("a"), engine("b", state="draining", reason="drained")))
    assert (finding.state, finding.says) == (State.OK, "Gateways send requests to 2 engines.")


def test_finding_follows_the_current_reports_of_gateways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bus = InProcessBus()
    samples = FleetSamples(bus)
    monkeypatch.setattr(fleet, "fleet_samples", lambda: samples)
    here = Installation(tmp_path, "127.0.0.1", 1, "", timezone.now())
    assert rotation(here) == []
    bus.publish(TOPIC, encode_sample(sample(engine("a", state="lost", reason="connection refused"))))
    (finding,) = rotation(here)
    assert finding.says == "1 engine gets no new work: a (connection refused)."
