"""`manage.py observe` reads a log, sends it in batches, and reports its lines by outcome."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import StringIO
from pathlib import Path
from typing import ClassVar

import pytest
from django.core.management import CommandError, call_command

from controlplane.management.commands import observe as observe_command


class Receiver(BaseHTTPRequestHandler):
    """Accepts all lines except those of model "unknown"; responds with 503 `away` times.

    It reads at most `most` lines of a call, and requests a delay before the others.
    """

    away = 0
    most = 1000
    retry_after = "0"
    received: ClassVar[list[tuple[str, int]]] = []

    def do_POST(self) -> None:
        sent = self.rfile.read(int(self.headers["content-length"])).split(b"\n")
        lines = sent[: Receiver.most]
        bad = [line for line in lines if json.loads(line)["request"]["model"] == "unknown"]
        answer = {"accepted": len(lines) - len(bad), "rejected": len(bad), "problems": []}
        status = 200
        if len(lines) < len(sent):
            unread = len(lines) + 1
            answer |= {"rejected": len(sent) - answer["accepted"], "resend_from": unread}  # type: ignore[operator]
            answer["problems"] = [{"line": unread, "message": "This line and the following lines were not read."}]
        if Receiver.away > 0:
            Receiver.away -= 1
            status, answer = 503, {"error": {"message": "No topology."}}  # type: ignore[dict-item]
        elif self.headers["authorization"] != "Bearer hw_key":
            status, answer = 401, {"error": {"message": "Send a valid API key."}}  # type: ignore[dict-item]
        elif len(bad) == len(lines):
            status, answer = 400, {"error": {"message": "No line was accepted. Line 1: No pool."}}  # type: ignore[dict-item]
        else:
            Receiver.received.append((self.path, len(lines)))
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.send_header("retry-after", Receiver.retry_after)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(observe_command, "_PAUSE_S", 0.01)
    monkeypatch.setenv("HEADWAY_API_KEY", "hw_key")
    Receiver.received, Receiver.away, Receiver.most, Receiver.retry_after = [], 0, 1000, "0"
    server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def log(path: Path, count: int, **fields: str) -> Path:
    known = {
        "time": "1795203730.5", "request_time": "2.5", "uri": "/v1/completions", "status": "200",
        "upstream": "10.0.0.2:8000", "request_length": "8400",
    }  # fmt: skip
    path.write_text("".join(json.dumps({**known, **fields}) + "\n" for _ in range(count)))
    return path


def run(url: str, path: Path) -> str:
    out = StringIO()
    call_command("observe", access_log=path, url=url, model="m", stdout=out)
    return out.getvalue()


def test_log_is_sent_in_batches(url: str, tmp_path: Path) -> None:
    path = log(tmp_path / "access.log", 450)
    with path.open("a") as file:
        file.write('{"uri": "/health"}\nnot json\n')
    Receiver.away = 2
    assert run(url, path).splitlines()[0] == "450 accepted, 0 rejected, 2 skipped"
    assert Receiver.received == [("/api/v1/observe", 200), ("/api/v1/observe", 200), ("/api/v1/observe", 50)]


def test_rejected_lines_are_counted_by_reason(url: str, tmp_path: Path) -> None:
    said = run(url, log(tmp_path / "access.log", 3, model="unknown"))
    assert said.startswith("0 accepted, 3 rejected, 0 skipped")
    assert "1 × rejected: No line was accepted. Line 1: No pool." in said


def test_unread_lines_are_sent_again_after_the_requested_delay(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    Receiver.most, Receiver.retry_after = 2, "7"
    said = run(url, log(tmp_path / "access.log", 5))
    assert said.splitlines() == ["5 accepted, 0 rejected, 0 skipped"]
    assert Receiver.received == [("/api/v1/observe", 2), ("/api/v1/observe", 2), ("/api/v1/observe", 1)]
    assert pauses == [7.0, 7.0]


def test_invalid_options_and_logs_are_reported(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CommandError, match="cannot be read: No such file"):
        run(url, tmp_path / "none.log")
    monkeypatch.setenv("HEADWAY_API_KEY", "hw_other")
    with pytest.raises(CommandError, match="answered 401: Send a valid API key"):
        run(url, log(tmp_path / "access.log", 1))
    monkeypatch.delenv("HEADWAY_API_KEY")
    with pytest.raises(CommandError, match="Set HEADWAY_API_KEY"):
        run(url, tmp_path / "access.log")


def test_growing_log_is_followed_through_its_rotation(url: str, tmp_path: Path) -> None:
    path = log(tmp_path / "access.log", 2)
    followed = observe_command.observe_log(path, url, "hw_key", "m", follow=True)
    assert next(followed).accepted == 2
    log(path, 1)
    assert next(followed).accepted == 3
    followed.close()
