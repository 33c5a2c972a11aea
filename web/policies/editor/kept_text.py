"""Keeps editor text that could not be stored yet in the person's session."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from django.http import HttpRequest, QueryDict

from controlplane.policies.document.text import MAX_TEXT_BYTES

MAX_POLICIES = 8
"""Maximum number of policies whose text a session keeps; the oldest is dropped first."""

_KEY = "policy_texts"
_FIELDS = ("document", "message", "base", "draft")


def keep(request: HttpRequest, slug: str, posted: QueryDict, text: str, at: datetime) -> None:
    """Keep the typed text until it is stored or discarded. Text too long for a policy is not kept."""
    if len(text.encode(errors="replace")) > MAX_TEXT_BYTES:
        return
    kept = {name: posted.get(name, "")[:MAX_TEXT_BYTES] for name in _FIELDS}
    texts = {name: item for name, item in _texts(request).items() if name != slug}
    # Removed above and added at the end: the first of the table are dropped first.
    texts[slug] = {**kept, "document": text, "at": f"{at:%H:%M:%S}"}
    request.session[_KEY] = dict(list(texts.items())[-MAX_POLICIES:])


def kept_text(request: HttpRequest, slug: str) -> dict[str, str] | None:
    """Return the kept text of the policy, with `at` as a time of day in UTC; None if there is none."""
    return _texts(request).get(slug)


def forget(request: HttpRequest, slug: str) -> None:
    """Drop the kept text of the policy."""
    texts = _texts(request)
    if slug in texts:
        # A new object: Django stores a session in which a value was set, not one in which it was changed.
        request.session[_KEY] = {name: item for name, item in texts.items() if name != slug}


def _texts(request: HttpRequest) -> dict[str, dict[str, str]]:
    stored: Any = request.session.get(_KEY)
    return cast("dict[str, dict[str, str]]", stored) if isinstance(stored, dict) else {}
