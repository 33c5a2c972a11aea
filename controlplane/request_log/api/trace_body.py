"""Reads request bodies that are traces: JSON lines, packed or not, within a size of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework.parsers import BaseParser
from typing_extensions import override

from controlplane.platform.api.problem import ProblemError
from controlplane.request_log.recordings.upload import MAX_UPLOAD_BYTES


class TraceParser(BaseParser):
    """Takes JSON lines as they are; they are read later."""

    media_type = "application/x-ndjson"

    @override
    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, bytes]:
        """Return the body under `trace`; raises ProblemError for one that is too large."""
        body = stream.read(MAX_UPLOAD_BYTES + 1)
        if len(body) > MAX_UPLOAD_BYTES:
            raise ProblemError(
                413, f"The body is larger than {MAX_UPLOAD_BYTES} bytes; compress it with gzip or send a part."
            )
        return {"trace": body}


class PackedTraceParser(TraceParser):
    """The same, packed with gzip."""

    media_type = "application/gzip"


class UnnamedTraceParser(TraceParser):
    """The same, from clients that do not say what they send."""

    media_type = "application/octet-stream"
