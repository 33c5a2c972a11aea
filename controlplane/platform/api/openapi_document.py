"""`/api/schema/`."""

from __future__ import annotations

from functools import cache
from typing import Any

from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.base import ApiView
from controlplane.platform.api.openapi import openapi_document

_document = cache(openapi_document)
"""It follows from the program alone, so that it is made once."""


class OpenApiDocument(ApiView):
    """The description of all of Switchyard's HTTP addresses but the pages."""

    schema = None

    def get(self, request: Request) -> Response:
        """Return the OpenAPI 3.1 document."""
        document: dict[str, Any] = _document()
        return Response(document)
