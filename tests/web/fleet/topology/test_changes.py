"""Forms of the Engines page: permissions, effects, and error messages."""

from __future__ import annotations

import re
import time
from typing import Any

import msgspec
import pytest
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.test import Client

from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.engine_registration import change_engine
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.job_run import JobRun
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.role import Role
from gateway.bus.bus import Bus
from tests.controlplane.conftest import bus as bus_fixture
from tests.page_text import page_text
from tests.web.fleet.topology.topology_fleet import make_engines, make_pool, sample_of
from tests.web.role_clients import client_of, make_person
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db
bus = bus_fixture
OTHER = program("other")
FORM = {"pool": "chat", "name": "e-9", "url": "http://10.9.9.9:8000", "speed": "1.5", "why": "new rack"}


@pytest.fixture
def pool(db: None, bus: Bus) -> Pool:
    return make_pool()


@pytest.fixture
def engine(pool: Pool) -> Engine:
    return make_engines(pool, 1)[0]


@pytest.fixture
def operator(pool: Pool, feed: FleetFeed) -> Client:
    return client_of(make_person("pool_operator", pool))


def text_of(answer: Any) -> str:
    assert isinstance(answer, HttpResponse)
    return page_text(answer)


def change_form(engine: Engine, **changes: str) -> dict[str, str]:
    fields = {"name": engine.name, "url": engine.url, "kv_events_endpoint": "", "kv_replay_endpoint": "", "speed": "1"}
    was = {f"was_{name}": value for name, value in fields.items()}
    return {**fields, **was, "revision": str(engine.revision), **changes}


def see(feed: FleetFeed, engine: Engine, **values: Any) -> None:
    feed.take(sample_of([engine], e_0001=values))


def test_registered_engine_waits_for_its_preflight(operator: Client, pool: Pool) -> None:
    answer = operator.post("/engines/register?q=rack", FORM | {"then_ready": "on"})
    engine = Engine.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/engines?q=rack&engine={engine.engine_id}")
    assert (engine.name, engine.speed, engine.desired_state) == ("e-9", 1.5, "maintenance")
    run = JobRun.objects.get()
    assert (run.job, run.inputs["then_ready"], run.inputs["by"]) == ("preflight", True, "pool_operator")
    event = AuditEvent.objects.get(verb="engine.register")
    assert (event.why, event.via, event.actor_name) == ("new rack", "console", "pool_operator")
    after = text_of(operator.get(answer["Location"]))
    assert "e-9 registered; preflight running." in after
    assert 'data-unfinished="yes"' in after
    assert "registered; preflight" not in text_of(operator.get("/engines"))


def test_all_errors_are_shown_together_and_the_input_is_kept(operator: Client, pool: Pool) -> None:
    answer = operator.post(
        "/engines/register",
        FORM | {"name": "e 9", "url": "http://169.254.169.254", "speed": "fast", "why": "new <rack>", "pool": ""},
    )
    text = text_of(answer)
    assert answer.status_code == 422
    assert "4 errors" in text
    for field in ("pool", "name", "url", "speed"):
        assert f'id="{field}-error"' in text
        assert f'href="#field-{field}"' in text
    for typed in ('value="e 9"', 'value="http://169.254.169.254"', 'value="fast"', 'value="new &lt;rack&gt;"'):
        assert typed in text
    assert not Engine.objects.exists()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "e-0001", "already exists"),
        ("url", "http://10.1.0.1:8000", "already exists"),
        ("url", "", "Enter the URL."),
        ("url", "ftp://10.0.0.1", "The scheme ftp is not one of http, https."),
        ("kv_events_endpoint", "http://10.0.0.1", "scheme"),
        ("speed", "0", "greater than or equal to 0.001"),
        ("speed", "nan", "Enter a number."),
    ],
)
def test_invalid_field_is_reported(
    operator: Client, pool: Pool, engine: Engine, field: str, value: str, words: str
) -> None:
    Engine.objects.filter(pk=engine.pk).update(url="http://10.1.0.1:8000")
    answer = operator.post("/engines/register", FORM | {field: value})
    text = text_of(answer)
    assert answer.status_code == 422
    (error,) = re.findall(rf'id="{field}-error">.*?</svg>(.*?)</p>', text)
    assert words in error
    assert Engine.objects.count() == 1


@pytest.mark.parametrize("role", ["nobody", "pool_viewer", "viewer"])
@pytest.mark.parametrize("path", ["register", "chat-1/change", "chat-1/move", "chat-1/check"])
def test_viewers_change_nothing(pool: Pool, engine: Engine, feed: FleetFeed, role: str, path: str) -> None:
    client = client_of(make_person(role, pool))
    data = FORM if path == "register" else change_form(engine, speed="3", do="drain")
    answer = client.post(f"/engines/{path}", data)
    assert answer.status_code == 403
    assert AuditEvent.objects.count() == 0
    engine.refresh_from_db()
    assert (engine.speed, engine.desired_state) == (1.0, "ready")


def test_operators_of_another_pool_get_not_found(pool: Pool, engine: Engine, feed: FleetFeed) -> None:
    client = client_of(make_person("pool_operator", make_pool("agents")))
    for path in ("change", "move", "delete", "check"):
        assert client.post(f"/engines/chat-1/{path}", {"do": "drain", "revision": "1"}).status_code == 404
    assert "That engine was deleted" in text_of(client.post("/engines/chat-1/check"))
    engine.refresh_from_db()
    assert engine.desired_state == "ready"


@pytest.mark.parametrize(
    ("do", "state", "verb"),
    [("drain", "draining", "engine.drain"), ("maintenance", "maintenance", "engine.maintain")],
)
def test_action_changes_the_state_and_is_audited(
    operator: Client, engine: Engine, do: str, state: str, verb: str
) -> None:
    answer = operator.post("/engines/chat-1/move", {"do": do, "revision": "1", "why": "kernel"})
    assert answer["Location"] == "/engines?engine=chat-1"
    engine.refresh_from_db()
    assert (engine.desired_state, engine.revision) == (state, 2)
    assert AuditEvent.objects.get(verb=verb).why == "kernel"


@pytest.mark.parametrize("data", [{}, {"do": "explode"}, {"do": "drain"}, {"do": "drain", "revision": "x"}])
def test_malformed_form_changes_no_state(operator: Client, engine: Engine, data: dict[str, str]) -> None:
    assert operator.post("/engines/chat-1/move", data).status_code in (412, 422)
    engine.refresh_from_db()
    assert engine.desired_state == "ready"


def test_dialog_states_the_effects(operator: Client, engine: Engine, feed: FleetFeed) -> None:
    second = make_engines(engine.pool, 1, start=2)[0]
    feed.take(sample_of([engine, second], e_0001={"running": 3, "bound": 2}))
    text = text_of(operator.get("/engines?engine=chat-1&do=drain"))
    assert "Drain e-0001?" in text
    assert "3 requests finish here, 2 queued requests move to other engines" in text
    assert "go to 1 other engine of its pool" in text
    assert "No other engine" not in text
    feed.take(msgspec.structs.replace(sample_of([engine]), at=time.time() + 1))
    assert "No other engine of chat-pool is available" in text_of(operator.get("/engines?engine=chat-1&do=drain"))


def test_action_on_a_concurrently_changed_engine_shows_that_change(operator: Client, engine: Engine) -> None:
    set_desired_state(engine, "maintenance", actor=OTHER, why="disk")  # type: ignore[arg-type]
    answer = operator.post("/engines/chat-1/move", {"do": "drain", "revision": "1"})
    text = text_of(answer)
    assert answer.status_code == 412
    assert "other put it into maintenance" in text
    assert "Maintenance" in text
    engine.refresh_from_db()
    assert engine.desired_state == "maintenance"


def test_change_is_stored_and_checked(operator: Client, engine: Engine) -> None:
    answer = operator.post("/engines/chat-1/change", change_form(engine, url="http://10.5.5.5:8000"))
    assert answer.status_code == 302
    engine.refresh_from_db()
    assert engine.connect_url == "http://10.5.5.5:8000"
    assert JobRun.objects.get().inputs["url"] == "http://10.5.5.5:8000"


def test_change_of_speed_needs_no_preflight(operator: Client, engine: Engine) -> None:
    operator.post("/engines/chat-1/change", change_form(engine, speed="2"))
    engine.refresh_from_db()
    assert engine.speed == 2.0
    assert not JobRun.objects.exists()


def test_invalid_change_keeps_the_form(operator: Client, engine: Engine) -> None:
    answer = operator.post("/engines/chat-1/change", change_form(engine, url="http://8.8.8.8", speed="2"))
    text = text_of(answer)
    assert answer.status_code == 422
    assert "outside HEADWAY_ENGINE_NETWORKS" in text
    assert 'name="speed" value="2"' in text
    assert 'name="revision" value="1"' in text


def test_slower_editor_sees_both_versions_and_overwrites_nothing(operator: Client, engine: Engine) -> None:
    change_engine(engine, {"speed": 3.0, "name": "e-one"}, actor=OTHER, why="measured")
    stale = change_form(engine, name="e-0001", was_name="e-0001", speed="2", revision="1", url="http://10.5.5.5:8000")
    answer = operator.post("/engines/chat-1/change", stale)
    text = text_of(answer)
    assert answer.status_code == 412
    assert "other changed it" in text
    rows = re.findall(r'<th scope="row">(.*?)</th><td>(.*?)</td><td.*?>(.*?)</td><td.*?>(.*?)</td>', text)
    assert ("Relative speed", "1", "3", "2") in rows
    assert ("Name", "e-0001", "e-one", "e-0001") in rows
    engine.refresh_from_db()
    assert (engine.speed, engine.name) == (3.0, "e-one")
    for merged in ('name="name" value="e-one"', 'name="speed" value="2"', 'value="http://10.5.5.5:8000"'):
        assert merged in text
    assert 'name="revision" value="2"' in text


def test_merged_change_is_stored(operator: Client, engine: Engine) -> None:
    change_engine(engine, {"speed": 3.0}, actor=OTHER)
    merged = change_form(engine, speed="2", was_speed="3")
    assert operator.post("/engines/chat-1/change", merged).status_code == 302
    engine.refresh_from_db()
    assert engine.speed == 2.0


@pytest.mark.parametrize(
    ("desired", "seen", "typed", "status", "words"),
    [
        ("ready", {"running": 0, "bound": 0}, "e-0001", 409, "is serving"),
        ("draining", {"running": 2, "bound": 0}, "e-0001", 409, "2 requests"),
        ("draining", {"running": 0, "bound": 0}, "e-1", 422, "Type e-0001 to delete it."),
        ("draining", None, "e-0001", 409, "In-flight requests on"),
    ],
)
def test_engine_with_work_is_not_deleted(
    operator: Client,
    engine: Engine,
    feed: FleetFeed,
    desired: str,
    seen: dict[str, Any] | None,
    typed: str,
    status: int,
    words: str,
) -> None:
    Engine.objects.update(desired_state=desired)
    if seen is not None:
        see(feed, engine, state="draining", **seen)
    answer = operator.post("/engines/chat-1/delete", {"typed": typed, "revision": "1"})
    assert answer.status_code == status
    assert words in text_of(answer)
    assert Engine.objects.exists()


def test_empty_engine_is_deleted(operator: Client, engine: Engine, feed: FleetFeed) -> None:
    Engine.objects.update(desired_state="draining")
    see(feed, engine, state="draining", running=0, bound=0)
    answer = operator.post("/engines/chat-1/delete?sort=load", {"typed": "e-0001", "revision": "1"})
    assert (answer.status_code, answer["Location"]) == (302, "/engines?sort=load")
    assert not Engine.objects.exists()
    assert "e-0001 deleted." in text_of(operator.get("/engines"))
    assert AuditEvent.objects.get(verb="engine.delete").before["name"] == "e-0001"


def test_lost_engine_in_maintenance_can_be_deleted(operator: Client, engine: Engine, feed: FleetFeed) -> None:
    Engine.objects.update(desired_state="maintenance")
    see(feed, engine, state="lost", running=0, bound=0)
    operator.post("/engines/chat-1/delete", {"typed": "e-0001", "revision": "1"})
    assert not Engine.objects.exists()


def test_request_id_of_a_change_is_in_the_audit(pool: Pool, engine: Engine, feed: FleetFeed) -> None:
    client = client_of(User.objects.create_superuser("root"))
    data = {"do": "drain", "revision": "1"}
    client.post("/engines/chat-1/move", data, headers={"x-request-id": "change-1"})
    assert AuditEvent.objects.get().request_id == "change-1"


def test_role_names_match_the_models() -> None:
    assert {"viewer", "operator", "admin"} == set(Role.values)


def test_role_is_set_in_the_form_and_shown_in_the_list(operator: Client, pool: Pool) -> None:
    answer = operator.post("/engines/register", FORM | {"role": "prefill"})
    assert answer.status_code == 302
    engine = Engine.objects.get(name="e-9")
    assert engine.role == "prefill"
    text = page_text(operator.get("/engines"))
    assert '<span class="faint">prefill</span>' in text
    assert "1 prefill, but no decode engine" in text
    runs = JobRun.objects.filter(job="preflight").count()
    form = change_form(engine, role="decode", was_role="prefill")
    operator.post(f"/engines/{engine.engine_id}/change", form)
    engine.refresh_from_db()
    assert engine.role == "decode"
    assert JobRun.objects.filter(job="preflight").count() == runs, "a change of role starts no new preflight"


def test_invalid_role_is_reported(operator: Client, pool: Pool) -> None:
    answer = operator.post("/engines/register", FORM | {"role": "both"})
    assert answer.status_code == 422
    assert 'id="role-error"' in page_text(answer)


def settings_form(pool: Pool, **changes: str) -> dict[str, str]:
    stored = {"name": pool.name, "max_prompt_tokens": str(pool.max_prompt_tokens), "production": "on"}
    return {**stored, "revision": str(pool.revision), "why": "staging now", **changes}


def test_admin_marks_a_pool_as_production_and_it_is_audited(pool: Pool, feed: FleetFeed) -> None:
    admin = client_of(make_person("admin"))
    page = text_of(admin.get("/engines?settings=chat"))
    assert 'name="production" value="on" checked' in page
    answer = admin.post("/engines/pools/chat/change?q=a", settings_form(pool, production=""))
    assert (answer.status_code, answer["Location"]) == (302, "/engines?q=a&settings=chat")
    pool.refresh_from_db()
    assert not pool.production
    event = AuditEvent.objects.get(verb="pool.change")
    assert (event.why, event.via, event.before["production"], event.after["production"]) == (
        "staging now",
        "console",
        True,
        False,
    )
    after = text_of(admin.get(answer["Location"]))
    assert 'name="production" value="on"><span' in after
    assert "admin changed it: staging now" in after


def test_shared_caches_are_named_and_isolated_by_a_click(pool: Pool, feed: FleetFeed) -> None:
    admin = client_of(make_person("admin"))
    Tenant.objects.create(slug="a", name="A")
    assert "tenants share caches" not in text_of(admin.get("/engines"))
    Tenant.objects.create(slug="b", name="B")
    assert "tenants share caches" in text_of(admin.get("/engines"))
    assert "Tenants share cached prompts in this pool" in text_of(admin.get("/engines?settings=chat"))
    assert admin.post("/engines/pools/chat/change", settings_form(pool, isolated="on")).status_code == 302
    pool.refresh_from_db()
    assert pool.isolated
    assert AuditEvent.objects.get(verb="pool.change").after["isolated"]
    page = text_of(admin.get("/engines?settings=chat"))
    assert "share cached prompts" not in page
    assert 'name="isolated" value="on" checked' in page


def test_admin_sets_the_networks_and_the_key_of_a_pools_engines(pool: Pool, feed: FleetFeed) -> None:
    admin = client_of(make_person("admin"))
    wanted = {"engine_networks": "10.3.0.0/16", "engine_api_key_env": "HEADWAY_ENGINE_KEY_CHAT"}
    assert admin.post("/engines/pools/chat/change", settings_form(pool, **wanted)).status_code == 302
    pool.refresh_from_db()
    assert {name: getattr(pool, name) for name in wanted} == wanted
    assert AuditEvent.objects.get(verb="pool.change").after["engine_networks"] == "10.3.0.0/16"
    page = text_of(admin.get("/engines?settings=chat"))
    assert all(f'value="{value}"' in page for value in wanted.values())
    assert admin.post("/engines/pools/chat/change", settings_form(pool)).status_code == 302
    pool.refresh_from_db()
    assert pool.engine_networks == "10.3.0.0/16", "a form without the field leaves it"


@pytest.mark.parametrize(("field", "value"), [("engine_networks", "10.3.0.0/99"), ("engine_api_key_env", "SECRET_KEY")])
def test_invalid_networks_and_keys_are_reported(pool: Pool, feed: FleetFeed, field: str, value: str) -> None:
    answer = client_of(make_person("admin")).post("/engines/pools/chat/change", settings_form(pool, **{field: value}))
    assert answer.status_code == 422
    assert f'id="{field}-error"' in text_of(answer)
    assert f'value="{value}"' in text_of(answer)


def test_concurrently_changed_settings_are_not_overwritten(pool: Pool, feed: FleetFeed) -> None:
    admin = client_of(make_person("admin"))
    seen = settings_form(pool, name="mine")
    assert admin.post("/engines/pools/chat/change", settings_form(pool, name="theirs")).status_code == 302
    answer = admin.post("/engines/pools/chat/change", seen)
    assert answer.status_code == 412
    assert 'value="theirs"' in text_of(answer)
    pool.refresh_from_db()
    assert pool.name == "theirs"


@pytest.mark.parametrize(
    ("field", "value"),
    [("name", ""), ("weight", "1001"), ("weight", ""), ("max_prompt_tokens", "0"), ("max_prompt_tokens", "many")],
)
def test_invalid_settings_are_reported_and_kept_in_the_form(
    pool: Pool, feed: FleetFeed, field: str, value: str
) -> None:
    answer = client_of(make_person("admin")).post("/engines/pools/chat/change", settings_form(pool, **{field: value}))
    assert answer.status_code == 422
    assert f'id="{field}-error"' in text_of(answer)
    assert 'value="staging now"' in text_of(answer)
    pool.refresh_from_db()
    assert (pool.name, pool.max_prompt_tokens, pool.revision) == ("chat-pool", 131_072, 1)


def test_operators_read_settings_of_a_pool_and_cannot_change_them(pool: Pool, operator: Client) -> None:
    page = text_of(operator.get("/engines?settings=chat"))
    assert re.search(r"Production</dt>\s*<dd>yes", page)
    assert "pool-form" not in page
    assert operator.post("/engines/pools/chat/change", settings_form(pool, name="mine")).status_code == 403
    assert operator.post("/engines/pools/other/change", settings_form(pool)).status_code == 404
    assert "That pool was deleted" in text_of(operator.get("/engines?settings=other"))
