"""The search job: when it is due, what it stores, and one small search with its processes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from django.utils import timezone

from controlplane.advice import search_child, search_job
from controlplane.advice.evidence import evidence_of
from controlplane.advice.models.advice_proposal import AdviceProposal, ProposalState
from controlplane.advice.proposals import JOB
from controlplane.advice.search_child import SearchResult, SearchTask, searched
from controlplane.advice.search_job import advice, search_now, start_due, start_search
from controlplane.fleet.models.pool import Pool
from controlplane.platform.conflict import ConflictError
from controlplane.platform.jobs import calculation
from controlplane.platform.jobs.lease import acquire
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.models.tenant import Tenant
from gateway.bus.bus import Bus
from gateway.contracts.traffic_row import TrafficRow
from simulator.child_task import ChildTaskError
from tests.controlplane.advice.scene import ACTOR, advice_with, live_pool
from tests.controlplane.request_log.recordings.traffic import START, record, row

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def live(pool: Pool, bus: Bus) -> Pool:
    return live_pool(pool)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[SearchTask]:
    """Replace the child process by a search that finds a planted proposal; return the tasks."""
    tasks: list[SearchTask] = []

    def run(module: str, task: bytes, **_: object) -> bytes:
        assert module == search_child.__name__
        tasks.append(msgspec.json.decode(task, type=SearchTask))
        return msgspec.json.encode(SearchResult(advice=advice_with(), begins_at=tasks[-1].begin, requests=5000))

    monkeypatch.setattr(calculation, "run_child", run)
    return tasks


def groups(count: int, seconds: float = 3600.0) -> list[TrafficRow]:
    """Return requests in groups with a long common prefix. Their number shares no factor with that of the engines, so
    that round robin recomputes it.
    """
    return [
        row(
            0, arrived_at=START + seconds * number / count, prompt_tokens=8192, output_tokens=8,
            blocks=(*(100 * (number % 97) + block for block in range(15)), 10_000 + number), engines=4,
            policy_version=1, first_token_after_s=0.6, finished_after_s=1.0, tenant=f"digest-{number % 2}",
        )
        for number in range(count)
    ]  # fmt: skip


def test_a_due_search_stores_its_proposal(
    live: Pool, planted: list[SearchTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_job, "recorded_span", lambda: (START, START + 3600))
    advice()
    assert (planted[0].pool, planted[0].version) == ("chat", 1)
    assert planted[0].practical.share == pytest.approx(0.02)
    made = AdviceProposal.objects.get()
    run = JobRun.objects.get()
    assert (run.state, run.shard, run.outcome["proposal"]) == (JobState.DONE, live.pk, made.pk)
    # Once a day.
    advice()
    assert len(planted) == 1
    assert start_due(timezone.now() + timedelta(hours=25)) == 1


def test_without_an_hour_of_traffic_or_switched_off_nothing_is_due(
    live: Pool, planted: list[SearchTask], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert start_due(timezone.now()) == 0
    monkeypatch.setattr(search_job, "recorded_span", lambda: (START, START + 3600))
    Pool.objects.update(advice="off")
    assert start_due(timezone.now()) == 0
    Pool.objects.update(advice="propose")
    assert start_due(timezone.now()) == 1


def test_too_little_traffic_is_tried_again_after_an_hour(live: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = msgspec.json.encode(SearchResult(short="40 new requests are recorded; 1,000 are needed"))
    monkeypatch.setattr(calculation, "run_child", lambda *_, **__: short)
    monkeypatch.setattr(search_job, "recorded_span", lambda: (START, START + 3600))
    advice()
    assert "40 new requests" in JobRun.objects.get().outcome["summary"]
    assert not AdviceProposal.objects.exists()
    assert start_due(timezone.now() + timedelta(minutes=50)) == 0
    assert start_due(timezone.now() + timedelta(minutes=61)) == 1


def test_a_person_starts_one_search_at_a_time(live: Pool, planted: list[SearchTask]) -> None:
    search_now(live, actor=ACTOR)
    with pytest.raises(ConflictError, match="is running"):
        search_now(live, actor=ACTOR)
    advice()
    assert AdviceProposal.objects.get().state == ProposalState.OPEN
    search_now(live, actor=ACTOR)


def test_a_holder_that_lost_its_lease_stores_nothing(live: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> bytes:
        JobRun.objects.update(lease_until=timezone.now())
        acquire(JOB, "another process", timedelta(seconds=60), shard=live.pk)
        return msgspec.json.encode(SearchResult(advice=advice_with(), begins_at=START))

    monkeypatch.setattr(calculation, "run_child", run)
    start_search(live)
    advice()
    assert not AdviceProposal.objects.exists()
    assert live.policy.versions.count() == 1
    assert JobRun.objects.get().state == JobState.ACTIVE


def test_a_failed_child_ends_the_run_with_its_reason(live: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> bytes:
        raise ChildTaskError("it took too long and was ended")

    monkeypatch.setattr(calculation, "run_child", run)
    start_search(live)
    advice()
    run_ = JobRun.objects.get()
    assert (run_.state, run_.outcome["reason"]) == (JobState.FAILED, "it took too long and was ended")


@pytest.mark.long
def test_a_small_search_over_recorded_traffic_proposes_to_keep_prefixes(live: Pool, tenant: Tenant) -> None:
    record(groups(1100))
    task = msgspec.structs.replace(
        search_job.search_task(live, timezone.now()), begin=START, end=START + 3600, runs=80, budget_s=300.0
    )
    shares: list[float] = []
    result = searched(msgspec.json.encode(task), shares.append)
    assert (result.requests, result.engines) == (1100, 4)
    assert result.model_error is not None
    assert shares
    assert max(shares) <= 0.99
    assert result.advice is not None
    search_job.store_result(live, task, result)
    made = AdviceProposal.objects.get()
    evidence = evidence_of(made.evidence)
    assert 0 < evidence.runs <= 80
    assert evidence.windows[0].begins_at >= START
    assert made.state == ProposalState.OPEN, made.reason
    assert made.version is not None
    assert made.version.routing_document["placement"]["name"] != "round_robin"
    assert made.version.routing_document["prefill_cost"] == made.base.routing_document["prefill_cost"]
    # The trace is gone, and names of tenants with it.
    assert not list(Path(settings.STATE_DIR, "advice").iterdir())


def test_a_child_without_enough_requests_says_so(live: Pool) -> None:
    record(groups(300))
    task = msgspec.structs.replace(search_job.search_task(live, timezone.now()), begin=START, end=START + 3600)
    assert "300 new requests" in searched(msgspec.json.encode(task), lambda _: None).short


def test_tenants_have_their_names_and_strangers_their_digests(live: Pool, tenant: Tenant) -> None:
    from controlplane.platform.bus import fleet_keyring
    from gateway.contracts.stored_decision import DIGESTS
    from gateway.reports.traffic_rows import tenant_digest

    digest = tenant_digest(fleet_keyring().keys(DIGESTS).every[0], tenant.slug)
    record([row(0, tenant=digest), row(1, tenant="someone")])
    task = msgspec.structs.replace(search_job.search_task(live, timezone.now()), begin=START, end=START + 60)
    first, second = search_child._rows(task)
    assert first.tenant == "acme"
    assert second.tenant not in ("someone", "")
