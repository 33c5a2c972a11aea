"""Each change of state reaches each channel at most once: routes, silences, quiet hours, retries, and kills."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import pytest

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.incidents.handling import acknowledge
from controlplane.incidents.models.incident import Incident
from controlplane.notifications.changing import create, silence_incident, try_channel
from controlplane.notifications.job import CLAIM_FOR, KEPT, RETRY_S, forget_sends, run
from controlplane.notifications.models.notification import (
    NotificationChannel,
    NotificationRoute,
    NotificationSend,
    NotifiedEvent,
    SendState,
    Silence,
)
from controlplane.notifications.planned import quiet_until
from controlplane.notifications.sending import Message, send
from controlplane.platform import audit
from controlplane.platform.actor import command
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.models.policy import Policy
from tests.controlplane.incidents.scene import JobScene

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus")]
ACTOR = command("test")
VARIABLE = "HEADWAY_NOTIFY_MAIN"


class Receiver:
    """Records messages, and answers as planned. Mutable: the messages and the next failures."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.failures = 0

    def __call__(self, _variable: str, message: Message) -> str:
        self.messages.append(message)
        if self.failures:
            self.failures -= 1
            return "The receiver did not accept the message."
        return ""

    @property
    def titles(self) -> list[str]:
        return [message.title for message in self.messages]


def add_channel(slug: str = "pager") -> NotificationChannel:
    return create(NotificationChannel, slug=slug, name=slug, address_env=VARIABLE, actor=ACTOR)


def add_route(channel: NotificationChannel, slug: str = "all", **fields: Any) -> NotificationRoute:
    given = {"events": list(NotifiedEvent.values), "repeat_min": 0} | fields
    return create(NotificationRoute, slug=slug, channel=channel, actor=ACTOR, **given)


@pytest.fixture
def scene() -> JobScene:
    return JobScene()


@pytest.fixture
def incident(scene: JobScene) -> Incident:
    """Return an open incident of the pool `pool-0` whose change of state waits."""
    region, policy = Region.objects.create(slug="here"), Policy.objects.create(slug="p")
    Pool.objects.create(slug="pool-0", name="Chat", region=region, served_model="m", policy=policy)
    return scene.flood()


def states() -> list[str]:
    return list(NotificationSend.objects.order_by("id").values_list("state", flat=True))


def test_each_change_is_sent_once_to_each_channel_with_its_link(
    scene: JobScene, incident: Incident, settings: Any
) -> None:
    settings.CONSOLE_URL = "https://headway.example"
    add_route(add_channel())
    add_route(NotificationChannel.objects.get(), "again")
    add_route(add_channel("mail"), "mail", events=["closed"])
    receiver = Receiver()
    assert run(scene.at, receiver) == 1
    assert receiver.titles == [f"Incident {incident.pk} opened: {incident.title}"]
    text = receiver.messages[0].text
    assert f"https://headway.example/incidents/{incident.pk}" in text
    assert "Limit the key" in text
    run(scene.at, receiver)
    scene.calm()
    run(scene.at, receiver)
    run(scene.at + timedelta(minutes=1), receiver)
    closed = f"Incident {incident.pk} closed: "
    assert [title.startswith(closed) for title in receiver.titles[-2:]] == [True, True]
    assert len({(row.change, row.channel_id) for row in NotificationSend.objects.all()}) == len(states())
    assert set(states()) == {"sent"}


def test_a_process_that_dies_while_it_sends_sends_nothing_twice(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel())

    def dies(_variable: str, _message: Message) -> str:
        # What another process reads at this moment: the claim is stored before anything is sent.
        assert states() == ["claimed"]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(scene.at, dies)
    receiver = Receiver()
    later = scene.at + CLAIM_FOR + timedelta(seconds=1)
    run(later, receiver)
    assert (states(), receiver.messages) == (["unknown"], [])
    assert "not sent again" in NotificationSend.objects.get().note
    assert forget_sends(later + KEPT + timedelta(days=1)) == 1


def test_a_rejected_message_is_retried_and_given_up_in_the_end(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel())
    receiver, now = Receiver(), scene.at
    receiver.failures = 1
    run(now, receiver)
    assert states() == ["retrying"]
    assert run(now + timedelta(seconds=RETRY_S[0] - 1), receiver) == 0
    assert run(now + timedelta(seconds=RETRY_S[0]), receiver) == 1
    assert states() == ["sent"]
    NotificationSend.objects.update(state=SendState.RETRYING, attempts=len(RETRY_S), due_at=now)
    receiver.failures = 1
    run(now + timedelta(minutes=2), receiver)
    assert states() == ["given_up"]
    assert run(now + timedelta(days=1), receiver) == 0


def test_a_silence_holds_messages_back_and_states_so(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel())
    silence = silence_incident(incident, actor=ACTOR, why="known")
    assert silence_incident(incident, actor=ACTOR).pk == silence.pk
    receiver = Receiver()
    assert run(scene.at, receiver) == 0
    row = NotificationSend.objects.get()
    assert (row.state, row.note.startswith("Silence incident-"), row.note.endswith(": known")) == (
        "silenced",
        True,
        True,
    )
    Silence.objects.update(pool="another")
    scene.calm()
    assert run(scene.at, receiver) == 1


def test_a_silence_also_ends_messages_that_wait(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel())
    receiver = Receiver()
    receiver.failures = 1
    run(scene.at, receiver)
    create(Silence, slug="all", until=scene.at + timedelta(hours=3), reason="upgrade", actor=ACTOR)
    run(scene.at + timedelta(minutes=5), receiver)
    assert (states(), len(receiver.messages)) == (["silenced"], 1)


def test_quiet_hours_hold_messages_until_their_end(scene: JobScene, incident: Incident) -> None:
    clock = (scene.at - timedelta(hours=1), scene.at + timedelta(hours=1))
    add_route(add_channel(), quiet_from=f"{clock[0]:%H:%M}", quiet_to=f"{clock[1]:%H:%M}")
    receiver = Receiver()
    assert run(scene.at, receiver) == 0
    assert states() == ["held"]
    assert "Quiet hours of route all until" in NotificationSend.objects.get().note
    add_route(NotificationChannel.objects.get(), "night", severity="critical", events=["closed"])
    scene.calm()
    assert run(scene.at, receiver) == 1
    assert "closed" in receiver.titles[0]
    assert run(clock[1], receiver) == 1
    assert states() == ["sent", "sent"]


@pytest.mark.parametrize(
    ("now", "until"),
    [
        ("2026-10-24T20:30", "2026-10-25T00:30"),
        # The clock is set back at 01:00 UTC: 02:30 comes twice, at 00:30 and 01:30.
        ("2026-10-24T22:30", "2026-10-25T00:30"),
        ("2026-10-25T01:10", "2026-10-25T01:30"),
        # It is set forward at 01:00 UTC: 02:30 does not exist, and the quiet hours end an hour later by the clock.
        ("2026-03-28T22:30", "2026-03-29T01:30"),
        ("2026-10-25T01:31", None),
        ("2026-10-24T12:00", None),
    ],
)
def test_quiet_hours_follow_the_clock_of_their_zone(now: str, until: str | None) -> None:
    route = NotificationRoute(quiet_from="22:00", quiet_to="02:30", time_zone="Europe/Berlin")
    ends = quiet_until(route, datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert ends == (datetime.fromisoformat(until).replace(tzinfo=UTC) if until else None)


def test_an_open_incident_is_repeated_until_a_person_takes_it_on(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel(), repeat_min=10)
    receiver, step = Receiver(), timedelta(minutes=10)
    for turn in range(3):
        run(scene.at + turn * step, receiver)
        run(scene.at + turn * step, receiver)
    assert receiver.titles[1:] == [f"Incident {incident.pk} is still open: {incident.title}"] * 2
    receiver.failures = 1
    run(scene.at + 3 * step, receiver)
    acknowledge(incident, actor=ACTOR)
    run(scene.at + 4 * step, receiver)
    assert (len(receiver.messages), states()[-1]) == (4, "silenced")


def test_many_changes_at_once_are_one_message(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel())
    for name in ("a", "b", "c"):
        event = audit.record(ACTOR, "budget.reached", "budget", name)
        AuditEvent.objects.filter(pk=event.pk).update(at=scene.at)
    receiver = Receiver()
    assert run(scene.at, receiver) == 1
    (message,) = receiver.messages
    assert message.title == "4 changes, newest: Budget c is used up"
    assert message.text.count("\n") == 3
    assert states() == ["sent"] * 4
    assert run(scene.at + timedelta(seconds=10), receiver) == 0


def test_routes_choose_by_severity_and_pool(scene: JobScene, incident: Incident) -> None:
    add_route(add_channel("here"), "here", severity="critical", pools=["pool-0"])
    other = Pool.objects.create(
        slug="other", region=Region.objects.get(), served_model="m", policy=Policy.objects.get()
    )
    add_route(add_channel("there"), "there", pools=[other.slug])
    run(scene.at, Receiver())
    assert [row.channel.slug for row in NotificationSend.objects.all()] == ["here"]


def test_a_route_needs_a_known_zone_pool_and_both_ends_of_its_quiet_hours() -> None:
    channel = add_channel()
    for wrong in ({"time_zone": "Mars/Base"}, {"pools": ["none"]}, {"quiet_from": "22:00"}, {"quiet_to": "7 am"}):
        with pytest.raises(InvalidFieldsError):
            add_route(channel, **wrong)
    with pytest.raises(InvalidFieldsError):
        create(NotificationChannel, slug="x", name="x", address_env="DATABASE_URL", actor=ACTOR)


class _Hook(BaseHTTPRequestHandler):
    received: ClassVar[list[dict[str, Any]]] = []
    status = 200

    def do_POST(self) -> None:
        self.received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(type(self).status)
        self.end_headers()

    def log_message(self, *_args: Any) -> None:
        """Log nothing."""


class _Mail(socketserver.StreamRequestHandler):
    received: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 test\r\n")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go\r\n")
                self.received.append(b"".join(iter(self.rfile.readline, b".\r\n")))
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")


@pytest.fixture
def servers() -> Iterator[tuple[int, int]]:
    """Run a webhook and a mail server of this machine. Return their ports."""
    running = [HTTPServer(("127.0.0.1", 0), _Hook), socketserver.TCPServer(("127.0.0.1", 0), _Mail)]
    for server in running:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    yield running[0].server_address[1], running[1].server_address[1]
    for server in running:
        server.shutdown()
        server.server_close()


def test_real_receivers_get_the_message_and_no_answer_contains_the_address(
    servers: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    hook, mail = servers
    channel = add_channel()
    assert not try_channel(channel, actor=ACTOR)
    assert channel.test_result == f"{VARIABLE} is not set in this process."
    monkeypatch.setenv(VARIABLE, f"json://user:secret@127.0.0.1:{hook}/path")
    assert try_channel(channel, actor=ACTOR)
    assert _Hook.received[-1]["title"] == "Test of channel pager"
    _Hook.status = 502
    failure = send(VARIABLE, Message("t", "x"))
    _Hook.status = 200
    assert failure == "The receiver did not accept the message."
    monkeypatch.setenv(VARIABLE, "not an address")
    assert send(VARIABLE, Message("t", "x")) == f"{VARIABLE} is not an Apprise URL."
    monkeypatch.setenv(VARIABLE, f"mailto://127.0.0.1:{mail}?from=headway@example.com&to=you@example.com")
    assert send(VARIABLE, Message("Incident 3 opened", "A sentence.")) == ""
    assert b"Incident 3 opened" in _Mail.received[-1]
    assert send("PATH", Message("t", "x")) == "PATH is not set in this process."
    recorded = json.dumps(list(AuditEvent.objects.values_list("before", "after", "why")), default=str)
    assert "secret" not in recorded
