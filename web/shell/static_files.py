"""Serves the console's static files in one piece.

WhiteNoise hands files out as iterators that block. Under ASGI Django cannot pass such an iterator on: it
reads all of it first, and warns of it once per request. The files of the console are small, so they are read here.
"""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware
from whitenoise.responders import StaticFile


class WholeFileMiddleware(WhiteNoiseMiddleware):
    """WhiteNoise, but each answer holds its whole body."""

    @staticmethod
    def serve(static_file: StaticFile, request: HttpRequest) -> HttpResponse:
        """Return the answer for a static file: whole, part (Range) or not modified, as WhiteNoise decides."""
        found = static_file.get_response(request.method, request.META)
        body = b""
        if found.file is not None:
            with found.file:
                body = found.file.read()
        answer = HttpResponse(body, status=int(found.status))
        del answer["content-type"]
        for name, value in found.headers:
            answer[name] = value
        if found.file is not None:
            # The headers were made at the start; a file built anew since then may have another length.
            answer["Content-Length"] = str(len(body))
        return answer
