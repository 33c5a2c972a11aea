"""Downloads of objects as CSV files."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from controlplane.platform.resource.csv_text import csv_of
from controlplane.platform.resource.resource import Resource
from web.shell.console_request import console_actor


def csv_download(resource: Resource) -> Callable[[HttpRequest], HttpResponse]:
    """Return the view that sends the objects which the person may see."""

    @require_safe
    def view(request: HttpRequest) -> HttpResponse:
        text = csv_of(resource.rows(console_actor(request)), resource.created_fields)
        disposition = {"Content-Disposition": f'attachment; filename="{resource.noun}.csv"'}
        return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=disposition)

    return view
