"""Parses request bodies as JSON within limits, and reports every error to the client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from rest_framework.parsers import BaseParser
from typing_extensions import override

from controlplane.platform.api.problem import ProblemError
from gateway.server.http.json_body import decode_object, reject_nul


class StrictJsonParser(BaseParser):
    """Accepts JSON objects. Depth, size, and strings have the same limits as in the gateway's decision API."""

    media_type = "application/json"

    @override
    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the object. Raises BadBodyError, and ProblemError if the body is too large."""
        limit: int = settings.MAX_BODY_BYTES
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise ProblemError(413, f"The body is larger than {limit} bytes; send less at once.")
        value = decode_object(body)
        # PostgreSQL takes no NUL, neither in a text nor in JSON.
        reject_nul(body)
        return value


class MergePatchParser(StrictJsonParser):
    """The same parser for the media type of a JSON merge patch, for PATCH."""

    media_type = "application/merge-patch+json"
