"""The Jobs page: running and failed jobs with reasons, and the people who may control them."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.fleet.engine_registration import register_engine
from controlplane.platform.actor import program
from controlplane.platform.jobs.lease import acquire, renew
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.project.celery import SCHEDULE_S
from tests.page_text import page_text
from tests.web.role_clients import ROLES, client_of, make_person, make_pool
from web.automation.job_descriptions import JOB_DESCRIPTIONS

pytestmark = pytest.mark.django_db
CONTROLLERS = {"operator", "admin", "superuser"}


def ended(state: JobState = JobState.DONE, job: str = "what_if", **fields: object) -> JobRun:
    now = timezone.now()
    return JobRun.objects.create(
        job=job, state=state, started_at=now - timedelta(seconds=90), finished_at=now, **fields
    )


def show(client: Client, query: str = "", status: int = 200) -> str:
    answer = client.get(f"/jobs{query}")
    assert answer.status_code == status
    return page_text(answer)


def rows(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'id="row-(\d+)"', page)]


@pytest.fixture
def operator(db: None) -> Client:
    return client_of(make_person("operator"))


def test_running_jobs_are_listed_first_with_progress_and_holder(operator: Client) -> None:
    failed = ended(JobState.FAILED, outcome={"error": "no recording of the last hour"})
    lease = acquire("replication", "gpu-host:77", timedelta(seconds=30))
    renew(lease, timedelta(seconds=30), progress={"done": 3, "of": 8})
    page = show(operator)
    assert rows(page) == [lease.run_id, failed.pk]
    assert '<progress value="3" max="8"' in page
    assert "gpu-host, process 77" in page
    assert "gpu-host:77" not in page
    assert "no recording of the last hour" in page
    assert "1 job active, 1 run ended" in page
    assert "1 job run failed in the last 24 h" in page


def test_job_between_two_rounds_is_idle_with_time_and_process_of_the_last_one(operator: Client) -> None:
    lease = acquire("requests", "gpu-host:77", timedelta(seconds=30))
    page = show(operator)
    assert "running" in page
    renew(lease, timedelta(0), progress={"stored": 27586})
    page = show(operator)
    assert "idle" in page
    assert re.search(r"just now\s*<span class=\"ledger-sub\">gpu-host, process 77", page)
    assert "27,586 stored" in page
    assert "Writes ended requests to the request log." in page
    assert "every second" in page
    assert "No job failed in the last 24 h" in page
    assert "waiting" not in page


def test_unclaimed_job_is_shown_as_waiting(operator: Client) -> None:
    JobRun.objects.create(job="replication", started_at=timezone.now())
    page = show(operator)
    assert "waiting" in page
    assert "not yet" in page


def test_job_kinds_are_one_select_field(operator: Client) -> None:
    for number in range(20):
        ended(job=f"kind_{number}")
    page = show(operator, "?job=kind_7")
    assert page.count("<option ") == 21
    assert '<option value="kind_7" selected>' in page


def test_failed_only_filter_hides_other_runs(operator: Client) -> None:
    acquire("probe", "me", timedelta(seconds=30))
    bad = [ended(JobState.FAILED), ended(JobState.ABANDONED)]
    ended()
    page = show(operator, "?failed=1")
    assert sorted(rows(page)) == [run.pk for run in bad]
    assert re.search(r'data-failed aria-pressed="true"', page)
    assert "No run failed" in show(operator, "?failed=1&job=probe")


def test_run_shows_inputs_plan_outcome_and_evidence(operator: Client) -> None:
    run = ended(
        inputs={"trace": "t-1"}, plan={"move": ["e-17"]}, outcome={"moved": 2, "reason": "done with <b>care</b>"}
    )
    page = show(operator, f"?run={run.pk}")
    for text in ("t-1", "e-17", "moved", "Started", "Ended: done", "Retry with the same inputs"):
        assert text in page
    assert "<b>care</b>" not in page


def test_run_is_cancelled_and_retried_from_the_page(operator: Client) -> None:
    lease = acquire("replication", "me", timedelta(seconds=30))
    answer = operator.post(f"/jobs/{lease.run_id}/cancel", {"why": "wrong trace"})
    assert answer["Location"] == f"/jobs?run={lease.run_id}&said=cancelling"
    page = show(operator, f"?run={lease.run_id}&said=cancelling")
    assert "stops within seconds" in page
    assert "Cancel by operator: wrong trace" in page
    assert renew(lease, timedelta(seconds=30)) is None
    answer = operator.post(f"/jobs/{lease.run_id}/retry")
    again = JobRun.objects.get(retry_of=lease.run_id)
    assert answer["Location"] == f"/jobs?run={again.pk}&said=retried"
    assert f"retry of run {lease.run_id}" in show(operator, f"?run={again.pk}")
    rejected = operator.post(f"/jobs/{lease.run_id}/retry")
    assert rejected.status_code == 409
    assert f"Run {again.pk} of the same job is active" in page_text(rejected)


@pytest.mark.parametrize("role", ROLES)
def test_operators_control_runs_and_viewers_only_read(role: str) -> None:
    run = ended(JobState.FAILED)
    client = client_of(make_person(role, make_pool()))
    page = show(client, f"?run={run.pk}", 403 if role == "nobody" else 200)
    sees = role in CONTROLLERS | {"viewer"}
    assert (rows(page) == [run.pk]) is sees
    assert ("Retry with" in page) is (role in CONTROLLERS)
    answer = client.post(f"/jobs/{run.pk}/retry")
    assert answer.status_code == (303 if role in CONTROLLERS else 403 if sees or role == "nobody" else 404)
    assert JobRun.objects.count() == (2 if role in CONTROLLERS else 1)
    assert AuditEvent.objects.count() == (1 if role in CONTROLLERS else 0)


def test_pool_operator_controls_runs_of_engines_of_that_pool() -> None:
    pool = make_pool()
    engine = register_engine(pool, "e-01", "http://127.0.0.1:9000", actor=program("test"))
    run, other = ended(JobState.FAILED, job="preflight", shard=engine.pk), ended(JobState.FAILED)
    JobRun.objects.filter(pk=run.pk).update(inputs={"engine": "e-01"})
    client = client_of(make_person("pool_operator", pool))
    page = show(client)
    assert rows(page) == [run.pk]
    assert f"Run {run.pk}, e-01" in page
    assert client.post(f"/jobs/{run.pk}/retry").status_code == 303
    assert client.post(f"/jobs/{other.pk}/retry").status_code == 404


def test_fragment_has_only_the_live_section(operator: Client) -> None:
    run = ended()
    page = show(operator, f"?run={run.pk}&failed=1")
    address = re.search(r'data-refresh="([^"]+)"', page)[1].replace("&amp;", "&")
    fragment = page_text(operator.get(address))
    assert "<html" not in fragment
    assert f"Run {run.pk}" in fragment
    assert fragment.split("csrfmiddlewaretoken")[0] in page


@pytest.mark.parametrize("query", ["run=x", "run=99999999999999999999", "page=x", "page=-1", "job=%00", "job=gone"])
def test_links_to_unknown_runs_open_no_drawer(operator: Client, query: str) -> None:
    assert "drawer-title" not in show(operator, f"?{query}")


def test_thousand_runs_take_as_many_queries_as_one(
    operator: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    now = timezone.now()
    JobRun.objects.bulk_create(
        JobRun(job="what_if", shard=number, state=JobState.DONE, started_at=now, finished_at=now)
        for number in range(1000)
    )
    run = JobRun.objects.first()
    operator.get("/jobs")
    with django_assert_num_queries(10):
        operator.get("/jobs")
    with django_assert_num_queries(11):
        operator.get(f"/jobs?run={run.pk}&fragment=1")


def test_descriptions_state_how_often_jobs_run() -> None:
    # These wake more often than they work: a person's change brings the next round forward.
    own_rounds = {"rollup", "scaling", "prefill_decode", "capacity"}
    for job, described in JOB_DESCRIPTIONS.items():
        words = re.match(r"every (?:([\d.]+) )?(s|min)\b|every second", described.when)
        if words is None:
            continue
        every_s = float(words[1] or 1) * (60 if words[2] == "min" else 1)
        wakes_s = SCHEDULE_S.get(job) or SCHEDULE_S[f"store_{job}"]
        assert every_s > wakes_s if job in own_rounds else every_s == wakes_s, job
