"""Webhook calls are signed and idempotent, and every response has one meaning."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import pytest
from django.test import override_settings
from django.utils import timezone

from controlplane.automation.actuators.actuator import ActionProgress, ActuatorError, RejectedActionError
from controlplane.automation.actuators.webhook import MAX_ANSWER_BYTES, WebhookActuator, signature
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.actuator_settings import WebhookSettings, checked_settings
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.field_problems import InvalidFieldsError
from tests.controlplane.automation.actuators.http_exchange import http_server

pytestmark = pytest.mark.django_db

SECRET = "only in the environment"
URL = "https://fleet.example/headway?x=1"


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWAY_WEBHOOK_SECRET", SECRET)


@pytest.fixture
def action(pool: Pool) -> EngineAction:
    engine = Engine.objects.create(
        pool=pool, name="e-1", url="http://10.0.0.1:8000", connect_url="http://10.0.0.1:8000"
    )
    now = timezone.now()
    return EngineAction.objects.create(
        key="key-1",
        pool=pool,
        kind="stop",
        role="mixed",
        engine=engine,
        engine_name="e-1",
        by="scaling",
        why="too many",
        requested_at=now,
        next_try_at=now,
        deadline_at=now,
    )


def actuator(status: int, answer: Any = b"") -> WebhookActuator:
    said = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    return WebhookActuator(WebhookSettings(url=URL), post=lambda *_args: (status, said))


def test_call_is_signed_and_carries_the_idempotency_key(action: EngineAction) -> None:
    with http_server(lambda *_request: (200, b"")) as (url, asked):
        settings = WebhookSettings(url=f"{url}/hook?fleet=7")
        answer = WebhookActuator(settings, clock=lambda: 1_700_000_000.9).stop(action)
    assert answer.progress == ActionProgress.IN_EFFECT
    method, path, headers, body = asked[0]
    assert (method, path, headers["idempotency-key"]) == ("POST", "/hook?fleet=7", "key-1")
    assert headers["x-headway-signature"] == f"t=1700000000,v1={signature(SECRET, '1700000000', body)}"
    said = json.loads(body)
    assert (said["action"], said["idempotency_key"], said["pool"], said["role"]) == ("stop", "key-1", "chat", "mixed")
    assert said["engine"]["name"] == "e-1"
    assert SECRET.encode() not in body


def test_signature_depends_on_secret_time_and_body() -> None:
    signatures = {signature(*item) for item in (("a", "1", b"x"), ("b", "1", b"x"), ("a", "2", b"x"), ("a", "1", b"y"))}
    assert len(signatures) == 4


@pytest.mark.parametrize(
    ("status", "answer", "progress"),
    [
        (200, b"", ActionProgress.IN_EFFECT),
        (200, {"status": "done"}, ActionProgress.IN_EFFECT),
        (200, {"status": "under_way", "says": "cooling down"}, ActionProgress.UNDER_WAY),
        (202, b"", ActionProgress.UNDER_WAY),
        (202, {"status": "done"}, ActionProgress.IN_EFFECT),
    ],
)
def test_responses_report_the_progress_of_the_action(
    action: EngineAction, status: int, answer: Any, progress: ActionProgress
) -> None:
    assert actuator(status, answer).stop(action).progress == progress
    assert actuator(status, answer).change_role(action).progress == progress


def test_start_is_in_progress_until_the_prober_confirms_it_and_may_name_the_engine(action: EngineAction) -> None:
    engine = {"name": "gpu-7", "url": "http://10.0.0.7:8000", "kv_events_endpoint": "tcp://10.0.0.7:5557"}
    answer = actuator(200, {"status": "done", "engine": engine}).start(action)
    assert answer.progress == ActionProgress.UNDER_WAY
    assert answer.engine is not None
    assert (answer.engine.name, answer.engine.url) == ("gpu-7", "http://10.0.0.7:8000")
    assert actuator(202).start(action).engine is None


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503])
def test_temporary_errors_are_retried(action: EngineAction, status: int) -> None:
    with pytest.raises(ActuatorError, match=str(status)):
        actuator(status).stop(action)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
def test_permanent_errors_fail_the_action(action: EngineAction, status: int) -> None:
    with pytest.raises(RejectedActionError, match=str(status)):
        actuator(status).stop(action)


@pytest.mark.parametrize(
    "answer", [b"<html>", b"[" * 5000, {"status": "maybe"}, {"engine": {"name": "a b", "url": "x"}}, b"\xff\xfe"]
)
def test_response_that_violates_the_contract_fails_the_action(action: EngineAction, answer: Any) -> None:
    with pytest.raises(RejectedActionError, match="contract"):
        actuator(200, answer).start(action)


def test_long_responses_silent_servers_and_missing_secrets_are_errors(
    action: EngineAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RejectedActionError, match="bytes"):
        actuator(200, b" " * (MAX_ANSWER_BYTES + 1)).stop(action)

    def reject(*_args: Any) -> tuple[int, bytes]:
        raise ConnectionRefusedError

    with pytest.raises(ActuatorError, match="ConnectionRefusedError"):
        WebhookActuator(WebhookSettings(url=URL), post=reject).stop(action)
    monkeypatch.delenv("HEADWAY_WEBHOOK_SECRET")
    with pytest.raises(ActuatorError, match="HEADWAY_WEBHOOK_SECRET"):
        actuator(200).stop(action)


REJECTED = [
    "http://169.254.169.254/x",
    "http://metadata.google.internal/x",
    "http://2130706433/x",
    "http://[::ffff:10.0.0.1]/x",
]


@pytest.mark.parametrize("url", REJECTED)
def test_url_of_cloud_metadata_is_neither_stored_nor_called(action: EngineAction, url: str) -> None:
    with pytest.raises(InvalidFieldsError, match=r"actuator_settings\.url"):
        checked_settings("webhook", {"url": url})
    with pytest.raises(RejectedActionError, match="URL"):
        WebhookActuator(WebhookSettings(url=url)).stop(action)


@override_settings(ALLOW_LOOPBACK_ENGINES=False)
def test_loopback_is_called_only_if_engines_are_allowed_there(action: EngineAction) -> None:
    with http_server(lambda *_request: (200, b"")) as (url, asked):
        with pytest.raises(RejectedActionError, match="is this machine"):
            WebhookActuator(WebhookSettings(url=url)).stop(action)
        assert asked == []


def test_name_is_resolved_once_and_the_checked_address_is_called(
    action: EngineAction, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[str] = []
    resolve = socket.getaddrinfo

    def rebinding(host: Any, port: Any, *args: Any, **options: Any) -> Any:
        if host != "hook.example":
            return resolve(host, port, *args, **options)
        asked_for.append(host)
        address = "127.0.0.1" if len(asked_for) == 1 else "169.254.169.254"
        return resolve(address, port, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    with http_server(lambda *_request: (200, b"")) as (url, asked):
        port = url.rpartition(":")[2]
        WebhookActuator(WebhookSettings(url=f"http://hook.example:{port}/x")).stop(action)
    assert asked_for == ["hook.example"]
    assert asked[0][2]["host"] == f"hook.example:{port}"


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_slow_response_times_out_and_is_retried(action: EngineAction, first: bytes) -> None:
    over = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(first)
            while not over.wait(0.02):
                connection.sendall(b" " if first else b"H")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        dripping = threading.Thread(target=drip, args=(listener,), daemon=True)
        dripping.start()
        settings = WebhookSettings(url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.3)
        try:
            with pytest.raises(ActuatorError, match="did not answer"):
                WebhookActuator(settings).stop(action)
        finally:
            over.set()
            dripping.join()


def test_abandoned_start_is_cancelled_under_its_key(action: EngineAction) -> None:
    EngineAction.objects.filter(pk=action.pk).update(kind="start", engine=None)
    action.refresh_from_db()
    with http_server(lambda *_request: (200, b"")) as (url, asked):
        answer = WebhookActuator(WebhookSettings(url=url)).undo(action)
    assert answer.progress == ActionProgress.IN_EFFECT
    _, _, headers, body = asked[0]
    assert (headers["idempotency-key"], json.loads(body)["idempotency_key"]) == ("key-1-cancel", "key-1")
    assert json.loads(body)["action"] == "cancel"
