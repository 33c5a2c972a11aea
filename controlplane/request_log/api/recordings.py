"""`/api/v1/recordings`."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import IO, Any

from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.parsers import BaseParser
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet.visibility import named_pool
from controlplane.platform.api.listing import Listing, exact, one_of
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape, Text
from controlplane.platform.api.views import ApiView, Deletable, Listed, by_method, taken_why
from controlplane.platform.field_problems import problem
from controlplane.platform.format import one_line
from controlplane.request_log.models.recording import Origin, Recording
from controlplane.request_log.recordings.kept_traces import RecordingGoneError, recording_store
from controlplane.request_log.recordings.lifecycle import (
    MAX_NAME,
    NoRoomError,
    delete_recording,
    record_window,
    upload_recording,
    visible_recordings,
)
from controlplane.request_log.recordings.upload import MAX_UPLOAD_BYTES, BadTraceError


class TraceParser(BaseParser):
    """Accepts JSON lines without parsing them; they are parsed later."""

    media_type = "application/x-ndjson"

    @override
    def parse(
        self, stream: IO[bytes], media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, bytes]:
        """Return the body under `trace`. Raises ProblemError if it is too large."""
        body = stream.read(MAX_UPLOAD_BYTES + 1)
        if len(body) > MAX_UPLOAD_BYTES:
            raise ProblemError(
                413, f"The body is larger than {MAX_UPLOAD_BYTES} bytes; compress it with gzip or send a part."
            )
        return {"trace": body}


class PackedTraceParser(TraceParser):
    """The same parser for gzip-compressed lines."""

    media_type = "application/gzip"


class UnnamedTraceParser(TraceParser):
    """The same parser for clients that send no content type."""

    media_type = "application/octet-stream"


class RecordingShape(ModelShape):
    """One recording of traffic. Its rows are at `/trace`."""

    author = serializers.CharField(source="author.username", read_only=True, allow_null=True)
    statistics = serializers.DictField(read_only=True)

    class Meta:
        model = Recording
        fields = (
            "id",
            "name",
            "pool",
            "origin",
            "begins_at",
            "ends_at",
            "requests",
            "file_bytes",
            "statistics",
            "author",
            "created_at",
        )


class NewRecording(ChangeBody):
    """A time window of the continuously recorded traffic."""

    pool = Text(max_length=64, help_text="Slug of the pool.")
    begins_at = serializers.DateTimeField(help_text="First arrival.")
    ends_at = serializers.DateTimeField(help_text="Arrivals before this time.")
    name = Text(
        max_length=MAX_NAME, required=False, allow_blank=True, default="", help_text="Empty: named after its window."
    )


PACKED = "application/gzip"


class Recordings(Listed):
    """List recordings, newest first."""

    noun = "recordings"
    shape = RecordingShape
    rows = staticmethod(visible_recordings)
    bodies = by_method(POST=NewRecording)
    listing = Listing(
        {"created_at": ("created_at", "pk")},
        "-created_at",
        {
            "pool": exact("pool__slug", "Slug of the pool."),
            "origin": one_of("origin", Origin.values, "Origin."),
        },
    )

    def post(self, request: Request) -> Response:
        """Store a time window of a pool's traffic."""
        body = self.body()
        why, pool = taken_why(body), named_pool(self.actor, body["pool"])
        try:
            made = record_window(
                pool, body["begins_at"], body["ends_at"], actor=self.actor, name=one_line(body["name"]), why=why
            )
        except NoRoomError as error:
            raise ProblemError(409, str(error)) from error
        return self.show(made, 201)


class RecordingUpload(ApiView):
    """Stores an uploaded trace as a recording."""

    noun = "recordings"
    shape = RecordingShape
    parser_classes = (TraceParser, PackedTraceParser, UnnamedTraceParser)
    bodies = by_method(POST=OpenApiTypes.BINARY)
    answers = by_method(POST=(201, RecordingShape))
    parameters = (
        OpenApiParameter("pool", {"type": "string", "maxLength": 64}, required=True, description="Slug of the pool."),
        OpenApiParameter("name", {"type": "string", "maxLength": MAX_NAME}, description="Name."),
        OpenApiParameter("why", {"type": "string", "maxLength": 200}, description="Reason for the audit."),
    )

    def post(self, request: Request) -> Response:
        """Check every line of a trace in Mooncake's format and store it. Nothing is stored if a line is invalid."""
        asked = self.request.query_params
        pool = named_pool(self.actor, asked.get("pool", ""))
        name = one_line(asked.get("name", ""))
        if len(name) > MAX_NAME:
            raise problem("name", f"Must be at most {MAX_NAME} characters.")
        file = io.BytesIO(self.request.data.get("trace", b""))
        try:
            made = upload_recording(pool, file, actor=self.actor, name=name, why=one_line(asked.get("why", ""))[:200])
        except BadTraceError as error:
            raise ProblemError(400, str(error), error.problems) from error
        except NoRoomError as error:
            raise ProblemError(409, str(error)) from error
        return self.show(made, 201)


class OneRecording(Deletable):
    """One recording."""

    noun = "recordings"
    shape = RecordingShape
    rows = staticmethod(visible_recordings)
    field = "pk"

    @override
    def remove(self, thing: Any, *, expected: int | None, why: str) -> None:
        """Delete the recording and its file."""
        delete_recording(thing, actor=self.actor, why=why)


class RecordingTrace(ApiView):
    """The rows of one recording."""

    noun = "recordings"
    shape = RecordingShape
    answers = by_method(GET=((200, PACKED), OpenApiTypes.BINARY))

    def get(self, request: Request, *, recording: int) -> HttpResponse:
        """Return the trace: JSON lines in Mooncake's format, compressed with gzip."""
        stored = visible_recordings(self.actor).get(pk=recording)
        try:
            content = recording_store().packed(stored.key)
        except RecordingGoneError as error:
            raise ProblemError(404, str(error)) from error
        return packed_trace(stored, content)


def packed_trace(recording: Recording, content: bytes) -> HttpResponse:
    """Return a response that downloads a recording's trace as a file."""
    name = f"headway-{recording.pool.slug}-recording-{recording.pk}.jsonl.gz"
    return HttpResponse(content, content_type=PACKED, headers={"Content-Disposition": f'attachment; filename="{name}"'})
