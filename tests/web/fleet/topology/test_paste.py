"""Many engines are registered after a preview, in which lines can be corrected. Only previewed lines are registered."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.models.job_run import JobRun
from gateway.bus.bus import Bus
from tests.controlplane.conftest import bus as bus_fixture
from tests.page_text import page_text
from tests.web.fleet.topology.topology_fleet import make_pool
from tests.web.role_clients import client_of, make_person
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
bus = bus_fixture
MIXED = "a http://10.0.0.1:8000\nb http://8.8.8.8\nc http://10.0.0.3:8000 2"


@pytest.fixture
def pool(db: None, bus: Bus) -> Pool:
    return make_pool()


@pytest.fixture
def operator(pool: Pool, feed: FleetFeed) -> Client:
    return client_of(make_person("pool_operator", pool))


def send(client: Client, **fields: Any) -> tuple[int, str]:
    answer = client.post("/engines/paste", {"pool": "chat", "do": "preview", **fields})
    return answer.status_code, page_text(answer)


def form_of(text: str) -> dict[str, Any]:
    """Return the form that a browser would send from a preview."""
    hidden = {name: re.findall(rf'name="{name}" value="([^"]*)"', text)[0] for name in ("header", "shown", "pool")}
    return hidden | {"line": re.findall(r'name="line" value="([^"]*)"', text)}


def test_preview_shows_valid_and_invalid_lines(operator: Client) -> None:
    status, text = send(operator, text=MIXED)
    assert status == 200
    assert "2 engines can be registered; 1 line needs a change." in text
    assert "outside HEADWAY_ENGINE_NETWORKS" in text
    assert "Register 2 engines" in text
    assert re.search(r'<input class="code" id="line-2" name="line" value="b http://8.8.8.8"', text)
    assert not Engine.objects.exists()


def test_previewed_lines_are_registered_and_the_others_are_kept(operator: Client) -> None:
    _, text = send(operator, text=MIXED)
    status, after = send(operator, **form_of(text) | {"do": "apply", "why": "new rack"})
    assert status == 200
    assert sorted(Engine.objects.values_list("name", "speed")) == [("a", 1.0), ("c", 2.0)]
    assert JobRun.objects.filter(job="preflight").count() == 2
    assert "2 engines registered; preflights running. 1 line left below." in after
    assert form_of(after)["line"] == ["b http://8.8.8.8"]


def test_corrected_line_is_checked_before_it_is_registered(operator: Client) -> None:
    _, text = send(operator, text=MIXED)
    changed = form_of(text)
    changed["line"][1] = "b http://10.0.0.2:8000"
    _, after = send(operator, **changed | {"do": "apply"})
    assert sorted(Engine.objects.values_list("name", flat=True)) == ["a", "c"]
    assert "1 engine can be registered." in after
    answer = operator.post("/engines/paste", form_of(after) | {"do": "apply"})
    assert answer.status_code == 302
    assert Engine.objects.count() == 3
    assert "1 engine registered" in page_text(operator.get("/engines"))


def test_changed_pool_or_forged_preview_registers_nothing(operator: Client) -> None:
    make_pool("agents")
    _, text = send(operator, text=MIXED)
    for change in ({"pool": "agents"}, {"shown": "forged"}, {"shown": ""}):
        _, after = send(operator, **form_of(text) | {"do": "apply"} | change)
        assert "Nothing was registered" in after
    assert not Engine.objects.exists()


def test_form_sent_twice_registers_once(operator: Client) -> None:
    _, text = send(operator, text=MIXED)
    for _ in range(2):
        send(operator, **form_of(text) | {"do": "apply"})
    assert Engine.objects.count() == 2


def test_file_is_read_like_a_paste(operator: Client) -> None:
    file = SimpleUploadedFile("engines.csv", b"\xef\xbb\xbfname,url,pool\r\na,http://10.0.0.1:8000,\r\n")
    _, text = send(operator, file=file, text="")
    assert "1 engine can be registered." in text
    assert form_of(text)["header"] == "name,url,pool"
    operator.post("/engines/paste", form_of(text) | {"do": "apply"})
    assert Engine.objects.get().name == "a"


def test_downloaded_engines_can_be_pasted(operator: Client, pool: Pool) -> None:
    register_engine(pool, "e-1", "http://10.0.0.1:8000", speed=2.0, kind="H100", actor=program("test"))
    register_engine(make_pool("agents"), "hidden", "http://10.0.0.2:8000", actor=program("test"))
    answer = operator.get("/engines.csv")
    assert answer["Content-Type"] == "text/csv; charset=utf-8"
    Engine.objects.all().delete()
    _, text = send(operator, text=answer.content.decode())
    assert "1 engine can be registered." in text
    send(operator, **form_of(text) | {"do": "apply"})
    assert list(Engine.objects.values_list("name", "speed", "kind")) == [("e-1", 2.0, "H100")]


def test_keys_and_tenants_are_downloaded_by_admins_only(operator: Client) -> None:
    admin = client_of(make_person("admin"))
    for name in ("keys", "tenants"):
        assert operator.get(f"/access/{name}.csv").status_code == 403
        assert admin.get(f"/access/{name}.csv").status_code == 200


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text": ""}, "The list is empty."),
        ({"text": "# only\n\n"}, "The list is empty."),
        ({"text": "x\n" * 501}, "over the limit of 500"),
        ({"file": SimpleUploadedFile("x", b"\xff\xff")}, "not UTF-8"),
    ],
)
def test_invalid_input_is_kept_in_the_form(operator: Client, fields: dict[str, Any], words: str) -> None:
    status, text = send(operator, **fields)
    assert status == 422
    assert words in text
    if fields.get("text"):
        assert fields["text"].strip().splitlines()[0] in text


def test_pasted_markup_is_escaped(operator: Client) -> None:
    _, text = send(operator, text='"><script>alert(1)</script>')
    assert "<script>alert" not in text


@pytest.mark.parametrize("role", ["nobody", "pool_viewer", "viewer"])
def test_viewers_register_nothing(pool: Pool, feed: FleetFeed, role: str) -> None:
    client = client_of(make_person(role, pool))
    assert client.get("/engines/paste").status_code == 403
    status, text = send(client, text=MIXED)
    assert status == 403
    assert ("Ask an admin" if role == "nobody" else "requires the role operator") in text


def test_five_hundred_lines_are_returned_completely(operator: Client) -> None:
    lines = [f"e-{number} http://10.0.{number // 250}.{number % 250}:8000" for number in range(500)]
    _, text = send(operator, text="\n".join(lines))
    assert form_of(text)["line"] == lines
    status, _ = send(operator, **form_of(text) | {"do": "preview"})
    assert status == 200
