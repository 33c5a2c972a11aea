"""Input is kept in the session until it is stored, within limits."""

from __future__ import annotations

from datetime import UTC, datetime

from django.http import HttpRequest, QueryDict

from controlplane.platform.format import iso
from controlplane.policies.document.text import MAX_TEXT_BYTES
from web.policies.editor.editing import MAX_POLICIES, forget, keep, kept_text

NOW = datetime(2026, 1, 1, 10, 31, 7, tzinfo=UTC)


def request_with_session() -> HttpRequest:
    request = HttpRequest()
    request.session = {}  # type: ignore[assignment]
    return request


def test_kept_text_is_restored_with_its_time() -> None:
    request = request_with_session()
    keep(request, "p", QueryDict("message=why&base=2&draft=5&csrfmiddlewaretoken=x"), "{oops", NOW)
    kept = kept_text(request, "p")
    assert kept == {"document": "{oops", "message": "why", "base": "2", "draft": "5", "at": iso(NOW.timestamp())}
    forget(request, "p")
    assert kept_text(request, "p") is None


def test_session_holds_a_few_texts_of_limited_size() -> None:
    request = request_with_session()
    keep(request, "long", QueryDict(), "x" * (MAX_TEXT_BYTES + 1), NOW)
    assert kept_text(request, "long") is None
    for number in range(MAX_POLICIES + 1):
        keep(request, f"p{number}", QueryDict(), "{}", NOW)
    assert kept_text(request, "p0") is None
    assert kept_text(request, f"p{MAX_POLICIES}") is not None
