"""Sends signed HTTP requests to an operator's service that starts and stops engines.

Each call is a POST of JSON with the headers `Idempotency-Key` (the action's key, the same in each retry) and
`X-Headway-Signature: t=<unix seconds>,v1=<hex>`, where v1 is HMAC-SHA256 of `<t>.<body>` under the secret. The response
is `{"status": "done" | "under_way", "engine": {"name", "url", …}, "says": "…"}`; every field is optional. Without a
status, 200 means done and 202 means under way. The call is repeated until it is done. `cancel` reports that the start
with the key in the body is given up, so the service may stop its engine.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from django.core.exceptions import ImproperlyConfigured
from msgspec import Meta
from typing_extensions import override

from controlplane.automation.actuators.actuator import (
    ActionProgress,
    Actuator,
    ActuatorAnswer,
    ActuatorError,
    NewEngine,
    RejectedActionError,
)
from controlplane.automation.models.engine_action import EngineAction
from controlplane.fleet.actuator_settings import WebhookSettings
from controlplane.fleet.engine_addressing import engine_url_rules
from controlplane.fleet.engine_url import RejectedUrlError, UnresolvedHostError, check_webhook_url
from controlplane.platform.environment import env
from routing.values.prepared_struct import prepared

MAX_ANSWER_BYTES = 64 << 10
_TRY_AGAIN = frozenset({408, 409, 425, 429})

Line = Annotated[str, Meta(max_length=300)]


class _Engine(msgspec.Struct):
    name: Annotated[str, Meta(pattern=r"^[-a-zA-Z0-9_]{1,64}$")]
    url: Line
    kv_events_endpoint: Line = ""
    kv_replay_endpoint: Line = ""


class _Reply(msgspec.Struct):
    status: Literal["done", "under_way", ""] = ""
    engine: _Engine | None = None
    says: Line = ""


Post = Callable[[str, bytes, dict[str, str], float], tuple[int, bytes]]
"""(url, body, headers, timeout in seconds) → status and response body; raises OSError."""


class WebhookActuator(Actuator):
    """One service behind one URL."""

    can_change_role = True

    def __init__(
        self, settings: WebhookSettings, *, post: Post | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._post = post or post_once
        self._clock = clock

    @override
    def start(self, action: EngineAction) -> ActuatorAnswer:
        """Request one more engine. If the response has no address, wait until the engine is registered."""
        return self._call("start", action)

    @override
    def undo(self, action: EngineAction) -> ActuatorAnswer:
        """Report that the start with this key is no longer wanted, so the service may stop its engine."""
        return self._call("cancel", action)

    @override
    def stop(self, action: EngineAction) -> ActuatorAnswer:
        """Request that the engine be stopped."""
        return self._call("stop", action)

    @override
    def change_role(self, action: EngineAction) -> ActuatorAnswer:
        """Request that the engine be restarted in another role."""
        return self._call("change_role", action)

    def _call(self, operation: str, action: EngineAction) -> ActuatorAnswer:
        body = msgspec.json.encode(_said(operation, action))
        # A service that repeats its answer to a key must not take the cancel for the start.
        headers = self._headers(f"{action.key}-cancel" if operation == "cancel" else action.key, body)
        try:
            status, answer = self._post(self._settings.url, body, headers, self._settings.timeout_s)
        except UnresolvedHostError as error:
            raise ActuatorError(f"The webhook's URL: {error}.") from error
        except RejectedUrlError as error:
            raise RejectedActionError(f"The webhook's URL: {error}.") from error
        except (OSError, http.client.HTTPException) as error:
            raise ActuatorError(f"The webhook did not answer ({type(error).__name__}).") from error
        if status in _TRY_AGAIN or status >= 500:
            raise ActuatorError(f"The webhook answered {status}.")
        if status not in (200, 201, 202):
            raise RejectedActionError(f"The webhook answered {status}: it rejects this action.")
        return _read(operation, status, answer)

    def _headers(self, key: str, body: bytes) -> dict[str, str]:
        try:
            secret = env.text(self._settings.secret_variable)
        except ImproperlyConfigured as error:
            raise ActuatorError(str(error)) from error
        if not secret:
            raise ActuatorError(f"Set {self._settings.secret_variable} to sign the webhook.")
        at = str(int(self._clock()))
        return {
            "Content-Type": "application/json",
            "Idempotency-Key": key,
            "X-Headway-Signature": f"t={at},v1={signature(secret, at, body)}",
        }


def signature(secret: str, at: str, body: bytes) -> str:
    """Return the hex HMAC-SHA256 of `<at>.<body>`. The receiver computes the same value to verify the request."""
    return hmac.new(secret.encode(), at.encode() + b"." + body, hashlib.sha256).hexdigest()


def post_once(url: str, body: bytes, headers: dict[str, str], timeout_s: float) -> tuple[int, bytes]:
    """Send one POST and return the status and response body. It takes at most `timeout_s` and follows no redirects.

    The host name is resolved once, and the checked address is used for the connection. Raises RejectedUrlError,
    OSError, HTTPException.
    """
    checked = check_webhook_url(url, engine_url_rules())
    parts, connect = urlsplit(url), urlsplit(checked.connect_url)
    target = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
    host, port = connect.hostname or "", connect.port
    connection = (
        http.client.HTTPSConnection(host, port, timeout=timeout_s, context=ssl.create_default_context())
        if connect.scheme == "https"
        else http.client.HTTPConnection(host, port, timeout=timeout_s)
    )
    # The connection's own limit restarts with each byte received.
    late = threading.Event()
    open_now: list[socket.socket] = []
    timer = threading.Timer(timeout_s, _cut_off, (connection, open_now, late))
    timer.start()
    try:
        connection.connect()
        # An answer without a length detaches the socket from its connection.
        open_now.append(connection.sock)
        connection.request("POST", target, body, {"Host": parts.netloc, **headers})
        answer = connection.getresponse()
        status, text = answer.status, answer.read(MAX_ANSWER_BYTES + 1)
    finally:
        timer.cancel()
        connection.close()
    # A socket that was shut down reads as the end of the answer.
    if late.is_set():
        raise TimeoutError("the answer was cut off")
    return status, text


def _cut_off(connection: http.client.HTTPConnection, open_now: Sequence[socket.socket], late: threading.Event) -> None:
    late.set()
    for item in open_now or [connection.sock]:
        if item is not None:
            with contextlib.suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)


def _said(operation: str, action: EngineAction) -> dict[str, object]:
    engine = action.engine
    return {
        "action": operation,
        "idempotency_key": action.key,
        "pool": action.pool.slug,
        "served_model": action.pool.served_model,
        "role": action.role,
        "engine": {"engine_id": engine.engine_id, "name": engine.name, "url": engine.url}
        if engine is not None
        else None,
        "why": action.why,
    }


def _read(operation: str, status: int, answer: bytes) -> ActuatorAnswer:
    if len(answer) > MAX_ANSWER_BYTES:
        raise RejectedActionError(f"The webhook answered more than {MAX_ANSWER_BYTES} bytes.")
    try:
        reply = msgspec.json.decode(answer, type=prepared(_Reply)) if answer.strip() else _Reply()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RejectedActionError("The webhook's answer does not match its contract.") from error
    engine = None
    if reply.engine is not None and operation == "start":
        given = reply.engine
        engine = NewEngine(given.name, given.url, given.kv_events_endpoint, given.kv_replay_endpoint)
    done = reply.status == "done" or (not reply.status and status != 202)
    # A start is in effect only once its engine answers, which only the prober can report.
    progress = ActionProgress.IN_EFFECT if done and operation != "start" else ActionProgress.UNDER_WAY
    return ActuatorAnswer(progress, reply.says, engine=engine)
