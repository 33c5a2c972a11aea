"""`manage.py secrets`: its steps with generated secrets, and its output for secrets of the environment."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from pytest_django import Settings

from controlplane.platform.bus import LOCAL_BUS, URL_FILE, get_bus
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.project.first_run.secrets import FILE_NAME, FirstRunSecrets, keep_secrets, read_secrets, secrets_of
from controlplane.project.state_lock import hold_state
from controlplane.secret_rotation.holders import holder_questions
from gateway.bus.redis_bus import RedisBus
from gateway.bus.secret_answers import SecretAnswers
from kvstore.keys.keyring import FLEET, SESSIONS, Keyring
from tests.patience import wait_until
from tests.private_redis import PrivateRedis

pytestmark = pytest.mark.django_db
GIVEN = "the fleet secret of an environment", "the other fleet secret of an environment"


@pytest.fixture(autouse=True)
def own_process(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.STATE_DIR, settings.REDIS_URL = tmp_path, ""
    monkeypatch.delenv(LOCAL_BUS, raising=False)
    for name in ("HEADWAY_KV_SECRET", "HEADWAY_KV_SECRET_FILE"):
        monkeypatch.delenv(name, raising=False)
    forget()
    yield
    bus = get_bus()
    if isinstance(bus, RedisBus):
        bus.close()
    # The command sets it for its process.
    os.environ.pop(LOCAL_BUS, None)
    forget()


def forget() -> None:
    get_bus.cache_clear()
    holder_questions.cache_clear()


@pytest.fixture
def embedded(settings: Settings, tmp_path: Path) -> FirstRunSecrets:
    made = keep_secrets(tmp_path, _replaced(secrets_of(tmp_path), kv_secret="the secret of the demo's KV nodes"))
    settings.SECRETS_GIVEN = False
    take(settings, made)
    return made


def _replaced(secrets: FirstRunSecrets, **changes: str) -> FirstRunSecrets:
    return msgspec.structs.replace(secrets, **changes)


def take(settings: Settings, held: FirstRunSecrets) -> None:
    """Restart with these secrets, as a process of the program does."""
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = held.secret_key, [held.secret_key_also][: bool(held.rotation)]
    settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO = held.fleet_secret.encode(), held.fleet_secret_also.encode()


def run(*arguments: str) -> str:
    out = StringIO()
    call_command("secrets", *arguments, stdout=out)
    return out.getvalue()


def test_generated_secrets_of_a_stopped_program_are_rotated_in_three_steps(
    settings: Settings, tmp_path: Path, embedded: FirstRunSecrets
) -> None:
    file, said = tmp_path / FILE_NAME, []
    names = ("secret_key", "fleet_secret", "kv_secret")
    said.append(run("next"))
    installed = read_secrets(file)
    assert [getattr(installed, name) for name in names] == [getattr(embedded, name) for name in names]
    new = [getattr(installed, f"{name}_also") for name in names]
    assert len({*new, *(getattr(embedded, name) for name in names)}) == 6
    take(settings, installed)
    with pytest.raises(CommandError, match=r"are installed: run `manage\.py secrets next`"):
        run("finish")
    said.append(run("next"))
    used = read_secrets(file)
    assert [getattr(used, name) for name in names] == new
    assert [getattr(used, f"{name}_also") for name in names] == [getattr(embedded, name) for name in names]
    take(settings, used)
    with pytest.raises(CommandError, match=r"are used: run `manage\.py secrets finish`"):
        run("next")
    said.append(run("finish"))
    done = read_secrets(file)
    assert [getattr(done, name) for name in names] == new
    assert [getattr(done, f"{name}_also") for name in names] == ["", "", ""]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(AuditEvent.objects.order_by("pk").values_list("verb", flat=True)) == [
        "secrets.installed", "secrets.used", "secrets.finished",
    ]  # fmt: skip
    assert not any(secret in text for text in said for secret in (*new, embedded.fleet_secret))
    take(settings, done)
    with pytest.raises(CommandError, match="no rotation in progress"):
        run("finish")


@pytest.fixture
def running(tmp_path: Path, embedded: FirstRunSecrets, bus_server: PrivateRedis) -> Iterator[list[RedisBus]]:
    """Yield the bus of a program on the state directory, which processes join with `join`."""
    held = hold_state(tmp_path)
    (tmp_path / URL_FILE).write_text(bus_server.url)
    buses: list[RedisBus] = []
    yield buses
    for bus in buses:
        bus.close()
    held.close()
    hold_state.cache_clear()


def join(running: list[RedisBus], tmp_path: Path, role: str, held: FirstRunSecrets) -> Keyring:
    """Start a further process of the program with these secrets."""
    fleet = Keyring.of(held.fleet_secret.encode(), held.fleet_secret_also.encode(), wall=time.time)
    sessions = Keyring.of(held.secret_key.encode(), held.secret_key_also.encode(), SESSIONS)
    bus = RedisBus((tmp_path / URL_FILE).read_text(), fleet)
    running.append(bus)
    wait_until(lambda: bus.connected)
    SecretAnswers(bus, role, "vm:1", [fleet, *([sessions] if role == "web" else [])], lambda: 0.0)
    return fleet


def leave(running: list[RedisBus]) -> None:
    while running:
        running.pop().close()


def test_step_requires_that_every_process_completed_the_previous_one(
    settings: Settings, tmp_path: Path, embedded: FirstRunSecrets, running: list[RedisBus]
) -> None:
    def again(held: FirstRunSecrets) -> None:
        take(settings, held)
        bus = get_bus()
        if isinstance(bus, RedisBus):
            bus.close()
        forget()

    join(running, tmp_path, "gateway", embedded)
    run("next")
    installed = read_secrets(tmp_path / FILE_NAME)
    again(installed)
    join(running, tmp_path, "web", installed)
    with pytest.raises(CommandError, match=r"Do not accept [0-9a-f]{8} yet: gateway vm:1\.\nWait, or repeat"):
        run("next")
    assert read_secrets(tmp_path / FILE_NAME) == installed
    leave(running)
    for role in ("gateway", "web"):
        join(running, tmp_path, role, installed)
    run("next")
    used = read_secrets(tmp_path / FILE_NAME)
    again(used)
    with pytest.raises(CommandError, match=r"Do not use [0-9a-f]{8} yet: gateway vm:1, web vm:1\."):
        run("finish")
    leave(running)
    fleet = join(running, tmp_path, "gateway", used)
    join(running, tmp_path, "web", used)
    old = fleet.keys("connections of gateways").every[1]
    fleet.keys("connections of gateways").matching(lambda key: key == old, "b")
    out = StringIO()
    with pytest.raises(CommandError, match="Gateway vm:1 accepted connections of gateways of b by"):
        call_command("secrets", "finish", "--json", stdout=out)
    rejected = json.loads(out.getvalue())
    assert rejected["done"] is False
    assert len(rejected["prevented_by"]) == 1
    assert read_secrets(tmp_path / FILE_NAME) == used
    assert "The old secrets are removed" in run("finish", "--force")
    assert read_secrets(tmp_path / FILE_NAME).fleet_secret_also == ""


def test_state_is_printed_as_text_and_as_json(
    settings: Settings, tmp_path: Path, embedded: FirstRunSecrets, running: list[RedisBus]
) -> None:
    used, also = embedded, _replaced(embedded, fleet_secret_also=GIVEN[1])
    join(running, tmp_path, "gateway", also)
    join(running, tmp_path, "web", used)
    settings.FLEET_SECRET_ALSO = GIVEN[1].encode()
    shown = run()
    old, new = (Keyring.of(item.encode()).used.fingerprint for item in (used.fleet_secret, GIVEN[1]))
    assert f"HEADWAY_FLEET_SECRET: uses {old}, also accepts {new}" in shown
    assert f"- Do not accept {new} yet: web vm:1." in shown
    state = json.loads(run("--json"))
    fleet, sessions = state["secrets"][:2]
    assert (fleet["kind"], fleet["used"], fleet["also"], sessions["kind"]) == (FLEET, old, new, SESSIONS)
    assert [(item["role"], item["also"]) for item in fleet["holders"]] == [("gateway", new), ("web", "")]
    assert (fleet["not_installed"], state["silent"]) == ([f"Do not accept {new} yet: web vm:1."], [])
    for secret in (embedded.fleet_secret, embedded.secret_key, GIVEN[1]):
        assert secret not in shown
        assert secret not in json.dumps(state)


def test_secrets_of_the_environment_are_never_written_and_the_steps_are_printed(
    settings: Settings, tmp_path: Path
) -> None:
    settings.SECRETS_GIVEN = True
    settings.FLEET_SECRET, settings.FLEET_SECRET_ALSO = GIVEN[0].encode(), b""
    settings.SECRET_KEY_FALLBACKS = []
    assert "set HEADWAY_FLEET_SECRET_ALSO to it for every process" in run("next")
    with pytest.raises(CommandError, match="no rotation in progress"):
        run("finish")
    settings.FLEET_SECRET_ALSO = GIVEN[1].encode()
    assert "exchange HEADWAY_FLEET_SECRET and HEADWAY_FLEET_SECRET_ALSO everywhere" in run("next")
    assert "Remove HEADWAY_FLEET_SECRET_ALSO everywhere" in run("finish")
    assert not list(tmp_path.iterdir())
    assert not AuditEvent.objects.exists()
