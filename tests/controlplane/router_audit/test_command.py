"""`audit-router` from a log to its report."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from controlplane.router_audit.command import main
from simulator.engine_models.engine_profile import EngineProfile
from tests.controlplane.router_audit.logs import conversations, served, write_log

PROFILE = EngineProfile(recompute_last_block=True)


def audit(*arguments: object) -> int:
    return main([str(argument) for argument in arguments], "headway audit-router")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = conversations(150, gap_ms=120)
    return write_log(tmp_path_factory.mktemp("log") / "routed.jsonl", rows, served(rows, "round_robin", PROFILE))


class _Resources(HTMLParser):
    """Collects what a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "data", "action")]
        self.loaded += [tag] * (tag in ("script", "link", "iframe", "img"))


def test_the_report_is_one_file_and_the_same_for_the_same_log(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = tmp_path / "one.html", tmp_path / "new" / "other.html"
    for out in (one, other):
        assert audit("--log", log, "--format", "mooncake", "--engines", 4, "--out", out) == 0
    assert "Headway's default would have answered sooner" in capsys.readouterr().out
    text = one.read_text()
    assert text == other.read_text()
    page = _Resources()
    page.feed(text)
    assert page.loaded == []
    assert not re.search(r"url\(|@import|http", text)
    for heading in ("Causes of regret", "The worst decisions", "What the log did not state", "gpu-1", "150 requests"):
        assert heading in text
    assert "Nothing that an audit uses is missing." in text


def test_a_request_with_markup_in_its_id_is_escaped(tmp_path: Path) -> None:
    lines = ["request_id,time,engine,prompt_tokens,ttft"]
    lines += [f"<script>{number},{number / 10},a,4000,{5 + number}" for number in range(12)]
    log, out = tmp_path / "log.csv", tmp_path / "out.html"
    log.write_text("\n".join([*lines, "broken"]))
    assert audit("--log", log, "--format", "csv", "--engines", 2, "--out", out) == 0
    text = out.read_text()
    assert "&lt;script&gt;" in text
    assert "<script" not in text
    assert "14 lines read, 1 of them unusable." in text
    assert "log.csv:14" in text
    assert "1 cells instead of 5" in text


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--engines", "2"], "--engines 2, but the log names 4 engines: gpu-1, gpu-2, gpu-3, gpu-4; raise the number"),
        (["--engines", "0"], "not between 1 and 512"),
        (["--engines", "no-file"], "no number and no readable file"),
        (["--engines", "4", "--profile", "no-profile"], "cannot read engine profile"),
        (["--engines", "4", "--format", "nginx"], "give one for each"),
        (
            ["--engines", "4", "--slo", "0", "--requests", "x"],
            "--slo: '0' is not a number above 0; --requests: 'x' is not a",
        ),
    ],
)
def test_wrong_options_end_with_2_and_a_remedy(
    arguments: list[str], why: str, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("--log", log, "--format", "mooncake", "--out", tmp_path / "x.html", *arguments) == 2
    assert why in capsys.readouterr().err


def test_a_log_of_another_format_ends_with_2_and_what_its_lines_are(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit("--log", log, "--format", "nginx", "--engines", 4, "--out", tmp_path / "x.html") == 2
    error = capsys.readouterr().err
    assert "no usable request in 150 lines: 150 × request of another path" in error
    assert audit("--log", log, "--format", "csv", "--engines", 4, "--out", tmp_path / "x.html") == 2
    assert "routed.jsonl:1: no header with a column 'time'" in capsys.readouterr().err


def test_a_profile_with_other_blocks_keeps_its_cache_and_the_logs_hits(log: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    options = ("--log", log, "--format", "mooncake", "--engines", 4, "--requests", 60, "--out", out)
    assert audit(*options, "--profile", "h200-8b") == 0
    text = out.read_text()
    assert "from the given profile" in text
    cached = re.findall(r">([\d,]+) cached<", text)
    assert cached
    assert all(int(tokens.replace(",", "")) % 512 == 0 for tokens in cached)


def test_engines_have_further_names_in_a_file(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engines, out = tmp_path / "engines.txt", tmp_path / "out.html"
    engines.write_text("one GPU-1 gpu-2\n\ntwo gpu-3 gpu-4\n")
    options = ("--log", log, "--format", "mooncake", "--engines", engines, "--requests", 40, "--out", out)
    assert audit(*options) == 0
    assert "<th>one</th>" in out.read_text()
    assert "110 later requests not included" in out.read_text()
    engines.write_text("one gpu-1\n")
    assert audit(*options) == 2
    assert "does not list: gpu-2, gpu-3, gpu-4; add them" in capsys.readouterr().err


def test_logs_of_the_same_requests_are_joined_by_their_ids(tmp_path: Path) -> None:
    picks, accesses = [], []
    for number in range(30):
        name, at = {"x-request-id": f"r{number}"}, 1000 + number / 4
        picks.append({**name, "ts": at, "msg": "EPP received request"})
        picks.append({**name, "ts": at, "msg": "Request handled", "endpoint": f"10.0.0.{number % 2 + 1}:8000"})
        accesses.append(
            {
                **name, "start_time": at, "duration": 900, "path": "/v1/chat/completions", "response_code": 200,
                "upstream_host": f"10.0.0.{number % 2 + 1}:8000", "bytes_received": 16000, "session": f"s{number % 5}",
            }
        )  # fmt: skip
    logs = []
    for name, lines in (("epp.json", picks), ("envoy.json", [*accesses, {"path": "/healthz"}])):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
        logs += ["--log", tmp_path / name]
    out = tmp_path / "out.html"
    assert audit(*logs, "--format", "llm-d", "--format", "envoy", "--engines", 2, "--out", out) == 0
    text = out.read_text()
    assert "30 requests" in text
    assert "30 of 30" in text[text.index("Counted prompt length") :]
    assert ">Prompt length<" not in text
    assert "request of another path" in text
    assert "91 lines read" in text


def test_no_part_of_a_prompt_is_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "out.html"
    rows = [f'{number},a,"secret words {number} {"more " * 900}"' for number in range(8)]
    log.write_text("\n".join(["time,engine,prompt", *rows, '9,a,"secret",secret', "secret,a,secret"]))
    assert audit("--log", log, "--format", "csv", "--engines", 2, "--out", out) == 0
    said = capsys.readouterr()
    assert "secret" not in out.read_text() + said.out + said.err
    assert "11 lines read, 2 of them unusable" in out.read_text()
