"""The example chat keeps its address and does not change other origins."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from controlplane.access.api_keys import change_api_key
from controlplane.platform.actor import program
from controlplane.platform.models.api_key import ApiKey
from controlplane.project.first_run import seed as first_run
from controlplane.project.first_run.demo_chat import seed_demo_chat
from controlplane.project.first_run.secrets import FirstRunSecrets, secrets_of
from controlplane.publication.snapshot import build_snapshot
from gateway.bus.bus import Bus

pytestmark = pytest.mark.django_db
PORTS_FROM = 18840
ADDED = "https://chat.example.com"


@pytest.fixture
def secrets(tmp_path: Path, bus: Bus) -> FirstRunSecrets:
    made = secrets_of(tmp_path)
    first_run.seed(made, demo=True)
    return made


def test_demo_key_allows_the_origin_of_the_chat_which_keeps_its_port(secrets: FirstRunSecrets) -> None:
    origin = seed_demo_chat(secrets, ports_from=PORTS_FROM)
    assert origin.startswith("http://127.0.0.1:")
    assert [key.origins for key in build_snapshot(at=0.0).api_keys] == [(origin,)]
    assert seed_demo_chat(secrets, ports_from=PORTS_FROM + 50) == origin


def test_added_origins_are_kept_when_the_chat_moves(secrets: FirstRunSecrets) -> None:
    key = ApiKey.objects.get()
    change_api_key(key, {"origins": [ADDED]}, actor=program("test"))
    first = seed_demo_chat(secrets, ports_from=PORTS_FROM)
    assert ApiKey.objects.get().origins == [first, ADDED]
    with socket.socket() as other:
        other.bind(("127.0.0.1", int(first.rpartition(":")[2])))
        other.listen()
        moved = seed_demo_chat(secrets, ports_from=PORTS_FROM)
    assert moved != first
    assert ApiKey.objects.get().origins == [moved, ADDED]


def test_without_its_key_no_chat_starts(secrets: FirstRunSecrets) -> None:
    ApiKey.objects.update(sha256="0" * 64)
    assert seed_demo_chat(secrets, ports_from=PORTS_FROM) == ""
