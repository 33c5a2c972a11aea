"""The golden set: two runs produce the same files, and a difference is printed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client
from typing_extensions import override

from bench.golden import surface
from bench.golden.__main__ import compare
from bench.golden.asker import Asker
from bench.golden.exchanges import exchanges
from bench.golden.masks import body_of, masked, series_of
from bench.golden.questions import ask_api, ask_samples, ask_trials


@dataclass
class DjangoAsker(Asker):
    """Calls Django's views in this process."""

    client: Client = field(default_factory=Client)

    @override
    def ask(
        self, method: str, path: str, body: Any = None, key: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key:
            sent["Authorization"] = f"Bearer {self.keys[key]}"
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        answer = self.client.generic(method, path, data, sent.pop("Content-Type"), headers=sent)
        return answer.status_code, {name.lower(): value for name, value in answer.items()}, answer.content.decode()


def test_two_runs_produce_the_same_surface(tmp_path: Path) -> None:
    for part in (surface.openapi, lambda: surface.metrics(tmp_path), lambda: surface.urls(tmp_path)):
        assert part() == part()


def test_metrics_are_listed_with_labels_before_they_are_counted(tmp_path: Path) -> None:
    labels = {metric["name"]: metric["labels"] for metric in surface.metrics(tmp_path)}
    assert list(labels["headway_decisions"]) == ["pool", "placement", "reason"]
    assert "headway_bus_connected" in labels and "headway_jobs_wake_up_age_seconds" in labels


def test_urls_include_pages_api_sockets_and_gateway(tmp_path: Path) -> None:
    urls = surface.urls(tmp_path)
    assert ["policies/<slug:slug>/publish", "policy-publish"] in urls["pages and API"]
    assert ["api/v1/pools", ""] in urls["pages and API"]
    assert ["/api/v1/route", "POST"] in urls["gateway"]
    assert urls["websockets"]


@pytest.mark.django_db
def test_schema_has_every_table() -> None:
    tables = [item for item in surface.database_schema() if item.startswith("CREATE TABLE")]
    assert any('"controlplane_pool"' in table for table in tables)


def test_responses_that_differ_only_in_ids_and_times_are_equal() -> None:
    def answer(number: int) -> dict[str, object]:
        uuid = f"01234567-89ab-7cde-8f01-23456789abc{number}"
        return {"id": uuid, "at": f"2027-01-0{number}T10:00:00Z", "created": number, "wait_s": number / 3, "blocks": 4}

    assert masked(answer(1)) == masked(answer(2))
    assert masked({"blocks": 4, "ttft": 0.5, "name": "e1"}) == {"blocks": 4, "ttft": 0.5, "name": "e1"}


def test_stream_is_equal_however_its_tokens_are_chunked() -> None:
    def stream(*texts: str) -> str:
        events = [json.dumps({"choices": [{"delta": {"content": text}}]}) for text in texts]
        return "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])

    one, other = (body_of("text/event-stream", stream(*texts)) for texts in (("a b ", "c"), ("a ", "b ", "c")))
    assert one == other
    assert one["text"] == "a b c"
    assert one != body_of("text/event-stream", stream("a b d"))


@pytest.mark.parametrize(
    "event",
    [
        'data: {{"type":"response.output_text.delta","sequence_number":{number},"delta":"{text}"}}',
        'data: {{"type":"content_block_delta","index":0,"delta":{{"type":"text_delta","text":"{text}"}}}}',
    ],
    ids=["responses", "messages"],
)
def test_streams_of_other_apis_are_equal_however_chunked(event: str) -> None:
    def stream(*texts: str) -> str:
        return "".join(event.format(number=number, text=text) + "\n\n" for number, text in enumerate(texts))

    one, other = (body_of("text/event-stream", stream(*texts)) for texts in (("a b ", "c"), ("a ", "b ", "c")))
    assert one == other
    assert one["text"] == "a b c"


@pytest.mark.django_db
def test_api_requests_match_its_schema() -> None:
    asker = DjangoAsker(0)
    scopes = {"viewer": ["manage"], "operator": ["manage"], "admin": ["infer", "route", "manage"]}
    for role, own in scopes.items():
        call_command("create_api_key", "--all-pools", "--role", role, "--scopes", *own, stdout=(key := StringIO()))
        asker.keys[role] = key.getvalue().strip()
    call_command("create_api_key", stdout=(key := StringIO()))
    asker.keys["infer"] = key.getvalue().strip()
    ask_api(asker, "http://127.0.0.1:9")
    ask_samples(asker)
    ask_trials(asker)
    statuses = [item["status"] for item in asker.seen]
    assert max(statuses) < 500
    assert sum(status < 300 for status in statuses) > len(statuses) / 2


@pytest.mark.processes
@pytest.mark.thorough
def test_program_answers_every_recorded_request(tmp_path: Path) -> None:
    seen = exchanges(tmp_path, ports_from=18_480)
    statuses = [item["status"] for item in seen]
    assert len(statuses) > 250
    assert [status for status in statuses if status >= 500] == [503, 503], "of the pool that has no engine"
    assert sum(status < 300 for status in statuses) > len(statuses) / 2


def test_series_are_listed_without_values() -> None:
    page = '# HELP x X.\n# TYPE x gauge\nx{pool="p"} 3.0\n# TYPE a counter\na 1.0\n'
    assert series_of(page) == ["# TYPE a counter", "# TYPE x gauge"]


def test_difference_is_printed_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder, value in (("old", "1\n2\n"), ("new", "1\n3\n"), ("same", "1\n2\n")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "urls.json").write_text(value)
    assert compare(tmp_path / "old", tmp_path / "same", ["urls"]) == 0
    assert compare(tmp_path / "old", tmp_path / "new", ["urls"]) == 1
    assert "-2\n+3" in capsys.readouterr().out
    assert compare(tmp_path / "old", tmp_path / "new", ["metrics"]) == 1
