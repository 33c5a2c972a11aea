"""`/api/schema/`."""

from __future__ import annotations

from functools import cache
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.base import ApiView


@cache
def _document() -> dict[str, Any]:
    """Return the document, which follows from the program alone."""
    # It describes the gateway by the gateway's own modules, which web needs for nothing else.
    from controlplane.platform.api.openapi import openapi_document

    return openapi_document()


class OpenApiDocument(ApiView):
    """The description of all of Switchyard's HTTP addresses but the pages."""

    schema = None

    def get(self, request: Request) -> Response:
        """Return the OpenAPI 3.1 document."""
        return Response(_document())
