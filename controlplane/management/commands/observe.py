"""`manage.py observe`: reports the requests that another proxy has routed, from its access log, to a gateway."""

from __future__ import annotations

import os
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from gateway.api.access_log import FORMATS, SkippedLineError, observation_of

BATCH = 200
_TIMEOUT_S = 30.0
_PAUSE_S = 0.5
_TRIES = 5


class GatewayRejectsError(RuntimeError):
    """The gateway accepts no observations. The message explains why."""


@dataclass(slots=True)
class Tally:
    """Counts of lines by outcome."""

    accepted: int = 0
    rejected: int = 0
    skipped: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    """Reason for skipping or rejecting lines → number of lines."""

    def note(self, reason: str) -> None:
        """Count one reason. Only the first 50 distinct reasons are counted."""
        if reason in self.reasons or len(self.reasons) < 50:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1


def observe_log(path: Path, url: str, key: str, model: str, *, follow: bool = False) -> Iterator[Tally]:
    """Send the log's requests to the gateway, and yield the counts after each batch. `follow` continues as the log
    grows.

    A rotated log is opened again. Raises GatewayRejectsError, and OSError if the log is unreadable.
    """
    tally = Tally()
    batch: list[bytes] = []
    for line in _lines(path, follow=follow):
        if line is not None:
            try:
                batch.append(msgspec.json.encode(observation_of(line, model)))
            except SkippedLineError as error:
                tally.skipped += 1
                tally.note(f"skipped: {error}")
        if len(batch) >= BATCH or (line is None and batch):
            _send(batch, url, key, tally)
            batch = []
            yield tally
    if batch:
        _send(batch, url, key, tally)
    yield tally


def _send(batch: list[bytes], url: str, key: str, tally: Tally) -> None:
    """Send one batch.

    If the gateway is unavailable or limits the rate, retry the remaining lines a few times after a pause.
    """
    failures = 0
    while batch:
        try:
            said, pause_s = _post(batch, url, key)
        except urllib.error.HTTPError as error:
            failures, pause_s = failures + 1, _retry_after_s(error.headers)
            message = _message(error)
            if error.code == 400 and message.startswith("No line was accepted"):
                tally.rejected += len(batch)
                tally.note(f"rejected: {message}")
                return
            if error.code not in (429, 503) or failures == _TRIES:
                raise GatewayRejectsError(f"{url} answered {error.code}: {message}") from error
        except urllib.error.URLError as error:
            failures, pause_s = failures + 1, 0.0
            if failures == _TRIES:
                raise GatewayRejectsError(f"{url} cannot be reached: {error.reason}") from error
        else:
            failures, batch = 0, _count_answer(batch, said, tally)
        if batch:
            time.sleep(max(pause_s, _PAUSE_S * 2**failures))


def _post(batch: list[bytes], url: str, key: str) -> tuple[dict[str, Any], float]:
    """Send one batch, and return the gateway's response and the seconds of its Retry-After."""
    request = urllib.request.Request(  # noqa: S310 - the operator's own address
        f"{url.rstrip('/')}/api/v1/observe",
        data=b"\n".join(batch),
        headers={"authorization": f"Bearer {key}", "content-type": "application/x-ndjson"},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - as above
        return msgspec.json.decode(answer.read()), _retry_after_s(answer.headers)


def _count_answer(batch: list[bytes], said: dict[str, Any], tally: Tally) -> list[bytes]:
    """Count the lines by outcome, and return the lines that the gateway did not read."""
    read = said.get("resend_from", len(batch) + 1) - 1
    tally.accepted += said["accepted"]
    tally.rejected += read - said["accepted"]
    for item in said["problems"]:
        if item["line"] <= read:
            tally.note(f"rejected: {item['message']}")
    return batch[read:]


def _retry_after_s(headers: Message) -> float:
    text = headers.get("retry-after", "")
    return float(text) if text.isdecimal() else 0.0


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(msgspec.json.decode(error.read())["error"]["message"])
    except (msgspec.DecodeError, KeyError, TypeError, UnicodeDecodeError):
        return "no reason given"


def _lines(path: Path, *, follow: bool) -> Iterator[bytes | None]:
    """Yield the log's lines, and None at its current end if `follow` is set."""
    file = path.open("rb")
    try:
        rest = b""
        while True:
            line = file.readline()
            if line.endswith(b"\n"):
                yield rest + line
                rest = b""
                continue
            rest += line
            if not follow:
                if rest:
                    yield rest
                return
            yield None
            time.sleep(_PAUSE_S)
            if _is_rotated(path, file):
                file.close()
                file, rest = path.open("rb"), b""
    finally:
        file.close()


def _is_rotated(path: Path, file: BinaryIO) -> bool:
    try:
        return path.stat().st_size < file.tell()
    except FileNotFoundError:
        return False


class Command(BaseCommand):
    """Reads the log and posts to /api/v1/observe. The API key comes from HEADWAY_API_KEY, never from an argument."""

    help = "Report requests that a proxy routed to an observe-only pool, from the proxy's access log (docs/observe.md)."
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the arguments."""
        parser.add_argument("--access-log", type=Path, required=True, help="Access log to read.")
        parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="Format of its lines.")
        parser.add_argument("--model", required=True, help="Served model, if the lines do not name it.")
        parser.add_argument("--url", default="http://127.0.0.1:8000", help="URL of the gateway.")
        parser.add_argument("--follow", action="store_true", help="Follow the log as it grows.")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Read and report the log until it ends."""
        key = os.environ.get("HEADWAY_API_KEY", "")
        if not key:
            raise CommandError("Set HEADWAY_API_KEY to an API key with the scope route.")
        tally = None
        try:
            for tally in observe_log(
                options["access_log"], options["url"], key, options["model"], follow=options["follow"]
            ):
                if options["follow"]:
                    self.stdout.write(f"{tally.accepted} accepted, {tally.rejected} rejected, {tally.skipped} skipped")
        except OSError as error:
            raise CommandError(f"{options['access_log']} cannot be read: {error.strerror}") from error
        except GatewayRejectsError as error:
            raise CommandError(str(error)) from error
        except KeyboardInterrupt:
            return
        if tally is not None:
            self.stdout.write(f"{tally.accepted} accepted, {tally.rejected} rejected, {tally.skipped} skipped")
            for reason, number in sorted(tally.reasons.items(), key=lambda item: -item[1]):
                self.stdout.write(f"  {number} × {reason}")
