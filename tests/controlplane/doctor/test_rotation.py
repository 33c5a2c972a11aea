"""The doctor names engines that get no new work or are degraded, with the gateways' reasons."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from django.utils import timezone

from controlplane.doctor import fleet
from controlplane.doctor.finding import State
from controlplane.doctor.fleet import out_of_rotation, rotation
from controlplane.doctor.installation import Installation
from controlplane.platform.live_fleet.samples import FleetSamples
from gateway.bus.bus import InProcessBus
from gateway.contracts.fleet_sample import TOPIC, EngineSample, FleetSample, encode_sample
from tests.controlplane.platform.live_fleet.some_samples import engine

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
