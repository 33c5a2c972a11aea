"""Mask the parts of an answer that differ between runs: ids, times, measured values."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import Any

from typing_extensions import override

STABLE_HEADERS = {
    "allow", "cache-control", "content-type", "content-language", "content-security-policy", "location", "link",
    "referrer-policy", "retry-after", "vary", "www-authenticate", "x-content-type-options", "x-frame-options", "etag",
    "cross-origin-opener-policy",
}  # fmt: skip
"""Headers whose values are compared. Of all others, only the names are compared."""

_PATTERNS = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00)?"), "<time>"),
    (re.compile(r"hw_[A-Za-z0-9_-]+"), "<key>"),
    (re.compile(r"[0-9a-f]{16,}"), "<hex>"),
    (re.compile(r'("(?:created|created_at|sequence_number)": ?)\d+'), r"\1<int>"),
    (re.compile(r"([-.])[A-Za-z0-9_-]{8}\.(js|css|woff2)"), r"\1<hash>.\2"),
)
_PIECE = re.compile(r'("content": ?|"delta": ?|"type": ?"text_delta", ?"text": ?)"((?:[^"\\]|\\.)+)"')
"""A part of a streamed text, in the format of chat completions, responses and messages."""
_MEASURED = re.compile(
    r"(_at|_s|_ms|_us|_age|version|prefix|rate|created|cursor|revision|seed)$|^(id|key_id|at|last4|salt)$"
)
"""Names whose values depend on clocks, change counters, or random numbers."""


def masked(value: Any, name: str = "") -> Any:
    """Return `value` with a placeholder for everything that differs between runs."""
    if isinstance(value, dict):
        return {masked(key): masked(inner, key) for key, inner in value.items()}
    if isinstance(value, list):
        return [masked(inner, name) for inner in value]
    if isinstance(value, str):
        for pattern, word in _PATTERNS:
            value = pattern.sub(word, value)
        return value
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool) and _MEASURED.search(name)):
        return f"<{type(value).__name__}>" if _MEASURED.search(name) or round(value, 3) != value else value
    return value


def body_of(content_type: str, text: str) -> Any:
    """Return a masked body: JSON as values, server-sent events as a list, a page as its outline."""
    if "json" in content_type:
        return masked(json.loads(text))
    if "event-stream" in content_type:
        return stream_of(masked(text))
    if "html" in content_type:
        outline = Outline()
        outline.feed(text)
        return list(outline.lines)
    return masked(text).splitlines()


def stream_of(text: str) -> dict[str, Any]:
    """Return the text of a stream, and each kind of event once, because the number of tokens per event varies."""
    events = [_PIECE.sub(r'\1"…"', line) for line in text.splitlines() if line]
    pieces = [piece for _, piece in _PIECE.findall(text)]
    return {"text": "".join(pieces), "events": list(dict.fromkeys(events))}


def shape_of(value: Any, depth: int = 3) -> Any:
    """Return only the names in `value` to this depth. A list is represented by its first item."""
    if isinstance(value, dict) and depth:
        return {key: shape_of(inner, depth - 1) for key, inner in value.items()}
    if isinstance(value, list) and depth:
        return [shape_of(inner, depth - 1) for inner in value[:1]]
    return "…"


def series_of(text: str) -> list[str]:
    """Return name and type of every series on a metrics page. Which label values have counts varies."""
    return sorted(line for line in text.splitlines() if line.startswith("# TYPE "))


class Outline(HTMLParser):
    """Collects a page's title, headings, addresses, fields, and custom elements without duplicates, since rows vary."""

    TEXTS = frozenset(("title", "h2", "label", "th", "button"))
    TAGS = TEXTS | {"h1", "a", "form", "input", "select", "textarea", "script", "link", "img"}
    SHOWN = frozenset(("href", "src", "action", "method", "name", "type", "id"))

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, None] = {}
        self._in_text = False

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in_text = tag in self.TEXTS
        if tag in self.TAGS or "-" in tag:
            shown = [
                f'{name}="{re.sub("[0-9]+", "N", masked(value or ""))}"' for name, value in attrs if name in self.SHOWN
            ]
            self.lines[" ".join([tag, *shown])] = None

    @override
    def handle_data(self, data: str) -> None:
        if self._in_text and data.strip():
            self.lines["  " + re.sub("[0-9.]+", "N", " ".join(data.split()))] = None
        self._in_text = False
