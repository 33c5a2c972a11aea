"""A what-if from request to answer: leases, progress, cancellation, restarts, and invalid inputs.

Number of simultaneous simulations of a what-if.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from django.utils import timezone

from controlplane.fleet.models.learned_cost import LearnedCost
from controlplane.fleet.models.pool import Pool
from controlplane.job_runs.control import cancel, pool_of, retry
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.policies.publish import draft
from controlplane.request_log.models.recording import Recording
from controlplane.request_log.recordings.recorded_row import RecordedRow
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif import engine_candidate, job, plan, runs
from controlplane.trials.whatif.conditions import ENGINE_MODELS, Conditions, conditions_of
from controlplane.trials.whatif.lifecycle import TooManyWaitError, forget_whatifs, start_whatif, status_of
from controlplane.trials.whatif.plan import BASE
from controlplane.trials.whatif.reading import plan_of
from controlplane.trials.whatif.result import FAILED, LATE, ON_TIME, REJECTED, TTFT_MEAN, WhatIfResult
from controlplane.trials.whatif.runs import MAX_AT_ONCE, runs_at_once
from routing.cost.cost_fit import FittedCost
from routing.cost.cost_model import PrefillCost
from simulator.child_task import ChildTaskError
from simulator.runs.run_report import RunReport
from simulator.runs.run_task import RunTask, do_task
from tests.controlplane.trials.whatif.installation import ACTOR, keep, live_and_draft, recorded

QUICK = Conditions(seeds=2)


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> list[RunTask]:
    """Run tasks in this process. tests/simulator/runs/test_whatif.py shows that a child gives the same answer."""
    done: list[RunTask] = []

    def run_here(task: RunTask, **_: Any) -> RunReport:
        done.append(task)
        return do_task(task)

    monkeypatch.setattr(runs, "run_in_child", run_here)
    return done


@pytest.fixture
def recording(pool: Pool) -> Recording:
    return keep(pool, recorded())


@pytest.fixture
def asked(pool: Pool, recording: Recording) -> WhatIf:
    _, better = live_and_draft(pool)
    pool.refresh_from_db()
    return start_whatif(recording, better, None, QUICK, actor=ACTOR, why="is it better?")


def answer(whatif: WhatIf) -> WhatIfResult:
    job.whatif()
    whatif.refresh_from_db()
    result = status_of(whatif).result
    assert result is not None
    return result


def test_what_if_is_answered_and_stored(asked: WhatIf) -> None:
    assert status_of(asked).state == "waiting"
    result = answer(asked)
    assert (result.requests, result.counted, result.seeds, result.engines) == (120, 96, 2, 3)
    assert (result.costs, result.engine_model) == ("written", "chunked")
    differences = {difference.figure: difference for difference in result.differences}
    assert differences[TTFT_MEAN].better + differences[TTFT_MEAN].worse <= 2
    assert differences[ON_TIME].change.low <= differences[ON_TIME].change.mean <= differences[ON_TIME].change.high
    assert len(result.draft.ttft_quantiles_s) == 101
    assert result.draft.ttft_quantiles_s == sorted(result.draft.ttft_quantiles_s)
    assert result.actual is not None
    assert result.actual.figures[TTFT_MEAN].mean == pytest.approx(0.8)
    assert [band.actual for band in result.bands] == [1.0] * len(result.bands)
    status = status_of(asked)
    assert (status.state, status.share) == ("done", 1.0)
    assert AuditEvent.objects.filter(verb="whatif.start", object_id=str(asked.pk), pool_slug="chat").count() == 1


def test_requests_rejected_unread_count_as_what_happened_and_are_not_simulated(pool: Pool) -> None:
    live, better = live_and_draft(pool)
    served = recorded()
    rejected = [
        RecordedRow(
            timestamp=row.timestamp, input_length=1, output_length=0, hash_ids=(), outcome="rejected", unread=True
        )
        for row in served
    ]
    cancelled = msgspec.structs.replace(served[-1], outcome="cancelled")
    recording = keep(pool, [*served[:-1], cancelled, *rejected])
    assert (recording.statistics["rejected"], recording.statistics["unread"]) == (120, 120)
    assert recording.statistics["late"] == recording.statistics["failed"] == 0
    result = answer(start_whatif(recording, better, live, QUICK, actor=ACTOR))
    assert (result.requests, result.counted, result.unread) == (120, 96, 96)
    assert result.actual is not None
    shares = {name: result.actual.figures[name].mean for name in (ON_TIME, LATE, FAILED, REJECTED)}
    # Of 95 served requests that were not canceled, and 96 rejected ones.
    assert shares == {ON_TIME: 95 / 191, LATE: 0.0, FAILED: 0.0, REJECTED: 96 / 191}
    assert result.base.figures[REJECTED].mean == 0.0
    only = keep(pool, rejected, "an outage")
    asked = start_whatif(only, better, live, QUICK, actor=ACTOR)
    job.whatif()
    assert "rejected before its prompt was read" in status_of(WhatIf.objects.get(pk=asked.pk)).reason


def test_what_if_read_before_its_answer_is_marked_as_done(asked: WhatIf) -> None:
    before = WhatIf.objects.get(pk=asked.pk)
    answer(asked)
    assert before.result is None
    assert status_of(before).state == "done"
    assert before.result == asked.result


def test_model_error_is_reported_only_if_the_baseline_made_the_decisions(pool: Pool) -> None:
    live, better = live_and_draft(pool)
    for number, is_reported in ((live.number, True), (live.number + 1, False)):
        recording = keep(pool, recorded(policy_version=number))
        result = answer(start_whatif(recording, better, live, QUICK, actor=ACTOR))
        assert (result.model_error is not None) == is_reported


def test_too_coarse_recording_of_prompt_starts_is_reported(pool: Pool, recording: Recording) -> None:
    live, _ = live_and_draft(pool)
    pool.refresh_from_db()
    ringed = draft(pool.policy, {"placement": {"name": "dual_map"}}, actor=ACTOR, message="third")
    fine = keep(
        pool, [msgspec.structs.replace(row, head_ids=row.hash_ids[:2]) for row in recorded()], "with beginnings"
    )
    coarse_by = {}
    for size in (512, 16):
        Pool.objects.filter(pk=pool.pk).update(block_tokens=size)
        for kept in (recording, fine):
            coarse_by[size, kept.name] = answer(start_whatif(kept, ringed, live, QUICK, actor=ACTOR)).coarse_starts
    assert [key for key, coarse in coarse_by.items() if coarse] == [(16, recording.name)]


def test_prediction_includes_no_transfer_that_live_engines_do_not_make(pool: Pool) -> None:
    hot = [
        msgspec.structs.replace(row, timestamp=400 * at, input_length=16_384, hash_ids=(*range(31), 1000 + at))
        for at, row in enumerate(recorded(60))
    ]
    crowded = keep(pool, hot)
    live_and_draft(pool)
    pool.refresh_from_db()
    mooncake = draft(pool.policy, {"placement": {"name": "mooncake"}}, actor=ACTOR)
    against = msgspec.structs.replace(QUICK, base_placement="min_ttft")
    result = answer(start_whatif(crowded, mooncake, mooncake, against, actor=ACTOR))
    assert all(
        (difference.better, difference.worse, difference.change.mean) == (0, 0, 0.0)
        for difference in result.differences
    )


def test_policy_compared_with_itself_has_no_differences(pool: Pool, recording: Recording) -> None:
    live, _ = live_and_draft(pool)
    result = answer(start_whatif(recording, live, live, QUICK, actor=ACTOR))
    assert all(
        (difference.better, difference.worse, difference.change.mean) == (0, 0, 0.0)
        for difference in result.differences
    )


def test_both_sides_are_judged_by_the_same_objective(pool: Pool, recording: Recording) -> None:
    plain: dict[str, Any] = {"placement": {"name": "round_robin"}, "order": {"name": "fifo"}}
    live_and_draft(pool)
    base = draft(pool.policy, plain, actor=ACTOR, message="first come, first served")
    strict = draft(pool.policy, {**plain, "ttft_slo_s": 0.001}, actor=ACTOR, message="and strict")
    result = answer(start_whatif(recording, strict, base, QUICK, actor=ACTOR))
    assert {difference.figure: difference.change.mean for difference in result.differences}[ON_TIME] == 0.0


def test_costs_closest_to_the_recorded_results_are_used(pool: Pool, in_this_process: list[RunTask]) -> None:
    live, better = live_and_draft(pool)
    slow = PrefillCost(1.0, 0.01, 0.0, 0.0)
    fitted = FittedCost(prefill=slow, samples=100, error=0.1, policy_error=0.5)
    LearnedCost.objects.create(pool=pool, fitted=msgspec.to_builtins(fitted), learned_at=timezone.now())
    for ttft_s, costs in ((0.5, "written"), (400.0, "learned_prefill")):
        rows = recorded(policy_version=live.number, ttft_s=ttft_s)
        in_this_process.clear()
        result = answer(start_whatif(keep(pool, rows), better, live, QUICK, actor=ACTOR))
        assert result.costs == costs
        # Two costs times two models are tried, and the chosen trial is the base's first seed.
        assert len(in_this_process) == 4 + 3
    result = answer(start_whatif(keep(pool, recorded()), better, live, QUICK, actor=ACTOR))
    assert result.costs == "learned_prefill"


@pytest.mark.parametrize("model", ENGINE_MODELS)
@pytest.mark.parametrize("long", [False, True], ids=["whole", "trial on a part"])
def test_engine_model_closest_to_the_recorded_results_is_used(
    pool: Pool, model: str, long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, better = live_and_draft(pool)
    if long:
        monkeypatch.setattr(plan, "TRIAL_REQUESTS", 80)
    # Many short prompts at once, so that it matters whether their prefills share a step.
    rows = [
        msgspec.structs.replace(
            row, policy_version=live.number, timestamp=40.0 * number, input_length=1024, output_length=200, hash_ids=()
        )
        for number, row in enumerate(recorded())
    ]
    asked = start_whatif(keep(pool, rows), better, live, Conditions(seeds=1, engine_model=model), actor=ACTOR)  # type: ignore[arg-type]
    trial = plan_of(asked).trial if long else plan_of(asked)
    happened_s = do_task(trial.task(BASE, 0)).ttft_mean_s
    rows = [msgspec.structs.replace(row, ttft_s=happened_s) for row in rows]
    result = answer(start_whatif(keep(pool, rows), better, live, Conditions(seeds=1), actor=ACTOR))
    assert result.engine_model == model
    assert result.requests == len(rows)
    if not long:
        assert result.model_error == pytest.approx(0.0, abs=1e-6)


def test_simulated_requests_have_the_memory_that_engines_report(
    pool: Pool, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, better = live_and_draft(pool)
    asked = start_whatif(recording, better, live, QUICK, actor=ACTOR)
    assert {engine.profile.device_tokens for engine in plan_of(asked).engine_candidates} == {0}
    monkeypatch.setattr(engine_candidate, "reported_kv_tokens", lambda *_: 1_000_000)
    engines = plan_of(asked).engine_candidates
    assert {(engine.profile.device_tokens, engine.profile.num_blocks) for engine in engines} == {
        (1_000_000, 1_000_000 // 512)
    }


def test_equal_seeds_shift_requests_equally(asked: WhatIf, in_this_process: list[RunTask]) -> None:
    answer(asked)
    moved = sorted((task.spec.seed, task.spec.arrivals.jitter_s > 0) for task in in_this_process)
    assert moved == [(0, False), (0, False), (1, True), (1, True)]


def test_cancelled_what_if_ends_without_an_answer(asked: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    run = JobRun.objects.get(job="whatif", shard=asked.pk)
    assert pool_of(run) == asked.pool

    def cancel_first(self: job._Watch, share: float, reports: runs.Reports) -> bool:
        cancel(JobRun.objects.get(pk=run.pk), actor=ACTOR)
        return report_progress(self, share, reports)

    report_progress = job._Watch.__call__
    monkeypatch.setattr(job._Watch, "__call__", cancel_first)
    job.whatif()
    asked.refresh_from_db()
    assert status_of(asked).state == "cancelled"
    assert asked.result is None
    monkeypatch.undo()


def test_only_missing_runs_are_repeated_after_a_restart(
    asked: WhatIf, in_this_process: list[RunTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def killed(self: job._Watch, share: float, reports: runs.Reports) -> bool:
        nonlocal calls
        calls += 1
        assert report_progress(self, share, reports)
        if len(reports) >= 2:
            raise SystemExit
        return True

    report_progress = job._Watch.__call__
    with monkeypatch.context() as dying:
        dying.setattr(job._Watch, "__call__", killed)
        dying.setattr(job, "run_whatif", lambda *given, **more: runs.run_whatif(*given, **more, at_once=1))
        with pytest.raises(SystemExit):
            job.whatif()
    run = JobRun.objects.get(job="whatif", shard=asked.pk)
    assert run.state == "active"
    before, kept = len(in_this_process), len(run.memory["reports"])
    assert kept >= 2
    JobRun.objects.update(lease_until=run.started_at)
    result = answer(asked)
    assert len(in_this_process) == before + 4 - kept
    assert result.seeds == 2
    run.refresh_from_db()
    assert (run.state, run.memory) == ("done", {})


def test_failed_run_reports_its_reason_and_can_be_retried(asked: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(task: RunTask, **_: Any) -> RunReport:
        raise ChildTaskError("the child process ended with status -9 and no report")

    with monkeypatch.context() as broken:
        broken.setattr(runs, "run_in_child", fails)
        job.whatif()
    status = status_of(asked)
    assert (status.state, status.reason) == ("failed", "the child process ended with status -9 and no report")
    assert status.run is not None
    retry(status.run, actor=ACTOR)
    answer(asked)


def test_a_deleted_recording_is_reported(asked: WhatIf, recording: Recording) -> None:
    recording.delete()
    job.whatif()
    assert "recording was deleted" in status_of(asked).reason


def test_an_unexpected_error_ends_the_run(asked: WhatIf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "plan_of", lambda _: 1 / 0)
    job.whatif()
    assert "ZeroDivisionError" in status_of(asked).reason


def test_baseline_can_be_the_compared_policy(pool: Pool, in_this_process: list[RunTask]) -> None:
    live, better = live_and_draft(pool)
    recording = keep(pool, recorded(policy_version=better.number))
    against = msgspec.structs.replace(QUICK, base_placement="preble")
    asked = start_whatif(recording, better, live, against, actor=ACTOR)
    result = answer(asked)
    run = [(item.spec.policy.placement.name, item.spec.policy.order.name) for item in in_this_process]
    assert set(run) == {("preble", "late_last"), ("least_cost", "late_last")}
    # The draft decided then, so the simulation is checked against it.
    own = result.draft.figures[TTFT_MEAN].mean
    assert result.model_error == pytest.approx(abs(own / 0.8 - 1))
    assert asked.against == "v1 with preble"


def test_baseline_that_cannot_place_in_the_pool_is_rejected(pool: Pool, recording: Recording) -> None:
    with pytest.raises(InvalidFieldsError, match="known are aibrix_prefix, cache_affinity, dynamo_kv"):
        conditions_of({"base_placement": "least_cost"})
    pulls = {"placement": {"name": "central"}, "order": {"name": "late_binding"}}
    version = draft(pool.policy, pulls, actor=ACTOR)
    with pytest.raises(InvalidFieldsError, match="v1 lets engines pull requests, but preble binds them first"):
        start_whatif(recording, version, version, conditions_of({"base_placement": "preble"}), actor=ACTOR)


def test_invalid_what_if_is_rejected(pool: Pool, recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidFieldsError, match="No version is live"):
        start_whatif(recording, draft(pool.policy, {}, actor=ACTOR, message="m"), None, QUICK, actor=ACTOR)
    _, better = live_and_draft(pool)
    with pytest.raises(InvalidFieldsError, match="at least 50"):
        start_whatif(keep(pool, recorded(10)), better, None, QUICK, actor=ACTOR)
    monkeypatch.setattr("controlplane.trials.whatif.lifecycle.MAX_WAITING", 1)
    start_whatif(recording, better, None, QUICK, actor=ACTOR)
    with pytest.raises(TooManyWaitError):
        start_whatif(recording, better, None, QUICK, actor=ACTOR)


def test_oldest_answers_are_deleted(asked: WhatIf, recording: Recording) -> None:
    answer(asked)
    later = [start_whatif(recording, asked.draft, None, QUICK, actor=ACTOR) for _ in range(3)]
    assert forget_whatifs(2) == 1
    assert list(WhatIf.objects.values_list("pk", flat=True)) == [item.pk for item in reversed(later)]


def test_answer_survives_json(asked: WhatIf) -> None:
    result = answer(asked)
    assert msgspec.convert(msgspec.json.decode(msgspec.json.encode(result)), WhatIfResult) == result


@pytest.mark.parametrize(("cores", "runs"), [(1, 1), (2, 1), (4, 3), (MAX_AT_ONCE + 1, MAX_AT_ONCE), (96, MAX_AT_ONCE)])
def test_one_core_stays_free_for_the_gateway(cores: int, runs: int) -> None:
    assert runs_at_once(cores) == runs
