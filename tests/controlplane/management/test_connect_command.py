"""`manage.py connect` against real simulated engines, without a running server."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from django.core.management import call_command
from pytest_django.fixtures import Settings

from bench.live.loopback_ports import free_ports
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.api_key import ApiKey, hash_api_key
from gateway.bus.bus import Bus
from tests.controlplane.automation.actuators.http_exchange import http_server
from tests.controlplane.simulated_engine import SimulatedEngine

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.processes]

Start = Callable[..., SimulatedEngine]


@pytest.fixture
def start(bus: Bus, settings: Settings) -> Iterator[Start]:
    settings.ALLOW_LOOPBACK_ENGINES = True
    running: list[SimulatedEngine] = []

    def start_one(**how: object) -> SimulatedEngine:
        engine = SimulatedEngine(**how)  # type: ignore[arg-type]
        engine.start()
        running.append(engine)
        return engine

    yield start_one
    for engine in running:
        engine.stop()


def connect(*urls: str, **options: object) -> tuple[int, str]:
    """Run the command; return its exit status and output."""
    said = StringIO()
    try:
        call_command("connect", *urls, stdout=said, **{"port": free_ports(1)[0], **options})
    except SystemExit as end:
        return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


def test_two_engines_are_routed_exactly_and_the_first_request_is_printed(start: Start) -> None:
    engines = start(block_tokens=32), start(block_tokens=32)
    status, said = connect(*(engine.url for engine in engines))
    assert status == 0
    assert said.count("Routing exactly.") == 2
    assert said.count("new pool m-8b") == 1
    pool = Pool.objects.get()
    assert (pool.block_tokens, {engine.desired_state for engine in Engine.objects.all()}) == (32, {"ready"})
    assert "Headway does not answer" in said
    key = re.search(r"API key \(shown once\): (hw_\S+)", said)
    assert key is not None
    assert ApiKey.objects.filter(sha256=hash_api_key(key[1])).exists()
    assert f"Authorization: Bearer {key[1]}" in said


def test_outcome_as_json_is_alone_on_standard_output(start: Start) -> None:
    engine, lines = start(block_tokens=32), StringIO()
    status, said = connect(engine.url, "http://10.255.255.1:9", json=True, stderr=lines)
    outcome = json.loads(said)
    assert (status, outcome["failed"], outcome["serving"][0]["url"]) == (1, ["http://10.255.255.1:9"], engine.url)
    assert "Routing exactly." in lines.getvalue()


def test_engine_with_another_block_size_is_rejected_and_the_others_are_connected(start: Start) -> None:
    good, odd, late = start(), start(block_tokens=32), start()
    status, said = connect(good.url, odd.url, late.url)
    assert status == 1
    assert said.count("Routing exactly.") == 2
    assert "→ Start it with --block-size 16" in said
    assert set(Engine.objects.values_list("url", flat=True)) == {good.url, late.url}


def test_engine_that_requires_a_key_names_the_variable(start: Start, settings: Settings) -> None:
    engine = start(extra=("--api-key", "engine-secret"))
    status, said = connect(engine.url)
    assert (status, "Set HEADWAY_ENGINE_API_KEY to its key" in said) == (1, True)
    settings.ENGINE_API_KEY = "engine-secret"
    status, said = connect(engine.url)
    assert (status, "engine-secret" in said) == (0, False)


def test_without_events_the_command_estimates_if_requested(start: Start) -> None:
    engine = start(events=False)
    assert "Start command, as far as" in connect(engine.url)[1]
    status, said = connect(engine.url, approximate=True)
    assert (status, "Routing by estimated hits." in said) == (0, True)


def test_engine_text_is_printed_without_control_characters(start: Start) -> None:
    _, said = connect(start(model="evil\x1b[2J", events=False).url)
    assert "serves evil [2J." in said
    assert "\x1b" not in said


def test_address_is_allowed_by_a_prompt_or_by_yes(
    start: Start, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ENGINE_NETWORKS = ()
    answers = StringIO("n\n")
    monkeypatch.setattr(sys, "stdin", answers)
    status, said = connect("http://10.255.255.1:9")
    assert (status, "Repeat with --yes." in said) == (1, True)
    monkeypatch.setattr(answers, "isatty", lambda: True)
    status, said = connect("http://10.255.255.1:9")
    assert (status, "[y/N]" in said, "The address is not allowed." in said) == (1, True, True)
    assert not Pool.objects.exists()


def test_failed_preflight_prints_the_remedy_and_keeps_the_engine_out_of_service(start: Start) -> None:
    mine, other = start(), start()
    connect(mine.url)
    Pool.objects.update(max_prompt_tokens=10_000_000)
    status, said = connect(other.url)
    assert (status, "✗ Its context length is" in said, "→ Start it with --max-model-len" in said) == (1, True, True)
    assert Engine.objects.get(url=other.url).desired_state == "maintenance"


def test_key_of_the_running_gateway_is_tested(start: Start, settings: Settings) -> None:
    settings.ENGINE_API_KEY = "engine-secret"
    engine = start(extra=("--api-key", "engine-secret"))

    def answer(_method: str, _path: str, _headers: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        (name,) = Engine.objects.values_list("engine_id", flat=True)
        states = f'headway_engine_state{{engine="{name}",state="degraded"}} 1.0\n'
        return 200, (states + f'headway_engine_rejects_key{{engine="{name}"}} 1.0\n').encode()

    with http_server(answer) as (url, _):
        status, said = connect(engine.url, port=int(url.rsplit(":", 1)[1]))
    assert status == 1
    assert "reject the running gateway's key" in said
    assert "→ Set HEADWAY_ENGINE_API_KEY of the gateways" in said
    assert "Ask:" not in said


def test_gateway_accepts_the_printed_key(start: Start) -> None:
    engine = start(block_tokens=32)
    rejections = [401, 401]
    keys: list[str] = []

    def answer(_method: str, path: str, headers: dict[str, str], _body: bytes) -> tuple[int, bytes]:
        if path == "/metrics":
            ids = Engine.objects.values_list("engine_id", flat=True)
            lines = [f'headway_engine_state{{engine="{id_}",state="serving"}} 1.0' for id_ in ids]
            return 200, "\n".join(lines).encode()
        keys.append(headers.get("authorization", ""))
        return (rejections.pop(), b"") if rejections else (200, b"{}")

    with http_server(answer) as (url, _):
        said = StringIO()
        call_command("connect", engine.url, stdout=said, port=int(url.rsplit(":", 1)[1]))
    key = re.search(r"API key \(shown once\): (hw_\S+)", said.getvalue())
    assert key is not None
    assert keys == [f"Bearer {key[1]}"] * 3
