"""Parses nginx's datagrams: log lines in the format of nginx.conf, and the script's first-token notes."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

_DECISION = re.compile("[0-9a-f-]{36}")
_FIRST = re.compile(rb"headway first_token ([0-9a-f-]{36})\b")
_COUNTS = ("cached_tokens", "output_tokens", "prompt_tokens")


@dataclass(frozen=True, slots=True)
class Report:
    """One feedback call: the decision's id, the verb, and the token counts that the engine reported."""

    decision_id: str
    verb: str
    usage: dict[str, int] = field(default_factory=dict)


def read(datagram: bytes) -> tuple[str, Report | None]:
    """Return (outcome, report to send) for a datagram. The outcome is empty if the datagram ends no request."""
    if match := _FIRST.search(datagram):
        return "", Report(match[1].decode(), "first_token")
    try:
        line = json.loads(datagram[datagram.index(b'{"headway"') :])
        outcome = str(line["headway"])
        return outcome, _end(line) if outcome == "decided" else None
    except (ValueError, KeyError, RecursionError):
        return "", None


def _end(line: dict[str, str]) -> Report:
    # Every process on this machine can write to the socket, and the id becomes part of a URL.
    if not all(isinstance(value, str) for value in line.values()) or not _DECISION.fullmatch(line["decision"]):
        raise ValueError("not an nginx log line")
    status, tried = int(line["status"]), line["upstream"].split(", ")
    usage = {name: int(line[name]) for name in _COUNTS if line[name]}
    if tried and tried[-1] not in ("", line["address"]):
        verb = "fail"  # a backup served it: the chosen engine accepted no connection, or closed it without an answer
    elif status >= 500 or (status < 400 and line["whole"] == "error"):
        verb = "fail"
    elif status >= 400 or not line["whole"]:
        # nginx does not log whether the client broke the answer off, so only probes may judge the engine.
        verb = "cancel"
    else:
        verb = "complete"
    return Report(line["decision"], verb, usage if verb == "complete" else {})
