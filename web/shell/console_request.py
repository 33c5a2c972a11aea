"""The actor, query and form fields of a console request, and the redirect after a change."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import urlencode

from django.core.paginator import Page, Paginator
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from controlplane.platform.actor import CONSOLE, Actor
from controlplane.platform.format import one_line
from controlplane.platform.request_actor import actor_of

_NO_WORDS: Mapping[str, str] = {}
Listed = TypeVar("Listed", bound=Model)


def console_actor(request: HttpRequest) -> Actor:
    """Return the actor of the request."""
    return actor_of(request, CONSOLE)


def go(address: str, **parameters: str) -> HttpResponse:
    """Return the redirect that follows a change."""
    answer = HttpResponseRedirect(with_query(address, **parameters))
    # The browser then gets the page, and a reload does not send the form again.
    answer.status_code = 303
    return answer


def with_query(address: str, **parameters: object) -> str:
    """Return the URL with the parameters that are neither None nor empty."""
    query = kept(**parameters).removesuffix("&")
    return f"{address}?{query}" if query else address


def kept(**parameters: object) -> str:
    """Return the given parameters as the start of a query string, to which a link adds more."""
    query = urlencode({name: value for name, value in parameters.items() if value not in (None, "")})
    return f"{query}&" if query else ""


def filter_chips(
    address: str, given: Mapping[str, str], labels: Mapping[str, str], words: Mapping[str, str] = _NO_WORDS
) -> list[dict[str, str]]:
    """Return each condition of a filter: its label, its value in words if known, and the URL without the condition."""
    return [
        {
            "name": labels.get(name, name),
            "value": words.get(name, value),
            "without": with_query(address, **{other: text for other, text in given.items() if other != name}),
        }
        for name, value in given.items()
    ]


def asked(request: HttpRequest, name: str, limit: int = 200) -> str:
    """Return a query parameter as one short line without NUL characters, which no database accepts."""
    return one_line(request.GET.get(name, ""))[:limit]


def sent(request: HttpRequest, name: str, limit: int = 400) -> str:
    """Return a form field as one line, cut to `limit` characters; the field's own limit reports excess length."""
    return one_line(request.POST.get(name, ""))[:limit]


def sent_or_asked(request: HttpRequest, name: str) -> str:
    """Return a submitted form field, or else the query parameter of that name."""
    return sent(request, name) if request.method == "POST" else asked(request, name)


def why(request: HttpRequest) -> str:
    """Return the typed reason for the audit log."""
    return sent(request, "why", 200)


def typed_fields(request: HttpRequest) -> dict[str, list[str]]:
    """Return all values of each field in the submitted form."""
    return {name: request.POST.getlist(name) for name in request.POST}


def row_number(text: str | None, digits: int = 17) -> int | None:
    """Return the number in the text; None if it is not a number, or has more digits than a row id can have."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) <= digits else None


def listed(request: HttpRequest, matches: QuerySet[Listed], rows: int = 40) -> Page[Listed]:
    """Return the page of a list that the URL names."""
    return Paginator(matches, rows).get_page(request.GET.get("page"))
