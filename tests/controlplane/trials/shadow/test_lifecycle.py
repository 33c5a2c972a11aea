"""Operators start and stop shadows, shadows end automatically, and counts of all gateways add up."""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import Any

import pytest
from django.utils import timezone

from controlplane.automation.pool_policy import FROZEN, mode_in_force
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import person
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.roles import NotAllowedError
from controlplane.policies.publish import draft, publish_version
from controlplane.publication.snapshot import build_snapshot
from controlplane.trials.models.shadow import Shadow, ShadowPart, ShadowState
from controlplane.trials.shadow.lifecycle import (
    ShadowEndedError,
    ShadowRunsError,
    end_due,
    forget_shadows,
    observe_pools,
    start_shadow,
    stop_shadow,
)
from controlplane.trials.shadow.reading import figures_of, range_quantile
from controlplane.trials.shadow.reports import ShadowIntake, store_reports
from gateway.bus.bus import InProcessBus
from gateway.contracts.shadow_tally import (
    GAIN_EDGES_S,
    GAIN_RANGES,
    TOPIC,
    ShadowReport,
    ShadowTally,
    encode_shadow_report,
)
from routing.trials.shadow import ShadowComparison
from routing.values.decision import Candidate
from tests.controlplane.trials.whatif.installation import ACTOR, live_and_draft
from tests.web.role_clients import make_person, make_pool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]


@pytest.fixture
def pool() -> Pool:
    pool = make_pool()
    live_and_draft(pool)
    pool.refresh_from_db()
    return pool


@pytest.fixture
def shadow(pool: Pool) -> Shadow:
    return start_shadow(pool, pool.policy.versions.get(number=2), actor=ACTOR)


def tally(agreed: int = 3, better: int = 2, worse: int = 1) -> ShadowTally:
    """Return the counts of this many choices; a better choice gains 0.3 s."""
    counted, rng = ShadowTally(), Random(1)
    live = Candidate("e-1", 100, 1.0, 1.0, 2.0)
    for number, gain_s in enumerate([0.0] * agreed + [0.3] * better + [-0.004] * worse):
        other = live if gain_s == 0 else Candidate("e-2", 60, 0.5, 1.5, 2.0 - gain_s)
        counted.note(
            ShadowComparison(f"d-{number}", 1000, live, "least_cost", other, "least_ttft"), 100.0 + number, rng
        )
        counted.note_cpu(20e-6)
    return counted


def report(shadow: Shadow, **fields: Any) -> ShadowReport:
    known = {"pool_id": "chat", "run_id": shadow.key, "part": "one", "at": 10.0, "tally": tally()}
    return ShadowReport(**{**known, **fields})


def test_shadow_is_in_the_snapshot_while_it_runs(shadow: Shadow) -> None:
    before = build_snapshot(0.0)
    entry = before.pools[0].shadow
    assert entry is not None
    assert (entry.run_id, entry.policy.placement.name, entry.base_version) == (shadow.key, "least_cost", 1)
    assert entry.until == shadow.until.timestamp()
    stopped = stop_shadow(shadow, actor=ACTOR, why="seen enough")
    assert (stopped.state, stopped.reason) == (ShadowState.ENDED, "Stopped by test.")
    after = build_snapshot(0.0)
    assert after.pools[0].shadow is None
    assert after.version > before.version
    assert list(AuditEvent.objects.filter(object_kind="shadow").order_by("pk").values_list("verb", "pool_slug")) == [
        ("shadow.start", "chat"),
        ("shadow.stop", "chat"),
    ]
    with pytest.raises(ShadowEndedError):
        stop_shadow(shadow, actor=ACTOR)


def test_one_shadow_runs_per_pool(pool: Pool, shadow: Shadow) -> None:
    with pytest.raises(ShadowRunsError):
        start_shadow(pool, shadow.draft, actor=ACTOR)
    stop_shadow(shadow, actor=ACTOR)
    assert start_shadow(pool, shadow.draft, actor=ACTOR).state == ShadowState.RUNNING


def test_viewers_cannot_start_or_stop_shadows(pool: Pool, shadow: Shadow) -> None:
    viewer = person(make_person("viewer"), via="api")
    with pytest.raises(NotAllowedError):
        stop_shadow(shadow, actor=viewer)
    with pytest.raises(NotAllowedError):
        start_shadow(pool, shadow.draft, actor=viewer)


@pytest.mark.parametrize(
    ("document", "options", "words"),
    [
        ({"placement": {"name": "central"}, "order": {"name": "late_binding"}}, {}, "pull"),
        ({"placement": {"name": "round_robin"}, "prefill_window_tokens": 77}, {}, "different: prefill_window_tokens"),
        ({"placement": {"name": "mooncake"}}, {"minutes": 0}, "Must be from 1"),
        ({"placement": {"name": "mooncake"}}, {"max_per_s": 100_000}, "1000"),
    ],
)
def test_incomparable_policies_are_rejected(
    pool: Pool, document: dict[str, Any], options: dict[str, int], words: str
) -> None:
    version = draft(pool.policy, document, actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match=words):
        start_shadow(pool, version, actor=ACTOR, **options)
    assert not Shadow.objects.exists()


def test_live_version_and_versions_of_other_policies_are_rejected(pool: Pool) -> None:
    with pytest.raises(InvalidFieldsError, match="is the live version"):
        start_shadow(pool, pool.policy.versions.get(number=1), actor=ACTOR)
    other = make_pool("other")
    version = draft(other.policy, {}, actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="Is not a version of"):
        start_shadow(pool, version, actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="publish one first"):
        start_shadow(other, version, actor=ACTOR)


def test_shadow_ends_after_its_duration(shadow: Shadow) -> None:
    assert end_due(shadow.until - timedelta(seconds=1)) == 0
    assert end_due(shadow.until) == 1
    shadow.refresh_from_db()
    assert shadow.reason == "It reached its time limit."


def test_shadow_ends_when_another_version_goes_live(pool: Pool, shadow: Shadow) -> None:
    publish_version(shadow.draft, instead_of=1, actor=ACTOR)
    assert end_due(timezone.now()) == 1
    shadow.refresh_from_db()
    assert shadow.reason == "v2 went live, so the comparison ended."


def test_observing_pool_is_always_compared(pool: Pool) -> None:
    assert observe_pools() == 0
    change_pool(pool, {"mode": "observe"}, actor=ACTOR)
    entry = build_snapshot(0.0).pools[0]
    assert (entry.mode, entry.shadow) == ("observe", None)
    assert observe_pools() == 1
    assert observe_pools() == 0
    first = Shadow.objects.get()
    assert (first.observed, first.draft.number, first.base.number) == (True, 1, 1)
    second = start_shadow(pool, pool.policy.versions.get(number=2), actor=ACTOR)
    first.refresh_from_db()
    assert (first.state, first.reason) == (ShadowState.ENDED, "v2 replaced it.")
    assert end_due(timezone.now()) == 0
    change_pool(pool, {"mode": "route"}, actor=ACTOR)
    assert end_due(timezone.now()) == 1
    second.refresh_from_db()
    assert second.reason == "The pool routes requests now."
    assert observe_pools() == 0


def test_shadow_ends_when_its_pool_starts_to_observe(pool: Pool, shadow: Shadow) -> None:
    change_pool(pool, {"mode": "observe"}, actor=ACTOR)
    assert end_due(timezone.now()) == 1
    assert observe_pools() == 1


def test_automations_pause_while_a_pool_only_observes(pool: Pool) -> None:
    assert mode_in_force(pool, "act") == "act"
    change_pool(pool, {"mode": "observe"}, actor=ACTOR)
    assert mode_in_force(pool, "act") == FROZEN


def test_policy_with_a_pulling_order_is_not_compared_with_others(pool: Pool) -> None:
    document = {"placement": {"name": "central"}, "order": {"name": "late_binding"}}
    publish_version(draft(pool.policy, document, actor=ACTOR), instead_of=1, actor=ACTOR)
    pool.refresh_from_db()
    change_pool(pool, {"mode": "observe"}, actor=ACTOR)
    assert observe_pools() == 0
    assert not Shadow.objects.exists()


def test_reports_of_several_gateways_add_up_and_late_ones_change_nothing(shadow: Shadow) -> None:
    both = [report(shadow), report(shadow, part="two", tally=tally(4, 0, 0))]
    assert store_reports(both) == 2
    assert store_reports(both) == 0
    assert store_reports([report(shadow, at=9.0, tally=tally(50, 0, 0))]) == 0
    figures = figures_of(shadow)
    assert (figures.tally.compared, figures.disagreed, figures.agreement) == (10, 3, 0.7)
    assert figures.mean_gain_s == pytest.approx((0.6 - 0.004) / 10)
    assert figures.mean_gain_hit_tokens == pytest.approx(-40 * 3 / 10)
    assert figures.cpu_s == pytest.approx(20e-6)
    assert [name for name, _ in figures.engines] == ["e-1", "e-2"]
    assert [disagreement.decision_id for disagreement in figures.disagreements] == ["d-5", "d-4", "d-3"]
    assert store_reports([report(shadow, at=11.0, tally=tally(9, 0, 0))]) == 1
    shadow.refresh_from_db()
    assert figures_of(shadow).tally.compared == 13


def test_reports_on_other_shadows_or_pools_are_ignored(shadow: Shadow) -> None:
    assert store_reports([report(shadow, run_id="of yesterday"), report(shadow, pool_id="other")]) == 0
    assert not ShadowPart.objects.exists()


def test_error_at_one_gateway_ends_the_shadow_everywhere(shadow: Shadow) -> None:
    intake = ShadowIntake(bus := InProcessBus())
    bus.append(TOPIC, b"\xc1garbage")
    bus.append(TOPIC, encode_shadow_report(report(shadow, failed="The draft's rule failed.")))
    assert intake.store() == 1
    assert intake.store() == 0
    intake.stop()
    shadow.refresh_from_db()
    assert (shadow.state, shadow.reason) == (ShadowState.FAILED, "The draft's rule failed.")
    assert build_snapshot(0.0).pools[0].shadow is None
    assert figures_of(shadow).tally.compared == 6


def test_old_shadows_are_deleted_and_running_ones_kept(pool: Pool, shadow: Shadow) -> None:
    assert forget_shadows(1) == 0
    stop_shadow(shadow, actor=ACTOR)
    start_shadow(pool, shadow.draft, actor=ACTOR)
    assert forget_shadows(1) == 1
    assert Shadow.objects.get().state == ShadowState.RUNNING


def test_quantiles_are_within_the_ranges_of_the_counts() -> None:
    assert range_quantile([0] * GAIN_RANGES, 0.5) is None
    counts = [0] * GAIN_RANGES
    counts[GAIN_EDGES_S.index(0.1) + 1] = 10
    assert range_quantile(counts, 0.5) == pytest.approx(0.15)
    counts[0] = counts[-1] = 10
    assert range_quantile(counts, 0.0) == -60
    assert range_quantile(counts, 1.0) == 60
