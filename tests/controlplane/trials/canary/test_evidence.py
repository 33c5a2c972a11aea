"""A canary steps by evidence: after its dwell time, with enough requests, if every guardrail holds."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy import Policy
from controlplane.trials.canary.evaluation import evaluation_of, plain
from controlplane.trials.canary.evidence import EvidenceMissingError, step_evidence
from controlplane.trials.canary.lifecycle import promote, start_canary, take_step
from controlplane.trials.models.canary import Canary
from gateway.bus.bus import Bus
from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.comparison import compare
from tests.controlplane.trials.canary.scene import ACTOR, live_version, version
from tests.planning.arm_data import slices

pytestmark = pytest.mark.django_db
GUARDS = {"late_more": 0.2, "failed_more": 0.2, "ttft_ratio": 2.0, "tail_ratio": 3.0}


@pytest.fixture
def canary(pool: Pool, policy: Policy, bus: Bus) -> Canary:
    live_version(policy)
    return start_canary(
        version(policy, "round_robin"), steps=(0.1, 0.5), min_dwell_s=60.0, guardrails=GUARDS, actor=ACTOR
    )  # fmt: skip


def seen(canary: Canary, *, slower: float = 1.0, per_slice: int = 60, step_s: float = 120.0) -> datetime:
    """Store an evaluation of the canary's step, which has lasted `step_s`; return its time."""
    now = timezone.now()
    at_s = now.timestamp()
    timed = [(at_s - 60 + 2 * n, slice_) for n, slice_ in enumerate(slices(1, 30, per_slice, per_slice, slower=slower))]
    comparison = compare([slice_ for _, slice_ in timed], GuardrailDocument(**GUARDS))
    evaluation = plain(evaluation_of(at_s, "keep", (), comparison, timed))
    Canary.objects.filter(pk=canary.pk).update(evaluation=evaluation, step_at=now - timedelta(seconds=step_s))
    canary.refresh_from_db()
    return now


def test_canary_steps_only_by_evidence(canary: Canary) -> None:
    assert step_evidence(canary, seen(canary)).missing == ()
    assert take_step(canary, actor=ACTOR).step == 1
    with pytest.raises(EvidenceMissingError, match="lasted 0 s of 60 s\\. 0 of at least 40 requests"):
        promote(canary, actor=ACTOR)


def test_step_waits_for_the_dwell_time(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    now = seen(canary, step_s=50.0)
    monkeypatch.setattr("controlplane.trials.canary.lifecycle.timezone", SimpleNamespace(now=lambda: now))
    # The figures of the step are as many as before, and the evaluation is of this step.
    assert step_evidence(canary, now).missing == ("This step has lasted 50 s of 60 s.",)
    assert step_evidence(canary, now).wait_s == pytest.approx(10.0)
    with pytest.raises(EvidenceMissingError, match="lasted 50 s of 60 s"):
        take_step(canary, actor=ACTOR)


def test_step_waits_for_enough_requests(canary: Canary) -> None:
    evidence = step_evidence(canary, seen(canary, per_slice=1))
    assert evidence.requests > 0
    assert evidence.wait_s is not None
    assert evidence.wait_s > 0
    assert [item.split(" of ")[1] for item in evidence.missing] == ["at least 40 requests evaluated per version."]


def test_unknown_guardrail_blocks_the_step(canary: Canary) -> None:
    evidence = step_evidence(canary, seen(canary, slower=1.9))
    assert "Mean TTFT: not yet known to hold." in evidence.missing
    with pytest.raises(EvidenceMissingError, match="Mean TTFT"):
        promote(canary, actor=ACTOR)


def test_outdated_figures_are_no_evidence(canary: Canary) -> None:
    now = seen(canary) + timedelta(seconds=90)
    assert step_evidence(canary, now).missing == ("The last evaluation is 90 s old.",)
