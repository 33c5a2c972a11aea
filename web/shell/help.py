"""Help: what each page shows, the glossary, the API reference, and a summary for language models."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST

from web.shell.api_examples import curl_options, url_path
from web.shell.frame import NAVIGATION, TOUR, TOUR_PAGES, program_version, shell_context

_VERBS = ("get", "post", "put", "patch", "delete")


@dataclass(frozen=True, slots=True)
class ApiCallRow:
    """One operation of the API; `body` lists the fields of its JSON body, with a * behind required ones."""

    verb: str
    path: str
    summary: str
    detail: str
    parameters: tuple[str, ...]
    body: tuple[str, ...]
    url_path: str
    curl: tuple[str, ...]
    """Options of a curl command."""


def help_page(request: HttpRequest) -> HttpResponse:
    """Return what each page shows, and the glossary."""
    return render(request, "shell/help.html", shell_context(request, page="Help", tab="pages", tabs=_TABS))


def api_reference(request: HttpRequest) -> HttpResponse:
    """Return all operations of the API by group."""
    page = shell_context(
        request, page="Help", tab="api", tabs=_TABS, groups=api_calls(), base=request.build_absolute_uri("/")[:-1]
    )
    return render(request, "shell/api_reference.html", page)


@require_POST
def tour(request: HttpRequest) -> HttpResponse:
    """Open the page of the tour's next step; without a step, end the tour and return to the page that it was on."""
    step, back = request.POST.get("step", ""), request.POST.get("back", "")
    request.session[TOUR] = step if step in TOUR_PAGES else ""
    here = back if url_has_allowed_host_and_scheme(back, allowed_hosts=None) else "/"
    return redirect(TOUR_PAGES.get(step, here))


@login_not_required
def llms_txt(request: HttpRequest) -> HttpResponse:
    """Return a summary of Headway's interfaces for language models (llmstxt.org). It needs no session."""
    context = {"groups": NAVIGATION, "version": program_version(), "calls": api_calls()}
    return render(request, "shell/llms.txt", context, content_type="text/plain; charset=utf-8")


_TABS = (("pages", "Pages and glossary", "/help"), ("api", "API reference", "/help/api"))


@cache
def api_calls() -> dict[str, list[ApiCallRow]]:
    """Return the operations in the OpenAPI document by their first tag."""
    # Only these pages need the generator, which imports every API module.
    from controlplane.platform.api.openapi import openapi_document

    document = openapi_document()
    groups: dict[str, list[ApiCallRow]] = {}
    for path, operations in sorted(document["paths"].items()):
        for verb in _VERBS:
            if verb in operations:
                operation = operations[verb]
                group = (operation.get("tags") or ["other"])[0].replace("_", " ")
                groups.setdefault(group, []).append(_row(verb, path, operation, document))
    return dict(sorted(groups.items(), key=lambda group: group[0].lower()))


def _row(verb: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> ApiCallRow:
    text = str(operation.get("summary") or operation.get("description") or "")
    summary, _, detail = text.partition("\n")
    named = [item["name"] for item in operation.get("parameters", ()) if "name" in item and item["in"] == "query"]
    content = operation.get("requestBody", {}).get("content", {})
    schema = next((item.get("schema", {}) for item in content.values()), {})
    return ApiCallRow(
        verb.upper(),
        path,
        summary,
        detail.strip(),
        tuple(named),
        _fields(schema, document),
        url_path(path, operation),
        tuple(curl_options(path, verb, operation, document)),
    )


def _fields(schema: dict[str, Any], document: dict[str, Any]) -> tuple[str, ...]:
    if "$ref" in schema:
        schema = document["components"]["schemas"].get(schema["$ref"].rpartition("/")[2], {})
    needed = schema.get("required", ())
    return tuple(f"{name}*" if name in needed else name for name in schema.get("properties", {}))
