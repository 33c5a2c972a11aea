"""`/api/schema/`."""

from __future__ import annotations

from functools import cache
from typing import Any

from django.http import Http404
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.views import ApiView
from controlplane.platform.role import Role


@cache
def _document() -> dict[str, Any]:
    """Return the document, which depends only on the program."""
    # It describes the gateway by the gateway's own modules, which web needs for nothing else.
    from controlplane.platform.api.openapi import openapi_document

    return openapi_document()


class OpenApiDocument(ApiView):
    """Description of all HTTP endpoints of Headway except the pages."""

    schema = None

    def get(self, request: Request) -> Response:
        """Return the OpenAPI 3.1 document."""
        return Response(_document())


class Nothing(ApiView):
    """An unknown address. After authentication, it responds with 404 in the API's format."""

    schema = None
    changes_need = Role.VIEWER

    def get(self, request: Request) -> Response:
        """Respond with 404."""
        raise Http404

    post = put = patch = delete = get
