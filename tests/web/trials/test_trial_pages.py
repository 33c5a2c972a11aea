"""Pages under Trials: questions and answers, the form, recordings, and permissions."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings

from controlplane.fleet.models.pool import Pool
from controlplane.request_log.models.recording import Recording
from controlplane.trials.models.whatif import WhatIf
from controlplane.trials.whatif import job, runs
from controlplane.trials.whatif.conditions import Conditions
from controlplane.trials.whatif.lifecycle import start_whatif, status_of
from routing.registry import BASELINES
from simulator.runs.run_task import do_task
from tests.controlplane.request_log.recordings.traffic import record, rows
from tests.controlplane.trials.whatif.installation import ACTOR, keep, live_and_draft, recorded
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db
ROW = b'{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2], "tenant": "canary-tenant"}\n'


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path) -> object:
    with override_settings(STATE_DIR=tmp_path):
        yield


@pytest.fixture
def pool() -> Pool:
    pool = make_pool()
    live_and_draft(pool)
    pool.refresh_from_db()
    return pool


@pytest.fixture
def answered(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> WhatIf:
    """Return a what-if with its answer."""
    monkeypatch.setattr(runs, "run_in_child", lambda task, **_: do_task(task))
    draft = pool.policy.versions.get(number=2)
    asked = start_whatif(keep(pool, recorded()), draft, None, Conditions(seeds=1), actor=ACTOR)
    job.whatif()
    asked.refresh_from_db()
    assert status_of(asked).state == "done"
    return asked


def show(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return page_text(answer)


def test_first_visit_shows_the_next_step(operator: Client) -> None:
    assert "No what-if yet" in show(operator, "/trials")
    assert "No recordings yet" in show(operator, "/trials/recordings")


def test_answer_is_shown_as_a_finding_with_figures_and_charts(operator: Client, answered: WhatIf) -> None:
    page = show(operator, f"/trials/whatif/{answered.pk}")
    title = re.search(r"<h1>([^<]+)</h1>", page)
    assert title is not None
    assert title[1].startswith(("Better", "Worse", "No clear"))
    assert "96 of 120 requests counted; the first 24 fill the caches. 1 seed" in " ".join(page.split())
    assert page.count("<polyline") == 3
    assert "Time" in page
    assert page.count('class="whatif-dot-draft"') == 5
    assert 'aria-label="Times to first token: actual half within' in page
    assert "data-refresh=" not in page
    assert " style=" not in page
    assert title[1] in show(operator, "/trials")
    assert "No what-if is running; the last one was" in " ".join(show(operator, "/trials").split())
    page = show(operator, "/trials/recordings")
    assert "1 recording, the last one kept" in page
    assert 'aria-label="Requests over the window, at most ' in page
    Recording.objects.update(statistics={})
    assert "Requests over the window" not in show(operator, "/trials/recordings")


def test_waiting_what_if_shows_its_progress_and_can_be_cancelled(operator: Client, pool: Pool) -> None:
    draft = pool.policy.versions.get(number=2)
    asked = start_whatif(keep(pool, recorded()), draft, None, Conditions(), actor=ACTOR)
    address = f"/trials/whatif/{asked.pk}"
    page = show(operator, address)
    assert "Waiting for a worker" in page
    assert f'data-refresh="{address}?fragment"' in page
    assert "<html" not in show(operator, f"{address}?fragment")
    assert operator.post(f"{address}/cancel").status_code == 302
    assert "Canceled" in show(operator, address)
    assert operator.post(f"{address}/cancel").status_code == 409
    assert operator.post(f"{address}/again").status_code == 302
    assert status_of(asked).state == "waiting"


def test_form_starts_a_what_if_on_recorded_traffic(operator: Client, pool: Pool) -> None:
    record(rows(80, pool="chat", arrived_at=time.time() - 30))
    page = show(operator, "/trials?new&draft=2")
    assert '<option value="2" selected>v2 draft: second</option>' in page
    assert '<option value="1" selected>v1 live: first</option>' in page
    form = {"pool": "chat", "recording": "last-5", "draft": "2", "base": "1", "seeds": "1", "engine_model": "chunked"}
    answer = operator.post("/trials/whatif", form)
    asked = WhatIf.objects.get()
    assert answer["Location"] == f"/trials/whatif/{asked.pk}"
    assert (asked.draft.number, asked.base.number, asked.conditions["engine_model"]) == (2, 1, "chunked")
    assert Recording.objects.get().requests == 80


def test_live_version_can_be_compared_with_a_baseline(operator: Client, pool: Pool) -> None:
    recording = keep(pool, recorded(60))
    page = show(operator, "/trials?new")
    for name in BASELINES:
        assert f'<option value="{name}">{name}</option>' in page
    form = {"pool": "chat", "recording": str(recording.pk), "draft": "1", "base": "1", "seeds": "1"}
    assert "Same version" in page_text(operator.post("/trials/whatif", form))
    operator.post("/trials/whatif", {**form, "base_placement": "preble"})
    assert WhatIf.objects.get().conditions["base_placement"] == "preble"
    assert "against v1 with preble" in show(operator, "/trials")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("base_placement", "lbgr", "Is not a baseline"),
        ("recording", "last-5", "No traffic of pool chat was recorded then"),
        ("recording", "999", "Not a recording of this pool"),
        ("draft", "77", "No such version"),
        ("seeds", "x", "Enter a whole number"),
        ("engines", "9999", "512"),
    ],
)
def test_each_error_is_shown_at_its_field(operator: Client, pool: Pool, field: str, value: str, message: str) -> None:
    recording = keep(pool, recorded(60))
    form = {"pool": "chat", "recording": str(recording.pk), "draft": "2", "base": "1", "seeds": "1", field: value}
    answer = operator.post("/trials/whatif", form)
    assert answer.status_code == 422
    assert message in page_text(answer)
    assert not WhatIf.objects.exists()


def test_too_small_window_leaves_nothing(operator: Client) -> None:
    record(rows(10, pool="chat", arrived_at=time.time() - 30))
    answer = operator.post("/trials/whatif", {"pool": "chat", "recording": "last-5", "draft": "2", "seeds": "1"})
    assert answer.status_code == 422
    assert "at least 50" in page_text(answer)
    assert not Recording.objects.exists()


def test_trace_is_uploaded_shown_and_downloaded(operator: Client, pool: Pool) -> None:
    file = SimpleUploadedFile("mine.jsonl", ROW * 60)
    answer = operator.post("/trials/recordings", {"kind": "upload", "pool": "chat", "trace": file})
    made = Recording.objects.get()
    assert answer["Location"] == f"/trials/recordings?recording={made.pk}&said=kept"
    page = show(operator, answer["Location"])
    assert "mine.jsonl" in page
    assert all(f"<dt>{name}</dt><dd>—</dd>" in re.sub(r">\s+<", "><", page) for name in ("Late", "Failed", "Rejected"))
    assert "canary" not in page
    saved = operator.get(f"/trials/recordings/{made.pk}/trace")
    assert saved["Content-Disposition"] == f'attachment; filename="headway-chat-recording-{made.pk}.jsonl.gz"'
    assert b"canary" not in saved.content
    assert operator.post(f"/trials/recordings/{made.pk}/delete").status_code == 303
    assert not Recording.objects.exists()


def test_invalid_upload_names_its_lines(operator: Client, pool: Pool) -> None:
    file = SimpleUploadedFile("mine.jsonl", ROW + b"{\n" + ROW + b"[]\n")
    answer = operator.post("/trials/recordings", {"kind": "upload", "pool": "chat", "trace": file})
    assert answer.status_code == 422
    text = page_text(answer)
    assert "2 lines unreadable" in text
    assert "line 2" in text
    assert "line 4" in text
    assert "Choose a file" in page_text(operator.post("/trials/recordings", {"kind": "upload", "pool": "chat"}))


def test_window_is_saved_by_its_times(operator: Client, pool: Pool) -> None:
    record(rows(30, pool="chat", arrived_at=time.time() - 30))
    begins, ends = (datetime.fromtimestamp(time.time() + item, UTC).isoformat() for item in (-600, 0))
    form = {"kind": "window", "pool": "chat", "begins_at": begins, "ends_at": ends, "name": "busy"}
    assert operator.post("/trials/recordings", form).status_code == 303
    assert (Recording.objects.get().name, Recording.objects.get().requests) == ("busy", 30)
    wrong = operator.post("/trials/recordings", {**form, "begins_at": "yesterday"})
    assert wrong.status_code == 422
    assert "is not a time" in page_text(wrong)


def test_viewers_see_no_actions(pool: Pool, answered: WhatIf) -> None:
    viewer = client_of(make_person("viewer"))
    assert "Run again with changes" not in show(viewer, f"/trials/whatif/{answered.pk}")
    recording = Recording.objects.get()
    assert "Delete recording" not in show(viewer, f"/trials/recordings?recording={recording.pk}")
    assert viewer.post(f"/trials/recordings/{recording.pk}/delete").status_code == 403
    stranger = client_of(make_person("pool_viewer", make_pool("other")))
    show(stranger, f"/trials/whatif/{answered.pk}", 404)
    assert "No what-if yet" in show(stranger, "/trials")


def test_draft_links_to_its_what_if(operator: Client, pool: Pool) -> None:
    slug = pool.policy.slug
    assert "/trials?new&amp;pool=chat&amp;draft=2" in show(operator, f"/policies/{slug}?draft=2")
    assert "whatif-link" not in show(operator, f"/policies/{slug}")
